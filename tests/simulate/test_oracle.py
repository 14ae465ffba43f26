# SPDX-License-Identifier: MIT
"""The simulator against an independent one in SimPy: the same rules, written twice."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import simpy
from simulated import PRIMES, Line, repeat, sockets, threads

from contended.simulate.caches import Costs, Topology, simulate
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
                line.done(number, env.now)
            yield env.timeout(think if came else costs.rmw_hit + think)
            done += 1

    for number in range(len(topology.core)):
        env.process(cpu(number))
    env.run(until=ns)
    return done, line.transfers


@dataclass(frozen=True)
class Step:
    """An access to one of two lines, and what is thought before it, picoseconds."""

    line: int
    write: bool
    think: int


def chosen(seed: int, cpus: int) -> list[list[Step]]:
    """What each CPU repeats, by chance: mostly reads, or changes, and thinks little, or much."""
    chance = random.Random(seed)
    lines, writes = chance.choice((1, 1, 2)), chance.choice((0.1, 0.5, 0.9))
    most = chance.choice((10_000, 100_000, 2_000_000))
    return [
        [
            Step(chance.randrange(lines), chance.random() < writes, chance.randrange(1, most))
            for _ in range(chance.randint(1, 6))
        ]
        for _ in range(cpus)
    ]


def simpy_steps(
    steps: Sequence[Sequence[Step]], topology: Topology, costs: Costs, ns: int
) -> tuple[int, int] | None:
    """Rounds and transfers of CPUs that repeat their steps: in picoseconds, so without rounding.

    None if two came to a line at the same time, as no rule says who is first.
    """
    ps = {f.name: 1000 * getattr(costs, f.name) for f in fields(costs) if f.name != "request"}
    each, env = replace(costs, **ps), simpy.Environment()
    lines = [Line(env, topology, each) for _ in range(2)]
    done = 0

    def cpu(number: int) -> Generator[simpy.Event, Any, None]:
        nonlocal done
        while True:
            for step in steps[number]:
                yield env.timeout(step.think)
                line, hit = lines[step.line], each.rmw_hit if step.write else each.read_hit
                came = yield from line.get(number, step.write)
                if came:
                    line.done(number, env.now)
                yield env.timeout(0 if came else hit)
            done += 1

    for number in range(len(steps)):
        env.process(cpu(number))
    env.run(until=1000 * ns)
    if any(line.tied for line in lines):
        return None
    return done, sum(line.transfers for line in lines)


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
            line.done(number, env.now)
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


@pytest.mark.parametrize("request_part", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize(("cpus", "each", "of"), [(2, 2, 1), (8, 1, 2), (8, 2, 2), (20, 2, 2)])
def test_threads_of_a_core_have_one_cache_here_as_there(
    cpus: int, each: int, of: int, request_part: float
) -> None:
    """Programs by chance, by one and two threads of a core: as many rounds and transfers."""
    topology, ns = threads(cpus, each, of), 60_003
    costs = replace(PRIMES, core=5, request=request_part)
    compared = 0
    for seed in range(25):
        steps = chosen(seed, cpus)
        expected = simpy_steps(steps, topology, costs, ns)
        if expected is None:
            continue
        memory, p = Memory(cpus), Program()
        words = memory.word(), memory.word()
        for cpu in range(cpus):
            p.label(f"CPU {cpu}")
            for step in steps[cpu]:
                p.think(step.think / 1000)
                if step.write:
                    p.add(words[step.line], 1)
                else:
                    p.read(words[step.line])
            p.done()
            p.jump(f"CPU {cpu}")
        start = [f"CPU {cpu}" for cpu in range(cpus)]
        (seen,) = simulate(p, memory, topology, costs, start=start, phases_ns=[ns], policy="fifo")
        done, transfers = expected
        # as above; a burst's last access may be just behind the end
        assert abs(seen.counts["ops"] - done) <= 1, seed
        assert abs(seen.transfers - transfers) <= 1, seed
        compared += 1
    assert compared >= 10


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
