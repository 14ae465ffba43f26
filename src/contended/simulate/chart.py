# SPDX-License-Identifier: MIT
"""The simulator's figure: curves on logarithmic axes, laws fitted to them, published points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contended import stats
from contended.errors import UsageError
from contended.measure.results import number
from contended.register import Published
from contended.show.canvas import PALETTE, Plot, canvas, finished, house_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import Formatter

_MARKERS = ("o", "s", "^", "D", "v", "P")
_LINES = ("-", "--", "-.", ":")
_INK = "#222222"
_STEPS = 120


@dataclass(frozen=True, slots=True)
class Mark:
    """A published value on a figure.

    Attributes:
        label: What it is called.
        x: Where it stands; None if the report does not say, which makes it a band.
        low: Lowest published value, in the figure's unit.
        high: Highest.
    """

    label: str
    x: float | None
    low: float
    high: float


def mark(figure: Published, name: str, *, place: bool = True) -> Mark:
    """A published value, with its spread, at the number of workers or CPUs it was measured with.

    Args:
        figure: The figure.
        name: The value.
        place: Whether it belongs to that number; if not, it is a band.
    """
    value = figure.value(name)
    spread = value.plus_minus or 0.0
    at = float(figure.workers or figure.cpus or 0) if place else None
    return Mark(name, at, value.low - spread, value.high + spread)


def chart(
    title: str,
    lines: Mapping[str, Mapping[float, Sequence[float]]],
    *,
    xlabel: str,
    ylabel: str,
    note: str = "",
    fits: Mapping[str, Callable[[float], float]] | None = None,
    over: Sequence[float] = (),
    dots: Mapping[str, Mapping[float, float]] | None = None,
    marks: Sequence[Mark] = (),
    ends: float | None = None,
    level: float | None = None,
) -> Plot:
    """Curves of medians with each seed's point, both axes logarithmic.

    Args:
        title: The figure's title.
        lines: By name, by x: the values (of several seeds), all above zero.
        xlabel: The x axis, with its unit.
        ylabel: The y axis, with its unit.
        note: A line under the title.
        fits: By name: a function of x, drawn thin; of the same name as a line, in its colour.
        over: Where fits are drawn; default from the lowest to the highest x of the lines.
        dots: By the name of a line or a fit: single points, by x.
        marks: Published values.
        ends: Beyond this x the machine is continued, which is shaded.
        level: A y that means "no difference".

    Raises:
        UsageError: nothing to show.
    """
    from matplotlib.ticker import LogLocator

    names = list(dict.fromkeys([*lines, *(fits or {}), *(dots or {})]))
    xs = sorted({x for line in lines.values() for x in line} | set(over))
    if not names or not xs:
        raise UsageError("nothing to plot: give a line, or a law and where to draw it")
    with house_style():
        figure, axes = canvas(title, note, height=4.2)
        axes.set_xscale("log", base=2 if lines else 10)
        axes.set_yscale("log")
        for i, name in enumerate(names):
            colour = PALETTE[i % len(PALETTE)]
            if name in lines:
                line = {x: list(values) for x, values in lines[name].items() if values}
                axes.plot(
                    list(line),
                    [stats.median(values) for values in line.values()],
                    color=colour,
                    linestyle=_LINES[i % len(_LINES)],
                    marker=_MARKERS[i % len(_MARKERS)],
                    markersize=4.5,
                    linewidth=1.6,
                    label=name,
                )
                seeds = [(x, value) for x, values in line.items() for value in values]
                axes.plot(
                    [x for x, _ in seeds],
                    [value for _, value in seeds],
                    color=colour,
                    linestyle="none",
                    marker=_MARKERS[i % len(_MARKERS)],
                    markersize=6.5,
                    markerfacecolor="none",
                    alpha=0.6,
                )
            if fits and name in fits:
                at = [xs[0] * (xs[-1] / xs[0]) ** (k / _STEPS) for k in range(_STEPS + 1)]
                axes.plot(
                    at,
                    [fits[name](x) for x in at],
                    color=colour,
                    linestyle=":" if lines else _LINES[i % len(_LINES)],
                    linewidth=1.1 if lines else 1.6,
                    label=None if lines else name,
                )
            if dots and name in dots:
                axes.plot(
                    list(dots[name]),
                    list(dots[name].values()),
                    color=colour,
                    linestyle="none",
                    marker=_MARKERS[i % len(_MARKERS)],
                    markersize=6,
                    markerfacecolor="none",
                )
        if lines and fits:
            axes.plot([], [], color=_INK, linestyle=":", linewidth=1.1, label="USL fit")
        if level is not None:
            axes.axhline(level, color=_INK, linewidth=0.8)
        _draw_marks(axes, marks, xs)
        if ends is not None and ends < xs[-1]:
            axes.axvspan(
                ends,
                xs[-1],
                color="#999999",
                alpha=0.16,
                linewidth=0,
                label="past the machine's size",
            )
        axes.set_xlim(xs[0], xs[-1])
        if lines:
            ticks = [x for x in xs if float(x).is_integer() and int(x) & (int(x) - 1) == 0]
            axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
            axes.minorticks_off()
        axes.set_xlabel(xlabel)
        axes.set_ylabel(f"{ylabel}\nlog scale")
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
        axes.yaxis.set_major_formatter(_formatter())
        axes.yaxis.set_minor_formatter("")
        if not lines:
            axes.xaxis.set_major_formatter(_formatter())
        axes.grid(axis="y", alpha=0.3)
        handles, labels = axes.get_legend_handles_labels()
        widest = max(map(len, labels))
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=max(1, min(len(labels), 72 // (widest + 8))),
            frameon=False,
        )
    return finished(figure, _words(title, note, lines, fits, marks, xs, ylabel, xlabel))


def _draw_marks(axes: Axes, marks: Sequence[Mark], xs: Sequence[float]) -> None:
    label: str | None = "published"
    for mark in marks:
        middle = (mark.low * mark.high) ** 0.5
        if mark.x is None:
            axes.axhspan(mark.low, mark.high, color=_INK, alpha=0.25, linewidth=0, label=label)
            axes.annotate(
                mark.label,
                (0.01, mark.high),
                (0, 2),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                fontsize=8.5,
                color=_INK,
            )
        else:
            axes.errorbar(
                [mark.x],
                [middle],
                yerr=[[middle - mark.low], [mark.high - middle]],
                color=_INK,
                marker="*",
                markersize=12,
                linestyle="none",
                capsize=3,
                zorder=5,
            )
            axes.plot([], [], color=_INK, marker="*", markersize=11, linestyle="none", label=label)
            right = mark.x > xs[-1] * (xs[0] / xs[-1]) ** 0.2  # no room behind it
            axes.annotate(
                mark.label,
                (mark.x, middle),
                (-8 if right else 8, -3),
                textcoords="offset points",
                ha="right" if right else "left",
                fontsize=8.5,
                color=_INK,
                zorder=6,
                bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.8},
            )
        label = None


def _formatter() -> Formatter:
    from matplotlib.ticker import FuncFormatter

    def text(value: float, _: object) -> str:
        for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if value >= size:
                return f"{value / size:g}{letter}"
        return f"{value:g}"

    return FuncFormatter(text)


def _words(
    title: str,
    note: str,
    lines: Mapping[str, Mapping[float, Sequence[float]]],
    fits: Mapping[str, Callable[[float], float]] | None,
    marks: Sequence[Mark],
    xs: Sequence[float],
    ylabel: str,
    xlabel: str,
) -> str:
    said = []
    for name, line in lines.items():
        picked = [x for x in xs if line.get(x)]
        shown = (
            picked if len(picked) <= 5 else [picked[k * (len(picked) - 1) // 4] for k in range(5)]
        )
        values = ", ".join(f"{number(stats.median(line[x]), 3)} at {x:g}" for x in shown)
        said.append(f"{name}: {values}")
    if not lines:
        for name, law in (fits or {}).items():
            values = ", ".join(f"{number(law(x), 3)} at {x:g}" for x in (xs[0], xs[-1]))
            said.append(f"{name}: {values}")
    for mark in marks:
        value = number(mark.low, 3)
        if number(mark.high, 3) != value:
            value = f"{value} to {number(mark.high, 3)}"
        at = "" if mark.x is None else f" at {mark.x:g}"
        said.append(f"published, {mark.label}: {value}{at}")
    return f"{title}, {note}. {ylabel} against {xlabel}. {'. '.join(said)}."


def law(
    title: str,
    formulas: Mapping[str, Callable[[float], float]],
    counted: Mapping[str, Mapping[float, float]],
    sizes: Sequence[float],
    *,
    xlabel: str,
    ylabel: str,
    marks: Sequence[Mark] = (),
) -> Plot:
    """Closed forms of step counts carried past what was counted, and what was counted.

    Args:
        title: The figure's title.
        formulas: By name: the steps at a size.
        counted: By the same names: the steps that the model counted, by size.
        sizes: Where the formulas are drawn, ascending.
        xlabel: The size, in words.
        ylabel: The steps, in words.
        marks: Published points.

    Raises:
        UsageError: a name of `counted` has no formula.
    """
    for name in counted:
        if name not in formulas:
            raise UsageError(f"{name!r} was counted but has no formula")
    return chart(
        title,
        {},
        fits=formulas,
        over=sizes,
        dots=counted,
        marks=marks,
        xlabel=xlabel,
        ylabel=ylabel,
        note="lines: closed forms; points: counted by the model",
    )


def off(formula: Callable[[float], float], counted: Mapping[float, float]) -> float:
    """The largest relative difference between a closed form and counts."""
    return max(abs(formula(n) / steps - 1) for n, steps in counted.items())


def exponent(formula: Callable[[float], float], at: float) -> float:
    """The power of the size with which a closed form grows, from a size to its double."""
    return math.log2(formula(2 * at) / formula(at))
