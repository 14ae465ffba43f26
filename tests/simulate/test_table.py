# SPDX-License-Identifier: MIT
"""A published table in the simulator: calls read from the kernel, their time of one process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
from simulated import NOTHING, flat

from contended import stats, tree
from contended.cases import lockref_pause
from contended.cases.lockref_pause import CALLS, FSTAT, MACHINE, OPEN, SIZES, SLUG
from contended.scoreboard import simulated
from contended.simulate import recorded
from contended.simulate.caches import Phase, simulate
from contended.simulate.locks import RETRIES, Lock, Lockref
from contended.simulate.predict import Predicted
from contended.simulate.program import Memory, Program

#: Linux f5fe24ef17b5: what one process makes, in two runs of one program.
ALONE = {FSTAT: (3_013_872, 3_047_636), OPEN: (805_603, 814_942)}
SCENARIOS = dict(zip(CALLS, (FSTAT, OPEN), strict=True))
NEAR = 1.5


def test_one_process_makes_what_it_was_given() -> None:
    for scenario, rates in ALONE.items():
        made = {
            variant: scenario.run(variant, MACHINE, 1)["run"].ops_per_s
            for variant in scenario.variants
        }
        assert len(set(made.values())) == 1, "alone nobody fails"
        assert made["pause"] == pytest.approx(sum(rates) / 2, rel=0.01)
        (work,) = scenario.works.values()
        name = next(iter(scenario.works))
        ends = [
            scenario.run("pause", MACHINE, 1, work={name: ns})["run"].ops_per_s
            for ns in (work.where.high, work.where.low)
        ]
        assert ends == pytest.approx(rates, rel=0.003), "its range is of the two runs"


def test_the_pause_costs_what_was_published_where_order_is_by_chance() -> None:
    """Of the table only the rate of one process is given, and nothing is fitted to the others."""
    costly = [
        workers
        for call in CALLS
        for workers in SIZES
        if lockref_pause.published("/".join(lockref_pause.names(call)), workers) < 2 / 3
    ]
    assert costly == [8, 24, 48, 96, 24, 48, 96], "of fstat and of open, by the register"
    for call, scenario in SCENARIOS.items():
        for workers in SIZES:
            rates = []
            for name in lockref_pause.names(call):
                variant = name.removeprefix(f"{call}-")
                rates.append(scenario.run(variant, MACHINE, workers)["run"].ops_per_s)
                assert 1 / 2 < rates[-1] / lockref_pause.published(name, workers) < 2, workers
            if lockref_pause.published("/".join(lockref_pause.names(call)), workers) < 2 / 3:
                assert rates[0] / rates[1] < 2 / 3


def exchanging(pause: bool, pause_ns: float = 35) -> Phase:
    """One CPU adds to a lockref that another one changes too often for an exchange to work."""
    memory, p = Memory(2), Program()
    ref = Lockref(Lock("test-and-set", memory, memory.word()), counter=0, pause=pause)
    p.label("once")
    ref.change(p, 1)
    p.done()
    p.halt()
    p.label("always")
    p.add(ref.lock.word, 1 << 40)
    p.jump("always")
    costs = replace(NOTHING, rmw_hit=1, near=20, cross=20, fill=20, pause=pause_ns)
    (seen,) = simulate(
        p,
        memory,
        flat(2),
        costs,
        start=["once", "always"],
        phases_ns=[100_000],
        counters={"fast": 0, "slow": 1, "failed": 2},
        policy="fifo",
        max_ops=1,
    )
    return seen


def test_a_failed_exchange_is_followed_by_one_pause_and_the_last_by_none() -> None:
    plain, paused = exchanging(pause=False), exchanging(pause=True)
    assert plain.counts["failed"] == paused.counts["failed"] == RETRIES
    assert plain.counts["slow"] == paused.counts["slow"] == 1
    # the other has the line meanwhile, so a pause that is longer than a way is paid in full
    longer = exchanging(pause=True, pause_ns=70).ns - paused.ns
    assert longer == pytest.approx((RETRIES - 1) * 35)
    assert paused.ns > plain.ns


@cache
def rows() -> dict[tuple[int, str], Predicted]:
    """What the scoreboard shows of the simulator, by processes and name."""
    known = {lockref_pause.figure(n): n for n in SIZES}
    kept = simulated.load(SLUG)
    return {(known[row.figure], row.name): row for row in kept if row.figure in known}


def factors(name: str) -> Iterator[tuple[int, float, float]]:
    """By processes: the simulator's middle over what was published, and virtual time's."""
    for workers in SIZES:
        published = lockref_pause.published(name, workers)
        row = rows()[workers, name]
        assert row.simulated is not None
        timed = lockref_pause.middles(name)[workers]
        if workers >= 48:
            timed = stats.median(lockref_pause.by_requests(name, workers)[0]) / published
        yield workers, row.simulated / published, timed


def test_the_page_s_table_is_the_record() -> None:
    page = (tree.home() / "docs" / "published-table.md").read_text()
    section = page.partition("## In the simulator")[2].partition("\n## ")[0]
    near, apart, at_96 = 0, [], []
    for call in CALLS:
        both = lockref_pause.names(call)
        for name in (*both, "/".join(both)):
            seen = list(factors(name))
            cells = " | ".join(f"{ours:.2f} ({timed:.2f})" for _, ours, timed in seen)
            assert f"| {lockref_pause.said(name)} | {cells} |" in section
            good = [1 / NEAR <= ours <= NEAR for _, ours, _ in seen]
            if "/" in name:
                assert good[1:] == 4 * [call == "fstat"]
                continue
            near += sum(good)
            apart += [max(a / b, b / a) for n, a, b in seen if 8 <= n <= 48]
            assert all((a > 1) == (b > 1) for n, a, b in seen if 8 <= n <= 48)
            at_96 += [ours / timed for n, ours, timed in seen if n == 96]
    flat = " ".join(section.split())
    assert f"**{near} of the 20 rates**" in flat
    assert "so are the four quotients of `fstat`, and none of `open`." in flat
    factor = f"{max(apart):.2f}"
    assert f"each rate is within a factor of {factor} of virtual time's, and on the same" in flat
    assert len(apart) == 12
    far = [
        max(timed, 1 / timed)
        for call in CALLS
        for name in lockref_pause.names(call)
        for n, _, timed in factors(name)
        if 8 <= n <= 48
    ]
    assert sum(each > max(apart) for each in far) == 6
    assert "Six of the twelve virtual time misses by more than that factor." in flat
    changes = (tree.home() / "CHANGELOG.md").read_text()
    assert f"its rates are within a factor of {factor} of [virtual time's]" in changes
    assert "what has a pause is within a tenth of virtual time's, too" in flat
    assert "and what has none faster by a third." in flat
    paused, plain = at_96[::2], at_96[1::2]
    assert 0.9 < min(paused) < max(paused) < 1.1
    assert 1.25 < min(plain) < max(plain) < 1.4
    assert {row.verdict for (n, name), row in rows().items() if n == 2 and "open" in name} == {
        "held"
    }


def test_the_page_counts_the_steps() -> None:
    page = " ".join((tree.home() / "docs" / "published-table.md").read_text().split())
    steps = {call: recorded.load("will-it-scale", f"{call}-disk").of("no-pause") for call in CALLS}
    (line,) = {access.line for access in steps["fstat"].accesses}
    assert line == 0
    assert len(steps["fstat"].accesses) == 5
    assert "An `fstat` comes to one line five times" in page
    lines = {access.line for access in steps["open"].accesses}
    assert f"four lines {len(steps['open'].accesses)} times" in page
    assert len(lines) == 4
    assert [each.alike for each in steps.values()] == [1.0, 0.5]
    assert "took them (all of `fstat`'s, half of `open`'s;" in page
