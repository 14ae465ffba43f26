# SPDX-License-Identifier: MIT
"""Claims about time: shown where they miss, and never the end of a build.

A chapter claims two kinds of things. What the program's text decides (counts, steps, equal results,
recorded runs, simulations) is asserted: if it does not hold, something is wrong, and the build
stops. What a busy machine can change (ratios of live measurements, latencies, slopes over time,
counts of how often threads met) is claimed with `timed`: if it does not hold in this run, a box
says what was expected, what was measured, and what the recorded run shows.

A box is one element of class `contended-claim` whose `data-holds` is "true" (then it is hidden) or
"false": the book's status page counts them (`contended.book`).
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol, runtime_checkable

from contended.errors import ContendedError

RECORD = "CONTENDED_RECORD"
"""Set to 1 while reference runs are made, which must not miss a claim."""

ADVICE = "Times depend on what else the machine does: run the cell again on a quiet machine."
WITH_KERNELS = (
    "Kernels share the host with all that runs on it: run the cell again when it is quiet."
)


@runtime_checkable
class Spread(Protocol):
    """A median with an interval: `stats.Interval` and `results.RatioAt` are such."""

    @property
    def median(self) -> float: ...  # noqa: D102
    @property
    def low(self) -> float: ...  # noqa: D102
    @property
    def high(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim about time and what became of it in this run; shows itself if it missed.

    Attributes:
        expected: The claim as a sentence, with its bound.
        holds: Whether it holds in this run.
        seen: What this run measured, or why that could not be worked out.
        recorded: The same of the recorded run; empty without one.
        advice: What to do about a miss.
    """

    expected: str
    holds: bool
    seen: str
    recorded: str = ""
    advice: str = ADVICE

    def _repr_html_(self) -> str:
        attributes = (
            f'data-holds="{str(self.holds).lower()}" data-expected="{escape(self.expected)}"'
        )
        if self.holds:
            return f'<div class="contended-claim" hidden {attributes}></div>'
        rows = [("Expected", self.expected), ("This run", self.seen)]
        rows += [("Recorded run", self.recorded)] if self.recorded else []
        facts = "".join(f"<li><strong>{name}:</strong> {escape(text)}</li>" for name, text in rows)
        return (
            f'<div class="admonition warning contended-claim" {attributes} '
            'style="border-left: 0.25em solid #b35900; padding: 0.5em 1em">'
            '<p class="admonition-title"><strong>Not as expected in this run</strong></p>'
            f"<ul>{facts}</ul><p>{escape(self.advice)}</p></div>"
        )

    def __repr__(self) -> str:
        if self.holds:
            return f"held: {self.expected} ({self.seen})"
        beside = f"; recorded run: {self.recorded}" if self.recorded else ""
        return (
            f"Not as expected in this run. Expected: {self.expected}; this run: {self.seen}"
            f"{beside}. {self.advice}"
        )


def timed(
    expected: str,
    value: Callable[..., float | Spread],
    *runs: Any,
    above: float | None = None,
    below: float | None = None,
    form: str = "{:,.3g}",
) -> None:
    """Claim something about time; show a box if this run does not bear it out.

    Args:
        expected: What is claimed, as a sentence without the bound: "lookups get faster once the
            counter has moved: times as many".
        value: Works the number out of the runs; called once with `runs`, and once with the
            recorded runs in their places. It may return a number, or a median with its interval.
        runs: What `live`, `sweep` or `chapter.outcomes` returned, or mappings of it.
        above: The value must be greater.
        below: The value must be less.
        form: How the value is written.

    Raises:
        ContendedError: it misses in a run that was to become the reference run.
    """
    told = f"{expected.rstrip('.')} ({_bound(above, below, form)})"
    found, seen = _work_out(value, runs, form)
    holds = found is not None and _within(found, above, below)
    beside = ""
    if not holds:
        kept = tuple(recorded_of(run) for run in runs)
        # where recorded runs stand in for all that was to be measured, once is enough
        if None not in kept and any(a is not b for a, b in zip(runs, kept, strict=True)):
            beside = _work_out(value, kept, form)[1]
    show(Claim(expected=told, holds=holds, seen=seen, recorded=beside))


def show(claim: Claim) -> None:
    """Display a claim.

    Raises:
        ContendedError: it does not, in a run that was to become the reference run.
    """
    if not claim.holds and os.environ.get(RECORD) == "1":
        raise ContendedError(f"no reference run: {claim!r}")
    display(claim)


def display(thing: object) -> None:
    """Show something in a notebook, before its cell ends."""
    # A notebook has it; whoever imports this elsewhere need not wait for it.
    from IPython import display as ipython

    ipython.display(thing)  # type: ignore[attr-defined, no-untyped-call, unused-ignore]


_KEPT: dict[int, tuple[Any, Callable[[], Any]]] = {}


def remember(run: Any, load: Callable[[], Any]) -> None:
    """Note how the recorded counterpart of a live run is loaded."""
    _KEPT[id(run)] = (run, load)  # holding the run keeps its id its own


def recorded_of(run: Any) -> Any:
    """The recorded counterpart of a run, or None: of a mapping, a mapping of them."""
    if isinstance(run, Mapping):
        kept = {key: recorded_of(one) for key, one in run.items()}
        if all(kept[key] is one for key, one in run.items()):
            return run
        return None if None in kept.values() else kept
    if getattr(run, "recorded", False):
        return run
    if id(run) not in _KEPT:
        return None
    try:
        return _KEPT[id(run)][1]()
    except ContendedError:
        return None  # a measurement that nobody has recorded yet


def _work_out(
    value: Callable[..., float | Spread], runs: tuple[Any, ...], form: str
) -> tuple[float | None, str]:
    """The number, if there is one, and what to say of it."""
    try:
        found = value(*runs)
    except ZeroDivisionError:
        return None, "cannot be worked out: a count or a rate of this run is 0"
    except (ArithmeticError, ContendedError, statistics.StatisticsError) as error:
        return None, f"cannot be worked out: {error}"
    if isinstance(found, Spread):
        low, high = form.format(found.low), form.format(found.high)
        return float(found.median), f"{form.format(found.median)} ({low} to {high})"
    return float(found), form.format(found)


def _within(value: float, above: float | None, below: float | None) -> bool:
    # a value that is no number is on neither side
    return (above is None or value > above) and (below is None or value < below) and value == value


def _bound(above: float | None, below: float | None, form: str) -> str:
    if above is None and below is None:
        raise ValueError("a claim needs a bound: above, below or both")
    parts = [
        f"{word} {form.format(bound)}"
        for word, bound in (("above", above), ("below", below))
        if bound is not None
    ]
    return " and ".join(parts)
