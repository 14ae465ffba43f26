# SPDX-License-Identifier: MIT
"""Loads that take lines that migrate: the page says what the records and the rule say."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from contended import register, stats
from contended.cases import dentry_false_sharing, lockref_degrade, lockref_pause, timed

LEAVE, TAKE, MIGRATE = CHANGES = ("", "take=1", "take=2")
Multiples = Mapping[str, float]
"""The middle of the seeds, as a multiple of what is published, by change."""


@pytest.fixture(scope="module")
def page(misses: str) -> str:
    found = re.search(r"^### Lines that migrate$.*?(?=^##)", misses, flags=re.M | re.S)
    assert found
    return found[0]


def _of(record: timed.Record, variant: str, cpus: int, label: str, published: float) -> Multiples:
    found = {}
    for change in CHANGES:
        rates = record.rates(variant, cpus, f"{label} {change}".strip())
        if rates:
            found[change] = stats.median(list(rates.values())) / published
    return found


def _over(top: Multiples, base: Multiples) -> Multiples:
    return {change: top[change] / base[change] for change in top}


@pytest.fixture(scope="module")
def stat() -> dict[str, Multiples]:
    """Of the stats, by the row of the page's table."""
    of = register.get(dentry_false_sharing.SLUG).figure("stat-same-file")
    record = timed.record(dentry_false_sharing.SLUG, "time-migrating")
    before, after = (
        _of(record, name, 20, "", of.value(name).middle) for name in ("before", "after")
    )
    of = register.get(lockref_degrade.SLUG).figure("stat-collapse")
    record = timed.record(lockref_degrade.SLUG, "time-migrating")
    healthy, degraded = (
        _of(record, "moved", 20, label, of.value(name).middle)
        for label, name in (("calm", "healthy"), ("perturbed", "degraded"))
    )
    return {
        "stat by 20, before the move": before,
        "stat by 20, after it": after,
        "stat by 20, the one over the other": _over(after, before),
        "stat by 20, healthy": healthy,
        "stat by 20, degraded": degraded,
        "stat by 20, healthy over degraded": _over(healthy, degraded),
    }


def _table(call: str, record: str, sizes: tuple[int, ...]) -> dict[str, Multiples]:
    found: dict[str, Multiples] = {}
    kept = timed.record("will-it-scale", record)
    for n in sizes:
        of = register.get(lockref_pause.SLUG).figure(lockref_pause.figure(n))
        with_pause, without = (
            _of(kept, name, n, "", of.value(f"{call}-{name}").middle)
            for name in ("pause", "no-pause")
        )
        found |= {
            f"{call} by {n}, with the pause": with_pause,
            f"{call} by {n}, without": without,
            f"{call} by {n}, the one over the other": _over(with_pause, without),
        }
    return found


@pytest.fixture(scope="module")
def asked() -> dict[str, Multiples]:
    """Of the table's, by the row of the page's table: those that the rule is of."""
    return _table("fstat", "time-migrating-fstat", (8, 24)) | _table(
        "open", "time-migrating-open", (2, 8, 24)
    )


@pytest.fixture(scope="module")
def later() -> dict[str, Multiples]:
    """What was asked when those had been seen."""
    found = _table("fstat", "time-migrating-fstat-48", (48,))
    found |= _table("open", "time-migrating-open-48", (48,))
    of = register.get(lockref_degrade.SLUG).figure("spin-24-workers")
    record = timed.record(lockref_degrade.SLUG, "time-migrating-handle")
    names = {"before": "before", "spin-100": "after"}
    return found | {v: _of(record, v, 24, "", of.value(n).middle) for v, n in names.items()}


def test_the_page_has_each_number(
    page: str, stat: dict[str, Multiples], asked: dict[str, Multiples]
) -> None:
    for name, number in {**stat, **asked}.items():
        cells = " | ".join(f"{number[change]:.2f}" for change in CHANGES)
        assert f"| {name} | {cells} |" in page, (name, cells)


def test_the_page_says_what_was_asked_later(page: str, later: dict[str, Multiples]) -> None:
    def told(name: str) -> str:
        return f"{later[name][LEAVE]:.2f} → {later[name][MIGRATE]:.2f}"

    for call in ("fstat", "open"):
        paused, without = (f"{call} by 48, {how}" for how in ("with the pause", "without"))
        assert f"`{call}` {told(paused)} with the pause and {told(without)} without" in page
    assert f"{told('before')} without looks and {told('spin-100')} with a hundred" in page


def test_the_stats_are_not_explained(page: str, stat: dict[str, Multiples]) -> None:
    met = {name: 1 / 1.2 <= number[MIGRATE] <= 1.2 for name, number in stat.items()}
    missed = {name.removeprefix("stat by 20, ") for name, held in met.items() if not held}
    assert missed == {"degraded", "healthy over degraded"}
    assert "The stats are not explained" in page


def test_the_numbers_with_a_pause_are_explained(page: str, asked: dict[str, Multiples]) -> None:
    """By the rule that was committed before the boots."""

    def off(number: Multiples, change: str) -> float:
        return abs(number[change] - 1)

    paused = [number for name, number in asked.items() if name.endswith("with the pause")]
    without = [number for name, number in asked.items() if name.endswith("without")]
    assert (len(paused), len(without)) == (5, 5)
    for number in paused:
        nearest = off(number, MIGRATE) < min(off(number, LEAVE), off(number, TAKE))
        assert nearest or off(number, MIGRATE) <= 0.1
    assert all(off(number, MIGRATE) - off(number, LEAVE) <= 0.1 for number in without)
    assert "The table's numbers with a pause are explained" in page
    assert sum(off(number, MIGRATE) <= 0.05 for number in paused) == 4
    assert "four of the five are within a twentieth" in page
