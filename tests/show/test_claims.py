# SPDX-License-Identifier: MIT
"""Claims about time: a miss is shown beside the recorded run, and stops nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from contended import stats
from contended.errors import ContendedError
from contended.show import claims
from contended.show.claims import Claim, timed


@dataclass(frozen=True)
class Run:
    """What `live` returns, as far as a claim looks at it."""

    rate: float
    recorded: bool = False


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Claim]:
    seen: list[Claim] = []
    monkeypatch.setattr("IPython.display.display", seen.append)
    monkeypatch.delenv(claims.RECORD, raising=False)
    return seen


def live(rate: float, recorded: float) -> Run:
    run = Run(rate)
    claims.remember(run, lambda: Run(recorded, recorded=True))
    return run


def rate(run: Run) -> float:
    return run.rate


@pytest.mark.parametrize(
    ("value", "bounds", "holds"),
    [
        (2.0, {"above": 1.2}, True),
        (1.2, {"above": 1.2}, False),
        (1.0, {"below": 1.2}, True),
        (1.2, {"below": 1.2}, False),
        (1.0, {"above": 0.5, "below": 2}, True),
        (3.0, {"above": 0.5, "below": 2}, False),
        (0.4, {"above": 0.5, "below": 2}, False),
        (float("nan"), {"above": 0.5}, False),
        (float("nan"), {"below": 0.5}, False),
    ],
)
def test_bounds(value: float, bounds: dict[str, Any], holds: bool, shown: list[Claim]) -> None:
    timed("it is so", rate, Run(value), **bounds)
    assert [claim.holds for claim in shown] == [holds]


def test_a_claim_without_a_bound_claims_nothing(shown: list[Claim]) -> None:
    with pytest.raises(ValueError, match="needs a bound"):
        timed("it is so", rate, Run(1.0))


def test_a_miss_shows_what_was_expected_seen_and_recorded(shown: list[Claim]) -> None:
    timed("<lookups> get faster: times as many", rate, live(0.9, 2.6), above=1.2)
    (claim,) = shown
    assert claim.expected == "<lookups> get faster: times as many (above 1.2)"
    assert (claim.seen, claim.recorded) == ("0.9", "2.6")
    html = claim._repr_html_()
    assert html.count("contended-claim") == 1
    assert 'data-holds="false"' in html
    assert 'data-expected="&lt;lookups&gt; get faster: times as many (above 1.2)"' in html
    assert "<lookups>" not in html
    assert "hidden" not in html
    assert "quiet machine" in html
    assert "0.9" in repr(claim)
    assert "2.6" in repr(claim)


def test_what_holds_is_counted_and_not_seen(shown: list[Claim]) -> None:
    timed("it is so", rate, live(3.0, 2.6), above=1.2)
    html = shown[0]._repr_html_()
    assert 'data-holds="true"' in html
    assert " hidden " in html
    assert html.endswith("></div>"), "there is nothing in it to see"
    assert repr(shown[0]) == "held: it is so (above 1.2) (3)"


def test_an_interval_is_judged_by_its_median_and_shown_with_its_ends(shown: list[Claim]) -> None:
    timed("it is so", lambda: stats.Interval(1.0, 0.8, 1.5), above=1.2)
    assert shown[0].seen == "1 (0.8 to 1.5)"


def test_each_run_is_replaced_by_its_own_record(shown: list[Claim]) -> None:
    pair = {"a": live(1.0, 10.0), "b": live(2.0, 5.0)}

    def quotient(runs: dict[str, Run], third: Run) -> float:
        return runs["a"].rate / runs["b"].rate / third.rate

    timed("it is so", quotient, pair, live(1.0, 4.0), above=1)
    assert (shown[0].seen, shown[0].recorded) == ("0.5", "0.5")
    # what is a record itself stands for itself; what nobody recorded is not made up
    timed("it is so", quotient, pair, Run(2.0, recorded=True), above=1)
    assert shown[1].recorded == "1"
    timed("it is so", quotient, {"a": Run(1.0), "b": Run(2.0)}, Run(1.0), above=1)
    assert shown[2].recorded == ""


@pytest.mark.parametrize(
    "value",
    [
        lambda _: 1 / 0,
        lambda _: stats.median([]),
        lambda _: stats.paired_ratio([1.0], [0.0]).median,
    ],
)
def test_what_a_starved_run_leaves_undefined_is_a_miss(value: Any, shown: list[Claim]) -> None:
    timed("it is so", value, live(1.0, 1.0), above=1)
    assert shown[0].seen.startswith("cannot be worked out: ")


def test_mistakes_in_a_claim_are_not_misses(shown: list[Claim]) -> None:
    with pytest.raises(AttributeError):
        timed("it is so", lambda run: run.spelt_wrong, Run(1.0), above=1)
    assert not shown


def test_a_reference_run_must_not_miss(shown: list[Claim], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(claims.RECORD, "1")
    timed("it is so", rate, Run(3.0), above=1)
    with pytest.raises(ContendedError, match=r"no reference run: .*it is so \(above 1\)"):
        timed("it is so", rate, Run(1.0), above=1)


def test_a_record_that_cannot_be_read_is_left_out(shown: list[Claim]) -> None:
    run = Run(1.0)

    def damaged() -> Run:
        raise ContendedError("cut short")

    claims.remember(run, damaged)
    timed("it is so", rate, run, above=1)
    assert shown[0].recorded == ""
