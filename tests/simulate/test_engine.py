# SPDX-License-Identifier: MIT
"""The simulator's promises: the same digits every time, honest errors, light imports."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from simulated import NOTHING, PRIMES, adding, flat, repeat, sockets, threads

from contended.errors import ContendedError, UsageError
from contended.simulate.caches import Costs, Phase, Preemption, Topology, simulate
from contended.simulate.locks import Lock, Lockref
from contended.simulate.program import EXPONENTIAL, UNIFORM, Memory, Program


def test_a_seed_gives_the_same_digits_on_every_machine() -> None:
    """Written down once: integers alone decide, so nothing may ever change them by accident."""
    seen = repeat(adding(500.0, EXPONENTIAL), 8, seed=1, ns=100_000, topology=sockets(8, 4))
    assert seen == repeat(adding(500.0, EXPONENTIAL), 8, seed=1, ns=100_000, topology=sockets(8, 4))
    assert seen != repeat(adding(500.0, EXPONENTIAL), 8, seed=2, ns=100_000, topology=sockets(8, 4))
    picked = {name: seen.counts[name] for name in ("ops", "events", "transfers_far", "wait_ps")}
    assert picked == GOLDEN


GOLDEN = {"ops": 1079, "events": 2170, "transfers_far": 496, "wait_ps": 197_096_892}


@pytest.mark.parametrize(("kind", "low", "high"), [(EXPONENTIAL, 98, 102), (UNIFORM, 99, 101)])
def test_random_think_times_have_their_mean(kind: int, low: float, high: float) -> None:
    seen = repeat(adding(100.0, kind), 1, costs=NOTHING, ns=10_000_000)
    assert low < seen.ns_per_op < high


def test_phases_add_up_and_are_told_apart() -> None:
    memory, p = Memory(2), Program()
    word = memory.word()
    p.label("go")
    p.add(word, 1)
    p.done()
    p.alu("phase", 0)
    p.branch(0, "==", 1, "second")
    p.jump("go")
    p.label("second")
    p.count(0)
    p.jump("go")
    first, second = simulate(
        p,
        memory,
        flat(2),
        PRIMES,
        start=["go"] * 2,
        phases_ns=[10_000, 30_000],
        counters={"second": 0},
    )
    assert (first.ns, second.ns) == (10_000, 30_000)
    assert first.counts["second"] == 0
    assert second.counts["second"] == pytest.approx(second.counts["ops"], abs=2)
    assert second.counts["ops"] == pytest.approx(3 * first.counts["ops"], rel=0.05)


def test_a_program_can_tell_how_long_something_took() -> None:
    """In its own time, with waits for a line: here everything, and no time for having looked."""

    def body(p: Program, memory: Memory) -> None:
        p.alu("now", 0)
        p.think(100.0)
        p.add(memory.word(), 1)
        p.alu("now", 1)
        p.alu("minus", 1, 0)
        p.count(0, 1)
        p.done()

    def plain(p: Program, memory: Memory) -> None:
        p.think(100.0)
        p.add(memory.word(), 1)
        p.done()

    for cpus in (1, 8):
        seen = repeat(body, cpus, ns=1_000_000, counters={"took": 0})
        assert seen.counts["took"] == pytest.approx(cpus * seen.ns * 1000, rel=0.01)
        assert seen.counts["ops"] == repeat(plain, cpus, ns=1_000_000).counts["ops"]


def test_a_step_counts_what_it_found_modified() -> None:
    """By another core: not its own line, not its other thread's, and not one of many copies."""

    def body(p: Program, memory: Memory) -> None:
        word = memory.word()
        p.add(word, 1)
        p.found(0)
        p.read(word)
        p.found(1)
        p.think(1000.0, UNIFORM)
        p.done()

    def reading(p: Program, memory: Memory) -> None:
        p.read(memory.word())
        p.found(0)
        p.done()

    def seen(cpus: int, topology: Topology | None = None, body: Any = body) -> Phase:
        return repeat(body, cpus, ns=1e6, topology=topology, counters={"added": 0, "read": 1})

    pair = seen(2)
    assert pair.counts["added"] + pair.counts["read"] == pair.counts["transfers_near"]
    assert pair.counts["added"] > 10 * pair.counts["read"], "it reads at once what it has changed"
    assert seen(1).counts["added"] == 0
    core = seen(2, threads(2, 2))
    assert core.transfers > 100
    assert core.counts["added"] == 0
    crowd = seen(8, body=reading)
    assert crowd.transfers > 0
    assert crowd.counts["added"] == 1, "the first has it alone, and then all have copies"


def test_only_an_access_finds_a_line() -> None:
    p, word = Program(), Memory(1).word()
    with pytest.raises(UsageError, match="put one down first"):
        p.found(0)
    p.spin(word, "==")
    with pytest.raises(UsageError, match="put one down first"):
        p.found(0)
    p.read(word)
    with pytest.raises(UsageError, match="counter 8: choose 0 to 7"):
        p.found(8)


def test_a_pause_is_the_machine_s() -> None:
    def body(p: Program, memory: Memory) -> None:
        p.pause()
        p.done()

    seen = repeat(body, 1, costs=replace(NOTHING, pause=37), ns=1_000_000)
    assert seen.ns_per_op == pytest.approx(37, rel=0.001)


def test_remote_is_of_what_came_from_another_core() -> None:
    counts = dict.fromkeys(("core", "near", "cross", "far"), 0)
    counts |= {"core": 90, "near": 3, "cross": 1, "far": 4}
    seen = Phase(1.0, {f"transfers_{way}": n for way, n in counts.items()} | {"upgrades": 70})
    assert seen.remote == 0.5
    assert math.isnan(Phase(1.0, dict.fromkeys(seen.counts, 0)).remote)


def test_stops_at_the_operation_that_was_asked_for() -> None:
    seen = repeat(adding(10), 5, ns=1e9, max_ops=1234)
    assert seen.counts["ops"] == 1234
    assert seen.ns < 1e9


def test_nearest_first_keeps_lines_in_their_socket() -> None:
    body = adding(300.0, UNIFORM)
    fifo, near = (
        repeat(body, 16, topology=sockets(16, 8), ns=1_000_000, policy=policy)
        for policy in ("fifo", "nearest")
    )
    assert near.per_op("transfers_far") < fifo.per_op("transfers_far") / 3
    assert near.ops_per_s > fifo.ops_per_s
    # nobody is forgotten: after 8 overtakings the first in the queue has its turn
    assert near.counts["transfers_far"] > 0


def test_preemption_of_waiters_hurts_locks_that_are_served_in_turn() -> None:
    def holding(p: Program, memory: Memory) -> None:
        lock = Lock("ticket", memory, memory.word())
        p.think(1000, UNIFORM)
        lock.acquire(p)
        p.think(50)
        lock.release(p)
        p.done()

    calm = repeat(holding, 8, ns=20_000_000)
    away = repeat(holding, 8, ns=20_000_000, preemption=Preemption(100_000, 50_000))
    # each CPU is away a third of its time, and takes the others with it
    assert away.ops_per_s < 0.5 * calm.ops_per_s


def test_a_bounded_spin_gives_up_after_as_many_looks() -> None:
    memory, p = Memory(2), Program()
    word = memory.word(1)
    p.label("look")
    p.alu("set", 0, number=10)
    p.spin(word, "==", budget=0, tired="tired")
    p.halt()
    p.label("tired")
    p.done()
    p.halt()
    costs = replace(NOTHING, read_hit=2, pause=8)
    p.label("idle")
    p.think(1000)
    p.jump("idle")
    # the line's fill takes no time here, and the look that it comes for is the first of ten
    for ns, ops in ((99, 0), (101, 1)):
        (seen,) = simulate(
            p, memory, flat(2), costs, start=["look", "idle"], phases_ns=[ns], seed=0
        )
        assert seen.counts["ops"] == ops, f"after {ns} ns"


def test_the_lockref_degrades_only_after_a_stranger_and_only_without_waiting() -> None:
    def run(looks: int, stranger: bool) -> Phase:
        memory, p = Memory(20), Program()
        ref = Lockref(Lock("queued", memory, memory.word(1 << 32)), looks=looks)
        held = Lockref(ref.lock, hold_ns=300)
        p.label("stranger")
        p.think(20_000)
        if stranger:
            held.locked(p, 0)
        p.label("go")
        p.think(800, UNIFORM)
        ref.change(p, 1)
        ref.change(p, -1)
        p.done()
        p.jump("go")
        phases = simulate(
            p,
            memory,
            flat(20),
            replace(PRIMES, request=0.1),
            start=["stranger"] + ["go"] * 19,
            phases_ns=[100_000, 400_000],
            counters={"fast": 0, "slow": 1},
        )
        return phases[1]

    healthy, degraded, waited = run(0, False), run(0, True), run(100, True)
    assert healthy.counts["slow"] == 0
    assert degraded.counts["fast"] < 0.05 * degraded.counts["slow"]
    assert waited.counts["slow"] == 0
    assert degraded.ops_per_s < 0.5 * healthy.ops_per_s
    assert waited.ops_per_s == pytest.approx(healthy.ops_per_s, rel=0.05)


def test_a_program_that_cannot_go_on_is_reported() -> None:
    def waiting(p: Program, memory: Memory) -> None:
        p.spin(memory.word(), "!=")

    with pytest.raises(ContendedError, match="stuck"):
        repeat(waiting, 3)

    def looping(p: Program, memory: Memory) -> None:
        p.count(0)

    with pytest.raises(ContendedError, match="without taking any time"):
        repeat(looping, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cpus": 0}, "0 CPUs: choose 1 to 512"),
        ({"cpus": 513}, "513 CPUs: choose 1 to 512"),
        ({"cpus": 2, "ns": 0}, "phase is 0 ns"),
        ({"cpus": 2, "ns": 1e11}, "phase is 1e\\+11 ns: choose more than 0 to 1e\\+10 ns"),
        ({"cpus": 2, "seed": -1}, "seed is -1"),
        ({"cpus": 2, "policy": "random"}, "choose from chance, grouped, fifo, nearest"),
        ({"cpus": 2, "max_ops": -1}, "max_ops is -1"),
    ],
)
def test_bad_numbers_are_refused_with_the_choice(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        repeat(adding(1), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("think", [-1.0, 1e11, float("nan")])
def test_bad_think_times_are_refused(think: float) -> None:
    with pytest.raises(UsageError, match=r"think time is .* ns: choose 0 to 1e\+10 ns"):
        repeat(adding(think), 1)


@pytest.mark.parametrize(
    ("costs", "said"),
    [({"near": -1}, "cost near"), ({"far": 1e12}, "cost far"), ({"request": 1.5}, "cost request")],
)
def test_bad_costs_are_refused(costs: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Costs(**costs)


def test_imports_are_light_and_silent() -> None:
    code = (
        "import sys, contended, contended.cli, contended.commands.simulate, "
        "contended.cases.beyond, contended.simulate.curves, contended.simulate.sweep, "
        "contended.simulate.validate; contended.cases.workloads(); "
        "assert not {'numba', 'pandas', 'dask', 'distributed', 'numpy'} & set(sys.modules), "
        "sorted(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_compiled_code_is_kept_on_disk() -> None:
    from contended.simulate import engine

    repeat(adding(), 1, ns=100)
    assert engine._run.stats.cache_path
    assert sum(engine._run.stats.cache_hits.values()) + sum(engine._run.stats.cache_misses.values())


@pytest.mark.parametrize("part", ["lines.py", "turns.py"])
def test_what_was_compiled_before_a_part_changed_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    from contended.simulate import engine

    index = tmp_path / "engine._run-80.py312.nbi"
    for name in ("lines.py", "turns.py", index.name):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000, 1000))
    monkeypatch.setattr(engine, "__file__", str(tmp_path / "engine.py"))
    kept = SimpleNamespace(stats=SimpleNamespace(cache_path=str(tmp_path)))
    monkeypatch.setattr(engine, "_run", kept)
    engine._forget()
    assert index.exists()
    os.utime(tmp_path / part, (2000, 2000))
    engine._forget()
    assert not index.exists()
