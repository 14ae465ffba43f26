# SPDX-License-Identifier: MIT
"""Figures of numbers as they are: pairs, series over a parameter, a fitted law."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from contended import stats
from contended.errors import UsageError
from contended.show.canvas import (
    INK,
    PALETTE,
    WIDTH,
    Plot,
    canvas,
    draw_points,
    draw_series,
    finished,
    flattened,
    house_style,
    legend,
    ticks_at,
    value_axis,
)
from contended.show.words import alt, in_threads, join, say, short, worded


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

    Args:
        values: Shape (n, n), in `unit`; None or NaN leaves a cell blank, the diagonal always is.
        labels: One for each row and column, shape (n,).
        unit: The values' unit, for the colour bar.
        title: The figure's title.
        axis: What a row or column is.
        note: A line under the title, e.g. "recorded reference run".

    Raises:
        UsageError: the shapes do not fit, or there is no pair to show.
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
    with house_style():
        side = min(5.2, max(3.2, 2.0 + 0.45 * n))
        figure, axes = canvas(title, note, height=side, width=min(WIDTH, 1.25 * side))
        # from zero, so that twice the colour is twice the cost
        image = axes.imshow(grid, cmap="cividis", vmin=0, vmax=top)
        bar = figure.colorbar(image, ax=axes, shrink=0.9)
        bar.set_label(unit)
        if n <= 10:
            for (i, j), value in pairs.items():
                ink = "black" if value > 0.55 * top else "white"
                axes.text(j, i, short(value), ha="center", va="center", color=ink, fontsize=10)
        every = max(1, math.ceil(n / 16))
        axes.set_xticks(range(0, n, every), [str(x) for x in labels[::every]])
        axes.set_yticks(range(0, n, every), [str(x) for x in labels[::every]])
        axes.set_xlabel(f"to {axis}")
        axes.set_ylabel(f"from {axis}")
        axes.spines[:].set_visible(False)
    low, high = min(pairs, key=pairs.__getitem__), max(pairs, key=pairs.__getitem__)
    lines = [
        f"{len(pairs)} pairs, median {worded(stats.median(list(pairs.values())))} {unit}",
        f"lowest {worded(pairs[low])} {unit} from {axis} {labels[low[0]]} to {labels[low[1]]}",
        f"highest {worded(pairs[high])} {unit} from {axis} {labels[high[0]]} to {labels[high[1]]}",
    ]
    return finished(figure, alt(title, note, lines))


def sweep(
    x: Sequence[float],
    series: Mapping[str, Sequence[Sequence[float]]],
    xlabel: str,
    ylabel: str,
    title: str,
    logx: bool = False,
    logy: bool = False,
    *,
    note: str = "",
) -> Plot:
    """Named series over one parameter: medians as lines, lowest to highest as bands, all points.

    Args:
        x: The parameter's values, shape (n,), ascending.
        series: By name, the repeats at each x: n lists of any length (empty: nothing measured).
        xlabel: The parameter, with its unit.
        ylabel: The value, with its unit.
        title: The figure's title.
        logx: Logarithmic x; from the smallest positive x down to zero it is linear.
        logy: Logarithmic y; ignored where a value is zero or below.
        note: A line under the title, e.g. "recorded reference run".

    Raises:
        UsageError: a series does not have one list for each x, or there is nothing to show.
    """
    for name, rows in series.items():
        if len(rows) != len(x):
            raise UsageError(f"series {name!r} has {len(rows)} lists for {len(x)} values of x")
    points = flattened(series.values())
    if not points:
        raise UsageError("nothing to plot: every series is empty")
    with house_style():
        figure, axes = canvas(
            title, join(note, "points: repeats, lines: medians, bands: lowest to highest")
        )
        if logx:
            least = min((value for value in x if value > 0), default=1.0)
            if min(x) > 0:
                axes.set_xscale("log")
            else:
                axes.set_xscale("symlog", linthresh=least, linscale=0.4)
        draw_series(axes, x, series, band=True)
        if logx or len(x) <= 9:
            ticks_at(axes.xaxis, x)
        axes.set_xlabel(xlabel)
        value_axis(axes.yaxis, ylabel, points, log=logy)
        legend(figure, axes)
    lines = []
    for name, rows in series.items():
        said = [(f"at {worded(at)}", row) for at, row in zip(x, rows, strict=True)]
        lines.append(say(name, said, ""))
    return finished(figure, alt(title, join(note, f"{ylabel} against {xlabel}"), lines))


def usl(
    threads: Sequence[float],
    throughput: Sequence[float],
    fit: stats.Usl,
    title: str,
    *,
    unit: str = "operations/s",
    note: str = "",
) -> Plot:
    """Measured throughput and the Universal Scalability Law fitted to it.

    Args:
        threads: Thread counts, shape (n,), repeats allowed.
        throughput: What was measured at each, shape (n,), in `unit`.
        fit: What `stats.usl_fit` made of them.
        title: The figure's title.
        unit: The throughput's unit.
        note: A line under the title, e.g. "recorded reference run".

    Raises:
        UsageError: the lengths differ or there is no point.
    """
    if len(threads) != len(throughput) or not len(threads):
        raise UsageError("give one throughput for each thread count, and at least one of them")
    last = max(threads)
    # beyond the data the curve is a guess: show a little of it, dashed
    far = last * 1.5
    inside = [1 + (last - 1) * i / 200 for i in range(201)]
    beyond = [last + (far - last) * i / 50 for i in range(51)]
    by_count = {n: [v for t, v in zip(threads, throughput, strict=True) if t == n] for n in threads}
    counts = sorted(by_count)
    with house_style():
        figure, axes = canvas(
            title,
            join(
                note,
                rf"$\sigma$ = {short(fit.sigma)}, $\kappa$ = {short(fit.kappa)}",
                rf"$R^2$ = {fit.r2:.3f}",
            ),
        )
        axes.plot(inside, [fit.predict(n) for n in inside], color=PALETTE[1], label="fit")
        axes.plot(
            beyond,
            [fit.predict(n) for n in beyond],
            color=PALETTE[1],
            linestyle=":",
            label="fit, extrapolated",
        )
        draw_points(axes, threads, throughput, 0, label="each repeat")
        if fit.peak <= far:
            axes.axvline(fit.peak, color=INK, linestyle="--", linewidth=1, label="fitted peak")
        if len(counts) <= 9:
            ticks_at(axes.xaxis, counts)
        axes.set_xlim(0, far * 1.02)
        axes.set_xlabel("threads")
        value_axis(axes.yaxis, unit, list(throughput), log=False)
        legend(figure, axes)
    peak = "no peak" if math.isinf(fit.peak) else f"peak at {fit.peak:.1f} threads"
    lines = [
        say("measured", [(f"at {in_threads(n)}", by_count[n]) for n in counts], unit),
        f"fit: lambda {worded(fit.lambda_)} {unit}, sigma {short(fit.sigma)}, "
        f"kappa {short(fit.kappa)}, R squared {fit.r2:.3f}, {peak}",
    ]
    return finished(figure, alt(title, note, lines))
