# SPDX-License-Identifier: MIT
"""What the page on misses says of umounts, and of what runs beside them, is in the records."""

from __future__ import annotations

import pytest

from contended import register, stats
from contended.cases import umount_grace_period
from contended.kernel import waits
from contended.scoreboard import board
from contended.simulate import grace

SLUG = "umount-grace-period"


@pytest.fixture(scope="module")
def page(misses: str) -> str:
    return " ".join(misses.split())


def middle(kept: waits.Waits, run: str, label: str, cpus: int, variant: str = "before") -> float:
    ms = kept.ms(run, variant, label, cpus)
    assert len(ms) == 10
    return stats.median(ms)


def test_idle_processors_that_sleep_on_bring_the_quotient_alone(page: str) -> None:
    kept = waits.recorded(SLUG, "waits-row-saving")
    assert kept.source.startswith("5.10.")
    told = register.get(SLUG).figure("umounts-in-a-row")
    one, four = (told.value(name).middle for name in ("1-cpu", "4-cpus"))
    rows = {
        "row-preempt": "250 ticks a second",
        "row-saving": "250, and idle processors sleep on",
        "row-preempt-1000": "1000",
        "row-saving-1000": "1000, and idle processors sleep on",
    }
    for run, name in rows.items():
        alone, several = (middle(kept, run, "plain", cpus) for cpus in (1, 4))
        assert f"| {name} | {alone:.1f} | {several:.1f} | {several / alone:.1f} |" in page
        near = [0.75 < x < 1.25 for x in (alone / one, several / four)]
        if "saving" in run:
            assert not any(near)
            assert 0.75 < several / alone / (four / one) < 1.25
        else:
            assert several / alone < 0.75 * four / one
    assert f"| published | {one:.1f} | {four:.0f} | {four / one:.1f} |" in page
    off = [middle(kept, "row-saving", "plain", n) / x for n, x in ((1, one), (4, four))]
    assert {f"{x:.1f}" for x in off} == {"1.6", "1.7"}
    assert "some 1.6 times too long" in page
    off = [middle(kept, "row-saving-1000", "plain", n) / x for n, x in ((1, one), (4, four))]
    assert {f"{x:.1f}" for x in off} == {"0.4"}
    assert "and 0.4 times as long as published with 1000" in page
    lazy = [
        middle(kept, run, "lazy", 4) / middle(kept, run, "lazy", 1)
        for run in ("row-saving", "row-saving-1000")
    ]
    assert f"have {lazy[0]:.1f} with 250 ticks and {lazy[1]:.1f} with 1000" in page


def test_who_computes_beside_them_changes_nothing(page: str) -> None:
    kept = waits.recorded(SLUG, "waits-row-loops")
    for run in ("loops", "loops-saving", "loops-1000", "loops-saving-1000"):
        for label in ("plain", "lazy"):
            ms = 3 if run.endswith("1000") else 12
            assert middle(kept, run, label, 1) == pytest.approx(ms, rel=0.01)
    assert "waits for three ticks as before, 12 and 3 ms, with the option and without." in page


def test_commands_wait_for_longer_than_calls(page: str) -> None:
    kept, case = waits.recorded(SLUG, "waits-command-rt"), register.get(SLUG)
    assert kept.source.startswith("6.12.")
    runs = {"command-rt-100": "100", "command-rt-250": "250", "command-rt": "1000"}
    for run, hz in runs.items():
        for label in ("plain", "lazy"):
            cells = [f"{middle(kept, run, label, cpus):.1f}" for cpus in (4, 8, 16)]
            words = " ticks a second" * (hz == "100" and label == "plain")
            assert f"| {hz}{words}, {label} | {' | '.join(cells)} |" in page
    rest = grace.Rcu().call_us / 1000 - umount_grace_period.OWN_MS
    calls = waits.recorded(SLUG, "waits-several")
    for figure, label in (("defer-everything", "plain"), ("no-wait", "lazy")):
        told = case.figure(figure).value("before").middle
        few = [middle(kept, "command-rt-100", label, cpus) for cpus in (4, 8)]
        assert max(few) < 0.75 * told  # so by the rule it is not explained
        most = middle(kept, "command-rt-100", label, 16)
        assert 0.75 < most / told < 1
        alone = stats.median(calls.ms("hz-100", "before", label, 16))
        assert most / alone == pytest.approx(1.6, abs=0.1)
        assert f"{alone:.0f}" == {"plain": "35", "lazy": "37"}[label]
    assert "calls take 37 and 35." in page
    plain = middle(kept, "command-rt-100", "plain", 16) + rest
    whole = case.figure("defer-everything").value("before").middle
    assert plain / whole == pytest.approx(4 / 5, abs=0.02)
    assert "and come to four fifths of the time before" in page
    quick = waits.recorded(SLUG, "waits-rt").ms("rt", "before", "lazy", 4)
    assert middle(kept, "command-rt", "lazy", 4) < min(quick)
    many = waits.recorded(SLUG, "waits-command-many")
    means = [each.mean_ns / 1e6 for each in many.results]
    assert {(each.cpus, each.run) for each in many.results} == {
        (cpus, "command-rt-100") for cpus in (32, 64)
    }
    assert f"the means are {min(means):.0f} to {max(means):.0f} ms." in page
    row = waits.recorded(SLUG, "waits-row")
    plain_row, lazy_row = (middle(row, "row-100", label, 4) for label in ("plain", "lazy"))
    assert f"take {plain_row:.0f} and {lazy_row:.0f} ms (`row-100`" in page


def test_only_what_is_timed_by_commands_says_so() -> None:
    for entry in board.of_case(register.get(SLUG)):
        assert ("perf stat repeats" in entry.note) == (entry.figure != "umounts-in-a-row")


def test_a_row_no_longer_differs_but_only_just(page: str) -> None:
    rows = {(e.figure, r.name): r for e in board.of_case(register.get(SLUG)) for r in e.rows}
    row = rows["no-wait", "before"]
    assert row.timed
    assert row.verdict == "consistent"
    assert f"are below {row.timed.high:.1f} ms" in page
    assert f"published is {row.published[0]:.1f} at least" in page


def test_a_kernel_that_is_none_for_real_time_takes_as_long(page: str) -> None:
    kept = waits.recorded(SLUG, "waits-command")
    plain, lazy = (
        [middle(kept, "command-100", label, cpus) for cpus in (4, 8)] for label in ("plain", "lazy")
    )
    assert f"{plain[0]:.0f} and {plain[1]:.0f} ms with plain ones, and {lazy[0]:.0f}" in page
    assert f"{lazy[0]:.0f} and {lazy[1]:.0f} with lazy ones." in page
    for cpus in (4, 8):
        left = middle(kept, "command-100", "lazy", cpus, "queue-rcu-work")
        assert left == pytest.approx(umount_grace_period.OWN_MS, abs=0.02)
