# SPDX-License-Identifier: MIT
"""The simulator against formulas: what must come out if it is right, whatever its inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from simulated import NOTHING, PRIMES, adding, flat, repeat, serving, sockets

from contended.simulate.caches import POLICIES, Policy, simulate
from contended.simulate.locks import KINDS, Kind, Lock
from contended.simulate.program import EXPONENTIAL, UNIFORM, Memory, Program


def machine_repairman(n: int, think: float, service: float) -> float:
    """Operations per second of n customers who think and queue at one server (mean value analysis).

    Args:
        n: Customers.
        think: Mean, exponential, nanoseconds.
        service: The same.
    """
    queue, rate = 0.0, 0.0
    for k in range(1, n + 1):
        stay = service * (1 + queue)
        rate = k / (think + stay)
        queue = rate * stay
    return rate * 1e9


def test_one_cpu_transfers_nothing() -> None:
    seen = repeat(adding(), 1, ns=10_000)
    assert seen.transfers == 0
    assert seen.counts["fills"] == 1
    # one fill with the first operation, then its own hits: operation k ends at 89 + 7(k - 1)
    assert seen.counts["ops"] == 1 + (10_000 - 89 - 1) // 7


@pytest.mark.parametrize("cpus", [2, 3, 17, 64, 200, 512])
def test_without_think_time_the_line_is_the_limit(cpus: int) -> None:
    seen = repeat(adding(), cpus, ns=1_000_000)
    assert seen.ns_per_op == pytest.approx(PRIMES.near, rel=0.001)
    assert seen.transfers / seen.counts["ops"] == pytest.approx(1, abs=0.01)


def test_remote_transfers_cost_what_they_cost() -> None:
    # two sockets of one CPU: each transfer is remote
    seen = repeat(adding(), 2, topology=sockets(2, 1), ns=1_000_000)
    assert seen.ns_per_op == pytest.approx(PRIMES.far, rel=0.001)
    assert seen.counts["transfers_far"] == seen.transfers


def test_an_owner_may_go_on_until_the_request_arrives() -> None:
    # Half of the way is 26.5 ns: the access that the line comes for, and hits begun 0, 7, 14 and
    # 21 ns later.
    costs = replace(PRIMES, request=0.5)
    seen = repeat(adding(), 2, costs=costs, ns=1_000_000)
    visit = seen.counts["ops"] / seen.transfers
    assert visit == pytest.approx(5, abs=0.02)
    assert seen.ns_per_op == pytest.approx(PRIMES.near / visit, rel=0.001)


@pytest.mark.parametrize(("n", "think"), [(1, 100.0), (4, 1000.0), (16, 2000.0), (64, 5000.0)])
def test_contended_lock_is_a_machine_repairman(n: int, think: float) -> None:
    # Lines cost nothing here, so that the lock is the only server: M/M/1 with n customers.
    seen = repeat(serving(think, 100.0), n, costs=NOTHING, ns=30_000_000)
    assert seen.ops_per_s == pytest.approx(machine_repairman(n, think, 100.0), rel=0.02)


def test_contended_line_is_a_closed_queue() -> None:
    # Service is fixed here, so that the formula for exponential service is only a lower bound, and
    # the two asymptotes are upper ones.
    n, think = 16, 1500.0
    service = PRIMES.near
    seen = repeat(adding(think, EXPONENTIAL), n, ns=20_000_000)
    assert seen.ops_per_s > machine_repairman(n, think, service)
    assert seen.ops_per_s < min(1e9 / service, n * 1e9 / (think + service))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_open_arrivals_are_an_m_m_1(load: float) -> None:
    """CPU 0 brings customers, CPU 1 serves them; those who arrive see the mean queue (PASTA)."""
    service, ns = 100.0, 60_000_000
    memory, p = Memory(2), Program()
    brought, served = memory.word(), memory.word()
    p.label("bring")
    p.think(service / load, EXPONENTIAL)
    p.add(brought, 1, to=0)
    p.read(served, to=1)
    p.alu("minus", 0, 1)
    p.count(0, 0)
    p.done()
    p.jump("bring")
    p.label("serve")
    p.alu("set", 2)
    p.label("next")
    p.alu("add", 2, number=1)
    p.spin(brought, ">=", 2)
    p.think(service, EXPONENTIAL)
    p.add(served, 1)
    p.count(1)
    p.jump("next")
    (seen,) = simulate(
        p,
        memory,
        flat(2),
        NOTHING,
        start=["bring", "serve"],
        phases_ns=[ns],
        counters={"queue": 0, "served": 1},
    )
    assert seen.per_op("queue") == pytest.approx(load / (1 - load), rel=0.06)
    # what comes in goes out, but for the few that are there at the end
    assert 0 <= seen.counts["ops"] - seen.counts["served"] < 60


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("cpus", "threads"), [(1, 1), (2, 1), (2, 2), (7, 1), (7, 2), (9, 3), (65, 2), (300, 1)]
)
def test_locks_let_one_in_at_a_time_and_lose_nothing(
    kind: Kind, policy: Policy, cpus: int, threads: int
) -> None:
    """Under the lock a word is read, left alone for a while and written back: all must add up.

    Besides, the lock's line is read by those who do not want it yet.
    """
    turns, memory, p = 5, Memory(cpus), Program()
    word = memory.word()
    lock = Lock(kind, memory, word)
    total = memory.word()
    p.label("go")
    p.alu("set", 4, number=turns)
    p.label("again")
    p.think(40, UNIFORM)
    p.read(word)
    p.think(40, UNIFORM)
    lock.acquire(p)
    p.read(total, to=0)
    p.think(40)
    p.alu("add", 0, number=1)
    p.write(total, 0)
    lock.release(p)
    p.count(0)
    p.done()
    p.alu("add", 4, number=-1)
    p.branch(4, ">=", 1, "again")
    # whoever comes here last sees the sum, and counts it
    p.read(total, to=0)
    p.branch(0, "<", turns * cpus, "end")
    p.count(1, 0)
    p.label("end")
    p.think(1_000_000_000)
    p.jump("end")
    core = tuple(n // threads for n in range(cpus))
    (seen,) = simulate(
        p,
        memory,
        sockets(cpus, 20)._replace(core=core),
        replace(PRIMES, core=5, request=0.4),
        start=["go"] * cpus,
        phases_ns=[200_000_000],
        counters={"in": 0, "sum": 1},
        policy=policy,
    )
    assert seen.counts["ops"] == seen.counts["in"] == turns * cpus
    assert seen.counts["sum"] == turns * cpus
    if cpus == 1:
        assert seen.transfers == 0


def test_queued_locks_move_few_lines_and_ticket_locks_many() -> None:
    seen = {
        kind: repeat(_holding(kind), 40, topology=sockets(40, 20), ns=2_000_000) for kind in KINDS
    }
    assert seen["queued"].transfers / seen["queued"].counts["ops"] < 12
    # each release is read again by every waiter
    assert seen["ticket"].transfers / seen["ticket"].counts["ops"] > 30
    assert seen["queued"].ops_per_s > 1.5 * seen["ticket"].ops_per_s


def _holding(kind: Kind) -> Callable[[Program, Memory], None]:
    def body(p: Program, memory: Memory) -> None:
        lock = Lock(kind, memory, memory.word())
        lock.acquire(p)
        p.think(50)
        lock.release(p)
        p.think(100)
        p.done()

    return body
