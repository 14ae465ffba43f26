# SPDX-License-Identifier: MIT
"""Programs from recorded operations: what is recorded is whole, and what is put down does it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from contended import tree
from contended.cases.dentry_false_sharing import FULL
from contended.errors import ContendedError, UsageError
from contended.kernel import prices
from contended.simulate import machines, recorded
from contended.simulate.caches import Phase, simulate
from contended.simulate.program import Memory, Program
from contended.simulate.recorded import Access, Operation, Replay

SLUGS = ("dentry-false-sharing", "lockref-degrade", "open-creat-unlazy", "overlay-creds")
BOX = machines.get("1x24")


@pytest.mark.parametrize("slug", SLUGS)
def test_what_is_recorded_gives_back_what_it_takes(slug: str) -> None:
    for each in recorded.load(slug).operations:
        counts: Counter[str] = Counter()
        taken: set[tuple[int, int]] = set()
        for access in each.accesses:
            place = access.line, access.offset
            if access.function in recorded.LOCKREFS and access.kind == "atomic":
                counts[access.thing] += recorded.LOCKREFS[access.function]
            elif access.kind != "load" and place in taken:
                taken.remove(place)
            elif access.function in recorded.TAKES and access.kind == "atomic":
                taken.add(place)
        # who finds a dentry by its inode takes a reference under its lock
        found = {a.thing.split(" (")[1] for a in each.accesses if "d_lockref.count" in a.thing}
        assert not taken, "a lock is kept"
        for thing, sum_ in counts.items():
            assert sum_ == -(thing.split(" (")[1] in found), f"{each.variant}: {thing}"
        at = [access.at for access in each.accesses]
        assert at == sorted(at)
        assert at[-1] <= each.instructions
        assert each.alike > 0.3


def test_the_recorded_operations_are_those_of_the_chapters() -> None:
    """One reference on the file; the root's only before; three overrides only before."""

    def changes(slug: str, variant: str, function: str, thing: str) -> int:
        accesses = recorded.load(slug).of(variant).accesses
        some = [a for a in accesses if a.function == function and a.kind == "atomic"]
        return sum(thing in a.thing for a in some)

    get = "lockref_get_not_dead"
    for variant in ("before", "after"):
        assert changes("dentry-false-sharing", variant, get, "tmpfs") == 1
        assert changes("open-creat-unlazy", variant, get, "of tmpfs") == 1
    for variant, times in (("before", 1), ("after", 0)):
        assert changes("open-creat-unlazy", variant, get, "of rootfs") == times
        kept = changes("overlay-creds", variant, "override_creds", "kept by overlayfs")
        assert kept == 2 * times
    lines = {
        v: {a.line for a in recorded.load("dentry-false-sharing").of(v).accesses}
        for v in ("before", "after")
    }
    assert {v: len(each) for v, each in lines.items()} == {"before": 1, "after": 1}


def access(at: int, function: str, kind: recorded.Kind, line: int = 0, offset: int = 0) -> Access:
    return Access(at, function, kind, line, offset, f"thing {line} + {offset}")


def run(
    operation: Operation,
    cpus: int,
    ns: float = 500,
    *,
    looks: int = 0,
    apart: str = "",
    own: Sequence[int] = (),
    timed: Mapping[str, int] | None = None,
    found: Mapping[str, int] | None = None,
) -> Phase:
    p, memory = Program(), Memory(cpus)
    lines = {n: memory.own()[0] for n in own}
    p.label("go")
    replay = Replay(operation, looks=looks, lines=lines, apart=apart)
    replay = replace(replay, timed=timed or {}, found=found or {})
    replay.put(p, memory, ns)
    p.jump("go")
    (phase,) = simulate(
        p,
        memory,
        BOX.topology(cpus),
        BOX.costs,
        phases_ns=[200_000],
        start=["go"] * cpus,
        counters={"fast": 0, "slow": 1, "retried": 2, "took": 3},
    )
    return phase


LOCKED = Operation(
    "before",
    "",
    1000,
    1.0,
    (
        access(400, "_raw_spin_lock", "atomic"),
        access(500, "f", "store", 0, 8),
        access(600, "f", "store"),
    ),
)
COUNTED = Operation(
    "before",
    "",
    1000,
    1.0,
    (
        access(400, "lockref_get", "load"),
        access(410, "lockref_get", "atomic"),
        access(600, "lockref_put_return", "load"),
        access(610, "lockref_put_return", "atomic"),
    ),
)


def test_alone_an_operation_takes_as_long_as_its_work() -> None:
    for operation in (LOCKED, COUNTED):
        assert run(operation, 1).ns_per_op == pytest.approx(500, rel=0.1)


def test_a_lock_lets_in_one_at_a_time() -> None:
    """A fifth of an operation is under it, so five of them at most run at a time."""
    locked = run(LOCKED, 24, 5000).ops_per_s
    assert 0.7e6 < locked <= 1e9 / (0.2 * 5000), "and it has to be handed over"
    free = replace(LOCKED, accesses=LOCKED.accesses[1:2])
    assert run(free, 24, 5000).ops_per_s > 2 * locked


def test_a_lockref_is_changed_and_not_only_touched() -> None:
    seen = run(COUNTED, 16)
    assert seen.counts["fast"] == pytest.approx(2 * seen.counts["ops"], rel=0.05)
    assert seen.counts["retried"] > 0, "a race that was lost"
    held = replace(
        COUNTED,
        accesses=(
            *COUNTED.accesses,
            access(700, "_raw_spin_lock", "atomic"),
            access(900, "f", "store"),
        ),
    )
    seen, patient = run(held, 16), run(held, 16, looks=10_000)
    assert seen.counts["slow"] > 0.5 * seen.counts["fast"]
    assert patient.counts["slow"] == 0, "it waits for the holder"


def test_what_a_function_takes_is_counted_with_its_waits() -> None:
    """A lockref's load and its change are one; who waits in line is in there as well."""
    for cpus in (1, 16):
        plain, timed = run(COUNTED, cpus), run(COUNTED, cpus, timed={"lockref_get": 3})
        assert timed.counts["ops"] == plain.counts["ops"], "to look takes no time"
        per_op = timed.per_op("took") / 1000
        if cpus == 1:
            assert per_op == pytest.approx(BOX.costs.read_hit + BOX.costs.rmw_hit, rel=0.05)
        else:
            assert per_op > BOX.costs.near
        assert cpus * 1e9 / timed.ops_per_s > 500 + per_op - 5


def test_a_load_is_timed_as_well_and_a_lockref_s_counter_is_no_function_s() -> None:
    both = Operation(
        "before", "", 1000, 1.0, (access(300, "f", "atomic"), access(400, "g", "load", 0, 8))
    )
    reading = [run(both, cpus, timed={"g": 3}).per_op("took") / 1000 for cpus in (1, 24)]
    assert reading[0] == pytest.approx(BOX.costs.read_hit)
    assert reading[1] > 10
    with pytest.raises(UsageError, match="counter 2 is a lockref's"):
        run(COUNTED, 1, timed={"lockref_get": 2})
    with pytest.raises(UsageError, match="counter 2 is a lockref's"):
        run(COUNTED, 1, found={"f": 2})
    with pytest.raises(UsageError, match="lockref_get is a lock's"):
        run(COUNTED, 1, found={"lockref_get": 3})
    with pytest.raises(UsageError, match="counter 3 is of times and of lines found"):
        run(COUNTED, 1, timed={"lockref_get": 3}, found={"f": 3})


def test_what_a_function_finds_modified_is_counted_by_function() -> None:
    apart = Operation(
        "before", "", 1000, 1.0, (access(100, "f", "atomic"), access(600, "g", "store", 1))
    )
    one, two = (run(apart, 16, found={name: 3}) for name in ("f", "g"))
    both = run(apart, 16, found={"f": 3, "g": 3})
    assert one.counts["ops"] == two.counts["ops"] == both.counts["ops"], "to count takes no time"
    assert one.counts["took"] + two.counts["took"] == both.counts["took"] == both.transfers
    assert min(one.counts["took"], two.counts["took"]) > 0.4 * both.transfers


def test_what_full_takes_is_its_instructions_at_the_table_s_price() -> None:
    (work,) = FULL.works.values()
    counts = {each.instructions for each in recorded.load("lockref-degrade", "full").operations}
    assert all(f"{count:,.0f}"[:3] == "6,2" for count in counts), "6,200, as the work's source says"
    ends = [max(counts) * price for price in prices.DISTRIBUTION]
    assert (work.where.low, work.where.high) == pytest.approx(ends, abs=10)
    assert work.value == pytest.approx(sum(ends) / 2, abs=10)


def test_a_line_of_each_cpu_s_own_does_not_move() -> None:
    assert run(COUNTED, 8).transfers > 1000
    assert run(COUNTED, 8, own=(0,)).transfers < 20
    assert run(LOCKED, 8, own=(0,)).transfers < 20, "nor what lies beside its one word"


def test_what_is_apart_is_on_a_line_of_its_own() -> None:
    both = Operation(
        "before", "", 1000, 1.0, (access(300, "f", "atomic"), access(400, "g", "load", 0, 8))
    )
    together, apart = run(both, 2, 5000), run(both, 2, 5000, apart="thing 0 + 8")
    assert together.counts["ops"] > 10
    assert apart.transfers < together.transfers, "only the counter moves"
    fewer = both.without(["thing 0 + 8"])
    assert [a.at for a in fewer.accesses] == [300]


def test_what_is_not_recorded_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ContendedError, match="no steps of 'gone'"):
        recorded.load("dentry-false-sharing").of("gone")
    with pytest.raises(ContendedError, match="comes to 'gone'"):
        LOCKED.line("gone")
    monkeypatch.setattr(tree, "home", lambda: tmp_path)
    with pytest.raises(ContendedError, match=r"docs/simulators\.md has the command"):
        recorded.load("mount-hash")
