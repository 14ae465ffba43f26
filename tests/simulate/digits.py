# SPDX-License-Identifier: MIT
"""A sample of everything that promises the same digits everywhere, as text to compare.

The file digits.json beside this one was written by `python tests/simulate/digits.py`. Another
Python or processor must write the same; `test_digits.py` tries those it can get. With the
argument `plain` only what needs no package beside the standard library is written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from contended import cases, register, stats
from contended.cases.lockref_degrade import LOCKERS
from contended.cases.umount_grace_period import UMOUNTS
from contended.simulate import grace, locks, machines
from contended.simulate.caches import Preemption, Topology, simulate
from contended.simulate.program import EXPONENTIAL, FIXED, UNIFORM, Memory, Program

Sample = tuple[str, Any]


def plain() -> Iterator[Sample]:
    """What the standard library computes: grace periods, medians."""
    for variant in UMOUNTS.variants:
        for cpus in (1, 24, 300):
            for row in UMOUNTS.rows(variant, "2x20-smt", cpus, seed=cpus):
                yield f"grace {variant} {cpus} {row['phase']}", numbers(row)
    yield f"predict {UMOUNTS.name}", predicted(UMOUNTS.name)
    for size in (1, 6, 7, 40):
        values = umounts_ms(8, seed=size, draws=size)
        yield f"stats {size}", [stats.median(values)]


def compiled() -> Iterator[Sample]:
    """What numba's compiled loop and NumPy compute: the engine, locks, scenarios, intervals."""
    for kind in (FIXED, EXPONENTIAL, UNIFORM):
        yield f"engine think {kind}", engine(kind, seed=kind)
    away = Preemption(every_ns=20_000, for_ns=5_000)
    yield "engine nearest, preempted", engine(UNIFORM, policy="nearest", preemption=away)
    for lock in locks.KINDS:
        seen = LOCKERS.run("before", "2x16-smt", 40, seed=3, lock=lock, length=0.2)
        yield f"lock {lock}", [[phase.ns, *phase.counts.values()] for phase in seen.values()]
    for scenario, workload in cases.workloads().items():
        if workload is UMOUNTS:
            continue
        for variant in workload.variants:
            for machine, cpus in (("1x24", 7), ("2x16-smt", 70)):
                for row in workload.rows(variant, machine, cpus, seed=1):
                    yield f"{scenario} {variant} {cpus} {row['phase']}", numbers(row)
    for case in register.all():
        if case.slug != UMOUNTS.name and (found := predicted(case.slug)):
            yield f"predict {case.slug}", found
    top, base = (umounts_ms(cpus, draws=9) for cpus in (8, 64))
    for pairs in (1, 4, 9):
        yield f"paired ratio {pairs}", asdict(stats.paired_ratio(top[:pairs], base[:pairs], seed=7))


def umounts_ms(cpus: int, **options: int) -> list[float]:
    """Waits for a grace period, milliseconds."""
    return [ns / 1e6 for ns in grace.umounts_ns("before", cpus, **options)]  # type: ignore[arg-type]


def engine(kind: int, **options: Any) -> list[float]:
    """Twelve CPUs of two sockets that add to one counter, look at another, and think."""
    memory, p = Memory(12), Program()
    word, other = memory.word(), memory.word()
    p.label("go")
    p.add(word, 1)
    p.read(other)
    p.think(333.3, kind)
    p.done()
    p.alu("random", 0, number=10)
    p.branch(0, "!=", 0, "go")
    p.write(other, 0)
    p.jump("go")
    socket = tuple(n // 6 for n in range(12))
    found = simulate(
        p,
        memory,
        Topology(tuple(range(12)), socket, socket),
        machines.get("2x16-smt").costs,
        start=["go"] * 12,
        phases_ns=[100_000.1, 50_000.7],
        **options,
    )
    return [number for phase in found for number in (phase.ns, *phase.counts.values())]


def numbers(row: dict[str, Any]) -> list[float]:
    """A row's numbers; what names it, and switches, left out."""
    return [value for value in row.values() if type(value) in (int, float)]


def predicted(slug: str) -> list[list[Any]]:
    """Every published value of a case with a simulated one."""
    rows = cases.prediction(slug).rows
    return [
        [row.figure, row.name, row.simulated, row.low, row.high, row.factor, row.verdict]
        for row in rows
        if row.simulated is not None
    ]


def text(samples: Iterator[Sample]) -> str:
    """A line for each sample; floats in the shortest form that reads back as the same bits."""
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in samples]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def everything() -> Iterator[Sample]:
    """All samples."""
    yield from plain()
    yield from compiled()


if __name__ == "__main__":
    sys.stdout.write(text(plain() if sys.argv[1:] == ["plain"] else everything()))
