# SPDX-License-Identifier: MIT
"""Readers of one line that take longer for their turn: the page says what the records say."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from contended import register, stats
from contended.cases import lockref_degrade, lockref_pause, timed
from contended.simulate import machines

CHANGES = ("", "share=40", "share=80")
SEEDS = (1, 2)
Multiples = tuple[tuple[float, ...], ...]
"""What a number is of what is published, by change and seed."""


@pytest.fixture(scope="module")
def page(misses: str) -> str:
    return misses


@pytest.fixture(scope="module")
def numbers() -> dict[str, Multiples]:
    """Of the 24 workers and the table, by the row of the page's table."""
    found: dict[str, Multiples] = {}
    for call in ("fstat", "open"):
        for workers in (24, 48):
            published = register.get(lockref_pause.SLUG).figure(lockref_pause.figure(workers))
            rates = {
                variant: _multiples(
                    timed.record("will-it-scale", f"time-share-{call}"),
                    variant,
                    workers,
                    published.value(f"{call}-{variant}").middle,
                )
                for variant in ("pause", "no-pause")
            }
            found |= {
                f"{call} by {workers}, with the pause": rates["pause"],
                f"{call} by {workers}, without": rates["no-pause"],
                f"{call} by {workers}, the one over the other": _over(rates, "pause", "no-pause"),
            }
    figure = register.get(lockref_degrade.SLUG).figure("spin-24-workers")
    record = timed.record("lockref-degrade", "time-handle-share")
    names = {"before": "before", "spin-100": "after"}
    rates = {v: _multiples(record, v, 24, figure.value(n).middle) for v, n in names.items()}
    return found | {
        "handle by 24, no looks": rates["before"],
        "handle by 24, a hundred looks": rates["spin-100"],
        "handle by 24, what looks are worth": _over(rates, "spin-100", "before"),
    }


def _multiples(record: timed.Record, variant: str, cpus: int, published: float) -> Multiples:
    rates = [record.rates(variant, cpus, change) for change in CHANGES]
    return tuple(tuple(each[seed] / published for seed in SEEDS) for each in rates)


def _over(rates: Mapping[str, Multiples], top: str, base: str) -> Multiples:
    return tuple(
        tuple(a / b for a, b in zip(one, other, strict=True))
        for one, other in zip(rates[top], rates[base], strict=True)
    )


def _further(number: Multiples, change: int) -> list[float]:
    """By how much it is further from 1 than with the cost as stated, by seed."""
    both = zip(number[change], number[0], strict=True)
    return [abs(changed - 1) - abs(stated - 1) for changed, stated in both]


def test_the_page_says_who_bears_such_readers(page: str, numbers: dict[str, Multiples]) -> None:
    assert len(numbers) == 15
    contradict: dict[int, list[str]] = {1: [], 2: []}
    for name, number in numbers.items():
        cells = [f"{stats.median(number[0]):.2f}"]
        for change in (1, 2):
            further = _further(number, change)
            word = ""
            if min(further) > 0.1:
                contradict[change].append(name)
                word = ", contradicts"
            elif max(further) < -0.1:
                word = ", wants it"
            cells.append(f"{stats.median(number[change]):.2f}{word}")
        assert f"| {name} | {' | '.join(cells)} |" in page, (name, cells)
    worth = "handle by 24, what looks are worth"
    assert contradict[1] == [worth]
    low, high = sorted(_further(numbers[worth], 1))
    assert f"(at 40 ns by {low:.2f} and {high:.2f}, little more than the limit)" in page
    assert contradict[2] == [
        *(f"{call} by {workers}, without" for call in ("fstat", "open") for workers in (24, 48)),
        worth,
    ]


def test_no_loop_gets_faster(numbers: dict[str, Multiples]) -> None:
    for name, number in numbers.items():
        if name.endswith(("with the pause", "without")):
            assert all(
                changed < stated
                for by in number[1:]
                for changed, stated in zip(by, number[0], strict=True)
            ), name


def test_listings_are_as_fast_with_looks_whatever_readers_take(page: str) -> None:
    record = timed.record("lockref-degrade", "time-getdent-share")
    worth = [
        record.rates("spin-100", 64, change)[seed] / record.rates("before", 64, change)[seed]
        for change in CHANGES
        for seed in SEEDS
    ]
    assert f"It is {min(worth):.2f} to {max(worth):.2f} times, whatever the `share`." in page
    assert min(worth) > 0.75


def test_no_boot_of_them_is_doubtful() -> None:
    for slug, name in (
        ("will-it-scale", "time-share-fstat"),
        ("will-it-scale", "time-share-open"),
        ("lockref-degrade", "time-handle-share"),
        ("lockref-degrade", "time-getdent-share"),
    ):
        for boot in timed.record(slug, name).regions:
            assert max(boot["ticks"], boot["escaped"]) < 0.01


def test_readers_that_take_longer_for_their_turn_make_waiting_hurt_the_robot(page: str) -> None:
    kept = timed.record("lockref-degrade", "time-robot-share")
    figure = register.get("lockref-degrade").figure("robot-handle")
    changes = ("share=80", "share=40", "")
    plain, looking = (
        [kept.of(variant, 64, change)[1] for change in changes]
        for variant in ("before", "spin-100")
    )
    far, nearer, stated = (
        [
            boot["per_second"] / figure.value(name).middle
            for name, boot in (("before", without), ("after", looks))
        ]
        for without, looks in zip(plain, looking, strict=True)
    )
    assert machines.get("2x16-smt").costs.share == 10
    assert (
        f"makes {far[0]:.2f} times what is published without looks, and {far[1]:.2f} with, so "
        f"looks are worth {far[1] / far[0]:.2f} times as much as the robot saw; with 40 ns it is "
        f"{nearer[0]:.2f} and {nearer[1]:.2f}, and with the 10 that are stated, booted again "
        f"beside them, {stated[0]:.2f} and {stated[1]:.2f} (a boot each)."
    ) in page
    few, many = ([boot["fills"] for boot in boots] for boots in (plain, looking))
    assert {f"{each:.0f}" for each in few} == {"11"}
    copies = "an operation fetches 11 copies of lines that others have copies of, and with looks"
    assert f"{copies} {min(many):.0f} to {max(many):.0f}," in page


def test_handles_behind_a_lister_are_slower_with_such_readers_too(page: str) -> None:
    listed = timed.record("lockref-degrade", "time-handle-stay-alone")

    def thousands(label: str) -> str:
        return f"{listed.rates('spin-100-stay', 64, label)[1] / 1e3:.0f}"

    while_listed, before = (
        [thousands(f"{phase}{change}") for change in (" share=40", " share=80", "")]
        for phase in ("perturbed", "calm")
    )
    assert "it makes {} and {} thousand then".format(*while_listed[:2]) in page
    assert "and {} and {} before anybody lists".format(*before[:2]) in page
    assert f"({while_listed[2]} and {before[2]} with 10 ns)" in page
