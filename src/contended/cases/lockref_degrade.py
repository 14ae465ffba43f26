# SPDX-License-Identifier: MIT
"""lockref-degrade: references that send each other through the lock, long after its holder left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contended import register
from contended.cases import Study, lockref_pause, robot, timed
from contended.cases.evidence import Evidence, RunProbe, lab, ratio, share
from contended.cases.host import Host, Seen, slower
from contended.measure import today
from contended.measure.running import Running
from contended.register import Case
from contended.show.canvas import Plot
from contended.simulate import machines, recorded
from contended.simulate.chart import Mark, chart, marks
from contended.simulate.curves import Series, Sweep, times
from contended.simulate.locks import LOCKREF_COUNTERS, Lock, Lockref
from contended.simulate.machines import Parameter
from contended.simulate.predict import Ground, Predicted, Value, cannot
from contended.simulate.program import UNIFORM, Memory, Program
from contended.simulate.validate import Modelled
from contended.simulate.workload import HOLDER, MS, STAT, Scenario, Setup, Work

SLUG = "lockref-degrade"
LOOKS = 100  # linux-next's loop counted looks at a held lock as it counts failed exchanges
_LOOKS = {"before": 0, "after": LOOKS, "spin-1": 1, "spin-700": 700, "spin-1000": 1000}
STRANGER_EVERY = 2000  # operations
_MOVED = "dentry-false-sharing"  # whose fix the report's kernel has: that stat was recorded there


def _stat(setup: Setup, p: Program, memory: Memory) -> None:
    """Stat one file by all CPUs, on the report's kernel; in phase 1 some take its lock as well."""
    replay = _put_stat(setup, p, memory)
    p.alu("phase", 0)
    p.branch(0, "!=", 1, "go")
    p.alu("random", 0, number=STRANGER_EVERY)
    p.branch(0, "!=", 0, "go")
    p.count(3)
    _lock_it(setup, p, replay)


def _put_stat(setup: Setup, p: Program, memory: Memory) -> recorded.Replay:
    operation = recorded.load(_MOVED).of("after")
    replay = recorded.Replay(operation, setup.lock, _LOOKS[setup.variant])
    replay.put(p, memory, setup.work["stat"])
    return replay


def _lock_it(setup: Setup, p: Program, replay: recorded.Replay) -> None:
    """As a listing does: take the file's lock for its own sake."""
    Lockref(replay.lock_of("d_lockref"), hold_ns=setup.work["holder"]).locked(p, 0)


def _stat_or_lock(setup: Setup, p: Program, memory: Memory) -> None:
    """The same stat; `explicit` of the operations take the file's lock instead, as long after."""
    parts = 1 << 16
    p.alu("random", 0, number=parts)
    p.branch(0, "<", round(parts * setup.work["explicit"]), "explicit")
    replay = _put_stat(setup, p, memory)
    p.jump("go")
    p.label("explicit")
    p.think(setup.work["stat"], UNIFORM)
    _lock_it(setup, p, replay)
    p.done()


def _open_by_handle(setup: Setup, p: Program, memory: Memory) -> None:
    """One operation of stress-ng's handle on a device, as its system calls come.

    Twice a name to a handle, an open of the mount, an open by handle, two closes: the inode is
    found under the lock of all inodes' hash, and then one of its dentries under both their locks.
    """
    operation = recorded.load(SLUG).of("before")
    replay = recorded.Replay(operation, setup.lock, _LOOKS[setup.variant])
    replay.put(p, memory, setup.work["calls"])


_VARIANTS = {
    "before": "a held lock sends everyone to the lock",
    "after": f"wait for the release first, at most {LOOKS} looks: linux-next's loop",
    "spin-1": "at most one look",
    "spin-700": "at most 700 looks",
    "spin-1000": "at most 1000 looks",
}
_LOCKS = "guzik2024postmortem: the handle stressor is all spin locks, a third of it lockref"
STATS = Scenario(
    name=SLUG,
    variants=_VARIANTS,
    phases={"calm": 1 * MS, "perturbed": 1 * MS, "after": 2 * MS},
    counters={**LOCKREF_COUNTERS, "stranger": 3},
    works={"stat": STAT, "holder": HOLDER},
    build=_stat,
)
LOCKERS = Scenario(
    name="lockref-lockers",
    variants=_VARIANTS,
    phases={"start": 1 * MS, "run": 3 * MS},
    counters=LOCKREF_COUNTERS,
    works={
        "stat": STAT,
        "holder": HOLDER,
        "explicit": Work(2 / 3, Parameter("cited", _LOCKS, 0.02, 0.9), "of 1"),
    },
    build=_stat_or_lock,
)
_CALLS = "six system calls, two of which look a name up, each as long as a stat or somewhat longer"
OPENS = Scenario(
    name="lockref-open-by-handle",
    variants=_VARIANTS,
    phases={"start": 4 * MS, "run": 20 * MS},
    counters=LOCKREF_COUNTERS,
    works={
        "calls": Work(7000, Parameter("assumed", _CALLS, 3500, 14000)),
    },
    build=_open_by_handle,
)


def _remote(here: Ground, variant: str) -> Value:
    return lambda draw: here.phase(variant, "run", draw).remote


def _predictions(case: Case) -> Iterator[Predicted]:
    figure = case.figure("stat-collapse")
    here = Ground(STATS, "1x24-spr", figure.workers or 20)
    calm, degraded = (here.rate("before", phase) for phase in ("calm", "after"))
    why = "the letter's second patch names its machine: a Sapphire Rapids, whose size is assumed"
    yield here.value(figure, "healthy", calm, why)
    yield from cannot(figure, "a moment on the way down, of unknown length", "partly-degraded")
    yield here.value(figure, "degraded", degraded, "the phase after the strangers left")
    yield here.ratio(figure, "healthy", "degraded", (calm, degraded), "how deep it falls")

    shape = "the shape of the machine is known, its processor is not"
    unknown = "the machine is not named"
    for name, machine, variants, why in (
        ("spin-24-workers", "1x24", ("after",), unknown),
        ("spin-192-workers", "2x48-smt", ("spin-1", "after"), shape),
    ):
        figure = case.figure(name)
        here = Ground(OPENS, machine, figure.workers or 0)
        for value in figure.values:
            yield here.value(figure, value.name, here.rate(value.name), why)
        for variant in variants:
            rates = here.rate(variant), here.rate("before")
            yield here.ratio(figure, variant, "before", rates, why)

    figure = case.figure("spin-700-of-1000")
    here = Ground(STATS, "2x48-smt", figure.workers or 60)
    why = "the same machine, which spent the time on the whole stat"
    yield from cannot(figure, "a second of a run that is falling already, no level", "first-second")
    yield here.value(figure, "spin-100", here.rate("after", "after"), why)
    yield here.value(figure, "spin-700", here.rate("spin-700", "after"), why)

    yield from robot.predictions(case)
    figure = case.figure("robot-handle")
    here = Ground(OPENS, "2x16-smt", figure.cpus or 64)
    why = "the robot's own machine"
    yield from here.compared(figure, why)
    sampled = case.figure("robot-handle-hitm")
    why = "of all that came from another core, copies of a line that several have as well"
    elsewhere = timed.elsewhere(here.machine, here.cpus)
    for value in sampled.values:
        part = _remote(here, value.name)
        yield here.value(sampled, value.name, part, why, naive=lambda _: elsewhere)
    yield from lockref_pause.predictions(case)


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where waiting for a lock's release helps on a machine, and where it hurts."""

    machine: str
    ratios: Mapping[tuple[float, int], float]

    def ratio(self, part: float, cpus: int) -> float:
        """Throughput with waiting over that without, where `part` of all just take the lock."""
        return self.ratios[part, cpus]

    def sizes(self, part: float, *, above: float) -> list[int]:
        """The numbers of CPUs at which the ratio is above a value."""
        return sorted(n for (p, n), factor in self.ratios.items() if p == part and factor > above)

    def plot(self, title: str) -> Plot:
        """The ratio against the CPUs, a line for each part, with the published ratios."""
        case = register.get(SLUG)
        seen = []
        for name in ("spin-24-workers", "spin-192-workers"):
            figure = case.figure(name)
            workers = figure.workers or 0
            seen.append(Mark(f"{workers} workers", workers, *figure.ratio("after", "before")))
        tested = case.figure("robot-handle")
        seen.append(Mark("robot", tested.cpus, *tested.ratio("after", "before")))
        lines: dict[str, dict[float, list[float]]] = {}
        for (part, n), factor in self.ratios.items():
            lines.setdefault(f"{100 * part:.0f} % of operations lock", {})[n] = [factor]
        return chart(
            title,
            lines,
            marks=seen,
            xlabel="CPUs",
            ylabel="throughput, waiting / not waiting",
            note=f"simulated: {machines.get(self.machine).title}",
            level=1.0,
        )


def crossover(
    machine: str, cpus: Sequence[int], parts: Sequence[float] = (0.02, 0.1, 2 / 3)
) -> Crossover:
    """Simulate the spin fix against the machine's size; takes seconds."""

    def rate(variant: str, n: int, part: float) -> float:
        return LOCKERS.run(variant, machine, n, work={"explicit": part})["run"].ops_per_s

    found = {
        (p, n): rate("after", n, p) / rate("before", n, p) for p in parts for n in sorted(cpus)
    }
    return Crossover(machine, found)


def _calm(p: Program, memory: Memory) -> None:
    """The C model, calm: a get and a put."""
    ref = Lockref(Lock("queued", memory, memory.word(1 << 32)))
    ref.change(p, 1)
    ref.change(p, -1)


def _slow(what: str, run: str, variant: str) -> RunProbe:
    read = share(run, variant, "slow", ("fast", "slow"), "perturbed")
    return RunProbe(f"share of the slow path{what}", read)


_QUEUE, _QUEUED = "perturbed/share.slow(lockref)", "references that queue while a listing runs"
_QUEUES = tuple(
    RunProbe(f"{name}: {_QUEUED}", lab(name, _QUEUE, percent=True)) for name in ("before", "spin")
)
_WITH_QUEUE = "throughput, calm over perturbed, 2 threads with 20 CPUs' queue"
_WAITING = "throughput while perturbed, waiting over queueing, 2 threads"
_PERTURBED = ("before", "perturbed")
_FELL: Any = {"label": "perturbed", "which": timed.queueing}


def _structure(kernel: Running) -> Seen:
    """A lockref's shortcut is compiled in where a lock is small enough, or not at all."""
    members = kernel.members("lockref")
    if members is None:
        small = kernel.set("CONFIG_PREEMPT_RT", "CONFIG_DEBUG_SPINLOCK", "CONFIG_DEBUG_LOCK_ALLOC")
        short = kernel.set("CONFIG_ARCH_USE_CMPXCHG_LOCKREF")
        there = None if short is None else short and not small
    else:
        there = "lock_count" in members
    if there is None:
        return Seen(None, "neither types nor configuration say whether lockrefs have a shortcut")
    if there:
        return Seen(True, "a lockref has a shortcut, and no release keeps it when the lock is held")
    return Seen(False, "lockrefs have no shortcut that could be lost: each takes the lock, always")


_HOST = Host(
    structure=_structure,
    control=lambda _: slower(
        today.degrade(), "after", "stat of one file after its directory was listed", "before"
    ),
    command="sudo bpftrace -e 'tracepoint:lock:contention_begin { @[kstack(6)] = count(); } "
    "interval:s:10 { exit(); }'",
    fixed=False,
)
STUDY = Study(
    host=_HOST,
    workloads=(STATS, LOCKERS, OPENS, lockref_pause.FSTAT, lockref_pause.OPEN),
    sweep=Sweep(
        STATS,
        "1x24-spr",
        (
            Series("before", "calm", "before, calm"),
            Series("before", "after", "before, after strangers"),
            Series("after", "after", "waits, after strangers"),
        ),
        times(STATS, "stat"),
        marks(register.get(SLUG).figure("stat-collapse"), "healthy", "degraded"),
    ),
    predictions=_predictions,
    modelled=(Modelled(SLUG, "before", "calm", "lockref-degrade/phases", _calm),),
    evidence={
        "stat-collapse": Evidence(
            userspace=(
                RunProbe(_WITH_QUEUE, ratio("phases", "before", "calm", _PERTURBED)),
                _slow(" while perturbed", "phases", "before"),
            ),
            kernel=_QUEUES,
            timed=(
                timed.rate("healthy", "moved", 20, label="calm"),
                timed.falling(
                    "partly-degraded", "moved", 20, ("calm", "perturbed"), timed.queueing
                ),
                timed.rate("degraded", "moved", 20, label="perturbed", which=timed.queueing),
                timed.ratio(
                    "healthy/degraded",
                    "moved",
                    "moved",
                    20,
                    labels=("calm", "perturbed"),
                    which=timed.queueing,
                ),
            ),
            note="A few CPUs cannot keep the queue alive that keeps the lock held, so here the "
            "perturbation has to go on, or stand in for it; in most draws the simulated CPUs keep "
            "it themselves. In virtual time it is the report's kernel, and a directory that is "
            "listed a hundred times; the degraded state is that of the boots that fell. "
            "will-it-scale prints a rate each second, and the partly degraded one is the last "
            "before the fall is over: beside it stands a second in which the rate falls, at any "
            "moment of it.",
        ),
        "spin-24-workers": Evidence(
            userspace=(RunProbe(_WAITING, ratio("phases", "after", "perturbed", _PERTURBED)),),
            kernel=_QUEUES,
            timed=timed.compared(*robot.LOOP, 24, file="time-handle"),
            note="What waiting is worth depends on how many take the lock for its own sake; "
            "the chapter shows both sides of the crossover.",
        ),
        "spin-192-workers": Evidence(
            no_userspace="Two CPUs have no crowd of readers that come back for the line.",
            kernel=_QUEUES,
            timed=(
                *timed.compared(*robot.LOOP, 192, file="time-192"),
                timed.rate("spin-1", "patience", 192, file="time-192"),
                timed.ratio("spin-1/before", "patience", "before", 192, file="time-192"),
            ),
            note="The harm of waiting grows with the number of those who look at one line. The "
            "simulation has it end the gain, and not go below; the kernel in virtual time has it "
            "hurt in most draws, and most where another group sends one request at a time.",
        ),
        "spin-700-of-1000": Evidence(
            userspace=(
                _slow(", 1 look", "spin-1", "after"),
                _slow(", 100 looks", "spin-100", "after"),
                _slow(", 1000 looks", "spin-1000", "after"),
            ),
            kernel=_QUEUES,
            timed=(
                timed.falling(
                    *("first-second", "moved-stay", 60, ("calm", "perturbed"), timed.queueing),
                    file="time-stay-100",
                ),
                *(
                    timed.rate(f"spin-{n}", "moved-stay", 60, file=f"time-stay-{n}", **_FELL)
                    for n in (100, 700)
                ),
            ),
            note="How many looks are enough depends on how long a holder stays and on how fast a "
            "CPU looks, so no bound found on one machine holds on another. In virtual time who "
            "lists keeps the lock for 850 looks, as seven hundred were too few on the report's "
            "machine, and a thousand enough; a listing alone leaves no queue behind seven hundred.",
        ),
        **robot.evidence(),
        **lockref_pause.evidence(),
    },
)
