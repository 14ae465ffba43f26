# SPDX-License-Identifier: MIT
"""Figures of measurements: they show every repeat, name their units, and say what they show.

Each function returns a `Plot`: a matplotlib figure and an alternative text made from the same
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from contended import stats
from contended.errors import UsageError
from contended.measure.results import Measurement, Sample
from contended.show.canvas import (
    HATCHES,
    INK,
    MARKERS,
    Plot,
    canvas,
    colour,
    draw_points,
    draw_series,
    finished,
    flattened,
    house_style,
    legend,
    spaced,
    ticks_at,
    tidy_log,
    value_axis,
)
from contended.show.words import alt, in_threads, join, say, short

_T = TypeVar("_T")


def throughput(
    measurement: Measurement, phase: str | None = None, title: str | None = None
) -> Plot:
    """Each variant's value against the number of threads, or side by side at a single one.

    Args:
        measurement: What was measured.
        phase: Which phase to show; None takes the first, and the figure names it.
        title: Replaces "case: what is shown".

    Raises:
        UsageError: no such phase, or the measurement has no sample.
    """
    phase = _known("phase", phase, measurement.phases) if phase else _first_phase(measurement)
    counts = measurement.thread_counts
    title = title or f"{measurement.case}: {_what(measurement)}"
    where = f"phase {phase}" if len(measurement.phases) > 1 else ""
    if len(counts) == 1:
        return _strips(measurement, counts[0], phase, title, where)
    series = {
        name: [measurement.values(name, threads=n, phase=phase) for n in counts]
        for name in measurement.variants
    }
    with house_style():
        figure, axes = canvas(title, _subtitle(measurement, where, "lines: medians"))
        if counts[-1] / counts[0] >= 16:
            axes.set_xscale("log", base=2)
        draw_series(axes, counts, series, dodge=0.24)
        ticks_at(axes.xaxis, counts)
        axes.set_xlabel("threads")
        value_axis(axes.yaxis, _label(measurement), flattened(series.values()))
        legend(figure, axes)
    lines = [
        say(
            name,
            [(f"at {in_threads(n)}", row) for n, row in zip(counts, rows, strict=True)],
            measurement.unit,
        )
        for name, rows in series.items()
    ]
    return finished(figure, alt(title, _subtitle(measurement, where), lines))


def phases(measurement: Measurement, threads: int, title: str | None = None) -> Plot:
    """Each variant's value in every phase, in the order they ran, at one thread count.

    Raises:
        UsageError: that thread count was not measured.
    """
    _known("thread count", threads, measurement.thread_counts)
    names = measurement.phases
    title = title or f"{measurement.case}: {_what(measurement)} by phase"
    series = {
        name: [measurement.values(name, threads=threads, phase=phase) for phase in names]
        for name in measurement.variants
    }
    with house_style():
        figure, axes = canvas(title, _subtitle(measurement, in_threads(threads), "lines: medians"))
        draw_series(axes, range(len(names)), series, dodge=0.6)
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_xlabel("phase, in the order they ran")
        value_axis(axes.yaxis, _label(measurement), flattened(series.values()))
        legend(figure, axes)
    lines = [say(name, _in_phases(names, rows), measurement.unit) for name, rows in series.items()]
    return finished(figure, alt(title, _subtitle(measurement, in_threads(threads)), lines))


def shares(
    measurement: Measurement,
    counter: str,
    of: Sequence[str],
    threads: int,
    title: str,
    ylabel: str,
) -> Plot:
    """What part of some counters is one of them, in percent, by phase and variant.

    Args:
        measurement: What was measured.
        counter: The part, e.g. "slow".
        of: The counters whose sum is the whole, e.g. ["fast", "slow"].
        threads: The thread count to show.
        title: The figure's title.
        ylabel: The value axis; " (%)" is added unless it is there.

    Raises:
        UsageError: an unknown counter, or a thread count that was not measured.
    """
    _known("thread count", threads, measurement.thread_counts)
    every = [s for name in measurement.variants for s in measurement.samples(name)]
    for name in (counter, *of):
        _known("counter", name, sorted({key for sample in every for key in sample.counts}))
    names = measurement.phases
    series = {
        name: [
            _percent(measurement.samples(name, threads=threads, phase=phase), counter, of)
            for phase in names
        ]
        for name in measurement.variants
    }
    width = 0.8 / len(series)
    with house_style():
        figure, axes = canvas(title, _subtitle(measurement, in_threads(threads), "bars: medians"))
        for i, (name, rows) in enumerate(series.items()):
            label: str | None = name
            for at, row in enumerate(rows):
                if not row:
                    continue
                x = at - 0.4 + (i + 0.5) * width
                middle = stats.median(row)
                axes.bar(
                    x,
                    middle,
                    width * 0.9,
                    color=colour(i),
                    alpha=0.35,
                    edgecolor=INK,
                    hatch=HATCHES[i % len(HATCHES)],
                    label=label,
                )
                label = None
                draw_points(axes, spaced(x, width * 0.5, len(row)), row, i)
                axes.annotate(
                    short(middle),
                    (x, max(row)),
                    (0, 6),
                    textcoords="offset points",
                    ha="center",
                    fontsize=10,
                )
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_xlabel("phase, in the order they ran")
        axes.set_ylabel(ylabel if "%" in ylabel else f"{ylabel} (%)")
        # room above 100 for the numbers on the bars
        axes.set_ylim(0, 112)
        axes.set_yticks(range(0, 101, 20))
        axes.grid(axis="y", alpha=0.3)
        legend(figure, axes)
    lines = [say(name, _in_phases(names, rows), "%") for name, rows in series.items()]
    return finished(figure, alt(title, _subtitle(measurement, in_threads(threads)), lines))


def ratios(measurement: Measurement, title: str | None = None) -> Plot:
    """A forest plot of the paired ratios with their intervals, and a line at 1: no difference.

    Raises:
        UsageError: the measurement holds no ratio.
    """
    rows = [(key, row) for key, some in measurement.ratio.items() for row in some]
    if not rows:
        raise UsageError("no ratios to plot: measure at least two variants")
    keys = list(dict.fromkeys(key for key, _ in rows))
    spoken = []
    for key, row in rows:
        name = key.replace("/", " / ")
        spoken.append((name, in_threads(row.threads), row.phase))
    # what every row has in common goes into the subtitle, once
    common = [len({parts[i] for parts in spoken}) == 1 for i in range(3)]
    labels = [
        ", ".join(part for part, same in zip(parts, common, strict=True) if not same) or parts[0]
        for parts in spoken
    ]
    shared = ", ".join(
        f"phase {part}" if i == 2 else part
        for i, (part, same) in enumerate(zip(spoken[0], common, strict=True))
        if same
        and not (i == 2 and len(measurement.phases) == 1)
        and not (i == 0 and len(rows) == 1)
    )
    title = title or f"{measurement.case}: ratio of {_what(measurement)}"
    with house_style():
        figure, axes = canvas(
            title,
            _subtitle(measurement, shared, "points: medians, bars: 95% intervals", repeats=False),
            height=1.9 + 0.36 * len(rows),
            margin=0.4 + 0.09 * max(len(label) for label in labels),
        )
        axes.axvline(1, color=INK, linestyle="--", linewidth=1)
        for y, (key, row) in enumerate(rows):
            i = keys.index(key) + 1
            axes.errorbar(
                row.median,
                y,
                xerr=[[row.median - row.low], [row.high - row.median]],
                color=colour(i),
                marker=MARKERS[i % len(MARKERS)],
                markersize=7,
                capsize=4,
                linewidth=1.8,
            )
            axes.annotate(
                f"{short(row.median)} [{short(row.low)}, {short(row.high)}]",
                (1.02, y),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=10,
            )
        axes.set_yticks(range(len(rows)), labels)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_ylabel("variant / base" if not common[0] else "")
        ends = [1.0, *(r.low for _, r in rows), *(r.high for _, r in rows)]
        if min(ends) > 0:
            axes.set_xscale("log")
            # a symmetric, readable range even when every ratio is close to 1
            axes.set_xlim(min(0.8, min(ends) / 1.15), max(1.25, max(ends) * 1.15))
        # names to the left and numbers to the right leave little room
        tidy_log(axes.xaxis, most=6)
        axes.grid(axis="x", alpha=0.3)
        axes.set_xlabel("paired ratio (no unit; 1 = no difference)")
    lines = [
        f"{', '.join(parts)}: {short(row.median)} times, interval {short(row.low)} to "
        f"{short(row.high)}, {row.pairs} {'pair' if row.pairs == 1 else 'pairs'}"
        for parts, (_, row) in zip(spoken, rows, strict=True)
    ]
    return finished(figure, alt(title, _subtitle(measurement, "", repeats=False), lines))


def _strips(measurement: Measurement, threads: int, phase: str, title: str, where: str) -> Plot:
    # horizontal: variant names are long, and here they never run into each other
    rows = {
        name: measurement.values(name, threads=threads, phase=phase)
        for name in measurement.variants
    }
    where = join(where, in_threads(threads))
    with house_style():
        figure, axes = canvas(
            title,
            _subtitle(measurement, where, "bars: medians"),
            height=1.7 + 0.55 * len(rows),
            margin=0.4 + 0.09 * max(len(name) for name in rows),
        )
        for i, row in enumerate(rows.values()):
            if row:
                middle = stats.median(row)
                axes.plot([middle] * 2, [i - 0.32, i + 0.32], color=INK, linewidth=2.5, zorder=2)
                draw_points(axes, row, spaced(i, 0.36, len(row)), i)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_ylabel("variant")
        value_axis(axes.xaxis, _label(measurement), flattened([list(rows.values())]))
    lines = [say(name, [("", row)], measurement.unit) for name, row in rows.items()]
    return finished(figure, alt(title, _subtitle(measurement, where), lines))


def _percent(samples: Sequence[Sample], counter: str, of: Sequence[str]) -> list[float]:
    wholes = [(s.counts[counter], sum(s.counts[name] for name in of)) for s in samples]
    return [100 * part / whole for part, whole in wholes if whole]


def _known(kind: str, value: _T, valid: Sequence[_T]) -> _T:
    if value not in valid:
        names = ", ".join(str(item) for item in valid) or "none, there is no sample"
        raise UsageError(f"no {kind} {value}: choose from {names}")
    return value


def _first_phase(measurement: Measurement) -> str:
    if not measurement.phases:
        raise UsageError(f"no samples of {measurement.case} to plot: see its failures")
    return measurement.phases[0]


def _what(measurement: Measurement) -> str:
    metric = measurement.metric
    if metric.endswith("_per_s"):
        return "throughput"
    # a metric ends in its unit, which the axis spells out: latency_us is a latency
    return (metric if "_per_" in metric else metric.rpartition("_")[0] or metric).replace("_", " ")


def _label(measurement: Measurement) -> str:
    return f"{_what(measurement)} ({measurement.unit})"


def _subtitle(measurement: Measurement, where: str, key: str = "", *, repeats: bool = True) -> str:
    run = "recorded reference run" if measurement.recorded else ""
    points = "points: repeats" if key and repeats else ""
    return join(run, where, points, key)


def _in_phases(
    phases: Sequence[str], rows: Sequence[Sequence[float]]
) -> list[tuple[str, Sequence[float]]]:
    return [(f"in phase {phase}", row) for phase, row in zip(phases, rows, strict=True)]
