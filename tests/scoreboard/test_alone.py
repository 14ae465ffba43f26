# SPDX-License-Identifier: MIT
"""What one cost at a time makes of a number, and what the scoreboard says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contended.cases import alone, timed
from contended.cases.alone import Alone
from contended.scoreboard import board
from contended.show import lesson
from contended.simulate.verdict import Range


def region(label: str, rate: float, seed: int = 1, cpus: int = 8) -> dict[str, Any]:
    return {
        "variant": "before",
        "cpus": cpus,
        "label": label,
        "seed": seed,
        "per_second": rate,
        "machine": "1x24",
        "clock": "region",
        "costs": {},
        "escaped": 0.0,
        "ticks": 0.0,
        "together_ns": 1.0,
    }


REGIONS = [
    region("calm", 10.0),
    region("calm", 12.0, seed=2),
    region("calm near=24.5", 20.0),
    region("calm near=24.5", 22.0, seed=2),
    region("calm take=1", 9.0),
    region("calm far=200", 11.5),  # in one socket
    region("stirred", 1.0),
    region("stirred near=24.5", 2.0),
    region("calm", 99.0, cpus=4),
]


def test_a_number_is_read_by_what_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lesson, "reference", lambda name: tmp_path / f"{name.split('/')[-1]}.json")
    (tmp_path / "time-x.json").write_text(json.dumps({"results": REGIONS[:1]}))
    probes = [
        timed.rate("calm", "before", 8, label="calm", file="time-x"),
        timed.ratio("both", "before", "before", 8, labels=("calm", "stirred"), file="time-x"),
    ]
    assert timed.load("some-case", probes)["calm"].alone is None, "nothing was asked"
    (tmp_path / "time-x-alone.json").write_text(json.dumps({"results": REGIONS}))
    calm = timed.load("some-case", probes)["calm"].alone
    assert calm == Alone(11.0, {"near=24.5": 21.0, "take=1": 9.0}, boots=2)
    (tmp_path / "time-x.json").write_text(json.dumps({"results": REGIONS}))
    both = timed.load("some-case", probes)["both"].alone
    assert both == Alone(10.0, {"near=24.5": 10.0}), "what has no value is left out"
    marked = [each | {"ticks": 0.02} if "stirred" in each["label"] else each for each in REGIONS]
    (tmp_path / "time-x-alone.json").write_text(json.dumps({"results": marked}))
    found = timed.load("some-case", probes)
    kept = [found[name].alone for name in ("calm", "both")]
    assert [one and one.doubtful for one in kept] == [0, 2], "of what was read"


def test_without_what_is_stated_there_is_nothing_to_compare() -> None:
    def rates(some: Any) -> list[float]:
        return [each["per_second"] for each in some]

    assert alone.read(REGIONS[2:3], rates) is None
    assert alone.read(REGIONS[:2], rates) is None, "nothing was changed"
    bare = alone.read([region("", 1.0), region("ahead=3.5e-05", 2.0)], rates)
    assert bare == Alone(1.0, {"ahead=3.5e-05": 2.0})


CHANGED = {"near=24": 30.0, "near=96": 5.0, "take=1": 21.0, "fill=40": 18.0, "pause=20": 19.0}


@pytest.mark.parametrize(
    ("stated", "published", "reached"),
    [
        (10.0, (20.0, 22.0), ["take=1", "near=24"]),
        (10.0, (18.0, 18.0), ["fill=40", "pause=20", "take=1", "near=24"]),
        (10.0, (31.0, 32.0), []),
        (10.0, (6.0, 7.0), ["near=96"]),
        (10.0, (4.0, 4.5), []),
        (10.0, (9.0, 11.0), []),
    ],
)
def test_what_reaches_the_published_number(
    stated: float, published: Range, reached: list[str]
) -> None:
    assert Alone(stated, CHANGED).reach(published) == reached


def test_it_is_said_in_a_sentence() -> None:
    def said(*published: float) -> str:
        low, high = published
        return Alone(10.0, CHANGED).said((low, high), "{:g} ms".format)

    begins = "With each cost as stated it is 10 ms; of 5 changes of one cost alone, a boot each,"
    assert said(18, 18) == (
        f"{begins} what is published is reached or passed with fill=40 (18 ms), pause=20 (19 ms), "
        "take=1 (21 ms), and 1 more."
    )
    assert said(4, 4.5) == (
        f"{begins} none reaches what is published, the nearest is near=96 (5 ms)."
    )
    assert said(9, 11) == "With each cost as stated it is 10 ms, as published."
    twice = Alone(10.0, CHANGED, boots=2).said((4, 4), "{:g}".format)
    assert "of one cost alone, 2 boots each, none reaches" in twice
    marked = Alone(10.0, CHANGED, doubtful=3).said((4, 4), "{:g}".format)
    assert "of one cost alone, a boot each (3 regions doubtful), none reaches" in marked


def test_only_what_is_missed_says_so(tmp_path: Path) -> None:
    rows = [row for entry in board.board(tmp_path) for row in entry.rows]
    said = dict.fromkeys({row.verdict for row in rows}, 0)
    for row in rows:
        said[row.verdict] += row.why.count("of one cost alone")
    assert said.pop("differs") > 0
    assert not any(said.values())
