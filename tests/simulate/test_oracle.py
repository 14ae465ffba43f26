# SPDX-License-Identifier: MIT
"""The simulator against an independent one in SimPy: the same rules, written twice."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import simpy
from simulated import PRIMES, Line, repeat, sockets

from contended.simulate.caches import Costs, Topology
from contended.simulate.locks import Lock
from contended.simulate.program import Memory, Program


def simpy_counter(topology: Topology, costs: Costs, think: float, ns: float) -> tuple[int, int]:
    """Operations and transfers of CPUs that add to one counter and think."""
    env = simpy.Environment()
    line = Line(env, topology, costs)
    done = 0

    def cpu(number: int) -> Generator[simpy.Event, Any, None]:
        nonlocal done
        while True:
            came = yield from line.get(number, write=True)
            if came:  # the way has the access in it
                line.done(env.now)
            yield env.timeout(think if came else costs.rmw_hit + think)
            done += 1

    for number in range(len(topology.core)):
        env.process(cpu(number))
    env.run(until=ns)
    return done, line.transfers


def simpy_spin_lock(topology: Topology, costs: Costs, hold: float, think: float, ns: float) -> int:
    """Operations of CPUs that take a test-and-set lock: exchange, and look until it is free."""
    env = simpy.Environment()
    line = Line(env, topology, costs)
    held = False
    changed = env.event()
    done = 0

    def use(number: int, write: bool) -> Generator[simpy.Event, Any, bool]:
        nonlocal changed
        came = yield from line.get(number, write)
        if came and write:
            # everybody who watched has lost the line and asks for it again
            changed.succeed()
            changed = env.event()
            yield env.timeout(0)
        if came:
            line.done(env.now)
        return came

    def cpu(number: int) -> Generator[simpy.Event, Any, None]:
        nonlocal held, done
        while True:
            while True:
                came = yield from use(number, True)
                was, held = held, True
                yield env.timeout(0 if came else costs.rmw_hit)
                if not was:
                    break
                while True:
                    watch = changed
                    came = yield from use(number, False)
                    watch = changed if not watch.triggered else watch
                    if not held:
                        yield env.timeout(0 if came else costs.read_hit)
                        break
                    yield env.timeout(costs.read_hit + costs.pause)
                    if number in line.sharers or line.owner == number:
                        yield changed
            yield env.timeout(hold)
            came = yield from use(number, True)
            held = False
            yield env.timeout(think if came else costs.read_hit + think)
            done += 1

    for number in range(len(topology.core)):
        env.process(cpu(number))
    env.run(until=ns)
    return done


@pytest.mark.parametrize(("cpus", "each"), [(2, 1), (5, 5), (8, 4), (12, 3)])
@pytest.mark.parametrize("think", [0, 101, 1009])
def test_counter_is_the_same_to_the_last_operation(cpus: int, each: int, think: int) -> None:
    topology, ns = sockets(cpus, each), 200_003

    def body(p: Program, memory: Memory) -> None:
        p.add(memory.word(), 1)
        p.think(think)
        p.done()

    seen = repeat(body, cpus, topology=topology, ns=ns, policy="fifo")
    done, transfers = simpy_counter(topology, PRIMES, think, ns)
    # those that are complete in the very last nanosecond may be counted or not
    assert abs(seen.counts["ops"] - done) <= 1
    assert abs(seen.transfers - transfers) <= 1


@pytest.mark.parametrize(("cpus", "each"), [(2, 2), (4, 4), (6, 3)])
def test_spin_lock_agrees(cpus: int, each: int) -> None:
    topology, ns, hold, think = sockets(cpus, each), 400_009, 211, 1511

    def body(p: Program, memory: Memory) -> None:
        lock = Lock("test-and-set", memory, memory.word())
        lock.acquire(p)
        p.think(hold)
        lock.release(p)
        p.think(think)
        p.done()

    seen = repeat(body, cpus, topology=topology, ns=ns, policy="fifo")
    done = simpy_spin_lock(topology, PRIMES, hold, think, ns)
    # who of several woken ones asks first is decided differently
    assert seen.counts["ops"] == pytest.approx(done, rel=0.08)
