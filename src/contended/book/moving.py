# SPDX-License-Identifier: MIT
"""Sphinx extension: the `moving-picture` directive, what the book is about at one glance.

Each CPU of a machine is a square, filled while it works and empty while it waits for a cache line,
a ring. Before the fix the line goes from CPU to CPU; with it nobody needs the line. How many wait,
and how fast operations add up, are those of a case's recorded sweep, slowed down by one factor.
The page's style sheet moves it, and holds it still for who prefers that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from random import Random
from typing import TYPE_CHECKING

from docutils import nodes

from contended import __version__, register
from contended.book import status
from contended.cases import beyond
from contended.measure.results import number
from contended.simulate import machines

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

SLUG = "overlay-creds"
HOP = 0.5  # seconds that the picture's line stays with a CPU
_COLUMNS, _PITCH, _SIDE = 10, 14, 11  # squares a row; from one to the next, and its side, in px


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a case, with all CPUs of its sweep's machine; rates are operations/s."""

    cpus: int
    before: float
    after: float
    transfers: float  #: of lines, for an operation before the fix
    waiting: float  #: CPUs that wait for a line before the fix, on average
    machine: str


def recorded() -> Shown:
    """The numbers of the recorded sweep; raises ContendedError if there is no record."""
    curve = beyond.load(SLUG)
    box = machines.get(curve.sweep.machine)
    labels = {line.variant: line.label for line in curve.sweep.lines}
    columns = ("ops_per_s", "ops", "wait_ns", "transfers_per_op")
    before, after = (labels[f"files-{variant}"] for variant in ("before", "after"))
    rate, ops, waited, each = (curve.at(before, box.cpus, what) for what in columns)
    return Shown(
        box.cpus, rate, curve.at(after, box.cpus), each, waited / 1e9 * rate / ops, box.title
    )


def html(seen: Shown, chapter: str) -> str:
    """The figure; `chapter` is the address of what it is taken from.

    In a round each CPU has the line once, at an even pace.
    """
    lasts = seen.cpus * HOP
    done = seen.cpus / seen.transfers  # operations in a round, before the fix
    faster = seen.after / seen.before
    order = Random(1).sample(range(seen.cpus), seen.cpus)  # whom the line visits: any order will do
    hops = [f"{100 * n / seen.cpus:g}%{{{_at(cpu)}}}" for n, cpu in enumerate([*order, order[0]])]
    left = f'<path d="{_squares(range(seen.cpus))}"/>'
    for n in range(seen.cpus - round(seen.waiting)):
        late = f"animation-delay:{n * HOP - lasts:g}s"
        left += f'<path class="on" d="{_squares([0])}" style="{_at(order[-n])};{late}"/>'
    around = f'x="-2" y="-2" width="{_SIDE + 4}" height="{_SIDE + 4}" rx="3"'
    left += f'<rect class="line" {around} style="{_at(order[0])}"/>'
    right = ""
    one = lasts * seen.cpus / (done * faster)  # the time of an operation, after the fix
    for n in range(_COLUMNS):
        times = f"animation-duration:{one:.3g}s;animation-delay:{-n * one / _COLUMNS:.3g}s"
        right += f'<path class="own" d="{_squares(order[n::_COLUMNS])}" style="{times}"/>'
    wide, high = _COLUMNS * _PITCH, -(-seen.cpus // _COLUMNS) * _PITCH
    sides = "".join(
        f'<div><strong>{head}</strong><svg viewBox="-3 -3 {wide + 3} {high + 12}">{squares}'
        f'<rect class="bar" y="{high + 3}" height="5" width="{wide * part:.4g}"/></svg>'
        f'<span><b style="--ops:{done * faster * part:.0f}"></b> checks done</span></div>'
        for head, squares, part in (
            ("Before: one line for all", left, 1 / faster),
            ("After: no line to wait for", right, 1.0),
        )
    )
    told = (
        f"{seen.cpus} CPUs check access to files of one overlay, each to its own. Before the fix "
        "each check counts references up and down: the count's cache line goes over "
        f"{number(seen.transfers, 2)} times a check, and {seen.waiting:.0f} of the CPUs wait for "
        "it. With the fix nothing is counted, and none waits."
    )
    rates = " and ".join(f"{number(rate / 1e6, 3)} million" for rate in (seen.before, seen.after))
    ratio = f"{rates} checks a second, {number(faster, 3)} times as many"
    there = f"{number(1e6 * done / seen.before, 2)} µs"
    return (
        f"<style>@keyframes moving-line{{{''.join(hops)}}}</style>"
        f'<figure class="moving" style="--round:{lasts:g}s">'
        f'<div role="img" aria-label="{escape(f"{told} Simulated: {ratio}.")}">{sides}</div>'
        '<label><input type="checkbox"> Pause</label>'
        f"<figcaption>{told} Filled squares are CPUs at work, and pale for a moment when a check "
        "is done; empty ones wait, and the ring is the line. Simulated, for "
        f'{escape(seen.machine)}: {ratio} (<a href="{escape(chapter)}">how</a>; '
        f"<code>results/{SLUG}/simulate.parquet</code>). One round of the picture, {lasts:g} s, "
        f"is {there} there.</figcaption></figure>"
    )


def _at(cpu: int) -> str:
    row, column = divmod(cpu, _COLUMNS)
    return f"transform:translate({column * _PITCH}px,{row * _PITCH}px)"


def _squares(cpus: Iterable[int]) -> str:
    corners = (divmod(cpu, _COLUMNS) for cpu in cpus)
    box = f"h{_SIDE}v{_SIDE}h-{_SIDE}z"
    return "".join(f"M{column * _PITCH} {row * _PITCH}{box}" for row, column in corners)


def _content(app: Sphinx, docname: str) -> list[nodes.Node]:
    chapter = f"notebooks/{register.get(SLUG).notebook}"
    uri = app.builder.get_relative_uri(docname, chapter)
    return [nodes.raw("", html(recorded(), f"{uri}#beyond-this-machine"), format="html")]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    status.add(app, "moving-picture", _content)
    return {"version": __version__, "parallel_read_safe": True, "parallel_write_safe": True}
