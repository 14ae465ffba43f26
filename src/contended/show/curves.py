# SPDX-License-Identifier: MIT
"""Figures of numbers as they are: pairs, and series over a parameter.

In both, `note` is a line under the title, e.g. "recorded reference run".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from contended import stats
from contended.errors import UsageError
from contended.show import canvas
from contended.show.canvas import Plot
from contended.show.words import Series, alt, join, say, short, worded


def matrix(
    values: Sequence[Sequence[float | None]],
    labels: Sequence[str | int],
    unit: str,
    title: str,
    *,
    axis: str = "CPU",
    note: str = "",
) -> Plot:
    """A heat map of pairs, e.g. the cost of handing a cache line from each CPU to each other.

    `values` has a row and a column for each label; a row is of the `axis` from which. None or NaN
    leaves a cell blank, the diagonal always is.

    Raises UsageError if the shapes do not fit, or there is no pair to show.
    """
    n = len(labels)
    if len(values) != n or any(len(row) != n for row in values):
        raise UsageError(f"a matrix with {n} labels needs {n} rows of {n} values")
    pairs = {
        (i, j): float(value)
        for i, row in enumerate(values)
        for j, value in enumerate(row)
        if i != j and value is not None and not math.isnan(value)
    }
    if not pairs:
        raise UsageError(f"a matrix needs at least one pair of values: use two {axis}s or more")
    grid = [[pairs.get((i, j), math.nan) for j in range(n)] for i in range(n)]
    top = max(pairs.values())
    with canvas.house_style():
        figure, axes = canvas.canvas(title, note, height=min(4.0, max(2.8, 2.0 + 0.3 * n)))
        # from zero, so that twice the colour is twice the cost
        image = axes.imshow(grid, cmap="cividis", vmin=0, vmax=top)
        figure.colorbar(image, ax=axes, shrink=0.9).set_label(unit)
        if n <= 8:
            for (i, j), value in pairs.items():
                ink = "black" if value > 0.55 * top else "white"
                axes.text(j, i, short(value), ha="center", va="center", color=ink)
        every = max(1, math.ceil(n / 10))
        for set_ticks in (axes.set_xticks, axes.set_yticks):
            set_ticks(range(0, n, every), [str(label) for label in labels[::every]])
        axes.set(xlabel=f"to {axis}", ylabel=f"from {axis}")
        axes.spines[:].set_visible(False)
    lines = [f"{len(pairs)} pairs, median {worded(stats.median(list(pairs.values())))} {unit}"]
    for what, find in (("lowest", min), ("highest", max)):
        i, j = find(pairs, key=pairs.__getitem__)
        lines.append(f"{what} {worded(pairs[i, j])} {unit} from {axis} {labels[i]} to {labels[j]}")
    return canvas.finished(figure, alt(title, note, lines))


def sweep(
    x: Sequence[float],
    series: Series,
    xlabel: str,
    ylabel: str,
    title: str,
    logx: bool = False,
    logy: bool = False,
    *,
    note: str = "",
) -> Plot:
    """Named series over one parameter: medians as lines, lowest to highest as bands, all points.

    `x` is ascending; `series` has for each x a list of repeats, empty if nothing was measured.
    Labels bring their unit. With `logx` the axis is linear from the smallest positive x down to
    zero; `logy` is ignored where a value is zero or below.

    Raises UsageError if a series does not have one list for each x, or there is nothing to show.
    """
    for name, rows in series.items():
        if len(rows) != len(x):
            raise UsageError(f"series {name!r} has {len(rows)} lists for {len(x)} values of x")
    if not any(row for rows in series.values() for row in rows):
        raise UsageError("nothing to plot: every series is empty")
    key = "points: repeats, lines: medians, bands: lowest to highest"
    with canvas.house_style():
        figure, axes = canvas.canvas(title, join(note, key))
        if logx and min(x) > 0:
            axes.set_xscale("log")
        elif logx:
            least = min((value for value in x if value > 0), default=1.0)
            axes.set_xscale("symlog", linthresh=least, linscale=0.4)
        canvas.draw_series(axes, x, series, band=True)
        if logx or len(x) <= 9:
            canvas.ticks_at(axes.xaxis, x)
        axes.set_xlabel(xlabel)
        canvas.value_axis(axes.yaxis, ylabel, series, log=logy)
        canvas.legend(figure, *axes.get_legend_handles_labels())
    lines = say(series, [f"at {worded(at)}" for at in x], "")
    return canvas.finished(figure, alt(title, join(note, f"{ylabel} against {xlabel}"), lines))
