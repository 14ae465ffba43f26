# SPDX-License-Identifier: MIT
"""What chapters show of machines that the reader does not have: curves, marks, fits, a slider.

The long sweeps are recorded in `results/SLUG/simulate.parquet`, each by the one command that
`command` names. A simulation gives the same digits everywhere, so a chapter does not have to trust
the record: `Curve.again` simulates points of it anew and compares.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from contended import register as register
from contended import stats
from contended.errors import ContendedError, UsageError
from contended.measure.results import number
from contended.show import lesson
from contended.show.canvas import Plot
from contended.show.table import Table
from contended.simulate import cases, grace, machines, predict
from contended.simulate.chart import Mark, chart

if TYPE_CHECKING:
    import pandas as pd

CPUS = (1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512)
SEEDS = 5
OPENS = predict.OPS_64_MOUNTS
BOOK = "CONTENDED_BOOK"
"""Set while the book is built: its pages have no server behind them, so nothing to slide."""

LIVE_CPUS = (1, 4, 8, 16, 32, 80, 192, 512)
_LIVE_LENGTH = 0.3
_LIVE_DRAWS = 40


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chapter's figure: a variant in one of its scenario's phases, and its name."""

    variant: str
    phase: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a chapter's figure is made of.

    Attributes:
        scenario: A name of `cases.names`.
        machine: Name of the machine.
        lines: What is drawn.
        unit: "operations/s" of all CPUs together, or "ms" for one operation.
        work: The private work that the slider changes; "" if it changes something else.
    """

    scenario: str
    machine: str
    lines: tuple[Line, ...]
    unit: str = "operations/s"
    work: str = ""

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants of its lines, each once."""
        return tuple(dict.fromkeys(line.variant for line in self.lines))


SWEEPS = {
    "lockref-degrade": Sweep(
        scenario="lockref-degrade",
        machine="1x24",
        lines=(
            Line("before", "calm", "before, calm"),
            Line("before", "after", "before, after strangers"),
            Line("after", "after", "waits, after strangers"),
        ),
        work="stat",
    ),
    "dentry-false-sharing": Sweep(
        scenario="dentry-false-sharing",
        machine="1x24",
        lines=(Line("before", "run", "before"), Line("after", "run", "after")),
        work="stat",
    ),
    "open-creat-unlazy": Sweep(
        scenario="open-creat-unlazy",
        machine="2x20-smt",
        lines=(
            Line("before", "run", "before"),
            Line("after", "run", "after"),
            Line("lookup-first", "run", "lookup-first"),
        ),
        work="open",
    ),
    "overlay-creds": Sweep(
        scenario="overlay-creds",
        machine="2x20-smt",
        lines=(
            Line("before", "run", "before"),
            Line("own-line", "run", "own-line"),
            Line("after", "run", "after"),
        ),
        work="faccessat",
    ),
    cases.UMOUNT: Sweep(
        scenario=cases.UMOUNT,
        machine="2x20-smt",
        lines=(
            Line("before", "idle", "waits, machine idle"),
            Line("before", "busy", "waits, machine busy"),
            Line("expedited", "idle", "waits, expedited"),
            Line("call-rcu", "idle", "deferred"),
        ),
        unit="ms",
    ),
}


def sweep_of(slug: str) -> Sweep:
    """What a chapter's figure is made of.

    Raises:
        UsageError: nothing of the case is simulated; the message lists those of which something is.
    """
    if slug not in SWEEPS:
        raise UsageError(f"{slug!r} has no simulated curve; choose one of: {', '.join(SWEEPS)}")
    return SWEEPS[slug]


def command(slug: str) -> str:
    """The one command that makes the record of a chapter's sweep."""
    sweep = sweep_of(slug)
    return (
        f"contended simulate {sweep.scenario} --machine {sweep.machine} "
        f"--variants {','.join(sweep.variants)} --cpus {','.join(map(str, CPUS))} "
        f"--seeds {SEEDS} --parquet results/{slug}/simulate.parquet"
    )


def marks(slug: str) -> tuple[Mark, ...]:
    """The published points that belong on a chapter's figure, in its unit."""
    case = register.get(slug)
    if slug == "lockref-degrade":
        figure = case.figure("stat-collapse")
        return tuple(_mark(figure, name) for name in ("healthy", "degraded"))
    if slug == "dentry-false-sharing":
        figure = case.figure("stat-same-file")
        return tuple(_mark(figure, name) for name in ("before", "after"))
    if slug == "open-creat-unlazy":
        figure = case.figure("open-close-64-mounts")
        found = []
        for name in ("before", "after"):
            value = figure.value(name)
            ends = [predict.OPS_64_MOUNTS / s for s in (value.high, value.low)]
            found.append(Mark(name, float(figure.cpus or 0), *ends))
        return tuple(found)
    if slug == cases.UMOUNT:
        figure = case.figure("lazy-umount")
        return tuple(_mark(figure, name, place=None) for name in ("before", "call-rcu"))
    return ()


def _mark(figure: register.Published, name: str, place: float | None = 0.0) -> Mark:
    value = figure.value(name)
    spread = value.plus_minus or 0.0
    at = float(figure.workers or figure.cpus or 0) if place is not None else None
    return Mark(name, at, value.low - spread, value.high + spread)


@dataclass(frozen=True, slots=True)
class Curve:
    """A chapter's sweep and its rows, see `cases.frame`."""

    slug: str
    sweep: Sweep
    frame: pd.DataFrame

    def values(self, line: Line, cpus: int, what: str = "") -> list[float]:
        """A column's values over the seeds; by default the sweep's own, in its unit."""
        f = self.frame
        rows = f[(f.variant == line.variant) & (f.phase == line.phase) & (f.cpus == cpus)]
        if what:
            return [float(value) for value in rows[what]]
        if self.sweep.unit == "ms":
            return [float(value) / 1e6 for value in rows["ns_per_op"]]
        return [float(value) for value in rows["ops_per_s"]]

    def line(self, label: str) -> Line:
        """The line of that name.

        Raises:
            UsageError: there is none; the message lists those there are.
        """
        for line in self.sweep.lines:
            if line.label == label:
                return line
        raise UsageError(
            f"no line {label!r}; choose one of: {', '.join(x.label for x in self.sweep.lines)}"
        )

    def at(self, label: str, cpus: int, what: str = "") -> float:
        """The median over the seeds."""
        found = self.values(self.line(label), cpus, what)
        if not found:
            raise UsageError(f"{cpus} CPUs were not simulated; there are {_listed(self.cpus)}")
        return stats.median(found)

    @property
    def cpus(self) -> list[int]:
        """The numbers of CPUs that were simulated, ascending."""
        return sorted({int(n) for n in self.frame.cpus})

    def fit(self, label: str) -> stats.Usl:
        """The Universal Scalability Law fitted to a line, all seeds, as far as the machine goes.

        The law knows nothing of sockets that are added; what it says of them is drawn as well.
        """
        line = self.line(label)
        inside = [n for n in self.cpus if n <= machines.get(self.sweep.machine).cpus]
        rows = [(n, value) for n in inside for value in self.values(line, n)]
        return stats.usl_fit([n for n, _ in rows], [value for _, value in rows])

    def fits(self) -> Table:
        """The fitted coefficients of each line."""
        rows = []
        for line in self.sweep.lines:
            fit = self.fit(line.label)
            peak = "none" if fit.peak == float("inf") else f"{fit.peak:,.0f}"
            rows.append(
                (
                    line.label,
                    f"{number(fit.lambda_ / 1e6, 3)} M/s",
                    number(fit.sigma, 2),
                    number(fit.kappa, 2),
                    peak,
                    f"{fit.r2:.2f}",
                )
            )
        head = ("line", "one CPU", "contention", "coherency", "peak at CPUs", "R²")
        return Table("The Universal Scalability Law, fitted as far as the machine goes", head, rows)

    def again(self, label: str, cpus: int, seed: int = 0) -> bool:
        """Simulate a point anew: does each digit agree with the record?"""
        line = self.line(label)
        f = self.frame
        kept = f[(f.variant == line.variant) & (f.cpus == cpus) & (f.seed == seed)]
        now = cases.rows(self.sweep.scenario, line.variant, self.sweep.machine, cpus, seed)
        return len(kept) == len(now) and all(
            _equal(row, old) for row, old in zip(now, kept.to_dict("records"), strict=True)
        )

    def plot(self, title: str) -> Plot:
        """The curves, the fits where throughput is shown, and the published points."""
        box = machines.get(self.sweep.machine)
        throughput = self.sweep.unit != "ms"
        return chart(
            title,
            {
                line.label: {float(n): self.values(line, n) for n in self.cpus}
                for line in self.sweep.lines
            },
            fits={line.label: self.fit(line.label).predict for line in self.sweep.lines}
            if throughput
            else None,
            marks=marks(self.slug),
            xlabel="CPUs",
            ylabel="operations/s, all CPUs" if throughput else "one umount (ms)",
            note=f"simulated: {box.title}" if throughput else "simulated: a tick each millisecond",
            ends=box.cpus if throughput else None,
        )


def _listed(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus))


def _equal(row: Mapping[str, Any], old: Mapping[Any, Any]) -> bool:
    # a column that this scenario lacks, or a share of nothing, is NaN, which differs from itself
    return all(
        old[key] == value or (value != value and old[key] != old[key]) for key, value in row.items()
    )


@cache
def load(slug: str) -> Curve:
    """The recorded sweep of a chapter.

    Raises:
        UsageError: nothing of the case is simulated.
        ContendedError: the record is missing; the message names the command that makes it.
    """
    sweep = sweep_of(slug)
    pandas = cases.require_pandas()
    path = lesson.reference(f"{slug}/simulate").with_suffix(".parquet")
    try:
        return Curve(slug, sweep, pandas.read_parquet(path))
    except FileNotFoundError:
        raise ContendedError(f"results/{slug}/{path.name} is missing: {command(slug)}") from None
    except ImportError as error:
        raise ContendedError("reading Parquet needs pyarrow: pip install pyarrow") from error


def simulate_now(
    slug: str, cpus: Sequence[int], *, machine: str = "", factor: float = 1.0, busy: float = -1.0
) -> Curve:
    """A rougher sweep, made now: shorter phases, one seed.

    Args:
        slug: The case.
        cpus: How many, 1 to 512 each.
        machine: Name of the machine; default the chapter's.
        factor: On the private work that the chapter's slider changes.
        busy: For umount: the part of the CPUs that is busy, in all lines; below 0 as recorded.
    """
    pandas = cases.require_pandas()
    sweep = sweep_of(slug)
    box = machines.get(machine or sweep.machine)
    rows: list[dict[str, Any]] = []
    for variant in sweep.variants:
        for n in cpus:
            if sweep.scenario == cases.UMOUNT:
                rows += grace.rows(
                    variant, box.name, n, 0, draws=_LIVE_DRAWS, busy=busy if busy >= 0 else None
                )
                continue
            work = {sweep.work: factor * cases.CENTRAL[sweep.work]}
            seen = cases.run(sweep.scenario, variant, box, n, work=work, length=_LIVE_LENGTH)
            rows += [
                cases.row(sweep.scenario, variant, box, n, 0, phase, what)
                for phase, what in seen.items()
            ]
    return Curve(
        slug,
        Sweep(
            scenario=sweep.scenario,
            machine=box.name,
            lines=sweep.lines,
            unit=sweep.unit,
            work=sweep.work,
        ),
        pandas.DataFrame(rows),
    )


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where waiting for a lock's release stops helping: the rows of `predict.crossover`."""

    machine: str
    frame: pd.DataFrame

    def ratio(self, part: float, cpus: int) -> float:
        """Throughput with waiting over throughput without it, where `part` of the visits lock."""
        f = self.frame
        (found,) = f[((f.explicit - part).abs() < 1e-9) & (f.cpus == cpus)].ratio
        return float(found)

    def sizes(self, part: float, *, above: float) -> list[int]:
        """The numbers of CPUs at which the ratio is above a value."""
        f = self.frame
        rows = f[((f.explicit - part).abs() < 1e-9) & (f.ratio > above)]
        return sorted(int(n) for n in rows.cpus)

    def plot(self, title: str) -> Plot:
        """The ratio against the CPUs, a line for each part, with the published ratios."""
        case = register.get("lockref-degrade")
        seen = []
        for figure_id in ("spin-24-workers", "spin-192-workers"):
            figure = case.figure(figure_id)
            low, high = figure.ratio("after", "before")
            workers = figure.workers or 0
            seen.append(Mark(f"{workers} workers", float(workers), low, high))
        robot = case.figure("robot-regressions")
        change = 1 + robot.value("handle").middle / 100
        seen.append(Mark("robot", float(robot.cpus or 0), change, change))
        f = self.frame
        return chart(
            title,
            {
                f"{100 * part:.0f} % of visits lock": {
                    float(n): [self.ratio(part, int(n))] for n in sorted(set(f.cpus))
                }
                for part in dict.fromkeys(f.explicit)
            },
            marks=seen,
            xlabel="CPUs",
            ylabel="throughput, waiting / not waiting",
            note=f"simulated: {machines.get(self.machine).title}",
            level=1.0,
        )


def crossover(
    machine: str, cpus: Sequence[int], parts: Sequence[float] = (0.02, 0.1, 2 / 3)
) -> Crossover:
    """Simulate lockref-degrade's spin fix against the machine's size; takes seconds.

    Args:
        machine: Name of the machine.
        cpus: How many, 1 to 512 each.
        parts: How many of the visits of the lock are for its own sake.
    """
    frame = predict.crossover(
        parts=tuple(parts), sizes=tuple((machine, n) for n in cpus), spins=("after",)
    )
    return Crossover(machine, frame)


@dataclass(frozen=True, slots=True)
class Slider:
    """The chapter's figure with something to slide, or the figure alone where nothing can.

    In JupyterLab the knobs simulate anew with each change. In a page of the book, and where
    ipywidgets is missing, the figure stands still.
    """

    slug: str
    title: str

    def figure(self, machine: str = "", amount: float | None = None) -> Plot:
        """What the knobs show.

        Args:
            machine: Name of the machine; default the chapter's.
            amount: A factor on the private work, or, for umount, the busy part of the CPUs.
        """
        if self.slug == cases.UMOUNT:
            busy = -1.0 if amount is None else amount
            return simulate_now(self.slug, LIVE_CPUS, busy=busy).plot(self.title)
        factor = 1.0 if amount is None else amount
        now = simulate_now(self.slug, LIVE_CPUS, machine=machine, factor=factor)
        return now.plot(self.title)

    def widget(self) -> Any:
        """The knobs above the figure, as an ipywidgets box."""
        import ipywidgets as widgets

        sweep = sweep_of(self.slug)
        wide = {"description_width": "12em"}
        picture = widgets.HTML(self.figure()._repr_html_())
        if self.slug == cases.UMOUNT:
            amount = widgets.FloatSlider(
                0.0, min=0.0, max=1.0, step=0.05, description="busy CPUs, part", style=wide
            )
            knobs = [amount]
            machine = None
        else:
            amount = widgets.FloatLogSlider(
                1.0, base=2, min=-3, max=3, step=0.5, description=f"{sweep.work}, times", style=wide
            )
            machine = widgets.Dropdown(
                options=machines.names(), value=sweep.machine, description="machine", style=wide
            )
            knobs = [machine, amount]
        for knob in knobs:
            knob.continuous_update = False

        def changed(_: object) -> None:
            chosen = machine.value if machine is not None else ""
            picture.value = self.figure(chosen, amount.value)._repr_html_()

        for knob in knobs:
            knob.observe(changed, names="value")
        return widgets.VBox([*knobs, picture])

    def _repr_mimebundle_(
        self,
        include: object = None,  # noqa: ARG002 - the signature that IPython calls
        exclude: object = None,  # noqa: ARG002
    ) -> dict[str, Any]:
        if os.environ.get(BOOK):
            return self._still()
        try:
            bundle: dict[str, Any] = dict(self.widget()._repr_mimebundle_())
        except ImportError:
            return self._still()
        # whoever cannot show the widget shows the figure
        return {**self._still(), **{k: v for k, v in bundle.items() if "widget" in k}}

    def _still(self) -> dict[str, Any]:
        return dict(self.figure()._repr_mimebundle_())


def slider(slug: str, title: str) -> Slider:
    """The chapter's figure, live: choose the machine and the work, and it is simulated anew.

    Raises:
        UsageError: nothing of the case is simulated.
    """
    sweep_of(slug)
    return Slider(slug, title)


def comparison(slug: str) -> Table:
    """Each published number beside the simulated one, with the range of the parameters."""
    found = predict.prediction(slug)
    rows = []
    for row in found.rows:
        if row.simulated is None or row.low is None or row.high is None:
            rows.append((row.figure, row.name, _span(row.published, row.unit), "-", "-", "cannot"))
            continue
        rows.append(
            (
                row.figure,
                row.name,
                _span(row.published, row.unit),
                _with(number(row.simulated, 3), row.unit),
                _span((row.low, row.high), row.unit),
                row.verdict,
            )
        )
    head = ("figure", "value", "published", "simulated", "over the ranges", "verdict")
    return Table("Published and simulated; nothing is fitted to the published numbers", head, rows)


def _span(ends: tuple[float, float], unit: str) -> str:
    low, high = (number(end, 3) for end in ends)
    return _with(low if low == high else f"{low} to {high}", unit)


def _with(text: str, unit: str) -> str:
    return text if unit in ("ratio", "part") else f"{text} {unit}"


def discussion(slug: str) -> Any:
    """Why the simulated numbers are what they are, each miss discussed; for display."""
    from IPython.display import Markdown

    return Markdown(  # type: ignore[no-untyped-call]
        "\n\n".join(predict.prediction(slug).discussion)
    )


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
