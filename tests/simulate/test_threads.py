# SPDX-License-Identifier: MIT
"""A core's threads have one cache: what one has the other reads, and changes until it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from simulated import NOTHING

from contended.simulate.caches import POLICIES, Phase, Policy, Topology, simulate
from contended.simulate.program import Memory, Program

HIT, CORE, NEAR, SHARE = 3, 7, 1_000, 300
COSTS = replace(NOTHING, read_hit=HIT, core=CORE, near=NEAR, cross=NEAR, far=NEAR, share=SHARE)
Does = tuple[tuple[int, str], ...]
"""What a CPU does in turn: how many nanoseconds it waits, and then its access."""

WRITES: Does = ((0, "write 0"),)
"""Who has the line at first, modified."""


def played(
    core: tuple[int, ...],
    does: Mapping[int, Does],
    *,
    until: tuple[int, ...],
    policy: Policy = "chance",
    request: float = 0.0,
) -> Phase:
    """Until some of the CPUs of one socket have done all that they do, with one word.

    Who looks does so until it is not 0.
    """
    memory, p = Memory(len(core)), Program()
    word, start = memory.word(), ["idle"] * len(core)
    for cpu, accesses in does.items():
        start[cpu] = f"CPU {cpu}"
        p.label(start[cpu])
        for ns, access in accesses:
            p.think(ns)
            what, _, number = access.partition(" ")
            if what == "read":
                p.read(word)
            elif what == "write":
                p.alu("set", 1, number=int(number))
                p.write(word, 1)
            else:
                p.spin(word, "!=")
        if cpu in until:
            p.done()
        p.halt()
    p.label("idle")
    p.halt()
    where, costs = Topology(core, *[(0,) * len(core)] * 2), replace(COSTS, request=request)
    return simulate(
        p, memory, where, costs, start=start, phases_ns=[1e6], max_ops=len(until), policy=policy
    )[0]


def reads(ns: int) -> Does:
    """One read, after so many nanoseconds."""
    return ((ns, "read"),)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_readers_take_turns_by_core(policy: Policy, threads: int) -> None:
    """The first has it from who wrote; each other core takes a turn, and its other threads none."""
    core = (0, *(1, 2, 3, 4) * threads)
    readers = tuple(range(1, len(core)))
    does = {0: WRITES} | dict.fromkeys(readers, reads(5_000))
    seen = played(core, does, until=readers, policy=policy)
    assert seen.ns == 5_000 + NEAR + 2 * SHARE + NEAR + (HIT if threads > 1 else 0)
    assert seen.transfers == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_a_copy_on_its_way_to_a_core_is_for_both_threads(policy: Policy) -> None:
    does = {0: WRITES, 1: reads(5_000), 2: reads(7_000), 3: reads(7_500)}
    seen = played((0, 1, 2, 2), does, until=(3,), policy=policy)
    assert seen.ns == 7_000 + NEAR + HIT


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("first", [2, 3])
def test_the_other_thread_s_reading_keeps_no_writer_waiting(policy: Policy, first: int) -> None:
    """Who asks for what comes to its core asks nobody else, so that no turn is lengthened."""
    does = {0: WRITES, 1: reads(5_000), first: reads(7_000), 5 - first: reads(7_100)}
    does[4] = ((7_100, "write 1"),)
    seen = played((0, 1, 2, 2, 3), does, until=(4,), policy=policy)
    assert seen.ns == 7_000 + SHARE + NEAR


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("request_part", [1.0, 0.0])
def test_until_a_write_takes_it_the_other_thread_reads(
    policy: Policy, shared: bool, request_part: float
) -> None:
    """The request for the write arrives at once or at the end of its way."""
    does = {0: WRITES, 2: ((7_000, "write 1"),), 3: reads(7_500)}
    if shared:
        does[1] = reads(5_000)
    core = (0, 1, 2, 1 if shared else 0)
    seen = played(core, does, until=(3,), policy=policy, request=request_part)
    assert seen.ns == (7_500 + HIT if request_part else 8_000 + NEAR)


@pytest.mark.parametrize("policy", POLICIES)
def test_who_waited_behind_the_other_thread_is_served_by_it(policy: Policy) -> None:
    """What has come is for both threads, although a write was asked for before the second read."""
    does = {0: WRITES, 1: reads(5_000), 2: ((5_100, "write 1"),), 3: reads(5_200)}
    seen = played((0, 1, 2, 1), does, until=(1, 3), policy=policy, request=1.0)
    assert seen.ns == 5_000 + NEAR + HIT
    does[1] = ((5_000, "write 0"),)
    seen = played((0, 1, 2, 1), does, until=(1, 3), policy=policy, request=1.0)
    assert seen.ns == 5_000 + NEAR + HIT


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_core_has_modified_both_threads_read(policy: Policy) -> None:
    """It stays modified: the next write is a hit, too."""
    does = {0: (*WRITES, (1_000, "write 1")), 1: reads(500)}
    seen = played((0, 0), does, until=(0,), policy=policy)
    assert (seen.ns, seen.transfers) == (1_000 + HIT, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_who_looks_at_what_its_core_has_modified_sees_the_next_write(policy: Policy) -> None:
    """From then on both threads have copies, so a write asks for the line, and who looks has it."""
    does = {0: (*WRITES, (5_000, "write 1")), 1: ((1_000, "look"),)}
    seen = played((0, 0), does, until=(1,), policy=policy)
    assert seen.ns == 5_000 + CORE + HIT


@pytest.mark.parametrize("policy", POLICIES)
def test_who_looks_while_a_write_takes_the_line_waits_for_it(policy: Policy) -> None:
    """A look that comes before the write has taken it from the core sees the old value."""
    does = {0: WRITES, 1: ((4_500, "write 1"),), 2: ((5_000, "look"),)}
    seen = played((0, 1, 0), does, until=(2,), policy=policy, request=1.0)
    assert seen.ns == 4_500 + NEAR + NEAR


@pytest.mark.parametrize("policy", POLICIES)
def test_who_looks_at_what_was_taken_away_as_it_came_has_no_copy(policy: Policy) -> None:
    """Another core has it then: what it writes next is noticed all the same."""
    does = {0: WRITES, 1: reads(5_000), 2: ((7_000, "look"),)}
    does[3] = ((7_000, "write 0"), (5_000, "write 1"))
    seen = played((0, 1, 2, 3), does, until=(2,), policy=policy)
    assert 7_000 + NEAR + 5_000 <= seen.ns <= 7_000 + 5_000 + 5 * NEAR


@pytest.mark.parametrize("policy", POLICIES)
def test_who_looks_while_another_core_reads_is_one_of_three_with_copies(policy: Policy) -> None:
    """So the next write takes two copies away, and asks for what is shared."""
    does = {0: (*WRITES, (7_000, "write 1")), 1: reads(4_500), 2: ((5_000, "look"),)}
    seen = played((0, 1, 0), does, until=(2,), policy=policy)
    assert seen.ns == 7_000 + NEAR + HIT
    assert (seen.counts["upgrades"], seen.counts["invalidations"]) == (1, 2)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("asks", "request_part", "ns"),
    [
        (5_000, 1.0, 5_000 + CORE),
        (5_500 - CORE - 1, 1.0, 5_500 - 1),
        (5_500 - CORE, 1.0, 5_500 + NEAR),  # it would be there when the line is gone
        (5_000, 0.0, 5_500 + NEAR),
    ],
)
def test_until_it_leaves_the_other_thread_may_change_it(
    policy: Policy, asks: int, request_part: float, ns: int
) -> None:
    does = {0: WRITES, 1: ((asks, "write 1"),), 2: ((4_500, "write 1"),)}
    seen = played((0, 0, 1), does, until=(1,), policy=policy, request=request_part)
    assert seen.ns == ns
    seen = played((0, 0, 1), does, until=(2,), policy=policy, request=request_part)
    assert seen.ns == 4_500 + NEAR, "who had asked is not kept waiting"


@pytest.mark.parametrize("policy", POLICIES)
def test_what_it_has_changed_is_then_its_own(policy: Policy) -> None:
    """So its next change is a hit, and the first thread's takes a way within the core."""
    does = {0: (*WRITES, (5_030, "write 1")), 2: ((4_500, "write 1"),)}
    does[1] = ((5_000, "write 1"), (10, "write 1"))
    mine = 5_000 + CORE + 10 + HIT
    for cpu, ns in ((1, mine), (0, 5_030 + CORE)):
        assert played((0, 0, 1), does, until=(cpu,), policy=policy, request=1.0).ns == ns


@pytest.mark.parametrize("policy", POLICIES)
def test_an_owner_who_looks_hears_of_the_other_thread_s_write(policy: Policy) -> None:
    """Also if the line is on its way to a reader, whose coming would wake nobody."""
    memory, p = Memory(3), Program()
    word = memory.word()
    p.label("holds")
    p.alu("set", 1, number=1)
    p.swap(word, 1)
    p.think(5_000)
    p.alu("set", 1)
    p.write(word, 1)
    p.halt()
    p.label("waits")
    p.think(100)
    p.alu("set", 1, number=1)
    p.swap(word, 1)
    p.spin(word, "==")
    p.done()
    p.halt()
    p.label("reads")
    p.think(4_500)
    p.read(word)
    p.halt()
    start, where = ["holds", "waits", "reads"], Topology((0, 0, 1), (0,) * 3, (0,) * 3)
    (seen,) = simulate(
        p,
        memory,
        where,
        replace(COSTS, request=1.0),
        start=start,
        phases_ns=[1e6],
        max_ops=1,
        policy=policy,
    )
    assert seen.ns == 5_500 + NEAR + HIT


@pytest.mark.parametrize("policy", POLICIES)
def test_while_a_thread_is_about_to_change_a_copy_the_other_reads_it(policy: Policy) -> None:
    does = {0: WRITES, 1: reads(3_000), 2: ((5_000, "read"), (1_000, "write 1")), 3: reads(7_100)}
    seen = played((0, 1, 2, 2), does, until=(3,), policy=policy, request=1.0)
    assert seen.ns == 7_100 + HIT


@pytest.mark.parametrize("policy", POLICIES)
def test_all_threads_that_wait_read_what_one_has_changed(policy: Policy) -> None:
    """Together or one after the other, before it leaves for who has asked in between."""
    does = {0: WRITES, 1: ((5_000, "write 1"),), 2: reads(5_100), 3: reads(5_200)}
    does[4] = ((5_050, "write 1"),)
    seen = played((0, 1, 1, 1, 2), does, until=(2, 3), policy=policy, request=1.0)
    assert 5_000 + NEAR + HIT <= seen.ns <= 5_000 + NEAR + 2 * HIT
