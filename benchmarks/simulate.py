#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How many events a second the simulator makes, beside SimPy with the same model in the same run.

The model is one counter that all CPUs add to, and private work in between: an event is a step that
takes time, an addition or a piece of work. Prints PASS or FAIL for each limit, and exits 1 if
anything fails. Leave the machine alone.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from contended import cases
from contended.simulate import validate
from contended.simulate.caches import Costs, Phase, Policy, Topology, simulate
from contended.simulate.program import UNIFORM, Memory, Program

#: By who is next, and CPUs. In turn it is the same few CPUs in the same order for ever, which a
#: processor's branch predictor learns; by chance there is nothing to learn.
LIMITS: dict[tuple[Policy, int], float] = {
    ("fifo", 8): 40e6,
    ("fifo", 256): 15e6,
    ("chance", 8): 25e6,
    ("chance", 256): 15e6,
}
MANY_CPUS, MANY_OPS, MANY_S = 512, 1_000_000, 10.0
SIMPY_FACTOR = 100.0
SIMPY_CPUS = 8
IMPORT_S = 0.3
COSTS = Costs()
WORK_NS = 100.0


@dataclass(frozen=True)
class Rate:
    """Events a second of several runs: the best, and the middle one."""

    best: float
    middle: float


def ours(cpus: int, ops: int, kind: int = 0, policy: Policy = "chance") -> tuple[Phase, float]:
    """One run of the model, and its seconds."""
    memory, program = Memory(cpus), Program()
    word = memory.word()
    program.label("go")
    program.add(word, 1)
    program.think(WORK_NS, kind)
    program.done()
    program.jump("go")
    place = Topology(tuple(range(cpus)), (0,) * cpus, (0,) * cpus)
    begun = time.perf_counter()
    (phase,) = simulate(
        program,
        memory,
        place,
        COSTS,
        start=["go"] * cpus,
        phases_ns=[1e10],
        max_ops=ops,
        policy=policy,
    )
    return phase, time.perf_counter() - begun


def rate(cpus: int, ops: int, repeats: int, kind: int = 0, policy: Policy = "chance") -> Rate:
    """Events a second."""
    seen = []
    for _ in range(repeats):
        phase, seconds = ours(cpus, ops, kind, policy)
        seen.append(phase.counts["events"] / seconds)
    return Rate(max(seen), statistics.median(seen))


def simpy_run(cpus: int, ops: int) -> tuple[int, float, float]:
    """The same in SimPy, in turn: events, seconds, simulated ns of `ops` operations."""
    import simpy

    env = simpy.Environment()
    line = simpy.Resource(env)
    owner, done, events = -1, 0, 0
    finished = env.event()

    def cpu(number: int) -> Generator[Any, Any, None]:
        nonlocal owner, done, events
        while True:
            with line.request() as turn:
                yield turn
                if owner == number:
                    yield env.timeout(COSTS.rmw_hit)
                else:  # a way has the access at its end in it
                    yield env.timeout(COSTS.fill if owner < 0 else COSTS.near)
                    owner = number
            yield env.timeout(WORK_NS)
            events += 2
            done += 1
            if done == ops:
                finished.succeed()

    for number in range(cpus):
        env.process(cpu(number))
    begun = time.perf_counter()
    env.run(until=finished)
    return events, time.perf_counter() - begun, float(env.now)


def import_seconds(repeats: int) -> float:
    """The fastest import of the package and its command line."""
    seen = []
    for _ in range(repeats):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import contended, contended.cli"], check=True)
        seen.append(time.perf_counter() - begun)
    return min(seen)


def main() -> int:
    """Measure, print, and say by the exit status whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--ops", type=int, default=2_000_000)
    args = parser.parse_args()
    failed = False

    def judge(what: str, value: float, limit: float, unit: str, *, least: bool = True) -> None:
        nonlocal failed
        fine = value >= limit if least else value <= limit
        failed |= not fine
        word = "at least" if least else "at most"
        print(f"{'PASS' if fine else 'FAIL'}  {what}: {value:.4g} {unit} ({word} {limit:g})")

    ours(2, 10)  # compiles, or loads what was compiled
    for cpus in (1, 8, 64, 256, 512):
        for policy in ("chance", "fifo"):
            seen = rate(cpus, args.ops, args.repeats, policy=policy)
            what = f"{cpus} CPUs, {policy}"
            print(f"      {what}: median {seen.middle / 1e6:.1f}M, best {seen.best / 1e6:.1f}M")
            if limit := LIMITS.get((policy, cpus)):
                judge(f"{what}, fixed work", seen.best / 1e6, limit / 1e6, "M events/s")
        random = rate(cpus, args.ops, max(1, args.repeats // 2), UNIFORM)
        print(f"      {cpus} CPUs, random work: best {random.best / 1e6:.1f}M events/s")
    phase, seconds = ours(MANY_CPUS, MANY_OPS)
    judge(f"{MANY_CPUS} CPUs, {phase.counts['ops']} operations", seconds, MANY_S, "s", least=False)

    # SimPy between two runs of ours, so that a slow minute meets both
    factors = []
    for _ in range(3):
        first = rate(SIMPY_CPUS, args.ops, 1, policy="fifo").best
        events, seconds, simulated = simpy_run(SIMPY_CPUS, 20_000)
        second = rate(SIMPY_CPUS, args.ops, 1, policy="fifo").best
        factors.append((first + second) / 2 / (events / seconds))
        same = ours(SIMPY_CPUS, 20_000, policy="fifo")[0].ns
        if abs(same / simulated - 1) > 0.01:
            print(f"FAIL  the two disagree: {same:.0f} and {simulated:.0f} simulated ns")
            failed = True
    judge("faster than SimPy", statistics.median(factors), SIMPY_FACTOR, "times")
    judge("import contended", import_seconds(args.repeats), IMPORT_S, "s", least=False)

    print("\nC models, recorded runs, nanoseconds per operation:")
    for row in validate.against_models(cases.modelled()).itertuples():
        note = "" if row.fits else f"  {row.why}"
        print(
            f"      {row.model}, {row.threads} threads: measured {row.measured_ns:.1f}, "
            f"simulated {row.simulated_ns:.1f} ({row.off:+.0%}){note}"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
