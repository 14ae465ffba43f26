# SPDX-License-Identifier: MIT
"""dentry-false-sharing: a name that is compared on the line of a reference count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from contended import machine, register
from contended.cases import Study, timed
from contended.cases.evidence import Evidence, RunProbe, hitm, ratio
from contended.cases.host import Host, Seen, crowd, slower
from contended.cases.lockref_degrade import LOOKS
from contended.measure import today
from contended.measure.running import Running
from contended.register import Case, Published
from contended.simulate import recorded
from contended.simulate.chart import marks
from contended.simulate.curves import Series, Sweep, times
from contended.simulate.locks import LOCKREF_COUNTERS, Lock, Lockref
from contended.simulate.machines import Parameter
from contended.simulate.predict import Draw, Ground, Predicted, Value
from contended.simulate.program import PS, Memory, Program
from contended.simulate.validate import Modelled
from contended.simulate.workload import MS, STAT, Scenario, Setup, Work

SLUG, FIGURE, PROFILE = "dentry-false-sharing", "stat-same-file", "stat-profile"
ROBOT = "robot-full"
_FULL = "../lockref-degrade/time-full"
"""The record of both kernels with linux-next's loop, which are chapter 2's."""
_NAME, _MOVED = "__d_lookup_rcu", "HITM in __d_lookup_rcu per stat"
_LEADING = {  # functions that lead the report's profile, by the name of their part
    # tmpfs asks whether to keep a dentry, so its references go by the other of the two
    "put": ("lockref_put_return", "lockref_put_or_lock"),
    "get": ("lockref_get_not_dead",),
    "lookup": (_NAME,),
}
_PARTS = {short: 3 + n for n, short in enumerate(_LEADING)}
_TIMED = {name: _PARTS[short] for short, names in _LEADING.items() for name in names}


def _lookup(setup: Setup, p: Program, memory: Memory) -> None:
    """Stat one file, whose name is or is not on the line of the reference count."""
    operation = recorded.load(SLUG).of(setup.variant)
    replay = recorded.Replay(operation, setup.lock, timed=_TIMED)
    replay.put(p, memory, setup.work["stat"])


LOOKUPS = Scenario(
    name=SLUG,
    variants={
        "before": "the name is compared on the reference count's line",
        "after": "the reference count has a line of its own",
    },
    phases={"start": 0.5 * MS, "run": 2 * MS},
    counters=LOCKREF_COUNTERS,
    works={"stat": STAT},
    build=_lookup,
)


_PROFILED = replace(LOOKUPS, counters={**LOOKUPS.counters, **_PARTS})
"""The same, with what those functions take in picoseconds, which sweeps need not keep."""


def _open_device(setup: Setup, p: Program, memory: Memory) -> None:
    """One operation of stress-ng's full on its device, on kernels with linux-next's loop."""
    kernels = {"before": "spin-100", "after": "moved-100"}
    operation = recorded.load("lockref-degrade", "full").of(kernels[setup.variant])
    recorded.Replay(operation, setup.lock, LOOKS).put(p, memory, setup.work["full"])


_SO_MANY = "its 6,200 instructions, each as long as linuxf5fe24ef17b5 has it of Cascade Lake"
FULL = Scenario(
    name="dentry-open-device",
    variants={
        "before": "what an open reads of the dentry is on the reference count's line",
        "after": LOOKUPS.variants["after"],
    },
    phases={"start": 1 * MS, "run": 4 * MS},
    counters=LOOKUPS.counters,
    works={"full": Work(1160, Parameter("assumed", _SO_MANY, 1060, 1260))},
    build=_open_device,
)


def _predictions(case: Case) -> Iterator[Predicted]:
    figure = case.figure(FIGURE)
    here = Ground(_PROFILED, "1x24-spr", figure.workers or 20)
    why = "the report's machine is a Sapphire Rapids, whose size is assumed"
    yield from here.compared(figure, why)
    yield from _profiled(case.figure(PROFILE), here)

    figure = case.figure(ROBOT)
    here = Ground(FULL, "2x128", figure.workers or 256)
    why = (
        "nobody stays with the dentry's lock here; the report's profile has everybody in it "
        "before, and in that of character devices after"
    )
    yield from here.compared(figure, why)


def _profiled(figure: Published, here: Ground) -> Iterator[Predicted]:
    """Of all time what the leading functions' accesses take, with all waits."""

    def part(variant: str, short: str) -> Value:
        def of(draw: Draw) -> float:
            phase = here.phase(variant, "run", draw)
            return 100 * phase.counts[short] / (phase.ns * PS * (1 if draw.alone else here.cpus))

        return of

    why = "of a function its accesses to lines that move are counted, and what is behind them"
    for value in figure.values:
        variant, _, short = value.name.partition("-")
        yield here.value(figure, value.name, part(variant, short), why)


def _mixed(p: Program, memory: Memory) -> None:
    """The C model, mixed: look the name up, get, put."""
    word = memory.word(1 << 32)
    ref = Lockref(Lock("queued", memory, word))
    p.read(memory.word(beside=word))
    ref.change(p, 1)
    ref.change(p, -1)


_GAIN = "throughput, after over before,"
_HITM = tuple(RunProbe(f"{v}: {_MOVED}", hitm("c2c", v, _NAME)) for v in ("before", "after"))
_MARKS = marks(register.get(SLUG).figure(FIGURE), "before", "after")
# What a lookup reads of each dentry on its way; the file's own name has two names itself.
_READ = ("d_flags", "d_seq", "d_hash", "d_parent", "d_name", "d_inode", "d_iname", "d_shortname")


def _structure(kernel: Running) -> Seen:
    """Whether the count's line holds what lookups read, by this kernel's own layout."""
    members = kernel.members("dentry")
    if not members or "d_lockref" not in members:
        return Seen(None, "where d_lockref lies in struct dentry is not known")
    line = max((c.line for cpu in machine.this_machine().cpus for c in cpu.caches), default=0)
    line = line if line > 0 else 64
    place = members["d_lockref"].offset
    first = place // line * line
    beside = [
        name
        for name in _READ
        if (m := members.get(name)) and m.offset < first + line and m.offset + m.size > first
    ]
    where = f"d_lockref is at byte {place}, on a line of {line} bytes with"
    return Seen(bool(beside), f"{where} {', '.join(beside) or 'nothing that lookups read'}")


_HOST = Host(
    structure=_structure,
    control=lambda _: slower(
        today.walks([crowd()]),
        "walk-held",
        "a walk through a directory that others take references on",
        "beside them",
    ),
    command="sudo perf c2c record -a -- sleep 10 && sudo perf c2c report --stdio",
)
STUDY = Study(
    host=_HOST,
    workloads=(LOOKUPS, FULL),
    sweep=Sweep(
        LOOKUPS, "1x24-spr", tuple(map(Series, LOOKUPS.variants)), times(LOOKUPS, "stat"), _MARKS
    ),
    predictions=_predictions,
    modelled=(Modelled(SLUG, "before", "run", "dentry-false-sharing/mixed", _mixed),),
    evidence={
        FIGURE: Evidence(
            userspace=(
                RunProbe(f"{_GAIN} a reader beside a reference taker", ratio("separate", "after")),
                RunProbe(f"{_GAIN} readers only (the control)", ratio("readers", "after")),
            ),
            kernel=_HITM,
            timed=timed.compared("after", "before", 20),
            note="The model shows the whole effect by separating the roles; in a real stat each "
            "CPU does both, so less is gained. The profile counts what is saved: a transfer in "
            "each stat.",
        ),
        PROFILE: Evidence(
            no_userspace="The model is one function.",
            kernel=_HITM,
            timed=tuple(
                timed.waiting(f"{variant}-{short}", variant, 20, functions)
                for short, functions in _LEADING.items()
                for variant in ("before", "after")
                if (variant, short) != ("after", "lookup")
            ),
            note="perf counts what all CPUs do all the time, user space included; here only the "
            "waits for lines can be told apart by function. If loads take their line, putting the "
            "reference waits longest before the move, and about as long as getting it afterwards, "
            "as published. If they leave it, getting the reference waits longest.",
        ),
        ROBOT: Evidence(
            no_userspace="The model has no lock, and two CPUs are too few for a queue at one.",
            no_kernel="In the calls run here nobody takes the lock, so no queue for it begins.",
            timed=timed.compared("moved-100", "spin-100", 254, file=_FULL),
            note="A factor of seven is not the price of one line. In the report's profile the "
            "dentry's lock takes nearly all time before the move, and none after: what was "
            "measured is how a lockref degrades, which chapter 2 is about. In virtual time, with "
            "254 workers, both kernels are in the state that the report has after the move: they "
            "queue for the lock of character devices. If somebody stays with the dentry's lock, "
            "workers queue for it on either kernel: the page of experiments has what that costs.",
        ),
    },
)
