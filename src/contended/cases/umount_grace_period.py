# SPDX-License-Identifier: MIT
"""umount-grace-period: a lazy umount whose caller waits for readers that nobody saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contended import register
from contended.cases import Study
from contended.cases.evidence import Evidence, LabWait, Wait
from contended.register import Case, Published
from contended.simulate import grace, machines
from contended.simulate.chart import Mark, mark
from contended.simulate.curves import Knob, Series, Sweep
from contended.simulate.machines import MachineModel
from contended.simulate.predict import Predicted, cannot, said
from contended.simulate.workload import Row, Workload

SLUG = "umount-grace-period"
_LIVE_DRAWS = 40


class Umounts(Workload):
    """Lazy umounts, one after the other: no line is fought over, so an operation is a wait."""

    def rows(self, variant: str, machine: str, cpus: int, seed: int) -> list[Row]:
        """See `Workload.rows`: a row for each way the CPUs may be busy."""
        return self.umounts(variant, machines.get(machine), cpus, seed)

    def umounts(
        self,
        variant: str,
        box: MachineModel,
        cpus: int,
        seed: int,
        draws: int = grace.DRAWS,
        busy: float | None = None,
    ) -> list[Row]:
        """As `rows`, of so many umounts; `busy` is the busy part of the CPUs in all rows."""
        found = []
        for phase, usual in (("idle", 0.0), ("half-busy", 0.5), ("busy", 1.0)):
            rcu = grace.Rcu(busy=usual if busy is None else busy)
            times = sorted(grace.umounts_ns(variant, cpus, rcu=rcu, seed=seed, draws=draws))
            row = {
                "ops_per_s": 10**9 * draws / sum(times),
                "ns_per_op": sum(times) / draws,
                "transfers_per_op": float("nan"),
                "ops": draws,
                "p50_ms": times[draws // 2] / 1e6,
                "p99_ms": times[draws * 99 // 100] / 1e6,
                "extrapolated": cpus > box.cpus,
            }
            found.append(self.named(variant, box, cpus, seed, phase) | row)
        return found


UMOUNTS = Umounts(
    name=SLUG,
    variants={
        "before": "the caller waits for a normal grace period",
        "expedited": "the caller waits for an expedited one, as without RT",
        "call-rcu": "a callback releases after the grace period",
        "no-wait": "nobody waits: wrong",
    },
)


def _live(variant: str, box: MachineModel, cpus: int, busy: float | None) -> list[Row]:
    return UMOUNTS.umounts(variant, box, cpus, 0, _LIVE_DRAWS, busy)


def _marks() -> tuple[Mark, ...]:
    figure = register.get(SLUG).figure("lazy-umount")
    return tuple(mark(figure, name, place=False) for name in ("before", "call-rcu"))


def _predictions(case: Case) -> Iterator[Predicted]:
    why = "nobody waits, and what is left is the input of the simulation"
    for figure in case.published:
        for value in figure.values:
            # a plain umount waits with the patch as without it
            plain = value.name == "call-rcu" and figure.id == "plain-umount"
            if value.name == "before" or plain:
                yield _wait(figure, value.name)
            else:
                yield from cannot(figure, why, value.name)


def _wait(figure: Published, name: str) -> Predicted:
    """The wait, whatever the size: the range runs from 4 to 64 CPUs."""

    def mean(n: int, **changed: Any) -> float:
        times = grace.umounts_ns("before", n, rcu=grace.Rcu(**changed))
        return sum(times) / (len(times) * 10**6)

    cpus = 8
    seen = [mean(4), mean(64)]
    for key, where in grace.PARAMETERS.items():
        if key != "wait_ticks":
            seen += [mean(cpus, **{key: end}) for end in (where.low, where.high)]
    why = "the report's machine and its load are not known: 4 to 64 CPUs, idle to busy"
    return said(figure, name, mean(cpus), seen, why, ("", cpus))


def _waits(*variants: str) -> tuple[Wait, ...]:
    return tuple(Wait(f"{name}: median wait, model", "umounts", name) for name in variants)


def _lab_waits(label: str, *variants: str) -> tuple[LabWait, ...]:
    return tuple(LabWait(f"{name}: median umount", name, "normal", label) for name in variants)


_TICKS = (
    "The wait is timer ticks and not work, so even a translated kernel shows its order; how many "
    "ticks is a property of the kernel's configuration and load, which the report does not give."
)

_EVIDENCE = {
    "lazy-umount": Evidence(
        userspace=_waits("before", "call-rcu", "queue-rcu-work"),
        kernel=_lab_waits("lazy", "before", "call-rcu", "queue-rcu-work"),
        note=_TICKS,
    ),
    "plain-umount": Evidence(
        no_userspace="The model has lazy umounts only: a plain one is its `before`.",
        kernel=_lab_waits("plain", "before", "call-rcu"),
        note="The control: a plain umount waits with the patch as without it. " + _TICKS,
    ),
    "defer-everything": Evidence(
        userspace=_waits("before", "call-rcu"),
        no_kernel="The lab has no kernel that defers plain umounts: they must be finished when the "
        "system call returns.",
        note=_TICKS,
    ),
    "no-wait": Evidence(
        userspace=_waits("before", "no-wait"),
        kernel=_lab_waits("lazy", "before", "no-wait"),
        note=_TICKS,
    ),
    "rcu-work-2025": Evidence(
        userspace=_waits("before", "queue-rcu-work"),
        kernel=_lab_waits("lazy", "before", "queue-rcu-work"),
        note=_TICKS,
    ),
}

STUDY = Study(
    workloads=(UMOUNTS,),
    sweep=Sweep(
        workload=UMOUNTS,
        machine="2x20-smt",
        lines=(
            Series("before", "idle", "waits, machine idle"),
            Series("before", "busy", "waits, machine busy"),
            Series("expedited", "idle", "waits, expedited"),
            Series("call-rcu", "idle", "deferred"),
        ),
        unit="ms",
        knob=Knob(label="busy CPUs, part", rows=_live, factor=False, machine=False),
        marks=_marks,
    ),
    predictions=_predictions,
    evidence=_EVIDENCE,
)
