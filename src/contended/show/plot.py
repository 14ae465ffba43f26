# SPDX-License-Identifier: MIT
"""Figures of measurements: they show every repeat, name their units, and say what they show.

Each function returns a `Plot`: a matplotlib figure and an alternative text made from the same
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TYPE_CHECKING, TypeVar

from contended import stats
from contended.errors import UsageError
from contended.measure.results import Measurement
from contended.show import canvas
from contended.show.canvas import Plot, Style
from contended.show.words import Series, alt, in_threads, join, say, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINES = "points: repeats, lines: medians"
_BARS = "points: repeats, bars: medians"
_T = TypeVar("_T")


def throughput(
    measurement: Measurement, phase: str | None = None, title: str | None = None
) -> Plot:
    """Each variant's value against the number of threads, or side by side at a single one.

    It shows one phase, the first unless another is named; `title` replaces "case: what is shown".

    Raises UsageError if there is no such phase, or no sample at all.
    """
    if phase:
        _check_known("phase", phase, measurement.phases)
    elif not measurement.phases:
        raise UsageError(f"no samples of {measurement.case} to plot: see its failures")
    phase = phase or measurement.phases[0]
    counts = measurement.thread_counts
    title = title or f"{measurement.case}: {_what(measurement)}"
    where = f"phase {phase}" if len(measurement.phases) > 1 else ""
    series = _series(measurement, [(n, phase) for n in counts])
    if len(counts) == 1:
        return _strips(measurement, series, title, join(where, in_threads(counts[0])))
    with canvas.house_style():
        figure, axes = canvas.canvas(title, _subtitle(measurement, where, _LINES))
        if counts[-1] / counts[0] >= 16:
            axes.set_xscale("log", base=2)
        canvas.draw_series(axes, counts, series, dodge=0.24)
        canvas.ticks_at(axes.xaxis, counts)
        axes.set_xlabel("threads")
        canvas.value_axis(axes.yaxis, _label(measurement), series)
        canvas.legend(figure, *axes.get_legend_handles_labels())
    lines = say(series, [f"at {in_threads(n)}" for n in counts], measurement.unit)
    return canvas.finished(figure, alt(title, _subtitle(measurement, where), lines))


def _strips(measurement: Measurement, series: Series, title: str, where: str) -> Plot:
    # horizontal: variant names are long, and here they never run into each other
    subtitle = _subtitle(measurement, where, _BARS)
    with canvas.house_style():
        figure, axes = canvas.canvas(title, subtitle, height=1.5 + 0.5 * len(series))
        for i, (row,) in enumerate(series.values()):
            if row:
                middle = stats.median(row)
                style: Style = {"color": canvas.INK, "linewidth": 2.5, "zorder": 2}
                axes.plot([middle] * 2, [i - 0.32, i + 0.32], **style)
                canvas.draw_points(axes, row, canvas.spaced(i, 0.36, len(row)), i)
        axes.set_yticks(range(len(series)), list(series))
        axes.set(ylim=(len(series) - 0.4, -0.6), ylabel="variant")
        canvas.value_axis(axes.xaxis, _label(measurement), series)
    lines = say(series, [""], measurement.unit)
    return canvas.finished(figure, alt(title, _subtitle(measurement, where), lines))


def phases(measurement: Measurement, threads: int, title: str | None = None) -> Plot:
    """Each variant's value in every phase, in the order they ran, at one thread count.

    Raises UsageError if that thread count was not measured.
    """
    _check_known("thread count", threads, measurement.thread_counts)
    names, where = measurement.phases, in_threads(threads)
    title = title or f"{measurement.case}: {_what(measurement)} by phase"
    series = _series(measurement, [(threads, phase) for phase in names])
    with canvas.house_style():
        figure, axes = canvas.canvas(title, _subtitle(measurement, where, _LINES))
        canvas.draw_series(axes, range(len(names)), series, dodge=0.6)
        _phase_axis(axes, names)
        canvas.value_axis(axes.yaxis, _label(measurement), series)
        canvas.legend(figure, *axes.get_legend_handles_labels())
    lines = say(series, [f"in phase {phase}" for phase in names], measurement.unit)
    return canvas.finished(figure, alt(title, _subtitle(measurement, where), lines))


def shares(
    measurement: Measurement, counter: str, of: Sequence[str], threads: int, title: str, ylabel: str
) -> Plot:
    """What part `counter` is of the sum of the counters `of`, in percent, by phase and variant.

    " (%)" is added to `ylabel` unless it is there.

    Raises UsageError if a counter is unknown, or the thread count was not measured.
    """
    _check_known("thread count", threads, measurement.thread_counts)
    results = measurement.variants.values()
    counted = sorted({key for result in results for s in result.samples for key in s.counts})
    for name in (counter, *of):
        _check_known("counter", name, counted)

    def percent(variant: str, phase: str) -> list[float]:
        samples = measurement.samples(variant, threads=threads, phase=phase)
        wholes = [(s.counts[counter], sum(s.counts[name] for name in of)) for s in samples]
        return [100 * part / whole for part, whole in wholes if whole]

    names, where = measurement.phases, in_threads(threads)
    series = {name: [percent(name, phase) for phase in names] for name in measurement.variants}
    width = 0.8 / len(series)
    with canvas.house_style():
        figure, axes = canvas.canvas(title, _subtitle(measurement, where, _BARS))
        for i, (name, rows) in enumerate(series.items()):
            places = [at - 0.4 + (i + 0.5) * width for at in range(len(rows))]
            seen = [(x, row, stats.median(row)) for x, row in zip(places, rows, strict=True) if row]
            hatch = canvas.HATCHES[i % len(canvas.HATCHES)]
            style: Style = {"alpha": 0.35, "edgecolor": canvas.INK, "hatch": hatch}
            for x, row, middle in seen:
                label = name if x == seen[0][0] else None
                colour = canvas.look(i)["color"]
                axes.bar(x, middle, width * 0.9, color=colour, label=label, **style)
                canvas.draw_points(axes, canvas.spaced(x, width * 0.5, len(row)), row, i)
                above: Style = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center"}
                axes.annotate(short(middle), (x, max(row)), **above)
        _phase_axis(axes, names)
        axes.set_ylabel(ylabel if "%" in ylabel else f"{ylabel} (%)")
        # room above 100 for the numbers on the bars
        axes.set(ylim=(0, 112), yticks=range(0, 101, 20))
        axes.grid(axis="y", alpha=0.3)
        canvas.legend(figure, *axes.get_legend_handles_labels())
    lines = say(series, [f"in phase {phase}" for phase in names], "%")
    return canvas.finished(figure, alt(title, _subtitle(measurement, where), lines))


def ratios(measurement: Measurement, title: str | None = None) -> Plot:
    """A forest plot of the paired ratios with their intervals, and a line at 1: no difference.

    Raises UsageError if the measurement holds no ratio.
    """
    rows = [(key, row) for key, some in measurement.ratio.items() for row in some]
    if not rows:
        raise UsageError("no ratios to plot: measure at least two variants")
    keys = list(dict.fromkeys(key for key, _ in rows))
    spoken = [(key.replace("/", " / "), in_threads(row.threads), row.phase) for key, row in rows]
    # what every row has in common goes into the subtitle, once
    differ = [len(set(column)) > 1 for column in zip(*spoken, strict=True)]
    labels = [", ".join(compress(parts, differ)) or parts[0] for parts in spoken]
    pair, threads, phase = spoken[0]
    phase = f"phase {phase}" if len(measurement.phases) > 1 else ""
    common = compress((pair if len(rows) > 1 else "", threads, phase), [not d for d in differ])
    title = title or f"{measurement.case}: ratio of {_what(measurement)}"
    subtitle = _subtitle(measurement, *common, "points: medians, bars: 95% intervals")
    with canvas.house_style():
        # each row's name and numbers stand above it: beside it they would leave no room
        room = 72 * canvas.WIDTH - 12
        space = "\N{NO-BREAK SPACE}"
        numbers = [
            f"{short(r.median)}{space}[{short(r.low)},{space}{short(r.high)}]" for _, r in rows
        ]
        labels = [
            canvas.wrapped(f"{label}: {text}", room)
            for label, text in zip(labels, numbers, strict=True)
        ]
        height = 0.45 + 0.17 * max(label.count("\n") for label in labels)
        figure, axes = canvas.canvas(title, subtitle, height=1.2 + height * len(rows))
        axes.axvline(1, color=canvas.INK, linestyle="--", linewidth=1)
        for y, (key, row) in enumerate(rows):
            ends = [[row.median - row.low], [row.high - row.median]]
            style: Style = {"markersize": 7, "capsize": 4, "linewidth": 1.8}
            look = canvas.look(keys.index(key) + 1)
            axes.errorbar(row.median, y, xerr=ends, **style, **look)
            above: Style = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
            above |= {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1}}
            axes.annotate(labels[y], (0.01, y), (0, 7), **above).set_in_layout(False)
        axes.set(yticks=[], ylim=(len(rows) - 0.7, -0.95))
        axes.spines["left"].set_visible(False)
        low = min(1.0, *(row.low for _, row in rows))
        high = max(1.0, *(row.high for _, row in rows))
        if low > 0:
            axes.set_xscale("log")
            # a symmetric, readable range even when every ratio is close to 1
            axes.set_xlim(min(0.8, low / 1.15), max(1.25, high * 1.15))
        canvas.tidy_log(axes.xaxis)
        axes.grid(axis="x", alpha=0.3)
        axes.set_xlabel("paired ratio (no unit; 1 = no difference)")
    lines = [
        f"{', '.join(parts)}: {short(row.median)} times, interval {short(row.low)} to "
        f"{short(row.high)}, {row.pairs} {'pair' if row.pairs == 1 else 'pairs'}"
        for parts, (_, row) in zip(spoken, rows, strict=True)
    ]
    return canvas.finished(figure, alt(title, _subtitle(measurement, ""), lines))


def _series(measurement: Measurement, places: Sequence[tuple[int, str]]) -> Series:
    """Each variant's values at thread counts and phases."""
    return {
        name: [measurement.values(name, threads=n, phase=phase) for n, phase in places]
        for name in measurement.variants
    }


def _phase_axis(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), names)
    axes.set(xlim=(-0.5, len(names) - 0.5), xlabel="phase, in the order they ran")


def _check_known(kind: str, value: _T, valid: Sequence[_T]) -> None:
    if value not in valid:
        names = ", ".join(map(str, valid)) or "none, there is no sample"
        raise UsageError(f"no {kind} {value}: choose from {names}")


def _what(measurement: Measurement) -> str:
    metric = measurement.metric
    if metric.endswith("_per_s"):
        return "throughput"
    # a metric ends in its unit, which the axis spells out: latency_us is a latency
    return (metric if "_per_" in metric else metric.rpartition("_")[0] or metric).replace("_", " ")


def _label(measurement: Measurement) -> str:
    return f"{_what(measurement)} ({measurement.unit})"


def _subtitle(measurement: Measurement, *parts: str) -> str:
    return join("recorded reference run" if measurement.recorded else "", *parts)
