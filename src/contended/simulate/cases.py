# SPDX-License-Identifier: MIT
"""The book's cases as programs for the simulator, and what it says of each of their variants.

A program holds what a case's operation does to lines that CPUs share, in the order of the kernel's
code; everything else that the operation does is private work of a length that was measured with one
thread. Nothing is fitted to a published number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contended.errors import ContendedError, UsageError
from contended.simulate import grace, machines
from contended.simulate.caches import Phase, Policy, Preemption, simulate
from contended.simulate.locks import Kind, Lock, Lockref
from contended.simulate.machines import Machine, Parameter
from contended.simulate.program import UNIFORM, Memory, Program, Word, check_cpus, check_ns

if TYPE_CHECKING:
    import pandas as pd

MS = 1e6  # nanoseconds
LOOKS = 100  # linux-next's loop counted looks at a held lock as it counts failed exchanges
STRANGER_EVERY = 2000  # operations
MOUNTS = 64
UMOUNT = "umount-grace-period"

#: Private work, nanoseconds: what one thread alone needs for the system call.
WORK: Mapping[str, Parameter] = {
    "stat": Parameter(
        basis="measured",
        source="stat(2) of one file on tmpfs by one thread: 2-CPU AMD EPYC guest, Linux 6.18",
        low=600,
        high=2000,
    ),
    "open": Parameter(
        basis="measured",
        source="open(2) with O_CREAT and close(2) of one file on tmpfs, same machine",
        low=1200,
        high=4000,
    ),
    "faccessat": Parameter(
        basis="measured",
        source="faccessat(2) of one file on tmpfs, same machine; overlayfs adds to it",
        low=500,
        high=3000,
    ),
    "handle": Parameter(
        basis="assumed",
        source="between two visits of a dentry's lock in the stress-ng handle stressor: a few "
        "visits in two system calls as long as open and close",
        low=200,
        high=2400,
    ),
    "lookup": Parameter(
        basis="assumed",
        source="a directory's lock is held for one lookup of a cached name",
        low=100,
        high=500,
    ),
    "holder": Parameter(
        basis="assumed",
        source="who takes a dentry's lock for its own sake holds it for a step along a list",
        low=20,
        high=200,
    ),
    "explicit": Parameter(
        basis="cited",
        source="guzik2024postmortem: the handle stressor is all spin locks, a third of it lockref",
        low=0.02,
        high=0.9,
    ),
    "smt": Parameter(
        basis="assumed",
        source="private work takes this many times as long beside a busy hardware thread",
        low=1.2,
        high=2.0,
    ),
}
#: The values that simulations take unless told otherwise; the units are those of WORK.
CENTRAL = {
    "stat": 1160.0,
    "open": 2430.0,
    "faccessat": 1000.0,
    "handle": 800.0,
    "lookup": 200.0,
    "holder": 50.0,
    "explicit": 2 / 3,
    "smt": 1.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a case's program is made from.

    Attributes:
        variant: Its variant.
        cpus: How many CPUs run it.
        work: Private work by name, see WORK: nanoseconds, `smt` a factor.
        lock: The kind of spin lock in a lockref.
    """

    variant: str
    cpus: int
    work: Mapping[str, float]
    lock: Kind = "queued"


@dataclass(slots=True)
class Built:
    """A program that is ready to run; CPU n starts at label `start[n]`."""

    program: Program
    memory: Memory
    start: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A case, or another workload of the same case, as a program.

    Attributes:
        slug: The case.
        name: The workload: the slug, or what distinguishes it.
        variants: By name: what it does, one phrase.
        phases: Their names and lengths, nanoseconds.
        counters: The program's own counters, by number.
        works: Which entries of WORK it uses.
        build: Makes the program.
    """

    slug: str
    name: str
    variants: Mapping[str, str]
    phases: Mapping[str, float]
    counters: Mapping[str, int]
    works: tuple[str, ...]
    build: Callable[[Setup], Built]


def _begin(setup: Setup) -> tuple[Program, Memory]:
    return Program(), Memory(setup.cpus)


def _everybody(setup: Setup, program: Program, memory: Memory) -> Built:
    return Built(program, memory, ["go"] * setup.cpus)


def _lockref(setup: Setup, memory: Memory, word: Word, first: int = 0) -> Lockref:
    looks = {"before": 0, "after": LOOKS}.get(setup.variant)
    if looks is None:
        looks = int(setup.variant.removeprefix("spin-"))
    return Lockref(
        Lock(setup.lock, memory, word), looks=looks, fast=first, slow=first + 1, retried=first + 2
    )


# Where a stat's work lies, in parts, by the order of the kernel's code; the parts are assumed.
_TO_GET = 0.1  # from comparing the name to taking the reference: mounts, flags, permissions
_BETWEEN = 0.2  # from get to put: filling in the attributes


def _stat(setup: Setup) -> Built:
    """Stat one file by all CPUs: get, read the attributes, put; in phase 1 some take the lock."""
    p, memory = _begin(setup)
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
    return _everybody(setup, p, memory)


def _handle(setup: Setup) -> Built:
    """An operation is one visit of a dentry's lock: `explicit` of them take it for its own sake."""
    p, memory = _begin(setup)
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
    return _everybody(setup, p, memory)


def _lookup(setup: Setup) -> Built:
    """Stat one file, whose name is or is not on the line of the reference count."""
    p, memory = _begin(setup)
    count = memory.word(1 << 32)
    name = memory.word(beside=count) if setup.variant == "before" else memory.word()
    ref = Lockref(Lock(setup.lock, memory, count))
    work = setup.work["stat"]
    p.label("go")
    p.think(work * (1 - _TO_GET - _BETWEEN), UNIFORM)
    p.read(name)
    p.think(work * _TO_GET, UNIFORM)
    ref.change(p, 1)
    p.think(work * _BETWEEN, UNIFORM)
    ref.change(p, -1)
    p.done()
    p.jump("go")
    return _everybody(setup, p, memory)


def _open(setup: Setup) -> Built:
    """open(O_CREAT) and close in one of many mounts, with or without the root's reference."""
    p, memory = _begin(setup)
    mount = 0  # the register that says in which
    root = Lockref(Lock(setup.lock, memory, memory.word(1 << 32)))
    count, rwsem = memory.array(MOUNTS, mount), memory.array(MOUNTS, mount)
    for at in range(count.base, count.base + MOUNTS):
        memory.initial[at] = 1 << 32
    directory = Lockref(Lock(setup.lock, memory, count), fast=3, slow=4, retried=5)
    lock = Lock("queued", memory, rwsem)
    file = memory.own()[0]
    work = max(setup.work["open"] - setup.work["lookup"], 0.0)
    p.label("go")
    p.alu("random", mount, number=MOUNTS)
    p.think(work / 2, UNIFORM)
    if setup.variant != "lookup-first":
        directory.change(p, 1)
    if setup.variant == "before":
        root.change(p, 1)
    if setup.variant != "lookup-first":
        lock.acquire(p)
    p.think(setup.work["lookup"], UNIFORM)
    p.add(file, 1)
    if setup.variant != "lookup-first":
        lock.release(p)
        directory.change(p, -1)
    if setup.variant == "before":
        root.change(p, -1)
    p.think(work / 2, UNIFORM)
    p.add(file, -1)
    p.done()
    # As with any lockref, a stranger now and then: here whoever lists the root directory.
    p.alu("phase", 1)
    p.branch(1, "!=", 1, "go")
    p.alu("random", 1, number=STRANGER_EVERY)
    p.branch(1, "!=", 0, "go")
    p.count(6)
    Lockref(root.lock, hold_ns=setup.work["holder"]).locked(p, 0)
    p.jump("go")
    return _everybody(setup, p, memory)


def _creds(setup: Setup) -> Built:
    """Check access on an overlay: borrow the mounter's credentials, look, give them back."""
    p, memory = _begin(setup)
    ids = memory.word()
    usage = memory.word(1) if setup.variant == "own-line" else memory.word(1, beside=ids)
    counted = setup.variant != "after"
    p.label("go")
    p.think(setup.work["faccessat"] * 0.8, UNIFORM)
    if counted:
        p.add(usage, 1)
    p.read(ids)
    p.think(setup.work["faccessat"] * 0.2, UNIFORM)
    if counted:
        p.add(usage, -1)
    p.done()
    p.jump("go")
    return _everybody(setup, p, memory)


_LOOKS = {
    "before": "a held lock sends everyone to the lock",
    "after": f"wait for the release first, at most {LOOKS} looks: linux-next's loop",
    "spin-1": "at most one look",
    "spin-700": "at most 700 looks",
    "spin-1000": "at most 1000 looks",
}
_THREE = {"calm": 1 * MS, "perturbed": 1 * MS, "after": 2 * MS}
_REF = {"fast": 0, "slow": 1, "retried": 2}

_SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            slug="lockref-degrade",
            name="lockref-degrade",
            variants=_LOOKS,
            phases=_THREE,
            counters={**_REF, "stranger": 3},
            works=("stat", "holder", "smt"),
            build=_stat,
        ),
        Scenario(
            slug="lockref-degrade",
            name="lockref-handle",
            variants=_LOOKS,
            phases={"start": 1 * MS, "run": 3 * MS},
            counters=_REF,
            works=("handle", "holder", "explicit", "smt"),
            build=_handle,
        ),
        Scenario(
            slug="dentry-false-sharing",
            name="dentry-false-sharing",
            variants={
                "before": "the name is compared on the reference count's line",
                "after": "the reference count has a line of its own",
            },
            phases={"start": 0.5 * MS, "run": 2 * MS},
            counters=_REF,
            works=("stat", "smt"),
            build=_lookup,
        ),
        Scenario(
            slug="open-creat-unlazy",
            name="open-creat-unlazy",
            variants={
                "before": "unlazy takes the directory and the root",
                "after": "the root is forgotten first",
                "lookup-first": "found without locks or references, as since 6.12",
            },
            phases={"start": 1 * MS, "perturbed": 1 * MS, "run": 4 * MS},
            counters={**_REF, "dir_fast": 3, "dir_slow": 4, "dir_retried": 5, "stranger": 6},
            works=("open", "lookup", "holder", "smt"),
            build=_open,
        ),
        Scenario(
            slug="overlay-creds",
            name="overlay-creds",
            variants={
                "before": "count a reference on the credentials' own line",
                "own-line": "count it on a line of its own",
                "after": "count nothing",
            },
            phases={"start": 0.5 * MS, "run": 2 * MS},
            counters={},
            works=("faccessat", "smt"),
            build=_creds,
        ),
    )
}
GRACE_VARIANTS = {
    "before": "the caller waits for a normal grace period",
    "expedited": "the caller waits for an expedited one, as without RT",
    "call-rcu": "a callback releases after the grace period",
    "no-wait": "nobody waits: wrong",
}


def names() -> tuple[str, ...]:
    """What can be simulated: slugs of cases, and further workloads of one of them."""
    return (*_SCENARIOS, UMOUNT)


def get(name: str) -> Scenario:
    """The scenario of that name.

    Raises:
        UsageError: there is none; the message lists those there are.
    """
    if name not in _SCENARIOS:
        raise UsageError(f"{name!r} cannot be simulated; choose one of: {', '.join(names())}")
    return _SCENARIOS[name]


def variants(name: str) -> tuple[str, ...]:
    """The variants of a scenario.

    Raises:
        UsageError: an unknown scenario.
    """
    return tuple(GRACE_VARIANTS if name == UMOUNT else get(name).variants)


def check(name: str, chosen: Sequence[str], machine: str, cpus: Sequence[int]) -> None:
    """Refuse what cannot be simulated, before anything is started.

    Raises:
        UsageError: an unknown scenario, variant or machine, or CPUs out of range.
    """
    known = variants(name)
    for variant in chosen:
        if variant not in known:
            raise UsageError(f"{name} has no variant {variant!r}; it has: {', '.join(known)}")
    machines.get(machine)
    if not cpus:
        raise UsageError("no CPU counts: give at least one")
    for n in cpus:
        check_cpus(n)


def run(
    name: str,
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
    """Simulate one variant of a scenario.

    Args:
        name: The scenario.
        variant: One of its variants.
        machine: The machine, or its name.
        cpus: How many of its CPUs run the program.
        seed: Seeds what is random.
        work: Private work that differs from WORK's central values, by name.
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
    check(name, [variant], machines.HERE if box.name == machines.HERE else box.name, [cpus])
    scenario = get(name)
    works = working(work or {}, box, cpus)
    built = scenario.build(Setup(variant=variant, cpus=cpus, work=works, lock=lock))
    if not 0 < length <= 1000:
        raise UsageError(f"length is {length:g}: choose more than 0, up to 1000")
    phases = simulate(
        built.program,
        built.memory,
        box.topology(cpus),
        box.costs,
        start=built.start,
        phases_ns=[ns * length for ns in scenario.phases.values()],
        seed=seed,
        counters=scenario.counters,
        policy=policy,
        preemption=preemption,
    )
    return dict(zip(scenario.phases, phases, strict=True))


def working(changed: Mapping[str, float], machine: Machine, cpus: int) -> dict[str, float]:
    """Private work by name, longer where hardware threads of one core are both busy.

    Raises:
        UsageError: an unknown name or a number out of range.
    """
    work = dict(CENTRAL)
    for name, value in changed.items():
        if name not in work:
            raise UsageError(f"no work {name!r}; choose from {', '.join(work)}")
        check_ns(f"work {name}", value)
        work[name] = value
    crowded = machine.threads > 1 and cpus > machine.sockets * machine.cores
    if not 0 <= work["explicit"] <= 1:
        raise UsageError(f"work explicit is {work['explicit']:g}: choose 0 to 1, a part")
    factor = work["smt"] if crowded else 1.0
    parts = ("smt", "explicit")
    return {name: value if name in parts else value * factor for name, value in work.items()}


def rows(name: str, variant: str, machine: str, cpus: int, seed: int) -> list[dict[str, Any]]:
    """One simulation as rows of `frame`: one for each phase."""
    if name == UMOUNT:
        return grace.rows(variant, machine, cpus, seed)
    box = machines.get(machine)
    return [
        row(name, variant, box, cpus, seed, phase, seen)
        for phase, seen in run(name, variant, box, cpus, seed=seed).items()
    ]


def row(
    name: str, variant: str, box: Machine, cpus: int, seed: int, phase: str, seen: Phase
) -> dict[str, Any]:
    """One phase of a simulation as a row of `frame`."""
    counts = seen.counts
    return {
        "case": name,
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
        "slow_share": _share(counts, "slow", ("fast", "slow")),
        "extrapolated": cpus > box.cpus,
        **{key: counts[key] for key in get(name).counters},
    }


def _share(counts: Mapping[str, int], part: str, of: Sequence[str]) -> float:
    total = sum(counts.get(name, 0) for name in of)
    return counts.get(part, 0) / total if total else float("nan")


def frame(
    name: str,
    *,
    cpus: Sequence[int],
    machine: str = "2x20-smt",
    chosen: Sequence[str] | None = None,
    seeds: Sequence[int] = (0,),
) -> pd.DataFrame:
    """Simulate variants at CPU counts, here and now; `sweep.run` does the same on many CPUs.

    Args:
        name: The scenario: a case's slug, or "lockref-handle".
        cpus: How many CPUs, 1 to 512 each.
        machine: The machine's name.
        chosen: Which variants; default all.
        seeds: A simulation for each.

    Returns:
        A row for each variant, number of CPUs, seed and phase: case, variant, machine, cpus, seed,
        phase, ops_per_s, ns_per_op (of all CPUs together), transfers_per_op (lines fetched from
        another cache, or copies there invalidated by a write), and counts: ops, transfers, far
        (those between sockets), invalidations (copies), wait_ns (in queues for a line), events,
        slow_share (of a lockref's changes, those under its lock), extrapolated (more CPUs than the
        machine has), and the program's own counters.

    Raises:
        UsageError: an unknown name or a number out of range.
    """
    pandas = require_pandas()
    picked = list(chosen or variants(name))
    check(name, picked, machine, cpus)
    found: pd.DataFrame = pandas.DataFrame(
        [
            row
            for variant in picked
            for n in cpus
            for seed in seeds
            for row in rows(name, variant, machine, n, seed)
        ]
    )
    return found


def require_pandas() -> Any:
    """The module pandas.

    Raises:
        ContendedError: it is not installed; the message says how to.
    """
    try:
        import pandas
    except ImportError as error:
        raise ContendedError("simulations need pandas: pip install pandas") from error
    return pandas
