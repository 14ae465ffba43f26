# SPDX-License-Identifier: MIT
"""What the simulator's tests share: machines without frills, and an oracle in SimPy."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

import simpy

from contended.simulate.caches import Costs, Phase, Topology, simulate
from contended.simulate.program import EXPONENTIAL, FIXED, Memory, Program

NOTHING = Costs(
    read_hit=0,
    rmw_hit=0,
    pause=0,
    core=0,
    near=0,
    cross=0,
    far=0,
    fill=0,
    share=0,
    invalidate=0,
    request=0,
)
#: Whole nanoseconds that have no common factor, so that events seldom fall together.
PRIMES = replace(
    NOTHING, read_hit=1, rmw_hit=7, pause=13, near=53, cross=53, far=131, fill=89, share=11
)


def flat(cpus: int) -> Topology:
    """One socket of single-threaded cores."""
    return Topology(tuple(range(cpus)), (0,) * cpus, (0,) * cpus)


def threads(cpus: int, each: int, sockets: int = 1) -> Topology:
    """Sockets of as many cores of `each` threads, in Linux's order: first one thread of each."""
    cores = cpus // each
    core = tuple(n % cores for n in range(cpus))
    place = tuple(c * sockets // cores for c in core)
    return Topology(core, place, place)


def sockets(cpus: int, each: int) -> Topology:
    """Sockets of so many single-threaded cores."""
    place = tuple(n // each for n in range(cpus))
    return Topology(tuple(range(cpus)), place, place)


def repeat(
    body: Callable[[Program, Memory], None],
    cpus: int,
    *,
    costs: Costs = PRIMES,
    topology: Topology | None = None,
    ns: float = 200_000.0,
    **options: Any,
) -> Phase:
    """Each CPU repeats the body, which counts its own operations."""
    memory, p = Memory(cpus), Program()
    p.label("go")
    body(p, memory)
    p.jump("go")
    (phase,) = simulate(
        p, memory, topology or flat(cpus), costs, start=["go"] * cpus, phases_ns=[ns], **options
    )
    return phase


def adding(think: float = 0.0, kind: int = FIXED) -> Callable[[Program, Memory], None]:
    """One shared counter, and work of one's own."""

    def body(p: Program, memory: Memory) -> None:
        p.add(memory.word(), 1)
        p.think(think, kind)
        p.done()

    return body


def serving(think: float, hold: float, kind: int = EXPONENTIAL) -> Callable[..., None]:
    """Think, then hold a ticket lock: customers at one server."""
    from contended.simulate.locks import Lock

    def body(p: Program, memory: Memory) -> None:
        lock = Lock("ticket", memory, memory.word())
        p.think(think, kind)
        lock.acquire(p)
        p.think(hold, kind)
        lock.release(p)
        p.done()

    return body


@dataclass
class Asked:
    """A request that waits in the oracle's line."""

    cpu: int
    write: bool
    granted: simpy.Event


@dataclass
class Line:
    """The oracle's line: written anew from the rules, with SimPy's processes.

    Nobody watches it while the threads of a core share a cache: of that it knows nothing.
    """

    env: simpy.Environment
    topology: Topology
    costs: Costs
    owner: int = -1
    sharers: dict[int, float] = field(default_factory=dict)  # since when each has its copy
    waiting: list[Asked] = field(default_factory=list)
    moving: Asked | None = None
    leaves: float = 0.0
    comes: float = 0.0
    free: float = 0.0
    transfers: int = 0
    last: tuple[float, int] = (-1.0, -1)  # when who asked last, or had it come
    tied: bool = False  # whether two did at once: who is first is then not ruled

    def _way(self, a: int, b: int) -> float:
        if self._beside(a, b):
            return self.costs.core
        same = self.topology.socket[a] == self.topology.socket[b]
        return self.costs.near if same else self.costs.far

    def _beside(self, a: int, b: int) -> bool:
        return self.topology.core[a] == self.topology.core[b]

    def has(self, cpu: int, write: bool) -> bool:
        """Whether the CPU need not ask for the line."""
        gone = self.moving is not None and self.env.now >= self.leaves
        if write:
            return self.owner == cpu and not gone
        return (self.owner == cpu or cpu in self.sharers) and not (gone and self._is_written())

    def _is_written(self) -> bool:
        return self.moving is not None and self.moving.write

    def _since(self, cpu: int) -> float | None:
        """Since when, or from when on, its core has what the CPU may read; None if it has not."""
        if self.owner >= 0:
            return 0.0 if self._beside(self.owner, cpu) else None
        copies = (at for other, at in self.sharers.items() if self._beside(other, cpu))
        return min(copies, default=None)

    def _note(self, cpu: int) -> None:
        self.tied = self.tied or (self.last[0] == self.env.now and self.last[1] != cpu)
        self.last = self.env.now, cpu

    def get(self, cpu: int, write: bool) -> Generator[simpy.Event, Any, bool]:
        """Wait until the CPU has the line; True if it had to wait."""
        now = self.env.now
        self._note(cpu)
        if self.has(cpu, write):
            return False
        if write and self.owner >= 0 and self._beside(self.owner, cpu) and self.moving:
            there = now + self.costs.core
            if now < self.leaves and there < self.comes:
                self.owner = cpu
                self.transfers += 1
                yield self.env.timeout(self.costs.core)
                return True
        asked = Asked(cpu, write, self.env.event())
        gone = now >= self.leaves and self._is_written()
        if not write and not gone and self._since(cpu) is not None:
            self._begin(asked, now)
        else:
            self.waiting.append(asked)
            if not self.moving and len(self.waiting) == 1:
                self._serve(now)
        yield asked.granted
        return True

    def done(self, cpu: int, begun: float) -> None:
        """The CPU that the line came to has used it once: the next may begin."""
        self._note(cpu)
        self.free = max(self.free, begun)
        if self._since(cpu) is not None and not (self.moving and begun >= self.leaves):
            readers = [a for a in self.waiting if not a.write and self._beside(a.cpu, cpu)]
            if readers:  # of several the next by number, who then serves the one after
                first = min(readers, key=lambda a: (a.cpu - cpu) % len(self.topology.core))
                self.waiting.remove(first)
                self._begin(first, begun)
        self._serve(begun)

    def _serve(self, now: float) -> None:
        while self.waiting and not self.moving:
            self._begin(self.waiting.pop(0), now)

    def _begin(self, asked: Asked, now: float) -> None:
        cpu, start, alone = asked.cpu, max(now, self.free), False
        since = None if asked.write else self._since(cpu)
        if since is not None:
            start, latency = max(now, since), self.costs.read_hit
        elif self.owner >= 0:
            latency, alone = self._way(cpu, self.owner), True
            self.transfers += 1
        elif not self.sharers:
            latency, alone = self.costs.fill, True
        else:
            ways = [self._way(cpu, other) for other in self.sharers if other != cpu]
            latency, alone = max(ways) if asked.write else min(ways), asked.write
            self.transfers += 1
            if not alone:
                self.free = start + self.costs.share
        if self.owner < 0 and self.sharers and not asked.write:
            self.sharers[cpu] = min(self.sharers.get(cpu, start + latency), start + latency)
        if alone:
            self.moving, self.comes = asked, start + latency
            self.leaves = start + latency * self.costs.request
        self.env.process(self._come(asked, alone, start + latency))

    def _come(self, asked: Asked, alone: bool, at: float) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(at - self.env.now)
        if alone:
            if asked.write:
                self.sharers.clear()
                self.owner = asked.cpu
            elif self.owner >= 0:
                self.sharers = {self.owner: 0.0, asked.cpu: 0.0}
                self.owner = -1
            else:
                self.owner = asked.cpu
            self.moving = None
        asked.granted.succeed()
