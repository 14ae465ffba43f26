# SPDX-License-Identifier: MIT
"""A workload's curves against the number of CPUs: recorded sweeps, fits, figures, a knob to turn.

A simulation gives the same digits everywhere, so nobody has to trust a recorded sweep:
`Curve.again` simulates points of it anew and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from contended import stats
from contended.errors import UsageError
from contended.measure.results import number
from contended.show.canvas import Plot
from contended.show.table import Table
from contended.simulate import machines
from contended.simulate.chart import Mark, chart
from contended.simulate.machines import MachineModel
from contended.simulate.workload import Row, Scenario, Workload

if TYPE_CHECKING:
    import pandas as pd

CPUS = (1, 2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512)
SEEDS = 5
_LIVE_LENGTH = 0.3


@dataclass(frozen=True, slots=True)
class Series:
    """What a figure draws as one line: a variant in one of its workload's phases, and its name."""

    variant: str
    phase: str = "run"
    name: str = ""

    @property
    def label(self) -> str:
        """Its name in the figure."""
        return self.name or self.variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """What a reader can turn, and the rougher simulation that answers at once.

    Attributes:
        label: What it is, and in which unit.
        rows: Rows of a variant on a machine, for CPUs, at a setting; None is the usual one.
        factor: Whether it is a factor from an eighth to eight, or a part of 1; the usual setting
            of a factor is 1, and a part starts at 0.
        machine: Whether the machine can be chosen, too.
    """

    label: str
    rows: Callable[[str, MachineModel, int, float | None], list[Row]]
    factor: bool = True
    machine: bool = True


def times(scenario: Scenario, name: str) -> Knob:
    """A knob for the length of some private work of a scenario, whose phases are shortened."""

    def rows(variant: str, box: MachineModel, cpus: int, amount: float | None) -> list[Row]:
        work = {name: (1.0 if amount is None else amount) * scenario.works[name].value}
        seen = scenario.run(variant, box, cpus, work=work, length=_LIVE_LENGTH)
        return [scenario.row(variant, box, cpus, 0, phase, what) for phase, what in seen.items()]

    return Knob(label=f"{name}, times", rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a chapter's figure is made of.

    Attributes:
        workload: What is simulated.
        machine: Name of the machine.
        lines: What is drawn.
        unit: "operations/s" of all CPUs together, or "ms" for one operation.
        knob: What the reader can turn.
        marks: The published points that belong on the figure, in its unit.
    """

    workload: Workload
    machine: str
    lines: tuple[Series, ...]
    unit: str = "operations/s"
    knob: Knob
    marks: Callable[[], tuple[Mark, ...]] = tuple

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants of its lines, each once."""
        return tuple(dict.fromkeys(line.variant for line in self.lines))

    def command(self, path: str) -> str:
        """The one command that makes the record of the sweep."""
        return (
            f"contended simulate {self.workload.name} --machine {self.machine} "
            f"--variants {','.join(self.variants)} --cpus {','.join(map(str, CPUS))} "
            f"--seeds {SEEDS} --parquet {path}"
        )

    def now(self, cpus: Sequence[int], *, machine: str = "", amount: float | None = None) -> Curve:
        """A rougher sweep, made now: one seed, and less of it.

        The machine is by default the figure's, and the knob stands at the usual setting.
        """
        import pandas as pd  # slow to import

        box = machines.get(machine or self.machine)
        points = product(self.variants, cpus)
        rows = [row for v, n in points for row in self.knob.rows(v, box, n, amount)]
        return Curve(replace(self, machine=box.name), pd.DataFrame(rows))


@dataclass(frozen=True, slots=True)
class Curve:
    """A sweep and its rows, see `Workload.rows`."""

    sweep: Sweep
    frame: pd.DataFrame

    def values(self, line: Series, cpus: int, what: str = "") -> list[float]:
        """A column's values over the seeds; by default the sweep's own, in its unit."""
        f = self.frame
        rows = f[(f.variant == line.variant) & (f.phase == line.phase) & (f.cpus == cpus)]
        if not what and self.sweep.unit == "ms":
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
        """Simulate a point anew: does each digit agree with the record?"""
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
        throughput = self.sweep.unit != "ms"
        return chart(
            title,
            {line.label: {float(n): self.values(line, n) for n in self.cpus} for line in lines},
            fits={line.label: self.fit(line.label).predict for line in lines if throughput},
            marks=self.sweep.marks(),
            xlabel="CPUs",
            ylabel="operations/s, all CPUs" if throughput else "one umount (ms)",
            note=f"simulated: {box.title}" if throughput else "simulated: a tick each millisecond",
            ends=box.cpus if throughput else None,
        )
