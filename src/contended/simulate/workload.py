# SPDX-License-Identifier: MIT
"""What can be simulated under a name: variants of an operation, on a machine, as rows of a table.

A `Scenario` is a program that does to shared lines what an operation of the kernel does, in the
order of the kernel's code; everything else that the operation does is private work of a length that
was measured with one thread. Nothing is fitted to a published number, but what docs/simulators.md
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from contended.errors import UsageError
from contended.simulate import machines
from contended.simulate.caches import Phase, simulate
from contended.simulate.locks import Kind
from contended.simulate.machines import MachineModel, Parameter
from contended.simulate.program import Memory, Program, check_cpus, check_ns

MS = 1e6  # nanoseconds
Row = dict[str, Any]


class Work(NamedTuple):
    """Private work: what one thread alone needs, and where that is known from."""

    value: float
    where: Parameter
    unit: str = "ns"  # or "times" or "of 1"; also of the range in `where`


_MEASURED = "stat(2) of one file on tmpfs by one thread: 2-CPU AMD EPYC guest, Linux 6.18"
STAT = Work(1160, Parameter("measured", _MEASURED, 600, 2000))
_STEP = "who takes a dentry's lock for its own sake holds it for a step along a list"
HOLDER = Work(50, Parameter("assumed", _STEP, 20, 200))
_BESIDE = "private work takes this many times as long beside a busy hardware thread"
SMT = Work(1.5, Parameter("assumed", _BESIDE, 1.2, 2.0), "times")


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """What can be simulated under a name, and by the name of each variant what it does.

    The name is a case's slug, or what tells another workload of the same case from it.
    """

    name: str
    variants: Mapping[str, str]

    def rows(self, variant: str, machine: str, cpus: int, seed: int, **options: Any) -> list[Row]:
        """One simulation as rows of a table, one for each phase; raises UsageError as `check` does.

        Columns: case, variant, machine, cpus, seed, phase, ops_per_s (all CPUs together), ns_per_op
        (from one operation to the next), transfers_per_op, ops, transfers (lines), far (those
        between sockets), first and first_far (the same, of the line that the program lays out
        first), invalidations (copies), wait_ns (in queues for a line), events,
        slow_share (of a lockref's changes, those under its lock), extrapolated (more CPUs than the
        machine has), and the program's own counters. Grace periods have p50_ms and p99_ms, and no
        lines. The options are those of the kind of workload.
        """
        given = {"case": self.name, "variant": variant, "machine": machine, "cpus": cpus}
        phases = self._phases(variant, machines.get(machine), cpus, seed, **options)
        return [{**given, "seed": seed, "phase": phase, **row} for phase, row in phases.items()]

    def _phases(
        self, variant: str, box: MachineModel, cpus: int, seed: int, **options: Any
    ) -> dict[str, Row]:
        """By phase: what was counted."""
        raise NotImplementedError

    def check(self, variants: Sequence[str], machine: str, cpus: Sequence[int]) -> None:
        """Refuse what cannot be simulated, by a UsageError, before anything is started."""
        for variant in variants:
            if variant not in self.variants:
                known = ", ".join(self.variants)
                raise UsageError(f"{self.name} has no variant {variant!r}; it has: {known}")
        machines.get(machine)
        if not cpus:
            raise UsageError("no CPU counts: give at least one")
        for n in cpus:
            check_cpus(n)


class Setup(NamedTuple):
    """What a program depends on: the variant, private work by name, the lock in a lockref."""

    variant: str
    work: Mapping[str, float]
    lock: Kind = "queued"


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario(Workload):
    """An operation as a program on lines that CPUs share.

    `build` puts down the steps that each CPU repeats, from the label "go" on.
    """

    phases: Mapping[str, float]  # their lengths, nanoseconds
    counters: Mapping[str, int] = field(default_factory=dict)  # the program's own, by number
    works: Mapping[str, Work]
    build: Callable[[Setup, Program, Memory], None]

    def run(
        self,
        variant: str,
        machine: MachineModel | str,
        cpus: int,
        *,
        work: Mapping[str, float] | None = None,
        lock: Kind = "queued",
        length: float = 1.0,
        **options: Any,
    ) -> dict[str, Phase]:
        """Simulate one variant with so many of a machine's CPUs; what happened, by phase.

        Private work that differs from the usual is given by name, `length` is a factor on the
        phases' lengths, and the options, such as a seed, are those of `caches.simulate`. Raises
        UsageError for an unknown name or a number out of range.
        """
        box = machines.get(machine) if isinstance(machine, str) else machine
        self.check([variant], box.name, [cpus])
        p, memory = Program(), Memory(cpus)
        p.label("go")
        self.build(Setup(variant, self._working(work or {}, box, cpus), lock), p, memory)
        p.jump("go")
        if not 0 < length <= 1000:
            raise UsageError(f"length is {length:g}: choose more than 0, up to 1000")
        options |= {"phases_ns": [ns * length for ns in self.phases.values()]}
        options |= {"start": ["go"] * cpus, "counters": self.counters}
        phases = simulate(p, memory, box.topology(cpus), box.costs, **options)
        return dict(zip(self.phases, phases, strict=True))

    def _working(
        self, changed: Mapping[str, float], box: MachineModel, cpus: int
    ) -> dict[str, float]:
        """Private work, longer where hardware threads of one core are both busy."""
        known = self.all_works
        for name, value in changed.items():
            if name not in known:
                raise UsageError(f"no work {name!r}; choose from {', '.join(known)}")
            check_ns(f"work {name}", value)
            if known[name].unit == "of 1" and value > 1:
                raise UsageError(f"work {name} is {value:g}: choose 0 to 1, a part")
        found = {name: each.value for name, each in known.items()} | dict(changed)
        if box.shares(cpus):
            for name in found:
                found[name] *= found["smt"] if known[name].unit == "ns" else 1.0
        return found

    @property
    def all_works(self) -> dict[str, Work]:
        """Private work by name, and what a busy hardware thread beside it costs."""
        return {**self.works, "smt": SMT}

    def _phases(
        self, variant: str, box: MachineModel, cpus: int, seed: int, **options: Any
    ) -> dict[str, Row]:
        seen = self.run(variant, box, cpus, seed=seed, **options)
        return {phase: self._counted(what, cpus > box.cpus) for phase, what in seen.items()}

    def _counted(self, seen: Phase, extrapolated: bool) -> Row:
        counts = seen.counts
        slow = counts.get("slow", 0)
        changes = slow + counts.get("fast", 0)
        return {
            "ops_per_s": seen.ops_per_s,
            "ns_per_op": seen.ns_per_op,
            "transfers_per_op": seen.per_op("transfers"),
            "ops": counts["ops"],
            "transfers": seen.transfers,
            "far": counts["transfers_far"],
            "first": counts["first"],
            "first_far": counts["first_far"],
            "invalidations": counts["invalidations"],
            "wait_ns": counts["wait_ps"] / 1000,
            "events": counts["events"],
            "slow_share": slow / changes if changes else float("nan"),
            "extrapolated": extrapolated,
            **{key: counts[key] for key in self.counters},
        }
