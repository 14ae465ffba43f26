# SPDX-License-Identifier: MIT
"""A workload against the number of CPUs: recorded sweeps, fits, figures, a knob to turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from contended import stats
from contended.errors import UsageError
from contended.measure.results import number
from contended.show.canvas import Plot
from contended.show.table import Table
from contended.simulate import machines
from contended.simulate.chart import Mark, chart
from contended.simulate.workload import Row, Scenario, Workload

if TYPE_CHECKING:
    import pandas as pd

CPUS = (1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512)
SEEDS = 5
LIVE_CPUS = (1, 2, 4, 8, 16, 24, 32, 64, 80, 128, 160, 192, 512)


class Series(NamedTuple):
    """What a figure draws as one line: a variant in one of its workload's phases, and its name."""

    variant: str
    phase: str = "run"
    name: str = ""

    @property
    def label(self) -> str:
        """Its name in the figure."""
        return self.name or self.variant


class Knob(NamedTuple):
    """What a reader can turn, and the rougher simulation that answers at once.

    It gives a workload's options at a setting.
    """

    label: str  # with its unit
    options: Callable[[float], dict[str, Any]]
    factor: bool = True  # from an eighth to eight; or else a part of 1, from 0 on
    machine: bool = True  # whether that can be chosen, too
    start: float = 1.0
    lines: tuple[Series, ...] = ()  # what is drawn, if not the sweep's own

    @property
    def amounts(self) -> tuple[float, ...]:
        """Its settings, ascending."""
        if self.factor:
            return tuple(round(2 ** (k / 2), 4) for k in range(-6, 7))
        return tuple(round(k / 20, 2) for k in range(21))


def times(scenario: Scenario, name: str) -> Knob:
    """A knob for the length of some private work of a scenario."""

    def options(amount: float) -> dict[str, Any]:
        return {"work": {name: amount * scenario.works[name].value}}

    return Knob(f"{name}, times", options)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a chapter's figure is made of: lines, a knob to turn, and published points."""

    workload: Workload
    machine: str
    lines: tuple[Series, ...]
    knob: Knob
    marks: tuple[Mark, ...] = ()
    unit: str = "operations/s"  # of all CPUs together, or "ms" for one operation

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants of its lines, each once."""
        return tuple(dict.fromkeys(line.variant for line in self.lines))

    @property
    def throughput(self) -> bool:
        """Whether it shows that, and not what one operation takes."""
        return self.unit != "ms"

    @property
    def ylabel(self) -> str:
        """What its figures say at the axis of values."""
        return "operations/s, all CPUs" if self.throughput else "one umount (ms)"

    def command(self, path: str) -> str:
        """The one command that makes the record of the sweep."""
        return (
            f"contended simulate {self.workload.name} --machine {self.machine} "
            f"--variants {','.join(self.variants)} --cpus {','.join(map(str, CPUS))} "
            f"--seeds {SEEDS} --parquet {path}"
        )

    def now(self, cpus: Sequence[int], *, machine: str = "", amount: float | None = None) -> Curve:
        """A rougher sweep, made now, by default as the figure's: one seed, and fewer CPUs."""
        import pandas as pd  # slow to import

        knob = self.knob
        drawn = replace(self, machine=machine or self.machine, lines=knob.lines or self.lines)
        options = knob.options(knob.start if amount is None else amount)
        rows: list[Row] = []
        for variant, n in product(drawn.variants, cpus):
            rows += self.workload.rows(variant, drawn.machine, n, 0, **options)
        return Curve(drawn, pd.DataFrame(rows))


@dataclass(frozen=True, slots=True)
class Curve:
    """A sweep and its rows, see `Workload.rows`."""

    sweep: Sweep
    frame: pd.DataFrame

    def values(self, line: Series, cpus: int, what: str = "") -> list[float]:
        """A column's values over the seeds; by default the sweep's own, in its unit."""
        f = self.frame
        rows = f[(f.variant == line.variant) & (f.phase == line.phase) & (f.cpus == cpus)]
        if not what and not self.sweep.throughput:
            return [float(value) / 1e6 for value in rows["ns_per_op"]]
        return [float(value) for value in rows[what or "ops_per_s"]]

    def line(self, label: str) -> Series:
        """The line of that name; raises UsageError if there is none."""
        lines = {line.label: line for line in self.sweep.lines}
        if label not in lines:
            raise UsageError(f"no line {label!r}; choose one of: {', '.join(lines)}")
        return lines[label]

    def at(self, label: str, cpus: int, what: str = "") -> float:
        """The median over the seeds; raises UsageError if these CPUs were not simulated."""
        found = self.values(self.line(label), cpus, what)
        if not found:
            there = ", ".join(map(str, self.cpus))
            raise UsageError(f"{cpus} CPUs were not simulated; there are {there}")
        return stats.median(found)

    @property
    def cpus(self) -> list[int]:
        """The numbers of CPUs that were simulated, ascending."""
        return sorted({int(n) for n in self.frame.cpus})

    def fit(self, label: str) -> stats.Usl:
        """The Universal Scalability Law fitted to a line, all seeds, as far as the machine goes.

        The law knows nothing of sockets that are added; what it says of them is drawn as well.
        """
        line, size = self.line(label), machines.get(self.sweep.machine).cpus
        rows = [(n, value) for n in self.cpus if n <= size for value in self.values(line, n)]
        return stats.usl_fit([n for n, _ in rows], [value for _, value in rows])

    def fits(self) -> Table:
        """The fitted coefficients of each line."""
        rows = []
        for line in self.sweep.lines:
            fit = self.fit(line.label)
            peak = "none" if fit.peak == float("inf") else f"{fit.peak:,.0f}"
            one = f"{number(fit.lambda_ / 1e6, 3)} M/s"
            parts = number(fit.sigma, 2), number(fit.kappa, 2)
            rows.append((line.label, one, *parts, peak, f"{fit.r2:.2f}"))
        head = ("line", "one CPU", "contention", "coherency", "peak at CPUs", "R²")
        return Table("The Universal Scalability Law, fitted as far as the machine goes", head, rows)

    def again(self, label: str, cpus: int, seed: int = 0) -> bool:
        """Simulate a point anew: does each digit agree, so that nobody has to trust the record?"""
        line, f = self.line(label), self.frame
        kept = f[(f.variant == line.variant) & (f.cpus == cpus) & (f.seed == seed)]
        now = self.sweep.workload.rows(line.variant, self.sweep.machine, cpus, seed)
        # a column that this workload lacks, or a share of nothing, is NaN: it differs from itself
        return len(kept) == len(now) and all(
            old[key] == value or (value != value and old[key] != old[key])
            for row, old in zip(now, kept.to_dict("records"), strict=True)
            for key, value in row.items()
        )

    def plot(self, title: str) -> Plot:
        """The curves, the fits where throughput is shown, and the published points."""
        box, lines = machines.get(self.sweep.machine), self.sweep.lines
        throughput = self.sweep.throughput
        return chart(
            title,
            {line.label: {float(n): self.values(line, n) for n in self.cpus} for line in lines},
            fits={line.label: self.fit(line.label).predict for line in lines if throughput},
            marks=self.sweep.marks,
            xlabel="CPUs",
            ylabel=self.sweep.ylabel,
            note=f"simulated: {box.title}" if throughput else "simulated: a tick each millisecond",
            ends=box.cpus if throughput else None,
        )
