# SPDX-License-Identifier: MIT
"""Figures that show every repeat, name their units, and say in words what they show.

Each function returns a `Plot`: a matplotlib figure and an alternative text made from the same
numbers. Nothing here touches pyplot, the backend or the reader's own matplotlib settings, and the
same data always gives the same SVG, byte for byte. Colours are Okabe and Ito's, which colour-blind
readers can tell apart; marker, line style and hatch tell the series apart without any colour.

Source of the palette: M. Okabe and K. Ito, "Color Universal Design", 2008.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from contended import stats
from contended.errors import ContendedError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from contended.measure.results import Measurement, Sample
#: Vermilion, blue, bluish green, reddish purple, orange, sky blue, black. Okabe and Ito's yellow
#: is left out: on white it is too faint.
PALETTE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_LINES = ("-", "--", "-.", ":")
_HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")
_T = TypeVar("_T")

_INK = "#333333"

# Narrower than the page, so that a phone shrinks the text as little as possible
_WIDTH = 6.0
_HEIGHT = 3.8

# A range beyond this needs a logarithmic axis, or its lower end is a flat line
_LOG_BEYOND = 20.0

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 11.0,
    "axes.titlesize": 10.0,
    "figure.titlesize": 13.0,
    "axes.labelsize": 11.0,
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "legend.fontsize": 10.5,
    "hatch.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "contended",
}


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure with its alternative text; a notebook shows both.

    Attributes:
        figure: The matplotlib figure. Its layout is settled: it no longer moves to make room.
        alt: What the figure shows, in words and numbers, for those who cannot see it.
    """

    figure: Figure = field(repr=False)
    alt: str

    def svg(self) -> bytes:
        """The figure as SVG: the same bytes for the same data."""
        return self._render("svg")

    def save(self, path: Path) -> None:
        """Write the figure; the suffix (.svg, .png or .pdf) chooses the format.

        Raises:
            UsageError: the suffix is none of these.
            ContendedError: the file cannot be written.
        """
        kind = path.suffix.lower().lstrip(".")
        if kind not in ("svg", "png", "pdf"):
            raise UsageError(f"cannot save a figure as {path.name}: end it in .svg, .png or .pdf")
        image = self._render(kind)
        try:
            path.write_bytes(image)
        except OSError as error:
            raise ContendedError(f"cannot write {path}: {error.strerror}") from error

    def _render(self, kind: str) -> bytes:
        undated: dict[str, dict[str, Any]] = {
            "svg": {"Date": None, "Creator": None},
            "pdf": {"CreationDate": None},
        }
        out = BytesIO()
        with house_style():
            self.figure.savefig(out, format=kind, dpi=200, metadata=undated.get(kind))
        return out.getvalue()

    def _repr_html_(self) -> str:
        image = base64.b64encode(self.svg()).decode()
        return (
            f'<img alt="{escape(self.alt)}" src="data:image/svg+xml;base64,{image}" '
            'style="max-width: 100%; height: auto">'
        )

    def _repr_mimebundle_(
        self,
        include: object = None,  # noqa: ARG002 - the signature that IPython calls
        exclude: object = None,  # noqa: ARG002
    ) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": self.alt}


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
        _series(axes, counts, series, dodge=0.24)
        _ticks_at(axes.xaxis, counts)
        axes.set_xlabel("threads")
        _value_axis(axes.yaxis, _label(measurement), _flat(series.values()))
        _legend(figure, axes)
    lines = [
        _say(
            name,
            [(f"at {_threads(n)}", row) for n, row in zip(counts, rows, strict=True)],
            measurement.unit,
        )
        for name, rows in series.items()
    ]
    return finished(figure, _alt(title, _subtitle(measurement, where), lines))


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
        figure, axes = canvas(title, _subtitle(measurement, _threads(threads), "lines: medians"))
        _series(axes, range(len(names)), series, dodge=0.6)
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_xlabel("phase, in the order they ran")
        _value_axis(axes.yaxis, _label(measurement), _flat(series.values()))
        _legend(figure, axes)
    lines = [_say(name, _in_phases(names, rows), measurement.unit) for name, rows in series.items()]
    return finished(figure, _alt(title, _subtitle(measurement, _threads(threads)), lines))


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
        figure, axes = canvas(title, _subtitle(measurement, _threads(threads), "bars: medians"))
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
                    color=_colour(i),
                    alpha=0.35,
                    edgecolor=_INK,
                    hatch=_HATCHES[i % len(_HATCHES)],
                    label=label,
                )
                label = None
                _points(axes, _spaced(x, width * 0.5, len(row)), row, i)
                axes.annotate(
                    _short(middle),
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
        _legend(figure, axes)
    lines = [_say(name, _in_phases(names, rows), "%") for name, rows in series.items()]
    return finished(figure, _alt(title, _subtitle(measurement, _threads(threads)), lines))


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
        spoken.append((name, _threads(row.threads), row.phase))
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
        axes.axvline(1, color=_INK, linestyle="--", linewidth=1)
        for y, (key, row) in enumerate(rows):
            i = keys.index(key) + 1
            axes.errorbar(
                row.median,
                y,
                xerr=[[row.median - row.low], [row.high - row.median]],
                color=_colour(i),
                marker=_MARKERS[i % len(_MARKERS)],
                markersize=7,
                capsize=4,
                linewidth=1.8,
            )
            axes.annotate(
                f"{_short(row.median)} [{_short(row.low)}, {_short(row.high)}]",
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
        _tidy_log(axes.xaxis, most=6)
        axes.grid(axis="x", alpha=0.3)
        axes.set_xlabel("paired ratio (no unit; 1 = no difference)")
    lines = [
        f"{', '.join(parts)}: {_short(row.median)} times, interval {_short(row.low)} to "
        f"{_short(row.high)}, {row.pairs} {'pair' if row.pairs == 1 else 'pairs'}"
        for parts, (_, row) in zip(spoken, rows, strict=True)
    ]
    return finished(figure, _alt(title, _subtitle(measurement, "", repeats=False), lines))


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
        figure, axes = canvas(title, note, height=side, width=min(_WIDTH, 1.25 * side))
        # from zero, so that twice the colour is twice the cost
        image = axes.imshow(grid, cmap="cividis", vmin=0, vmax=top)
        bar = figure.colorbar(image, ax=axes, shrink=0.9)
        bar.set_label(unit)
        if n <= 10:
            for (i, j), value in pairs.items():
                ink = "black" if value > 0.55 * top else "white"
                axes.text(j, i, _short(value), ha="center", va="center", color=ink, fontsize=10)
        every = max(1, math.ceil(n / 16))
        axes.set_xticks(range(0, n, every), [str(x) for x in labels[::every]])
        axes.set_yticks(range(0, n, every), [str(x) for x in labels[::every]])
        axes.set_xlabel(f"to {axis}")
        axes.set_ylabel(f"from {axis}")
        axes.spines[:].set_visible(False)
    low, high = min(pairs, key=pairs.__getitem__), max(pairs, key=pairs.__getitem__)
    lines = [
        f"{len(pairs)} pairs, median {_number(stats.median(list(pairs.values())))} {unit}",
        f"lowest {_number(pairs[low])} {unit} from {axis} {labels[low[0]]} to {labels[low[1]]}",
        f"highest {_number(pairs[high])} {unit} from {axis} {labels[high[0]]} to {labels[high[1]]}",
    ]
    return finished(figure, _alt(title, note, lines))


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
    points = _flat(series.values())
    if not points:
        raise UsageError("nothing to plot: every series is empty")
    with house_style():
        figure, axes = canvas(
            title, _join(note, "points: repeats, lines: medians, bands: lowest to highest")
        )
        if logx:
            least = min((value for value in x if value > 0), default=1.0)
            if min(x) > 0:
                axes.set_xscale("log")
            else:
                axes.set_xscale("symlog", linthresh=least, linscale=0.4)
        _series(axes, x, series, band=True)
        if logx or len(x) <= 9:
            _ticks_at(axes.xaxis, x)
        axes.set_xlabel(xlabel)
        _value_axis(axes.yaxis, ylabel, points, log=logy)
        _legend(figure, axes)
    lines = []
    for name, rows in series.items():
        said = [(f"at {_number(at)}", row) for at, row in zip(x, rows, strict=True)]
        lines.append(_say(name, said, ""))
    return finished(figure, _alt(title, _join(note, f"{ylabel} against {xlabel}"), lines))


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
            _join(
                note,
                rf"$\sigma$ = {_short(fit.sigma)}, $\kappa$ = {_short(fit.kappa)}",
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
        _points(axes, threads, throughput, 0, label="each repeat")
        if fit.peak <= far:
            axes.axvline(fit.peak, color=_INK, linestyle="--", linewidth=1, label="fitted peak")
        if len(counts) <= 9:
            _ticks_at(axes.xaxis, counts)
        axes.set_xlim(0, far * 1.02)
        axes.set_xlabel("threads")
        _value_axis(axes.yaxis, unit, list(throughput), log=False)
        _legend(figure, axes)
    peak = "no peak" if math.isinf(fit.peak) else f"peak at {fit.peak:.1f} threads"
    lines = [
        _say("measured", [(f"at {_threads(n)}", by_count[n]) for n in counts], unit),
        f"fit: lambda {_number(fit.lambda_)} {unit}, sigma {_short(fit.sigma)}, "
        f"kappa {_short(fit.kappa)}, R squared {fit.r2:.3f}, {peak}",
    ]
    return finished(figure, _alt(title, note, lines))


def _strips(measurement: Measurement, threads: int, phase: str, title: str, where: str) -> Plot:
    # horizontal: variant names are long, and here they never run into each other
    rows = {
        name: measurement.values(name, threads=threads, phase=phase)
        for name in measurement.variants
    }
    where = _join(where, _threads(threads))
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
                axes.plot([middle] * 2, [i - 0.32, i + 0.32], color=_INK, linewidth=2.5, zorder=2)
                _points(axes, row, _spaced(i, 0.36, len(row)), i)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_ylabel("variant")
        _value_axis(axes.xaxis, _label(measurement), _flat([list(rows.values())]))
    lines = [_say(name, [("", row)], measurement.unit) for name, row in rows.items()]
    return finished(figure, _alt(title, _subtitle(measurement, where), lines))


@contextmanager
def house_style() -> Iterator[None]:
    """Fonts and lines of the book, whatever the reader's own settings are."""
    from matplotlib import style

    # after_reset: the reader's own settings must not change the book's figures
    with style.context(_STYLE, after_reset=True):
        yield


def canvas(
    title: str,
    subtitle: str,
    *,
    height: float = _HEIGHT,
    width: float = _WIDTH,
    margin: float = 0.9,
) -> tuple[Figure, Axes]:
    """An empty figure in the book's looks: draw on the axes, then call `finished`.

    Args:
        title: What the figure shows; wrapped to the width.
        subtitle: Where and how, smaller.
        height: Inches.
        width: Inches.
        margin: Inches that the labels left of the axes take from the subtitle.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    figure.suptitle(_wrap(title, int(8.5 * width)), x=0.01, ha="left", weight="bold")
    axes.set_title(_wrap(subtitle, int(11.5 * (width - margin))), loc="left", color=_INK)
    return figure, axes


def finished(figure: Figure, alt: str) -> Plot:
    """Settle the layout, and pair the figure with the words for those who cannot see it."""
    # a constrained layout creeps a little with every drawing: settle it once, so that showing
    # a figure twice gives the same bytes
    with house_style():
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return Plot(figure, alt)


def _series(
    axes: Axes,
    x: Sequence[float],
    series: Mapping[str, Sequence[Sequence[float]]],
    *,
    dodge: float = 0.0,
    band: bool = False,
) -> None:
    gap = min((b - a for a, b in pairwise(x)), default=1.0)
    logarithmic = axes.get_xscale() == "log"
    for i, (name, rows) in enumerate(series.items()):
        side = dodge * (i - (len(series) - 1) / 2) / len(series)
        seen = [
            (at * 2**side if logarithmic else at + gap * side, row)
            for at, row in zip(x, rows, strict=True)
            if row
        ]
        places = [at for at, _ in seen]
        axes.plot(
            places,
            [stats.median(row) for _, row in seen],
            color=_colour(i),
            linestyle=_LINES[i % len(_LINES)],
            linewidth=1.8,
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=4,
            label=name,
        )
        if band:
            axes.fill_between(
                places,
                [min(row) for _, row in seen],
                [max(row) for _, row in seen],
                color=_colour(i),
                alpha=0.15,
                linewidth=0,
            )
        for at, row in seen:
            _points(axes, [at] * len(row), row, i)


def _points(
    axes: Axes, x: Sequence[float], y: Sequence[float], i: int, *, label: str | None = None
) -> None:
    axes.plot(
        x,
        y,
        color=_colour(i),
        linestyle="none",
        marker=_MARKERS[i % len(_MARKERS)],
        markersize=6.5,
        markerfacecolor="none",
        alpha=0.8,
        label=label,
        zorder=3,
    )


def _value_axis(
    axis: Axis, label: str, values: Sequence[float], *, log: bool | None = None
) -> None:
    # None: logarithmic where the range asks for it
    from matplotlib.ticker import FuncFormatter

    positive = min(values) > 0
    if log is None:
        log = positive and max(values) / min(values) > _LOG_BEYOND
    axes, name = axis.axes, axis.axis_name  # type: ignore[attr-defined]
    if log and positive:
        axes.set(**{f"{name}scale": "log"})
        _tidy_log(axis)
        label = f"{label}\nlog scale"
    else:
        if min(values) >= 0:
            axes.set(**{f"{name}lim": (0, max(values) * 1.08 or 1)})
        axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set_label_text(label)
    axes.grid(axis=name, alpha=0.3)


def _tidy_log(axis: Axis, most: int = 8) -> None:
    # the densest of these ladders that has no more than `most` rungs in view
    if axis.get_scale() != "log":
        return
    low, high = sorted(axis.get_view_interval())
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ladders: list[tuple[float, ...]] = [
        (1, 1.1, 1.2, 1.5, 2, 3, 4, 5, 6, 7, 8, 9),
        (1, 1.5, 2, 3, 5, 7),
        (1, 2, 5),
        (1,),
    ]
    ticks: list[float] = []
    for steps in ladders:
        ticks = [t for p in powers for step in steps if low <= (t := step * 10.0**p) <= high]
        if len(ticks) <= most:
            break
    _ticks_at(axis, ticks)


def _ticks_at(axis: Axis, values: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set_minor_locator(NullLocator())


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    widest = max(len(label) for label in labels)
    columns = max(1, min(len(labels), 66 // (widest + 8)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


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
    return _join(run, where, points, key)


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _wrap(text: str, width: int) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))


def _colour(i: int) -> str:
    return PALETTE[i % len(PALETTE)]


def _spaced(middle: float, width: float, n: int) -> list[float]:
    if n == 1:
        return [middle]
    return [middle - width / 2 + width * i / (n - 1) for i in range(n)]


def _flat(series: Any) -> list[float]:
    return [value for rows in series for row in rows for value in row]


def _threads(n: float) -> str:
    return f"{n:g} thread" if n == 1 else f"{n:g} threads"


def _short(value: float) -> str:
    """Three significant digits, for where there is little room: 8.4M, 0.0213, 160."""
    return _scaled(value, (("G", 1e9), ("M", 1e6), ("k", 1e3)))


def _number(value: float) -> str:
    """Three significant digits and a word, for a screen reader: 8.4 million."""
    return _scaled(value, ((" billion", 1e9), (" million", 1e6), (" thousand", 1e3)))


def _scaled(value: float, scales: Sequence[tuple[str, float]]) -> str:
    rounded = float(f"{value:.3g}")
    for word, size in scales:
        if abs(rounded) >= size:
            return f"{rounded / size:g}{word}"
    return f"{rounded:g}"


def _say(name: str, rows: Sequence[tuple[str, Sequence[float]]], unit: str) -> str:
    said = []
    for place, row in rows:
        at = f"{place} " if place else ""
        if not row:
            said.append(f"{at}no sample")
        else:
            amount = _join_unit(_number(stats.median(row)), unit)
            said.append(f"{at}median {amount} ({_number(min(row))} to {_number(max(row))})")
    return f"{name}: {', '.join(said)}"


def _in_phases(
    phases: Sequence[str], rows: Sequence[Sequence[float]]
) -> list[tuple[str, Sequence[float]]]:
    return [(f"in phase {phase}", row) for phase, row in zip(phases, rows, strict=True)]


def _join_unit(amount: str, unit: str) -> str:
    return f"{amount}{unit}" if unit == "%" else f"{amount} {unit}".rstrip()


def _alt(title: str, subtitle: str, lines: Sequence[str]) -> str:
    return f"{_join(title, subtitle)}. {'. '.join(lines)}."
