# SPDX-License-Identifier: MIT
"""The simulator's figure: curves on logarithmic axes, laws fitted to them, published points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from contended import stats
from contended.errors import UsageError
from contended.measure.results import number
from contended.register import Published
from contended.show.canvas import PALETTE, Plot, canvas, finished, house_style, legend, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Law = Callable[[float], float]
Style = dict[str, Any]
_MARKERS = ("o", "s", "^", "D", "v", "P")
_LINES = ("-", "--", "-.", ":")
_INK = "#222222"
_STEPS = 120


class Mark(NamedTuple):
    """A published value on a figure, lowest and highest in the figure's unit.

    Without an `x`, because the report does not say where it stands, it is a band.
    """

    label: str
    x: float | None
    low: float
    high: float


def marks(figure: Published, *names: str, place: bool = True) -> tuple[Mark, ...]:
    """Published values, with their spread, at the number of workers or CPUs, or as bands."""
    at = float(figure.workers or figure.cpus or 0) if place else None
    return tuple(Mark(name, at, *figure.value(name).spread) for name in names)


def chart(
    title: str,
    lines: Mapping[str, Mapping[float, Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    note: str = "",
    fits: Mapping[str, Law] | None = None,
    over: Sequence[float] = (),
    dots: Mapping[str, Mapping[float, float]] | None = None,
    marks: Sequence[Mark] = (),
    ends: float | None = None,
    level: float | None = None,
) -> Plot:
    """Curves of medians with each seed's point, both axes logarithmic.

    The lines have by name, by x, the values of several seeds, all above zero. Laws that were fitted
    are drawn thin, in the colour of the line of the same name, from the lowest to the highest x of
    the lines or `over` others; `dots` are single points of a line or a law. Beyond the x where the
    machine `ends` it is continued, which is shaded, and `level` is a y that means "no difference".
    Raises UsageError if there is nothing to show.
    """
    fits, dots = fits or {}, dots or {}
    names = list(dict.fromkeys([*lines, *fits, *dots]))
    xs = sorted({x for line in lines.values() for x in line} | set(over))
    if not names or not xs:
        raise UsageError("nothing to plot: give a line, or a law and where to draw it")
    with house_style():
        figure, axes = canvas(title, note, height=3.6)
        axes.set_xscale("log", base=2 if lines else 10)
        axes.set_yscale("log")
        for i, name in enumerate(names):
            colour, marker = PALETTE[i % len(PALETTE)], _MARKERS[i % len(_MARKERS)]
            solid: Style = {"color": colour, "linestyle": _LINES[i % len(_LINES)], "linewidth": 1.6}
            # The axes end at the first and the last points: these are shown whole.
            solid["clip_on"] = False
            hollow: Style = {"color": colour, "linestyle": "none", "marker": marker}
            hollow["clip_on"] = False
            hollow["markerfacecolor"] = "none"
            if name in lines:
                line = {x: values for x, values in lines[name].items() if values}
                medians = [stats.median(values) for values in line.values()]
                axes.plot(list(line), medians, marker=marker, markersize=4.5, label=name, **solid)
                seeds = [(x, value) for x, values in line.items() for value in values]
                axes.plot(*zip(*seeds, strict=True), markersize=6.5, alpha=0.6, **hollow)
            if name in fits:
                at = [xs[0] * (xs[-1] / xs[0]) ** (k / _STEPS) for k in range(_STEPS + 1)]
                thin: Style = {"color": colour, "linestyle": ":", "linewidth": 1.1}
                axes.plot(
                    at, list(map(fits[name], at)), **thin if lines else solid | {"label": name}
                )
            if name in dots:
                axes.plot(list(dots[name]), list(dots[name].values()), markersize=6, **hollow)
        if lines and fits:
            axes.plot([], [], color=_INK, linestyle=":", linewidth=1.1, label="USL fit")
        if level is not None:
            axes.axhline(level, color=_INK, linewidth=0.8)
        if ends is not None and ends < xs[-1]:
            shade: Style = {"color": "#999999", "alpha": 0.16, "linewidth": 0}
            axes.axvspan(ends, xs[-1], label="past the machine's size", **shade)
        if xs[0] < xs[-1]:
            axes.set_xlim(xs[0], xs[-1])
        _draw_marks(axes, marks)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(f"{ylabel}\nlog scale")
        _ticks(axes, [x for x in xs if math.log2(x).is_integer() or x == xs[-1]] if lines else None)
        axes.grid(axis="y", alpha=0.3)
        legend(figure, *axes.get_legend_handles_labels())
    said = _words(lines, fits, marks, xs)
    return finished(figure, f"{title}, {note}. {ylabel} against {xlabel}. {said}.")


def _draw_marks(axes: Axes, marks: Sequence[Mark]) -> None:
    label: str | None = "published"
    words: Style = {"textcoords": "offset points", "color": _INK, "zorder": 6}
    words["bbox"] = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.8}
    star: Style = {"color": _INK, "marker": "*", "linestyle": "none"}
    left, right = axes.get_xlim()
    for mark in marks:
        if mark.x is None:
            axes.axhspan(mark.low, mark.high, color=_INK, alpha=0.25, linewidth=0, label=label)
            where = ("axes fraction", "data")
            axes.annotate(mark.label, (0.01, mark.high), (0, 2), xycoords=where, **words)
        else:
            middle = (mark.low * mark.high) ** 0.5
            ends = [[middle - mark.low], [mark.high - middle]]
            whole: Style = {"zorder": 5, "clip_on": not left <= mark.x <= right}
            axes.errorbar([mark.x], [middle], yerr=ends, markersize=12, capsize=3, **whole, **star)
            axes.plot([], [], markersize=11, label=label, **star)
        label = None
    stars = [(m.label, (m.x, (m.low * m.high) ** 0.5)) for m in marks if m.x is not None]
    _name_stars(axes, stars, words)


def _name_stars(axes: Axes, stars: Sequence[tuple[str, tuple[float, float]]], words: Style) -> None:
    """Each label beside its star where there is room, or else above or below it."""
    points = 72 / axes.figure.dpi
    spots = [axes.transData.transform(place) * points for _, place in stars]
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots]
    (left, low), (right, high) = axes.get_window_extent().get_points() * points

    def free(x0: float, y0: float, x1: float, y1: float) -> bool:
        inside = left < x0 and x1 < right and low < y0 and y1 < high
        return inside and not any(
            x0 < b[2] and b[0] < x1 and y0 < b[3] and b[1] < y1 for b in taken
        )

    for (label, place), (x, y) in zip(stars, spots, strict=True):
        width = text_width(label)
        tries = []
        for dx, dy in ((8, -4), (-8, -4), (-6, 9), (6, 9), (-6, -18), (6, -18)):
            start = x + dx - (width if (dx < 0) == (dy == -4) else 0)
            tries.append((dx, dy, (start, y + dy, start + width, y + dy + 10)))
        dx, dy, box = next((each for each in tries if free(*each[2])), tries[0])
        taken.append(box)
        side = "left" if box[0] == x + dx else "right"
        axes.annotate(label, place, (dx, dy), ha=side, **words)


def _ticks(axes: Axes, places: Sequence[float] | None) -> None:
    from matplotlib.ticker import LogLocator

    def text(value: float, _: object) -> str:
        for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if value >= size:
                return f"{value / size:g}{letter}"
        return f"{value:g}"

    if places is not None:
        axes.set_xticks(places, [f"{x:g}" for x in places])
        axes.minorticks_off()
    else:
        axes.xaxis.set_major_formatter(text)
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    axes.yaxis.set_major_formatter(text)
    axes.yaxis.set_minor_formatter("")


def _words(
    lines: Mapping[str, Mapping[float, Sequence[float]]],
    fits: Mapping[str, Law],
    marks: Sequence[Mark],
    xs: Sequence[float],
) -> str:
    shown: dict[str, dict[float, float]] = {}
    for name, line in lines.items():
        there = [x for x in xs if line.get(x)]
        picked = there if len(there) <= 5 else [there[k * (len(there) - 1) // 4] for k in range(5)]
        shown[name] = {x: stats.median(line[x]) for x in picked}
    if not lines:
        shown = {name: {x: law(x) for x in (xs[0], xs[-1])} for name, law in fits.items()}
    said = [
        f"{name}: {', '.join(f'{number(value, 3)} at {x:g}' for x, value in values.items())}"
        for name, values in shown.items()
    ]
    for mark in marks:
        value = " to ".join(dict.fromkeys((number(mark.low, 3), number(mark.high, 3))))
        at = "" if mark.x is None else f" at {mark.x:g}"
        said.append(f"published, {mark.label}: {value}{at}")
    return ". ".join(said)


def law(
    title: str,
    formulas: Mapping[str, Law],
    counted: Mapping[str, Mapping[float, float]],
    sizes: Sequence[float],
    **words: Any,
) -> Plot:
    """Closed forms of step counts, over ascending sizes, and what was counted, by size.

    The labels and marks are those of `chart`. Raises UsageError if something was counted that has
    no formula.
    """
    for name in counted:
        if name not in formulas:
            raise UsageError(f"{name!r} was counted but has no formula")
    note = "lines: closed forms; points: counted by the model"
    return chart(title, {}, fits=formulas, over=sizes, dots=counted, note=note, **words)


def off(formula: Law, counted: Mapping[float, float]) -> float:
    """The largest relative difference between a closed form and counts."""
    return max(abs(formula(n) / steps - 1) for n, steps in counted.items())


def exponent(formula: Law, at: float) -> float:
    """The power of the size with which a closed form grows, from a size to its double."""
    return math.log2(formula(2 * at) / formula(at))
