# SPDX-License-Identifier: MIT
"""A core's threads have one cache: what one of them has read is there for the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from simulated import NOTHING

from contended.simulate.caches import POLICIES, Policy, Topology, simulate
from contended.simulate.program import Memory, Program

CORE, NEAR, SHARE = 7, 1_000, 300
COSTS = replace(NOTHING, core=CORE, near=NEAR, cross=NEAR, far=NEAR, share=SHARE)


def last_done(
    core: tuple[int, ...],
    reads: Mapping[int, int],
    writes: Mapping[int, int],
    *,
    of: tuple[int, ...],
    policy: Policy = "chance",
    request: float = 0.0,
) -> float:
    """When the last of some CPUs has done its access; at which nanosecond each asks is given.

    CPU 0 has the line, modified; all are in one socket.
    """
    memory, p = Memory(len(core)), Program()
    word, start = memory.word(), ["idle"] * len(core)
    for kind, when in (("read", reads), ("write", writes)):
        for cpu, ns in when.items():
            start[cpu] = f"{kind} {cpu}"
            p.label(start[cpu])
            p.think(ns)
            p.read(word) if kind == "read" else p.write(word, 1)
            if cpu in of:
                p.done()
            p.halt()
    p.label("idle")
    p.halt()
    where, price = Topology(core, *[(0,) * len(core)] * 2), replace(COSTS, request=request)
    return simulate(
        p, memory, where, price, start=start, phases_ns=[1e6], max_ops=len(of), policy=policy
    )[0].ns


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_readers_take_turns_by_core(policy: Policy, threads: int) -> None:
    """The first has it from who wrote; each other core takes a turn, and its other threads none."""
    core = (0, *(1, 2, 3, 4) * threads)
    readers = dict.fromkeys(range(1, len(core)), 5_000)
    came = last_done(core, readers, {0: 0}, of=tuple(readers), policy=policy)
    alone = 5_000 + NEAR + 2 * SHARE + NEAR
    assert came == alone + (CORE if threads > 1 else 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_copy_on_its_way_to_a_core_is_for_both_threads(policy: Policy) -> None:
    reads = {1: 5_000, 2: 7_000, 3: 7_500}
    came = last_done((0, 1, 2, 2), reads, {0: 0}, of=(3,), policy=policy)
    assert came == 7_000 + NEAR + CORE


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("first", [2, 3])
def test_the_other_thread_s_reading_keeps_no_writer_waiting(policy: Policy, first: int) -> None:
    """Who asks for what comes to its core asks nobody else, so that no turn is lengthened."""
    reads = {1: 5_000, first: 7_000, 5 - first: 7_100}
    came = last_done((0, 1, 2, 2, 3), reads, {0: 0, 4: 7_100}, of=(4,), policy=policy)
    assert came == 7_000 + SHARE + NEAR


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("request_part", "ns"), [(1.0, 7_500 + CORE), (0.0, 8_000 + NEAR)])
def test_until_a_write_takes_it_the_other_thread_reads(
    policy: Policy, request_part: float, ns: float
) -> None:
    """The request for the write arrives at once or at the end of its way."""
    reads, writes = {1: 5_000, 3: 7_500}, {0: 0, 2: 7_000}
    came = last_done((0, 1, 2, 1), reads, writes, of=(3,), policy=policy, request=request_part)
    assert came == ns


@pytest.mark.parametrize("policy", POLICIES)
def test_who_waited_behind_the_other_thread_is_served_by_it(policy: Policy) -> None:
    """What has come is for both threads, although a write was asked for before the second read."""
    reads, writes = {1: 5_000, 3: 5_200}, {0: 0, 2: 5_100}
    came = last_done((0, 1, 2, 1), reads, writes, of=(1, 3), policy=policy, request=1.0)
    assert came == 5_000 + NEAR + CORE
