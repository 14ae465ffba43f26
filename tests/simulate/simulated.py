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
class Line:
    """The oracle's line: written anew from the rules, with SimPy's processes."""

    env: simpy.Environment
    topology: Topology
    costs: Costs
    owner: int = -1
    sharers: set[int] = field(default_factory=set)
    waiting: list[tuple[int, bool, simpy.Event]] = field(default_factory=list)
    moving: bool = False
    leaves: float = 0.0
    free: float = 0.0
    transfers: int = 0
    watching: list[simpy.Event] = field(default_factory=list)

    def _far(self, a: int, b: int) -> float:
        same = self.topology.socket[a] == self.topology.socket[b]
        return self.costs.near if same else self.costs.far

    def _has(self, cpu: int, write: bool) -> bool:
        gone = self.moving and self.env.now >= self.leaves
        if write:
            return self.owner == cpu and not gone
        return (self.owner == cpu or cpu in self.sharers) and not (gone and self._writer)

    _writer: bool = False

    def get(self, cpu: int, write: bool) -> Generator[simpy.Event, Any, bool]:
        """Wait until the CPU has the line; True if it had to wait."""
        if self._has(cpu, write):
            return False
        granted = self.env.event()
        self.waiting.append((cpu, write, granted))
        if not self.moving and len(self.waiting) == 1:
            self._serve(self.env.now)
        yield granted
        return True

    def done(self, begun: float) -> None:
        """The CPU that the line came to has used it once: the next may begin."""
        self.free = max(self.free, begun)
        self._serve(begun)

    def _serve(self, now: float) -> None:
        while self.waiting and not self.moving:
            cpu, write, granted = self.waiting.pop(0)
            start = max(now, self.free)
            alone = True
            if self.owner >= 0:
                latency = self._far(cpu, self.owner)
                self.transfers += 1
            elif not self.sharers:
                latency = self.costs.fill
            else:
                ways = [self._far(cpu, other) for other in self.sharers]
                latency = max(ways) if write else min(ways)
                self.transfers += 1
                alone = write
                if not write:
                    self.sharers.add(cpu)
                    self.free = start + self.costs.share
            if alone:
                self.moving, self._writer = True, write
                self.leaves = start + latency * self.costs.request
            self.env.process(self._come(cpu, write, alone, start + latency, granted))

    def _come(
        self, cpu: int, write: bool, alone: bool, at: float, granted: simpy.Event
    ) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(at - self.env.now)
        if alone:
            if write:
                self.sharers.clear()
                self.owner = cpu
            elif self.owner >= 0:
                self.sharers = {self.owner, cpu}
                self.owner = -1
            else:
                self.owner = cpu
            self.moving = False
        granted.succeed()
