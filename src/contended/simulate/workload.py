# SPDX-License-Identifier: MIT
"""What can be simulated under a name: variants of an operation, on a machine, as rows of a table.

A `Scenario` is a program that does to shared lines what an operation of the kernel does, in the
order of the kernel's code; everything else that the operation does is private work of a length that
was measured with one thread. Nothing is fitted to a published number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contended.errors import UsageError
from contended.simulate import machines
from contended.simulate.caches import Phase, Policy, Preemption, simulate
from contended.simulate.locks import Kind
from contended.simulate.machines import Basis, Machine, Parameter
from contended.simulate.program import Memory, Program, check_cpus, check_ns

if TYPE_CHECKING:
    import pandas as pd

MS = 1e6  # nanoseconds
Row = dict[str, Any]
Source = tuple[str, float, str, Parameter]
"""A parameter's name, value and unit, and where it comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Private work: what one thread alone needs, and where that is known from.

    Attributes:
        value: What simulations take unless told otherwise.
        unit: "ns", "times" or "of 1".
        where: Its source, and the range of what it could as well be, in its unit.
    """

    value: float
    unit: str = "ns"
    where: Parameter

    def check(self, name: str, value: float) -> None:
        """Refuse a value that this work cannot have.

        Raises:
            UsageError: with the range to choose from.
        """
        check_ns(f"work {name}", value)
        if self.unit == "of 1" and not 0 <= value <= 1:
            raise UsageError(f"work {name} is {value:g}: choose 0 to 1, a part")


def work(
    value: float, basis: Basis, source: str, low: float, high: float, unit: str = "ns"
) -> Work:
    """Private work with its source, see `Work` and `machines.Parameter`."""
    where = Parameter(basis=basis, source=source, low=low, high=high)
    return Work(value=value, unit=unit, where=where)


STAT = work(
    1160,
    "measured",
    "stat(2) of one file on tmpfs by one thread: 2-CPU AMD EPYC guest, Linux 6.18",
    600,
    2000,
)
HOLDER = work(
    50,
    "assumed",
    "who takes a dentry's lock for its own sake holds it for a step along a list",
    20,
    200,
)
SMT = work(
    1.5,
    "assumed",
    "private work takes this many times as long beside a busy hardware thread",
    1.2,
    2.0,
    "times",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """What can be simulated under a name.

    Attributes:
        name: A case's slug, or what tells another workload of the same case from it.
        variants: By name: what each does, one phrase.
    """

    name: str
    variants: Mapping[str, str]

    def rows(self, variant: str, machine: str, cpus: int, seed: int) -> list[Row]:
        """One simulation as rows of `frame`, one for each phase.

        Raises:
            UsageError: an unknown name or a number out of range.
        """
        raise NotImplementedError

    def sources(self) -> list[Source]:
        """What it takes for granted, apart from the machine."""
        raise NotImplementedError

    def check(self, variants: Sequence[str], machine: str, cpus: Sequence[int]) -> None:
        """Refuse what cannot be simulated, before anything is started.

        Raises:
            UsageError: an unknown variant or machine, or CPUs out of range.
        """
        for variant in variants:
            if variant not in self.variants:
                known = ", ".join(self.variants)
                raise UsageError(f"{self.name} has no variant {variant!r}; it has: {known}")
        machines.get(machine)
        if not cpus:
            raise UsageError("no CPU counts: give at least one")
        for n in cpus:
            check_cpus(n)

    def frame(
        self,
        *,
        cpus: Sequence[int],
        machine: str = "2x20-smt",
        variants: Sequence[str] = (),
        seeds: Sequence[int] = (0,),
    ) -> pd.DataFrame:
        """Simulate at CPU counts, here and now; `sweep.run` does the same on many CPUs.

        Args:
            cpus: How many CPUs, 1 to 512 each.
            machine: The machine's name.
            variants: Which; default all.
            seeds: A simulation for each.

        Returns:
            A row for each variant, number of CPUs, seed and phase: case, variant, machine, cpus,
            seed, phase, ops_per_s, ns_per_op (of all CPUs together), transfers_per_op (lines
            fetched from another cache, or copies there invalidated by a write), extrapolated (more
            CPUs than the machine has), and counts; of a `Scenario`: ops, transfers, far (those
            between sockets), invalidations (copies), wait_ns (in queues for a line), events,
            slow_share (of a lockref's changes, those under its lock), the program's own counters.

        Raises:
            UsageError: an unknown name or a number out of range.
        """
        import pandas as pd  # slow to import

        picked = list(variants or self.variants)
        self.check(picked, machine, cpus)
        return pd.DataFrame(
            [
                row
                for variant in picked
                for n in cpus
                for seed in seeds
                for row in self.rows(variant, machine, n, seed)
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a program is made from.

    Attributes:
        variant: The scenario's variant.
        cpus: How many CPUs run it.
        work: Private work by name, in the units of the scenario's.
        lock: The kind of spin lock in a lockref.
    """

    variant: str
    cpus: int
    work: Mapping[str, float]
    lock: Kind = "queued"

    def begin(self) -> tuple[Program, Memory]:
        """Nothing yet, and a place for its words."""
        return Program(), Memory(self.cpus)


@dataclass(slots=True)
class Built:
    """A program that is ready to run; each CPU starts at the label "go"."""

    program: Program
    memory: Memory


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenario(Workload):
    """An operation as a program on lines that CPUs share.

    Attributes:
        phases: Their names and lengths, nanoseconds.
        counters: The program's own counters, by number.
        works: Private work by name; `SMT` is always there.
        build: Makes the program.
    """

    phases: Mapping[str, float]
    counters: Mapping[str, int] = field(default_factory=dict)
    works: Mapping[str, Work]
    build: Callable[[Setup], Built]

    def run(
        self,
        variant: str,
        machine: Machine | str,
        cpus: int,
        *,
        seed: int = 0,
        work: Mapping[str, float] | None = None,
        lock: Kind = "queued",
        policy: Policy = "fifo",
        preemption: Preemption | None = None,
        length: float = 1.0,
    ) -> dict[str, Phase]:
        """Simulate one variant.

        Args:
            variant: Which.
            machine: The machine, or its name.
            cpus: How many of its CPUs run the program.
            seed: Seeds what is random.
            work: Private work that differs from the usual, by name.
            lock: The kind of spin lock in lockrefs.
            policy: See `caches.simulate`.
            preemption: See `caches.simulate`.
            length: Factor on the phases' lengths.

        Returns:
            By the phase's name, what happened.

        Raises:
            UsageError: an unknown name or a number out of range.
        """
        box = machines.get(machine) if isinstance(machine, str) else machine
        self.check([variant], box.name, [cpus])
        works = self._working(work or {}, box, cpus)
        built = self.build(Setup(variant=variant, cpus=cpus, work=works, lock=lock))
        if not 0 < length <= 1000:
            raise UsageError(f"length is {length:g}: choose more than 0, up to 1000")
        phases = simulate(
            built.program,
            built.memory,
            box.topology(cpus),
            box.costs,
            start=["go"] * cpus,
            phases_ns=[ns * length for ns in self.phases.values()],
            seed=seed,
            counters=self.counters,
            policy=policy,
            preemption=preemption,
        )
        return dict(zip(self.phases, phases, strict=True))

    def _working(self, changed: Mapping[str, float], box: Machine, cpus: int) -> dict[str, float]:
        """Private work, longer where hardware threads of one core are both busy."""
        known = self.all_works
        found = {name: each.value for name, each in known.items()}
        for name, value in changed.items():
            if name not in known:
                raise UsageError(f"no work {name!r}; choose from {', '.join(known)}")
            known[name].check(name, value)
            found[name] = value
        crowded = box.threads > 1 and cpus > box.sockets * box.cores
        factor = found["smt"] if crowded else 1.0
        return {
            name: value * factor if known[name].unit == "ns" else value
            for name, value in found.items()
        }

    @property
    def all_works(self) -> dict[str, Work]:
        """Private work by name, and what a busy hardware thread beside it costs."""
        return {**self.works, "smt": SMT}

    def rows(self, variant: str, machine: str, cpus: int, seed: int) -> list[Row]:
        """See `Workload.rows`."""
        box = machines.get(machine)
        seen = self.run(variant, box, cpus, seed=seed)
        return [self.row(variant, box, cpus, seed, phase, what) for phase, what in seen.items()]

    def row(self, variant: str, box: Machine, cpus: int, seed: int, phase: str, seen: Phase) -> Row:
        """One phase of a simulation as a row of `frame`."""
        counts = seen.counts
        return {
            "case": self.name,
            "variant": variant,
            "machine": box.name,
            "cpus": cpus,
            "seed": seed,
            "phase": phase,
            "ops_per_s": seen.ops_per_s,
            "ns_per_op": seen.ns_per_op,
            "transfers_per_op": seen.transfers / counts["ops"] if counts["ops"] else float("nan"),
            "ops": counts["ops"],
            "transfers": seen.transfers,
            "far": counts["transfers_far"],
            "invalidations": counts["invalidations"],
            "wait_ns": counts["wait_ps"] / 1000,
            "events": counts["events"],
            "slow_share": slow_share(counts),
            "extrapolated": cpus > box.cpus,
            **{key: counts[key] for key in self.counters},
        }

    def sources(self) -> list[Source]:
        """See `Workload.sources`."""
        units = {"times": "factor", "of 1": "part"}
        return [
            (f"work {name}", each.value, units.get(each.unit, each.unit), each.where)
            for name, each in self.all_works.items()
        ]


def slow_share(counts: Mapping[str, int]) -> float:
    """The part of a lockref's changes that were made under its lock; NaN without any."""
    slow, fast = counts.get("slow", 0), counts.get("fast", 0)
    return slow / (slow + fast) if slow + fast else float("nan")
