# SPDX-License-Identifier: MIT
"""Who is served next, how far it is, and what is paid: as hardware has it, by counts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from simulated import NOTHING, PRIMES, adding, flat, repeat, sockets

from contended.simulate import machines
from contended.simulate.caches import POLICIES, Phase, Policy, Topology, simulate
from contended.simulate.locks import Lock, Lockref
from contended.simulate.program import FLAG, SELF, UNIFORM, Memory, Program

SMT = machines.get("2x20-smt")


def shares(policy: Policy, cpus: int = 24, seed: int = 1) -> list[float]:
    """Of a test-and-set lock's operations: what each quarter of one socket's CPUs makes."""
    memory, p = Memory(cpus), Program()
    lock = Lock("test-and-set", memory, memory.word())
    p.label("go")
    lock.acquire(p)
    p.think(100)
    lock.release(p)
    p.think(500, UNIFORM)
    p.done()
    for quarter in range(4):
        p.branch(SELF, "<", (quarter + 1) * cpus // 4, f"quarter {quarter}")
    for quarter in range(4):
        p.label(f"quarter {quarter}")
        p.count(quarter)
        p.jump("go")
    (seen,) = simulate(
        p,
        memory,
        flat(cpus),
        PRIMES,
        start=["go"] * cpus,
        phases_ns=[5_000_000],
        seed=seed,
        counters={str(quarter): quarter for quarter in range(4)},
        policy=policy,
    )
    return [seen.per_op(str(quarter)) for quarter in range(4)]


@pytest.mark.parametrize(
    ("policy", "cpus"), [*((policy, 24) for policy in POLICIES), ("chance", 140)]
)
def test_on_one_socket_a_cpu_s_number_gives_it_nothing(policy: Policy, cpus: int) -> None:
    found = shares(policy, cpus)
    assert sum(found) == pytest.approx(1)
    assert all(0.18 < part < 0.32 for part in found), found


def test_who_has_half_the_way_has_twice_the_chance() -> None:
    """Seven ask for what the eighth has just used: three as near as 53 ns, four at 131."""
    seen = repeat(adding(), 8, topology=sockets(8, 4), ns=2_000_000)
    far = seen.counts["transfers_far"] / (
        seen.counts["transfers_far"] + seen.counts["transfers_near"]
    )
    assert far == pytest.approx(4 * 53 / 131 / (3 + 4 * 53 / 131), rel=0.05)


def test_of_more_than_a_word_of_cpus_each_has_its_chance() -> None:
    """Of 139 that ask 34 are as near as 53 ns, 35 at 79 ns in another group, 70 at 131 afar."""
    every = range(140)
    topology = Topology(tuple(every), tuple(n // 35 for n in every), tuple(n // 70 for n in every))
    costs = replace(PRIMES, cross=79)
    seen = repeat(adding(), 140, topology=topology, costs=costs, ns=10_000_000)
    chances = {"near": 34.0, "cross": 35 * 53 / 79, "far": 70 * 53 / 131}
    for kind, chance in chances.items():
        part = seen.counts[f"transfers_{kind}"] / seen.transfers
        assert part == pytest.approx(chance / sum(chances.values()), rel=0.03), kind


def test_by_chance_many_who_wait_take_no_longer_than_in_turn() -> None:
    """Real time of an event, by pairs; it was 13 times when it grew with those who wait."""

    def took(policy: Policy) -> float:
        begun = time.perf_counter()
        seen = repeat(adding(100), 256, policy=policy, ns=3_000_000)
        return (time.perf_counter() - begun) / seen.counts["events"]

    took("chance"), took("fifo")  # compiled, or loaded
    assert statistics.median(took("chance") / took("fifo") for _ in range(7)) < 4


@pytest.mark.parametrize(("part", "low", "high"), [(0.1, 0.05, 0.2), (0.3, 0.45, 0.6)])
def test_what_comes_to_a_core_serves_its_other_thread_while_it_may_stay(
    part: float, low: float, high: float
) -> None:
    """Eight always want it; 11 ns within the core fit into 0.3 of 53 ns once, into 0.1 never.

    Then any of the seven is next, one of whom is in that core, if he has asked again.
    """
    topology = Topology(tuple(n % 4 for n in range(8)), (0,) * 8, (0,) * 8)
    costs = replace(PRIMES, core=11, request=part)
    seen = repeat(adding(), 8, topology=topology, costs=costs, ns=2_000_000)
    assert low < seen.counts["transfers_core"] / seen.transfers < high


def test_chance_is_the_seed_s() -> None:
    assert shares("chance") == shares("chance")
    assert shares("chance") != shares("chance", seed=2)


def changing(pause_ns: float) -> Callable[[Program, Memory], None]:
    """Read, and compare and exchange until it works; a pause after each that failed."""

    def body(p: Program, memory: Memory) -> None:
        word = memory.word()
        again, changed = p.fresh(2)
        p.read(word, to=0)
        p.label(again)
        p.alu("copy", 1, 0)
        p.alu("add", 1, number=1)
        p.cas(word, 0, 1)
        p.branch(FLAG, "==", 1, changed)
        p.count(0)
        p.think(pause_ns)
        p.jump(again)
        p.label(changed)
        p.done()

    return body


def failures(policy: Policy, cpus: int, pause_ns: float) -> float:
    """Failed exchanges for each that works."""
    seen = repeat(
        changing(pause_ns), cpus, policy=policy, counters={"failed": 0}, ns=2_000_000, seed=1
    )
    return seen.per_op("failed")


def test_a_loop_of_exchanges_does_not_fail_a_queue_s_length() -> None:
    """In turn everybody's value is as old as the queue is long: one of all that ask gets through.

    By chance somebody who read lately is next often enough.
    """
    pause = SMT.costs.pause
    in_turn, by_chance = failures("fifo", 96, pause), failures("chance", 96, pause)
    assert in_turn > 80
    assert by_chance < in_turn / 3


def looks_before_the_lock(free_for_ns: float) -> Phase:
    """A lockref's change beside one who holds its lock again and again, with a moment in between.

    In that moment the count is changed, so that the exchange of whoever saw it free must fail.
    """
    memory, p = Memory(2), Program()
    word = memory.word()
    ref = Lockref(Lock("test-and-set", memory, word), looks=100)
    p.label("hold")
    p.alu("set", 0, number=1)
    p.label("again")
    p.write(word, 0, mask=1)
    p.think(600)
    p.add(word, (1 << 32) - 1)
    p.think(free_for_ns)
    p.add(word, 1 << 32)
    p.jump("again")
    p.label("wait")
    p.think(50)
    ref.change(p, 1)
    p.done()
    p.halt()
    costs = replace(NOTHING, read_hit=2, pause=8, near=20, cross=20, request=0.1)
    (seen,) = simulate(
        p,
        memory,
        flat(2),
        costs,
        start=["hold", "wait"],
        phases_ns=[6_000],
        counters={"fast": 0, "slow": 1, "failed": 2},
    )
    return seen


def test_all_waits_of_a_change_have_one_budget_of_looks() -> None:
    seen = looks_before_the_lock(free_for_ns=10)
    # a hold lasts some 60 looks of 10 ns: in the second one they are used up
    assert seen.counts["failed"] == 1, "it saw the lock free once, and came too late"
    assert seen.counts["slow"] == 1
    assert seen.counts["fast"] == 0


def turns(a: int, b: int, ops: int = 1001) -> float:
    """Nanoseconds from one turn to the next of two CPUs of a machine, by exchanges alone."""
    memory, p = Memory(2), Program()
    turn = memory.word()
    p.label("go")
    p.alu("copy", 0, SELF)
    p.alu("set", 1, number=1)
    p.alu("minus", 1, SELF)
    p.label("again")
    p.alu("copy", 2, 0)
    p.cas(turn, 2, 1)
    p.branch(FLAG, "==", 0, "again")
    p.done()
    p.jump("again")
    place = SMT.topology(80)
    of_two = Topology(*(tuple(level[cpu] for cpu in (a, b)) for level in place))
    (seen,) = simulate(p, memory, of_two, SMT.costs, start=["go"] * 2, phases_ns=[1e9], max_ops=ops)
    return (seen.ns - SMT.costs.fill) / (ops - 1)


@pytest.mark.parametrize(("other", "way"), [(40, "core"), (1, "near"), (19, "near"), (20, "far")])
def test_a_hand_over_takes_the_way_and_nothing_more(other: int, way: str) -> None:
    """The cited latencies are of a ping-pong of exchanges: each has its own exchange in it."""
    assert turns(0, other) == getattr(SMT.costs, way)


def access_ns(cpu: int, holders: tuple[int, ...], *, write: bool) -> float:
    """What a read, or a write after a read, takes a CPU if so many others have copies."""
    begun, memory, p = 5_000.0, Memory(1 + len(holders)), Program()
    word = memory.word()
    p.label("do")
    if write:
        p.read(word)
    p.think(begun)
    if write:
        p.write(word, SELF)
    else:
        p.read(word)
    p.done()
    p.label("read")
    p.think(500)
    p.read(word)
    p.label("idle")
    p.think(1_000)
    p.jump("idle")
    place = SMT.topology(80)
    some = Topology(*(tuple(level[n] for n in (cpu, *holders)) for level in place))
    start = ["do", *["read"] * len(holders)]
    (seen,) = simulate(p, memory, some, SMT.costs, start=start, phases_ns=[1e6], max_ops=1)
    return seen.ns - begun - (SMT.costs.fill if write else 0)


def test_a_copy_in_the_core_s_other_thread_is_nearest() -> None:
    """A reader takes the nearest copy, and a write is done when the farthest copy is gone."""
    costs = SMT.costs
    assert access_ns(0, (40, 1, 20), write=False) == costs.read_hit, "it is in this core"
    assert access_ns(0, (1, 20, 60), write=False) == costs.near
    assert access_ns(0, (20, 60), write=False) == costs.far
    assert access_ns(0, (40,), write=True) == costs.read_hit, "it never left this core"
    assert access_ns(0, (40, 1), write=True) == costs.near
    assert access_ns(0, (40, 20), write=True) == costs.far


def test_the_first_line_s_transfers_are_counted_apart() -> None:
    def body(p: Program, memory: Memory) -> None:
        first, second = memory.word(), memory.word()
        p.add(first, 1)
        p.add(second, 1)
        p.add(second, 1)
        p.done()

    place = Topology((0, 1), (0, 1), (0, 1))
    seen = repeat(body, 2, topology=place, ns=1_000_000)
    assert seen.counts["first"] == seen.counts["first_far"] > 0
    assert seen.counts["first"] < seen.transfers
    near = repeat(body, 2, ns=1_000_000)
    assert near.counts["first"] > near.counts["first_far"] == 0
