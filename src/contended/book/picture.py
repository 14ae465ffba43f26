# SPDX-License-Identifier: MIT
"""The scoreboard as a picture: published numbers against ours, on logarithmic axes.

There is a panel for each kind of quantity, since a rate and a ratio share no axis. Each point links
to the section that discusses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from contended.scoreboard.board import Entry, Row, shown

_TIMES = "Times"
# The panel of a unit, and what one of it is there; any other unit is a count or an exponent.
_UNITS = dict.fromkeys(("ratio", "part", "%"), ("Ratios and shares", 1.0))
_UNITS |= {"operations/s": ("Operations a second", 1.0), "s": (_TIMES, 1.0), "ms": (_TIMES, 1e-3)}
_OTHER = ("Counts and exponents", 1.0)
_ROOM, _LEFT, _TOP = 216.0, 66.0, 24.0  # px: where points go, and the margins at two sides of it
_FOOT = _TOP + _ROOM
_TOUCH = 13.0  # px: points nearer than this share a label
# Of a point, where a label may go.
_SIDES = ((1, 0), (-1, 0), (0, -12), (0, 12), (1, -12), (1, 12), (-1, -12), (-1, 12))
_RING = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"
_MARKS = {
    "held": _RING,
    "consistent": _RING,
    "counted": "M-4.5-4.5h9v9h-9z",
    "differs": "M-6 0L0-6 6 0 0 6z",
    "inconsistent": "M-5-5L5 5M-5 5L5-5",
}


class Point(NamedTuple):
    """A row with both numbers: each its middle and both ends, in the unit of the panel."""

    entry: Entry
    row: Row
    panel: str
    published: tuple[float, ...]
    ours: tuple[float, ...]
    text: str  #: ours, with the row's own unit


def points(entries: Sequence[Entry]) -> list[Point]:
    """The rows with a number of ours: timed, simulated or, where the same was counted, as read.

    A change in per cent is drawn as the ratio that it is.
    """
    found = []
    for entry, row in ((each, row) for each in entries for row in each.rows):
        ours = [read.value for read in (*entry.userspace, *entry.kernel) if read.of == row.name]
        if row.ours is not None:
            ours = [row.ours.middle, row.ours.low, row.ours.high]
        if ours:
            low, high = row.published
            panel, one = _UNITS.get(row.unit, _OTHER)
            published, mine = (
                tuple(1 + v / 100 if row.unit == "%" else v * one for v in (side[0], *ends))
                for side in ((math.sqrt(low * high) if low > 0 else low, low, high), ours)
                for ends in [(min(side), max(side))]
            )
            found.append(Point(entry, row, panel, published, mine, shown(ours[0], row.unit)))
    return found


def html(entries: Sequence[Entry], chapters: str) -> str:
    """The picture; `chapters` is the chapters' folder as seen from the page."""
    drawn = points(entries)
    panels = dict.fromkeys(panel for panel, _ in (*_UNITS.values(), _OTHER))
    each = {panel: [point for point in drawn if point.panel == panel] for panel in panels}
    more = sum(len(entry.rows) for entry in entries) - len(drawn)
    return (
        f'<figure class="published"><div>'
        f"{''.join(_panel(name, here, chapters) for name, here in each.items() if here)}"
        "</div><figcaption>Published numbers, and ours: timed in virtual time, simulated at that "
        "size, or counted here. On the diagonal the two are equal, between the dashed lines within "
        "a factor of two; thin lines are ranges. ● held, ○ consistent but too wide to say much, ◇ "
        "differs, ■ counted, ✕ contradicts its own source; the number is the chapter, and the "
        f"point a link to it. {more} more have no number here.</figcaption></figure>"
    )


def _axis(values: Sequence[float]) -> tuple[Callable[[float], float], list[float]]:
    """Where a value is, in px, and the ticks; what is not positive comes below the logarithms."""
    logs = [math.log10(value) for value in values if value > 0] or [0.0]
    pad = 0.1 + (max(logs) - min(logs)) / 20
    low, high = min(logs) - pad, max(logs) + pad
    if high - low < 1:  # then there might be no power of ten
        low, high = math.floor(low), math.ceil(high)
    start = 0.0 if min(values) > 0 else 24.0

    def place(value: float) -> float:
        along = (math.log10(value) - low) / (high - low) if value > 0 else 0
        return start + along * (_ROOM - start) if value > 0 else start / 2

    powers = range(math.ceil(low), math.floor(high) + 1)
    ticks = [10.0**power for power in powers if len(powers) < 5 or power % 2 == 0]
    return place, [0.0] * bool(start) + ticks


def _panel(title: str, here: Sequence[Point], chapters: str) -> str:
    place, ticks = _axis([value for point in here for value in (*point.published, *point.ours)])
    start, two = 2 * place(0), place(20) - place(10)
    drawn = (
        f'<text class="head" x="{_LEFT:g}" y="14">{title}</text>'
        f'<path d="M{_LEFT:g} {_TOP:g}V{_FOOT:g}h{_ROOM:g}m0 {-_ROOM:g}l{-_ROOM:g} {_ROOM:g}"/>'
        f'<path class="near" d="M{_LEFT + start:.1f} {_FOOT - start - two:.1f}L'
        f"{_LEFT + _ROOM - two:.1f} {_TOP:g}M{_LEFT + start + two:.1f} {_FOOT - start:.1f}L"
        f'{_LEFT + _ROOM:g} {_TOP + two:.1f}"/>'
        f'<text x="{_LEFT + _ROOM / 2:g}" y="{_FOOT + 33:g}" class="name">published</text>'
        f'<text transform="translate(12,{_TOP + _ROOM / 2:g})rotate(-90)" class="name">ours</text>'
    )
    for tick in ticks:
        drawn += (
            f'<text class="name" x="{_LEFT + place(tick):.1f}" y="{_FOOT + 17:g}">'
            f'{_tick(tick, title)}</text><text class="up" x="{_LEFT - 6:g}" '
            f'y="{_FOOT - place(tick) + 4:.1f}">{_tick(tick, title)}</text>'
        )
    groups: list[list[tuple[float, float, int]]] = []
    for entry, row, _, published, ours, text in here:
        x, left, right = (_LEFT + place(value) for value in published)
        y, low, high = (_FOOT - place(value) for value in ours)
        told = f"{entry.slug}, {row.name}: published {row.text}, here {text}: {row.told}"
        drawn += (
            f'<a href="{escape(f"{chapters}{entry.notebook}.html#{entry.section}")}">'
            f"<title>{escape(told)}</title>"
            f'<path d="M{left:.1f} {y:.1f}H{right:.1f}M{x:.1f} {low:.1f}V{high:.1f}"/>'
            f'<path class="{row.verdict}" d="{_MARKS[row.verdict]}" '
            f'transform="translate({x:.1f},{y:.1f})"/></a>'
        )
        near = [g for g in groups if any(math.dist((x, y), spot[:2]) < _TOUCH for spot in g)]
        groups = [g for g in groups if g not in near] + [sum(near, [(x, y, entry.chapter)])]
    spots = [spot[:2] for group in groups for spot in group]
    for group in groups:
        numbers = ", ".join(map(str, sorted({chapter for *_, chapter in group})))
        half = 9 + 3.5 * len(numbers)
        around = [(x + dx * half, y + dy) for dx, dy in _SIDES for x, y, _ in group]
        inside = (at for at in around if at[0] > _LEFT + half)
        x, y = max(inside, key=lambda at: min(math.dist(at, spot) for spot in spots))
        spots.append((x, y))
        drawn += f'<text class="name" x="{x:.1f}" y="{y + 4:.1f}">{numbers}</text>'
    size = f"{_LEFT + _ROOM + 22:g} {_FOOT + 38:g}"
    return (
        f'<svg viewBox="0 0 {size}" role="group" aria-label="{title}: published and ours">'
        f"{drawn}</svg>"
    )


def _tick(value: float, panel: str) -> str:
    if panel == _TIMES:
        return f"{1000 * value:g} ms" if 0 < value < 1 else f"{value:g} s"
    scale, sign = next(each for each in ((1e6, " M"), (1e3, " k"), (0, "")) if value >= each[0])
    return f"{value / (scale or 1):g}{sign}"
