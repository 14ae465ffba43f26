# SPDX-License-Identifier: MIT
"""From guests' lines to metrics, and from metrics to "held"."""

from __future__ import annotations

from typing import Any

import pytest
from labtools import report

from contended.kernel import outcomes
from contended.kernel.boot import GuestReport
from contended.kernel.outcomes import Failed, judge, look_up, metrics
from contended.kernel.record import OutcomeRecord
from contended.kernel.variants import Expectation, GuestRun, KernelCase, Variant

LOCKDEP = """\
[    1.234567] ================================
[    1.234568] WARNING: inconsistent lock state
[    1.234569] 6.1.192 #1 Not tainted
[    1.234570] --------------------------------
[    1.234571] inconsistent {SOFTIRQ-ON-W} -> {IN-SOFTIRQ-W} usage.
[    2.000000] all is well again
"""


def one(**fields: Any) -> dict[str, Any]:
    return {"ops": 100, "ns": 5_000, "procs": 2, **fields}


def judged(
    *outcome: Expectation,
    before: list[GuestReport | Failed] | None = None,
    after: list[GuestReport | Failed] | None = None,
) -> list[OutcomeRecord]:
    case = KernelCase(
        slug="example",
        variants={name: Variant("example", name, "") for name in ("before", "after")},
        runs={"opens": GuestRun("opens", "open-creat", {})},
        outcomes=outcome,
    )
    boots = {("before", "opens"): before, ("after", "opens"): after}
    return judge(case, {key: done for key, done in boots.items() if done is not None})


def expect(metric: str, variant: str = "before", **condition: Any) -> Expectation:
    return Expectation(variant, "opens", "in words", metric, **condition)


def test_what_a_result_gives() -> None:
    known = metrics(
        [
            report(
                one(
                    calls={"f": 200},
                    counts={"ebusy": 7},
                    latency_ns={"p50": 1500, "max": 9000},
                ),
                console="hello",
            )
        ]
    )
    numbers = {name: v[0] for name, v in known.items() if isinstance(v[0], float)}
    assert numbers == {
        "ops": 100,
        "ns": 5000,
        "ns_per_op": 100,  # two processes, each busy all of the time
        "calls.f": 200,
        "calls_per_op.f": 2,
        "counts.ebusy": 7,
        "counts_per_op.ebusy": 0.07,
        "latency_us.p50": 1.5,
        "latency_us.max": 9,
        "splats": 0,
    }
    assert known["console"] == ["hello"]


def test_labels_and_ratios() -> None:
    known = metrics(
        [
            report(
                one(label="plain", latency_ns={"p50": 100}),
                one(label="lazy", latency_ns={"p50": 700}),
            )
        ]
    )
    assert known["lazy/latency_us.p50"] == [0.7]
    assert "latency_us.p50" not in known
    assert look_up(known, "ratio.latency_us.p50(lazy,plain)") == [pytest.approx(7)]
    with pytest.raises(outcomes.NoMetric, match=r"'ratio.x\(lazy,plain\)'|lazy/x"):
        look_up(known, "ratio.x(lazy,plain)")


def test_equal_results_of_a_boot_are_repeats() -> None:
    known = metrics([report(one(ns=1000), one(ns=9000), one(ns=2000))])
    assert known["ns_per_op"] == [40]


@pytest.mark.parametrize("label", ["size", "same"])
def test_slopes(label: str) -> None:
    lines = [
        one(label=str(size) if label == "size" else "", size=size, ops=size, ns=3 * size**2)
        for size in (250, 500, 1000)
    ]
    known = metrics([report(*lines)])
    assert known["slope.ns"] == [pytest.approx(2)]
    assert known["slope.ns_per_op"] == [pytest.approx(1)]
    place = "500/ns_per_op" if label == "size" else "@500/ns_per_op"
    assert known[place] == [3000]


def test_slopes_of_each_label() -> None:
    lines = [
        one(label=label, size=size, ns=size**power)
        for label, power in (("walk", 1), ("scan", 2))
        for size in (10, 100)
    ]
    known = metrics([report(*lines)])
    assert known["walk/slope.ns"] == [pytest.approx(1)]
    assert known["scan/slope.ns"] == [pytest.approx(2)]
    assert known["scan@100/ns"] == [10_000]
    assert "slope.ns" not in known


def test_a_count_of_zero_has_no_slope() -> None:
    known = metrics([report(one(size=1, counts={"n": 0}), one(size=2, counts={"n": 5}))])
    assert "slope.ns" in known
    assert "slope.counts.n" not in known


def test_smoke_checks() -> None:
    checks = [{"name": "link", "ok": True}, {"name": "rename", "ok": False, "detail": "EPERM"}]
    known = metrics([report(checks=checks)])
    assert (known["smoke.checks"], known["smoke.failed"]) == ([2], [1])


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: possible circular locking dependency detected",
        "[    0.1] BUG: sleeping function called from invalid context at x.c:1",
        "[    0.1][    T1] WARNING: CPU: 0 PID: 1 at fs/namespace.c:1 x+0x1/0x2",
        "kernel BUG at fs/dcache.c:1!",
        "rcu: INFO: rcu_sched self-detected stall on CPU",
        "INFO: task umount:12 blocked for more than 120 seconds.",
        "list_del corruption. prev->next should be 1",
    ],
)
def test_complaints_are_seen(line: str) -> None:
    assert len(outcomes.splats(f"fine\n{line}\nfine\n")) == 1


@pytest.mark.parametrize(
    "line", ["tsc: Marking TSC unstable", "Unknown kernel command line parameters", "DEBUG: BUG"]
)
def test_no_complaint(line: str) -> None:
    assert outcomes.splats(line) == []


def test_the_excerpt_begins_with_the_report() -> None:
    text = outcomes.excerpt("boring\n" * 500 + LOCKDEP)
    assert text.startswith("================================\nWARNING: inconsistent lock state\n")
    assert "SOFTIRQ-ON-W" in text
    assert "boring" not in text
    assert outcomes.excerpt("boring\n") == ""
    assert len(outcomes.excerpt(LOCKDEP + "x\n" * 100_000)) <= outcomes.EXCERPT_CHARS


@pytest.mark.parametrize(
    ("condition", "held"),
    [
        ({"at_least": 1.9}, True),
        ({"at_least": 2.0}, True),
        ({"at_least": 2.1}, False),
        ({"at_most": 2.0}, True),
        ({"at_most": 1.9}, False),
        ({"equals": 2}, True),
        ({"equals": 3}, False),
        ({"at_least": 1, "at_most": 1.5}, False),
    ],
)
def test_numbers(condition: dict[str, Any], held: bool) -> None:
    repeats = [report(one(calls={"f": n})) for n in (100, 900, 200)]
    (seen,) = judged(expect("calls_per_op.f", **condition), before=[*repeats])
    assert (seen.seen, seen.low, seen.high, seen.held) == (2, 1, 9, held)
    assert bool(seen.reason) != held


def test_relative_to_another_variant_pairs_the_repeats() -> None:
    fast = [report(one(ns=ns)) for ns in (100, 1000, 200)]
    slow = [report(one(ns=ns)) for ns in (200, 2000, 400)]
    outcome = expect("ns_per_op", variant="after", relative_to="before", at_most=0.6)
    (seen,) = judged(outcome, before=[*slow], after=[*fast])
    assert seen.held
    assert (seen.low, seen.high) == (0.5, 0.5)
    (seen,) = judged(outcome, before=[*fast], after=[*slow])
    assert not seen.held


def test_a_ratio_to_nothing_does_not_hold() -> None:
    outcome = expect("calls.f", variant="after", relative_to="before", at_least=0)
    none, some = report(one(calls={"f": 0})), report(one(calls={"f": 5}))
    (seen,) = judged(outcome, before=[none], after=[some])
    assert not seen.held
    assert "ratio to 0" in seen.reason
    (seen,) = judged(outcome, after=[some])
    assert "before was not run" in seen.reason


def test_texts_hold_in_each_repeat() -> None:
    bad, fine = report(console=LOCKDEP), report(console="fine\n")
    words = "inconsistent {SOFTIRQ-ON-W} -> {IN-SOFTIRQ-W} usage"
    for before, contains, lacks in (
        ([bad, bad], True, False),
        ([bad, fine], False, False),
        ([fine, fine], False, True),
    ):
        found = judged(
            expect("console", contains=words), expect("console", lacks=words), before=[*before]
        )
        assert [one.held for one in found] == [contains, lacks]
    (seen,) = judged(expect("console", contains=words), before=[bad])
    assert seen.seen == f"{words}."


def test_a_metric_that_is_not_there_names_those_that_are() -> None:
    (seen,) = judged(expect("calls_per_op.g", at_least=1), before=[report(one(calls={"f": 1}))])
    assert not seen.held
    assert seen.seen is None
    assert seen.reason.startswith("no metric 'calls_per_op.g'; there are: calls.f, calls_per_op.f")


def test_a_metric_must_be_in_each_repeat() -> None:
    repeats = [report(one(calls={"f": 1})), report(one())]
    (seen,) = judged(expect("calls.f", at_least=1), before=[*repeats])
    assert not seen.held


@pytest.mark.parametrize(
    ("metric", "condition"), [("console", {"at_least": 1}), ("ops", {"contains": "1"})]
)
def test_a_condition_of_the_wrong_kind(metric: str, condition: dict[str, Any]) -> None:
    (seen,) = judged(expect(metric, **condition), before=[report(one())])
    assert not seen.held
    assert seen.reason


def test_a_boot_that_failed_does_not_hold_but_may_be_what_was_expected() -> None:
    failed = Failed("panic", "the kernel panicked: Fatal exception", "BUG: oh\nKernel panic - x")
    found = judged(
        expect("calls.f", at_least=0),
        expect("ended", contains="Fatal exception"),
        expect("splats", at_least=1),
        before=[failed],
    )
    assert [one.held for one in found] == [False, True, True]
    assert found[0].reason == "panic: the kernel panicked: Fatal exception"


def test_variants_that_were_not_run_are_left_out() -> None:
    found = judged(expect("ops", at_least=1), expect("ops", "after", at_least=1), before=[report()])
    assert [one.variant for one in found] == ["before"]


def test_conditions_in_words() -> None:
    outcome = expect("ns_per_op", relative_to="after", at_least=1.5, at_most=20_000)
    assert outcomes.condition(outcome) == "ns_per_op / after's >= 1.5 and <= 20,000"
    assert outcomes.condition(expect("dmesg", contains="x y")) == "dmesg contains 'x y'"
