# SPDX-License-Identifier: MIT
"""Boots three times as long: the page says what the records say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contended import register, stats, tree
from contended.cases import lockref_degrade, timed
from contended.kernel import times
from contended.simulate.verdict import gap as missed_by

RECORDS = (
    ("dentry-false-sharing", "", "`stat`"),
    ("lockref-degrade", "-queue", "`stat`"),
    ("lockref-degrade", "-looks", "`stat`, a hundred looks"),
    ("lockref-degrade", "-handle-24", "`handle`"),
    ("lockref-degrade", "-handle-64", "`handle`"),
    ("lockref-degrade", "-getdent", "`getdent`"),
    ("will-it-scale", "-fstat", "`fstat`"),
    ("will-it-scale", "-open", "`open`"),
    ("will-it-scale", "-fstat-96", "`fstat`"),
    ("will-it-scale", "-open-96", "`open`"),
    ("open-creat-unlazy", "", "opens"),
    ("overlay-creds", "", "access checks"),
)
Pair = tuple[timed.Region, timed.Region]
"""The same boot, as long as it is recorded, and three times as long."""


def pairs() -> Iterator[tuple[str, Pair]]:
    for slug, name, what in RECORDS:
        by: dict[tuple[str, str, int], list[timed.Region]] = {}
        for region in timed.record(slug, f"time-length{name}").regions:
            by.setdefault((region["variant"], region["label"], region["cpus"]), []).append(region)
        for short, long in by.values():
            assert long["ops"] / short["ops"] == pytest.approx(3, rel=0.25)
            assert long["costs"] == short["costs"]
            yield f"{what} by {short['cpus']}", (short, long)


def gap(pair: Pair) -> float:
    short, long = (float(each["per_second"]) for each in pair)
    return max(short / long, long / short)


def test_the_page_says_which_lengths_agree() -> None:
    said = (tree.home() / "docs" / "virtual-time.md").read_text()
    found = list(pairs())
    agree = [pair for _, pair in found if gap(pair) <= times.AGREE]
    most = 100 * (max(map(gap, agree)) - 1)
    assert f"**Of {len(found)} rates {len(agree)} agree**, within {most:.0f} %" in said
    for what, pair in found:
        short, long = (f"{each['per_second'] / 1e6:.2f}" for each in pair)
        row = f"| {what} | `{pair[0]['variant']}`"
        there = [line for line in said.splitlines() if line.startswith(row)]
        if gap(pair) > times.AGREE:
            assert any(f"| {short} | {long} |" in line for line in there), (row, short, long)
    apart = sum(gap(pair) > times.AGREE for _, pair in found)
    assert said.count("| M/s, as recorded | three times as long |") == 1
    table = said.split("| M/s, as recorded | three times as long |\n")[1].split("\n\n")[0]
    assert len(table.splitlines()) == 1 + apart


def test_what_does_not_agree_is_two_boots_or_a_queue_that_comes_later() -> None:
    apart = {what: pair for what, pair in pairs() if gap(pair) > times.AGREE}
    for boot in apart["`fstat` by 2"]:
        assert max(boot["quarters"]) < times.AGREE * min(boot["quarters"])
    short, long = apart["`stat`, a hundred looks by 60"]
    assert long["label"] == "perturbed"
    assert min(short["quarters"]) > 2 * max(long["quarters"][1:]) > 0
    first = long["quarters"][0]
    assert first > 2 * max(long["quarters"][1:])
    assert first * long["together_ns"] / 1e9 / times.QUARTERS > short["ops"]


def test_what_came_of_the_rows_that_were_drawn_anew() -> None:
    said = (tree.home() / "docs" / "virtual-time.md").read_text()
    case = register.get(lockref_degrade.SLUG)
    for id_ in ("spin-24-workers", "pause-2"):
        figure, about = case.figure(id_), lockref_degrade.STUDY.evidence[id_].timed
        found = timed.load(case.slug, about)
        gaps = {
            name: missed_by(stats.percentiles(each.values), figure.range(name))
            for name, each in found.items()
            if not name.startswith("open")
        }
        assert {each.seeds for each in found.values()} == {30}
        if id_ == "pause-2":
            assert set(gaps.values()) == {1}
        else:
            assert gaps["after"] == 1
            assert f"is missed by {gaps['after/before']:.2f}, where it was 1.04" in said
    for slug, name, variant, cpus, ops in (
        ("lockref-degrade", "time-handle", "spin-100", 24, 60),
        ("will-it-scale", "time-drawn-disk-fstat", "pause", 2, 180),
    ):
        boots = timed.record(slug, name).of(variant, cpus).values()
        assert {boot["ops"] for boot in boots} == {ops * cpus}
