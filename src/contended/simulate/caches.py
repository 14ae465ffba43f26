# SPDX-License-Identifier: MIT
"""CPUs that share cache lines, simulated event by event: deterministic, and compiled by numba.

A core's threads have one cache. A line is modified in one cache, shared by several, or in none; it
serves one request at a time, and the next is any of those who wait, by chance: a request that finds
its line on the way is repeated, and nobody remembers who was first. A way is what a ping-pong
measures, from access to access: the access at its end is in it, and costs nothing more. No cache is
ever full, memory is sequentially
consistent, and the way between two CPUs has a length but no width. It is fast since a CPU that
waits has no event, others go on until somebody else is due, and the event queue is a tournament:
its update is a comparison a level, and no branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, get_args

from contended.errors import ContendedError, UsageError
from contended.simulate.program import COUNTERS, PS, Memory, Program, check_cpus, check_ns

Policy = Literal["chance", "grouped", "fifo", "nearest"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
OVERTAKES = 8  # in a row, of the first in a queue by those who are nearer
_MOVED = ("transfers_core", "transfers_near", "transfers_cross", "transfers_far", "upgrades")
COUNTS = ("ops", "events", *_MOVED, "invalidations", "fills", "wait_ps", "first", "first_far")
"""What a run counts in each phase; the program's own counters follow.

`first` are the transfers between cores of the line that the program lays out first, and `first_far`
those of them that came from another socket.
"""
_HITS = ("read_hit", "rmw_hit", "pause")
COST_NAMES = ("core", "near", "cross", "far", *_HITS, "fill", "share", "invalidate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What things take, in nanoseconds; but `request` is a part, 0 to 1, of a transfer."""

    read_hit: float = 1.0  # a read, or a plain store, of a line that the CPU has
    rmw_hit: float = 6.0  # an atomic read-modify-write of a line that the CPU has to itself
    pause: float = 40.0  # between two looks of a spin loop
    core: float = 8.0  # to change what the same core's other hardware thread has; to read is a hit
    near: float = 50.0  # from a core of the same group, which shares a last-level cache
    cross: float = 50.0  # from another group of the socket; `near` where a socket is one group
    far: float = 120.0  # from another socket
    fill: float = 80.0  # from no cache
    share: float = 10.0  # how long one more core, which waits for no whole transfer, keeps a line
    invalidate: float = 0.0  # added to a write for each copy that it has to invalidate
    request: float = 0.2  # that its owner may go on using the line

    def __post_init__(self) -> None:
        for name in COST_NAMES:
            check_ns(f"cost {name}", getattr(self, name))
        if not 0 <= self.request <= 1:
            raise UsageError(f"cost request is {self.request:g}: choose 0 to 1, a part of the way")


class Topology(NamedTuple):
    """Which core, group and socket each CPU is in, all counted over the whole machine."""

    core: tuple[int, ...]
    group: tuple[int, ...]
    socket: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Preemption:
    """CPUs are taken away from their task now and then; whoever waits for that task waits on.

    The mean time between two, exponential, and how long each lasts, in nanoseconds.
    """

    every_ns: float
    for_ns: float

    def __post_init__(self) -> None:
        check_ns("preemption every", self.every_ns, positive=True)
        check_ns("preemption for", self.for_ns)


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a run: how long it was, and by name COUNTS and the program's own counters."""

    ns: float
    counts: dict[str, int]

    @property
    def ops_per_s(self) -> float:
        """Operations that were completed in each second."""
        return 1e9 * self.counts["ops"] / self.ns if self.ns else 0.0

    @property
    def ns_per_op(self) -> float:
        """Nanoseconds from one completed operation to the next, of all CPUs together."""
        return self.ns / self.counts["ops"] if self.counts["ops"] else float("inf")

    @property
    def transfers(self) -> int:
        """Lines that came out of another CPU's cache, or whose copies there were invalidated."""
        return sum(self.counts[name] for name in _MOVED)

    @property
    def remote(self) -> float:
        """Of the lines and copies that came from another core, the part from another socket.

        A copy is from the nearest who has one; NaN if nothing came.
        """
        far, *others = (self.counts[f"transfers_{way}"] for way in ("far", "near", "cross"))
        return far / (far + sum(others)) if far + sum(others) else float("nan")

    def per_op(self, name: str) -> float:
        """A counter, or "transfers", for each operation; NaN without any."""
        count = self.transfers if name == "transfers" else self.counts[name]
        return count / self.counts["ops"] if self.counts["ops"] else float("nan")


def simulate(
    program: Program,
    memory: Memory,
    topology: Topology,
    costs: Costs,
    *,
    start: Sequence[str],
    phases_ns: Sequence[float],
    seed: int = 0,
    max_ops: int = 0,
    counters: Mapping[str, int] | None = None,
    policy: Policy = "chance",
    preemption: Preemption | None = None,
) -> list[Phase]:
    """Run a program on CPUs that share lines, and tell what happened in each phase.

    Each of 1 to 512 CPUs begins at its label in `start`. Phases have lengths in nanoseconds; the
    last one ends early after `max_ops` operations, if that is not 0. The program's own counters get
    their names by number. Of those who wait for a line anybody may be next ("chance"); or anybody
    of the group of whoever has it, and of each other group the first only ("grouped"); or the first
    ("fifo"), or the one nearest to whoever has it, which overtakes a bounded number of times
    ("nearest").

    Raises:
        UsageError: a number is out of range.
        ContendedError: the program cannot go on: everybody waits, or it loops without taking time.
    """
    import numpy as np

    cpus, own = len(start), counters or {}
    check_cpus(cpus)
    if len(topology.core) < cpus:
        raise UsageError(f"{cpus} CPUs of a machine that has {len(topology.core)}")
    if not phases_ns:
        raise UsageError("phases_ns is empty: give at least one phase")
    for length in phases_ns:
        check_ns("phase", length, positive=True)
    if policy not in POLICIES:
        raise UsageError(f"policy {policy!r}: choose from {', '.join(POLICIES)}")
    if not 0 <= seed < 1 << 63:
        raise UsageError(f"seed is {seed}: choose 0 to {(1 << 63) - 1}")
    if max_ops < 0:
        raise UsageError(f"max_ops is {max_ops}: choose 0 (no limit) or more")
    from contended.simulate.engine import run  # compiles it once on a machine, and keeps that
    from contended.simulate.lines import CHANCE, FIFO, GROUPED

    ints = partial(np.array, dtype=np.int64)
    ends = np.cumsum(ints([round(length * PS) for length in phases_ns]))
    counts = np.zeros((len(ends) + 1, len(COUNTS) + COUNTERS), dtype=np.int64)
    placed = np.zeros((cpus, 8), dtype=np.int64)
    for column, where in enumerate(topology):
        placed[:, column] = where[:cpus]
    away = (preemption.every_ns, preemption.for_ns) if preemption else (0, 0)
    overtakes = {"chance": CHANCE, "grouped": GROUPED, "fifo": FIFO, "nearest": OVERTAKES}
    options = ints([seed, max_ops, overtakes[policy], *(round(ns * PS) for ns in away)])
    steps = program.assemble(), ints([program.place(label) for label in start])
    words = 8 * ints(memory.line_of), ints(memory.initial)
    prices = [round(getattr(costs, name) * PS) for name in COST_NAMES]
    prices.append(round(costs.request * (1 << 20)))
    places, lines = (placed.reshape(-1), ints(prices)), max(memory.lines, 1)
    status, now, phase = run(lines, *steps, *words, *places, ends, counts, options)
    if status == 1:
        raise ContendedError("the simulated program is stuck: every CPU waits for another")
    if status == 2:
        raise ContendedError("the simulated program loops without taking any time")
    names = {number: name for name, number in own.items()}
    columns = dict(enumerate(COUNTS)) | {len(COUNTS) + n: names[n] for n in sorted(names)}
    borders = [0, *map(int, ends)]
    return [
        Phase(
            (min(borders[i + 1], now) - borders[i]) / PS,
            {name: int(counts[i, column]) for column, name in columns.items()},
        )
        for i in range(phase + 1)
    ]
