# SPDX-License-Identifier: MIT
"""lockref-degrade: references that send each other through the lock, long after its holder left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contended import register
from contended.cases import Study
from contended.cases.evidence import Evidence, Lab, Ratio, Share
from contended.register import Case
from contended.show.canvas import Plot
from contended.simulate import machines
from contended.simulate.chart import Mark, chart, mark
from contended.simulate.curves import Line, Sweep, times
from contended.simulate.locks import Lock, Lockref
from contended.simulate.predict import Ground, Predicted, cannot
from contended.simulate.program import UNIFORM, Memory, Program, Word
from contended.simulate.validate import Modelled
from contended.simulate.workload import (
    HOLDER,
    MS,
    STAT,
    Built,
    Scenario,
    Setup,
    slow_share,
    work,
)

if TYPE_CHECKING:
    import pandas as pd

SLUG = "lockref-degrade"
LOOKS = 100  # linux-next's loop counted looks at a held lock as it counts failed exchanges
STRANGER_EVERY = 2000  # operations
_BETWEEN = 0.2  # of a stat's work lies from get to put: filling in the attributes (assumed)


def _lockref(setup: Setup, memory: Memory, word: Word, first: int = 0) -> Lockref:
    looks = {"before": 0, "after": LOOKS}.get(setup.variant)
    if looks is None:
        looks = int(setup.variant.removeprefix("spin-"))
    return Lockref(
        Lock(setup.lock, memory, word), looks=looks, fast=first, slow=first + 1, retried=first + 2
    )


def _stat(setup: Setup) -> Built:
    """Stat one file by all CPUs: get, read the attributes, put; in phase 1 some take the lock."""
    p, memory = setup.begin()
    ref = _lockref(setup, memory, memory.word(1 << 32))
    stranger = Lockref(ref.lock, hold_ns=setup.work["holder"])
    p.label("go")
    p.think(setup.work["stat"] * (1 - _BETWEEN), UNIFORM)
    ref.change(p, 1)
    p.think(setup.work["stat"] * _BETWEEN, UNIFORM)
    ref.change(p, -1)
    p.done()
    p.alu("phase", 0)
    p.branch(0, "!=", 1, "go")
    p.alu("random", 0, number=STRANGER_EVERY)
    p.branch(0, "!=", 0, "go")
    p.count(3)
    stranger.locked(p, 0)
    p.jump("go")
    return Built(p, memory)


def _handle(setup: Setup) -> Built:
    """An operation is one visit of a dentry's lock: `explicit` of them take it for its own sake."""
    p, memory = setup.begin()
    ref = _lockref(setup, memory, memory.word(1 << 32))
    held = Lockref(ref.lock, hold_ns=setup.work["holder"])
    parts = 1 << 16
    p.label("go")
    p.think(setup.work["handle"], UNIFORM)
    p.alu("random", 0, number=parts)
    p.branch(0, "<", round(parts * setup.work["explicit"]), "explicit")
    ref.change(p, 1)
    p.think(setup.work["handle"], UNIFORM)
    p.done()
    ref.change(p, -1)
    p.done()
    p.jump("go")
    p.label("explicit")
    held.locked(p, 0)
    p.done()
    p.jump("go")
    return Built(p, memory)


_VARIANTS = {
    "before": "a held lock sends everyone to the lock",
    "after": f"wait for the release first, at most {LOOKS} looks: linux-next's loop",
    "spin-1": "at most one look",
    "spin-700": "at most 700 looks",
    "spin-1000": "at most 1000 looks",
}
_COUNTERS = {"fast": 0, "slow": 1, "retried": 2}
STATS = Scenario(
    name=SLUG,
    variants=_VARIANTS,
    phases={"calm": 1 * MS, "perturbed": 1 * MS, "after": 2 * MS},
    counters={**_COUNTERS, "stranger": 3},
    works={"stat": STAT, "holder": HOLDER},
    build=_stat,
)
HANDLES = Scenario(
    name="lockref-handle",
    variants=_VARIANTS,
    phases={"start": 1 * MS, "run": 3 * MS},
    counters=_COUNTERS,
    works={
        "handle": work(
            800,
            "assumed",
            "between two visits of a dentry's lock in the stress-ng handle stressor: a few visits "
            "in two system calls as long as open and close",
            200,
            2400,
        ),
        "holder": HOLDER,
        "explicit": work(
            2 / 3,
            "cited",
            "guzik2024postmortem: the handle stressor is all spin locks, a third of it lockref",
            0.02,
            0.9,
            "of 1",
        ),
    },
    build=_handle,
)


def _marks() -> tuple[Mark, ...]:
    figure = register.get(SLUG).figure("stat-collapse")
    return tuple(mark(figure, name) for name in ("healthy", "degraded"))


def _predictions(case: Case) -> Iterator[Predicted]:
    figure = case.figure("stat-collapse")
    here = Ground(STATS, "1x24", figure.workers or 20)
    calm, degraded = (here.rate("before", phase) for phase in ("calm", "after"))
    yield here.value(figure, "healthy", calm, "the machine of the report is not known")
    yield cannot(figure, "partly-degraded", "a moment on the way down, of unknown length")
    yield here.value(figure, "degraded", degraded, "the phase after the strangers left")
    yield here.ratio(figure, "healthy", "degraded", (calm, degraded), "how deep it falls")

    figure = case.figure("spin-24-workers")
    unknown = "how often one operation of the stressor takes a lock is open"
    for name in ("before", "after"):
        yield cannot(figure, name, unknown)
    here = Ground(HANDLES, "1x24", figure.workers or 24)
    why = "depends on how many visits take the lock for its own sake: see the text"
    rates = here.rate("after"), here.rate("before")
    yield here.ratio(figure, "after", "before", rates, why)

    figure = case.figure("spin-192-workers")
    for name in ("before", "spin-1", "after"):
        yield cannot(figure, name, unknown)
    here = Ground(HANDLES, "2x48-smt", figure.workers or 192)
    for name in ("spin-1", "after"):
        why = "the shape of the machine is known, its processor is not"
        yield here.ratio(figure, name, "before", (here.rate(name), here.rate("before")), why)

    figure = case.figure("spin-700-of-1000")
    here = Ground(STATS, "2x48-smt", figure.workers or 60)
    for name, variant, phase in (
        ("warm-up", "after", "calm"),
        ("spin-100", "after", "after"),
        ("spin-700", "spin-700", "after"),
    ):
        why = "the same machine, which spent the time on the whole stat"
        yield here.value(figure, name, here.rate(variant, phase), why)

    figure = case.figure("robot-regressions")
    for name in ("unixbench", "getdent"):
        yield cannot(figure, name, "mixed with sleeping locks, which have no place here")
    here = Ground(HANDLES, "2x16-smt", figure.cpus or 64)
    top, below = here.rate("after"), here.rate("before")
    yield here.value(
        figure,
        "handle",
        lambda machine, work: 100 * (top(machine, work) / below(machine, work) - 1),
        "the robot's own machine",
    )


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where waiting for a lock's release helps and where it hurts.

    Attributes:
        machine: Name of the machine.
        frame: A row for each size, part and variant: cpus, explicit, variant, ratio (of its
            throughput to that of "before"; above 1 it helps), slow_before and slow (shares of
            changes under the lock).
    """

    machine: str
    frame: pd.DataFrame

    def ratio(self, part: float, cpus: int, variant: str = "after") -> float:
        """Throughput with waiting over throughput without it, where `part` of the visits lock."""
        f = self.frame
        rows = f[((f.explicit - part).abs() < 1e-9) & (f.cpus == cpus) & (f.variant == variant)]
        (found,) = rows.ratio
        return float(found)

    def sizes(self, part: float, *, above: float) -> list[int]:
        """The numbers of CPUs at which the ratio is above a value."""
        f = self.frame
        rows = f[((f.explicit - part).abs() < 1e-9) & (f.ratio > above)]
        return sorted(int(n) for n in rows.cpus)

    def plot(self, title: str) -> Plot:
        """The ratio against the CPUs, a line for each part, with the published ratios."""
        case = register.get(SLUG)
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
    machine: str,
    cpus: Sequence[int],
    parts: Sequence[float] = (0.02, 0.1, 2 / 3),
    spins: Sequence[str] = ("after",),
) -> Crossover:
    """Simulate the spin fix against the machine's size; takes seconds.

    Args:
        machine: Name of the machine.
        cpus: How many, 1 to 512 each.
        parts: How many of the visits of the lock are for its own sake.
        spins: Variants that wait.
    """
    import pandas as pd  # slow to import

    found = []
    for n in cpus:
        for part in parts:
            runs = {
                variant: HANDLES.run(variant, machine, n, work={"explicit": part})["run"]
                for variant in ("before", *spins)
            }
            found += [
                {
                    "cpus": n,
                    "explicit": part,
                    "variant": variant,
                    "ratio": runs[variant].ops_per_s / runs["before"].ops_per_s,
                    "slow_before": slow_share(runs["before"].counts),
                    "slow": slow_share(runs[variant].counts),
                }
                for variant in spins
            ]
    return Crossover(machine, pd.DataFrame(found))


def _calm(p: Program, memory: Memory) -> None:
    """The C model, calm: a get and a put."""
    ref = Lockref(Lock("queued", memory, memory.word(1 << 32)))
    ref.change(p, 1)
    ref.change(p, -1)


def _slow(what: str, run: str, variant: str) -> Share:
    return Share(what, run, variant, "slow", ("fast", "slow"), "perturbed")


_QUEUE = "perturbed/share.slow(lockref)"
_QUEUES = (
    Lab("before: references that queue while a listing runs", "before", _QUEUE, percent=True),
    Lab("spin: references that queue while a listing runs", "spin", _QUEUE, percent=True),
)

_EVIDENCE = {
    "stat-collapse": Evidence(
        userspace=(
            Ratio(
                "throughput, calm over perturbed, 2 threads with 20 CPUs' queue",
                "phases",
                ("before", "calm"),
                ("before", "perturbed"),
            ),
            _slow("share of the slow path while perturbed", "phases", "before"),
        ),
        kernel=_QUEUES,
        note="A few CPUs cannot keep the queue alive that keeps the lock held, so here the "
        "perturbation has to go on, or stand in for it; the simulated CPUs keep it themselves.",
    ),
    "spin-24-workers": Evidence(
        userspace=(
            Ratio(
                "throughput while perturbed, waiting over queueing, 2 threads",
                "phases",
                ("after", "perturbed"),
                ("before", "perturbed"),
            ),
        ),
        kernel=_QUEUES,
        note="What waiting is worth depends on how many visits take the lock for its own sake; "
        "the chapter shows both sides of the crossover.",
    ),
    "spin-192-workers": Evidence(
        no_userspace="Two CPUs have no crowd of readers that come back for the line.",
        no_kernel="The lab's emulated machine has no caches, and nothing like 192 CPUs.",
        note="The harm of waiting grows with the number of those who look at one line. The "
        "simulation has its direction and not its depth.",
    ),
    "spin-700-of-1000": Evidence(
        userspace=(
            _slow("share of the slow path, 1 look", "spin-1", "after"),
            _slow("share of the slow path, 100 looks", "spin-100", "after"),
            _slow("share of the slow path, 1000 looks", "spin-1000", "after"),
        ),
        kernel=_QUEUES,
        note="How many looks are enough depends on how long a holder stays and on how fast a CPU "
        "looks, so no bound found on one machine holds on another.",
    ),
    "robot-regressions": Evidence(
        no_userspace="The robot's workloads are whole system calls, which no model of one word is.",
        no_kernel="A change in throughput needs a clock, and the lab's machine has none to trust.",
        note="Only the stressor that does little but take references can be simulated.",
    ),
}

STUDY = Study(
    workloads=(STATS, HANDLES),
    sweep=Sweep(
        workload=STATS,
        machine="1x24",
        lines=(
            Line("before", "calm", "before, calm"),
            Line("before", "after", "before, after strangers"),
            Line("after", "after", "waits, after strangers"),
        ),
        knob=times(STATS, "stat"),
        marks=_marks,
    ),
    predictions=_predictions,
    modelled=(Modelled(SLUG, "before", "calm", "lockref-degrade/phases", _calm),),
    evidence=_EVIDENCE,
)
