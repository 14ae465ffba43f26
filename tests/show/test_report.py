# SPDX-License-Identifier: MIT
"""Results as text: every number that is there, and every failure."""

from __future__ import annotations

import importlib
import re
from types import SimpleNamespace

import pytest
from IPython.core.formatters import HTMLFormatter
from support import PROVENANCE, sample

import contended
from contended.measure import results
from contended.measure.results import Failure, Measurement, Sample
from contended.show import report
from contended.show.table import columns


def slow_of(value: float, *, repeat: int, ops: int = 100, slow: int = 0) -> Sample:
    counts = {"ops": ops, "cpu_changes": 0, "slow": slow}
    return sample(value, threads=2, repeat=repeat, counts=counts)


def built(samples: dict[str, list[Sample]], *failures: Failure) -> Measurement:
    return results.build(
        case="some-case",
        metric="ops_per_s",
        unit="operations/s",
        params={},
        samples=samples,
        failures=list(failures),
        provenance=PROVENANCE,
    )


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_columns_line_up() -> None:
    assert columns([["a", "bb"], ["ccc", "d"]]) == "a    bb\nccc  d"


def test_values_counts_and_ratios() -> None:
    text = report.measurement_text(
        built(
            {
                "before": [slow_of(v, repeat=i, slow=50) for i, v in enumerate((10.0, 30.0, 20.0))],
                "after": [slow_of(v, repeat=i) for i, v in enumerate((20.0, 60.0, 40.0))],
            }
        )
    )
    table = rows(text)
    assert table[0][:4] == ["variant", "threads", "phase", "operations/s"]
    assert table[0][-1] == "slow/op"
    assert "cpu_changes/op" not in text
    assert ["before", "2", "run", "20", "10", "30", "3", "0.5"] in table
    assert ["after", "2", "run", "40", "20", "60", "3", "0"] in table
    assert ["after/before", "2", "run", "2", "2", "to", "2", "3"] in table
    assert text.endswith("Example CPU, Linux 6.1.0, SCHED_FIFO, 1.2 s")


def test_a_failure_is_told_and_the_rest_still_shown() -> None:
    failure = Failure(variant="after", threads=2, repeat=0, reason="was killed by SIGSEGV")
    text = report.measurement_text(built({"before": [slow_of(10, repeat=0)], "after": []}, failure))
    assert "FAILED after with 2 threads: was killed by SIGSEGV" in text
    assert ["before", "2", "run", "10", "10", "10", "1", "0"] in rows(text)
    assert "paired ratio" not in text


def test_the_counts_are_shown_if_the_first_variant_failed() -> None:
    failure = Failure(variant="before", threads=2, repeat=0, reason="crashed")
    text = report.measurement_text(
        built({"before": [], "after": [slow_of(10, repeat=0, slow=25)]}, failure)
    )
    assert rows(text)[1][-1] == "0.25"


def test_nothing_ran() -> None:
    failure = Failure(variant="before", threads=2, repeat=0, reason="crashed")
    text = report.measurement_text(built({"before": []}, failure))
    assert "FAILED before" in text


def test_a_notebook_shows_a_measurement_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    formatter = HTMLFormatter()
    shell = SimpleNamespace(display_formatter=SimpleNamespace(formatters={"text/html": formatter}))
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    importlib.reload(contended)
    shown = formatter(built({"before": [slow_of(10, repeat=0)]}))
    row = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", shown.partition("<tbody>")[2])
    assert row[:4] == ["before", "2", "run", "10"]
