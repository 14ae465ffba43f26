# SPDX-License-Identifier: MIT
"""Chapter 11's hunt: its ranking, and the model of the line that it found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contended.cases import hunt, timed
from contended.errors import ContendedError
from contended.kernel import times


def region(label: str, cpus: int, per_second: float, **more: Any) -> Mapping[str, Any]:
    place = {"function": "f", "thing": f"the line of {label}", "ns": 40.0, "hitm": 1.0, "far": 0.5}
    return {
        "label": label,
        "cpus": cpus,
        "per_second": per_second,
        "rates": [per_second / cpus] * cpus,
        "variant": "7.2",
        "machine": "2x20-smt",
        "clock": "region",
        "seed": 1,
        "stalled_ns": 50.0,
        "transfers": 1.5,
        "escaped": 0.0,
        "ticks": 0.0,
        "together_ns": 9.0,
        "places": [place],
        **more,
    }


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put regions where a record of the hunt is looked for."""

    def put(*regions: Mapping[str, Any], file: str = "time") -> None:
        place = tmp_path / f"{file}.json"
        place.write_text(json.dumps({"results": regions}))

    monkeypatch.setattr(
        "contended.show.lesson.reference",
        lambda name: tmp_path / f"{name.rpartition('/')[2]}.json",
    )
    return put


def test_calls_are_ranked_by_what_many_cpus_make_of_them(recorded: Any) -> None:
    recorded(
        region("good", 1, 1e6),
        region("good", 80, 60e6),
        region("bad", 1, 2e6),
        region("bad", 80, 1e6),
        region("bad", 80, 1e6, seed=2, stalled_ns=900.0, ticks=0.02, window_ns=200.0),
        region("bad", 16, 1e6, misled=1.0, window_ns=200.0),
    )
    assert hunt.scaling() == pytest.approx({"bad": 0.5, "good": 60})
    table = hunt.ranked()
    assert [row[0] for row in table.rows] == ["bad", "good"]
    assert table.rows[0][1:3] == ("0.5 µs", "0.5 times !")
    assert table.rows[1][2] == "60 times"
    assert "f: the line of bad (40 ns)" in table.rows[0][-1]
    assert f"1 of these 3 boots are {times.OUTDATED}." in table.notes


def test_without_one_cpu_there_is_nothing_to_compare_with(recorded: Any) -> None:
    recorded(region("good", 80, 60e6))
    with pytest.raises(ContendedError, match="no good on 1 and on 80 CPUs"):
        hunt.ranked()


def test_the_one_that_renames_is_no_stat(recorded: Any) -> None:
    recorded(region("beside", 4, 4e6, rates=[9e6, 1e6, 1e6, 1e6]), file="time-beside")
    assert "7.2, kernel: 3,000,000 at 4" in hunt.beside("stats").alt


def test_a_boot_in_which_all_cpus_were_stopped_is_left_out(recorded: Any) -> None:
    stopped = {"function": "multi_cpu_stop", "thing": "kernel page", "ns": 36.0, "hitm": 0.0}
    rates = [9e6, 1e6, 1e6]
    recorded(
        region("beside", 3, 3e6, rates=rates),
        region("beside", 3, 3e6, rates=rates, places=[stopped]),
        file="time-beside",
    )
    assert hunt.stats_beside() == {"7.2": {3: [2e6]}}


def test_the_model_s_calls_take_what_they_take_alone() -> None:
    """In the record, to a tenth."""
    kept = timed.record(hunt.SLUG)
    for call in ("stat", "rename"):
        (alone,) = kept.rates(kept.regions[0]["variant"], 1, call).values()
        assert hunt.WALKS.works[call].value == pytest.approx(1e9 / alone, rel=0.1)


@pytest.mark.parametrize("cpus", [4, 16])
def test_a_walk_that_does_not_read_the_line_never_fetches_it(cpus: int) -> None:
    before, after = (hunt.WALKS.run(v, hunt.MACHINE, cpus)["run"] for v in ("before", "after"))
    assert after.transfers == 0
    assert before.per_op("transfers") > 0.2
    assert after.ops_per_s > 1.02 * before.ops_per_s
