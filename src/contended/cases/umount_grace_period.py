# SPDX-License-Identifier: MIT
"""umount-grace-period: a lazy umount whose caller waits for readers that nobody saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contended import register
from contended.cases import Study
from contended.cases.evidence import Evidence, RunProbe, lab_wait, wait
from contended.register import Case, Published
from contended.simulate import grace
from contended.simulate.chart import marks
from contended.simulate.curves import Knob, Series, Sweep
from contended.simulate.machines import MachineModel
from contended.simulate.predict import Predicted, cannot, said
from contended.simulate.workload import Row, Workload

SLUG = "umount-grace-period"
_LIVE_DRAWS = 40


class Umounts(Workload):
    """Lazy umounts, one after the other: no line is fought over, so an operation is a wait."""

    def _phases(
        self, variant: str, box: MachineModel, cpus: int, seed: int, **options: Any
    ) -> dict[str, Row]:
        """So many `draws`; `busy`, if not None, is the busy part of the CPUs in all phases."""
        draws, busy = options.get("draws", grace.DRAWS), options.get("busy")
        found = {}
        for phase, usual in (("idle", 0.0), ("half-busy", 0.5), ("busy", 1.0)):
            rcu = grace.Rcu(busy=usual if busy is None else busy)
            times = sorted(grace.umounts_ns(variant, cpus, rcu=rcu, seed=seed, draws=draws))
            found[phase] = {
                "ops_per_s": 10**9 * draws / sum(times),
                "ns_per_op": sum(times) / draws,
                "transfers_per_op": float("nan"),
                "ops": draws,
                "p50_ms": times[draws // 2] / 1e6,
                "p99_ms": times[draws * 99 // 100] / 1e6,
                "extrapolated": cpus > box.cpus,
            }
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


def _waits(*names: str) -> tuple[RunProbe, ...]:
    return tuple(RunProbe(f"{name}: median wait, model", wait("umounts", name)) for name in names)


def _lab_waits(label: str, *names: str) -> tuple[RunProbe, ...]:
    reads = [(name, lab_wait(name, "normal", label)) for name in names]
    return tuple(RunProbe(f"{name}: median umount", read) for name, read in reads)


def _lazy(*names: str) -> Evidence:
    return Evidence(userspace=_waits(*names), kernel=_lab_waits("lazy", *names), note=_TICKS)


_TICKS = (
    "The wait is timer ticks and not work, so even a translated kernel shows its order; how many "
    "ticks is a property of the kernel's configuration and load, which the report does not give."
)
STUDY = Study(
    workloads=(UMOUNTS,),
    sweep=Sweep(
        UMOUNTS,
        "2x20-smt",
        (
            Series("before", "idle", "waits, machine idle"),
            Series("before", "busy", "waits, machine busy"),
            Series("expedited", "idle", "waits, expedited"),
            Series("call-rcu", "idle", "deferred"),
        ),
        Knob("busy CPUs, part", lambda busy: {"draws": _LIVE_DRAWS, "busy": busy}, False, False),
        marks(register.get(SLUG).figure("lazy-umount"), "before", "call-rcu", place=False),
        "ms",
    ),
    predictions=_predictions,
    evidence={
        "lazy-umount": _lazy("before", "call-rcu", "queue-rcu-work"),
        "plain-umount": Evidence(
            no_userspace="The model has lazy umounts only: a plain one is its `before`.",
            kernel=_lab_waits("plain", "before", "call-rcu"),
            note="The control: a plain umount waits with the patch as without it. " + _TICKS,
        ),
        "defer-everything": Evidence(
            userspace=_waits("before", "call-rcu"),
            no_kernel="The lab has no kernel that defers plain umounts: they must be finished when "
            "the system call returns.",
            note=_TICKS,
        ),
        "no-wait": _lazy("before", "no-wait"),
        "rcu-work-2025": _lazy("before", "queue-rcu-work"),
    },
)
