# SPDX-License-Identifier: MIT
"""Measured sentences: said if they hold; a miss in time stops nothing, any other is an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from contended import stats
from contended.errors import ContendedError
from contended.show import claims
from contended.show.claims import Claim, Sentence, claim, timed


@dataclass(frozen=True)
class Run:
    """What `live` returns, as far as a claim looks at it."""

    rate: float
    recorded: bool = False


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []
    monkeypatch.setattr("IPython.display.display", seen.append)
    monkeypatch.delenv(claims.RECORD, raising=False)
    return seen


def live(rate: float, recorded: float) -> Run:
    run = Run(rate)
    claims.remember(run, lambda: Run(recorded, recorded=True))
    return run


def rate(run: Run) -> float:
    return run.rate


def boxes(shown: list[Any]) -> list[Claim]:
    return [each for each in shown if isinstance(each, Claim)]


def said(shown: list[Any]) -> list[str]:
    return [each.text for each in shown if isinstance(each, Sentence)]


# --- what must hold ------------------------------------------------------------------------------


def test_a_sentence_is_said_with_its_numbers(shown: list[Any]) -> None:
    claim(
        """
        An open takes **{n:.0f}** references,
        of `{{all}}`.

        - {share:.0%} of them are the root's
        """,
        n=2,
        share=0.5,
        holds=True,
    )
    expected = "An open takes **2** references,\nof `{all}`.\n\n- 50% of them are the root's"
    assert said(shown) == [expected]
    assert shown[0]._repr_markdown_() == repr(shown[0]) == expected


def test_what_does_not_hold_is_an_error_and_not_said(shown: list[Any]) -> None:
    with pytest.raises(ContendedError, match=r"^this does not hold: It takes 3 of \[them\]\.$"):
        claim("It takes **{n}** of [[them](x.md)].", n=3, holds=False)
    assert shown == []


@pytest.mark.parametrize("late", [0.9, 2.0])
def test_a_time_that_holds_excuses_no_count(late: float, shown: list[Any]) -> None:
    with pytest.raises(ContendedError, match="this does not hold: 1 and"):
        claim("{n} and {t:.1f}", n=1, t=timed(rate, live(late, 2.6), above=1.2), holds=False)
    assert shown == []


@pytest.mark.parametrize(("sentence", "error"), [("{missing}", KeyError), ("{n:d}", ValueError)])
def test_a_sentence_that_cannot_be_written(
    sentence: str, error: type[Exception], shown: list[Any]
) -> None:
    with pytest.raises(error):
        claim(sentence, n=1.5)


# --- what rests on time --------------------------------------------------------------------------


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
def test_bounds(value: float, bounds: dict[str, Any], holds: bool, shown: list[Any]) -> None:
    number = timed(rate, Run(value), **bounds)
    assert number.holds == holds
    claim("it is {so:.1f}", so=number)
    assert [box.holds for box in boxes(shown)] == [holds]
    assert said(shown) == ([f"it is {value:.1f}"] if holds else [])


def test_a_claim_without_a_bound_claims_nothing(shown: list[Any]) -> None:
    with pytest.raises(ValueError, match="needs a bound"):
        timed(rate, Run(1.0))


def test_a_miss_shows_what_was_expected_seen_and_recorded(shown: list[Any]) -> None:
    found = timed(rate, live(0.94, 2.6), above=1.2)
    claim("<lookups> of [a dentry](x.md) are **{n:.1f}** times as many ({n.low:.2f})", n=found)
    (box,) = shown
    assert box.expected == "<lookups> of a dentry are above 1.2 times as many (…)"
    assert (box.seen, box.recorded) == ("0.9", "2.6")
    html = box._repr_html_()
    assert html.count("contended-claim") == 1
    assert 'data-holds="false"' in html
    assert 'data-expected="&lt;lookups&gt; of a dentry are above 1.2 times as many (…)"' in html
    assert "<lookups>" not in html
    assert "hidden" not in html
    assert "quiet machine" in html
    assert "0.9" in repr(box)
    assert "2.6" in repr(box)


def test_what_holds_is_counted_and_its_box_not_seen(shown: list[Any]) -> None:
    claim("it is {n}", n=timed(rate, live(3.0, 2.6), above=1.2, below=4))
    box, sentence = shown
    html = box._repr_html_()
    assert 'data-holds="true"' in html
    assert " hidden " in html
    assert html.endswith("></div>"), "there is nothing in it to see"
    assert repr(box) == "held: it is above 1.2 and below 4 (3)"
    assert sentence.text == "it is 3"


def test_one_miss_of_two_takes_the_sentence_away(shown: list[Any]) -> None:
    good, bad = (timed(rate, live(n, 2.6), above=1.2) for n in (2.0, 1.0))
    claim("from {good:.1f} to {bad:.1f}", good=good, bad=bad)
    assert [box.holds for box in boxes(shown)] == [True, False]
    assert [box.expected for box in boxes(shown)] == ["from above 1.2 to …", "from … to above 1.2"]
    assert said(shown) == []


def test_two_misses_show_their_sentence_once(shown: list[Any]) -> None:
    first, second = timed(rate, live(1.0, 2.6), above=1.2), timed(rate, live(0.94, 3.0), above=1.5)
    good, new = timed(rate, live(2.0, 2.6), above=1.2), timed(rate, Run(0.5), above=1)
    claim("{a:.1f}, {b:.2f} and {c}", a=first, b=second, c=good)
    assert [box.holds for box in boxes(shown)] == [True, False]
    assert shown[-1].expected == "above 1.2, above 1.50 and …"
    assert (shown[-1].seen, shown[-1].recorded) == ("1.0; 0.94", "2.6; 3.00")
    claim("{a:.1f} and {b:.2f}", a=first, b=new)
    assert shown[-1].recorded == "2.6; …", "nobody has recorded the other"
    assert said(shown) == []


def test_a_time_that_would_not_be_judged_is_refused(shown: list[Any]) -> None:
    with pytest.raises(TypeError, match="give it a name"):
        claim("{n[a]:.1f}", n={"a": timed(rate, live(1.0, 2.6), above=1.2)})
    assert shown == []


def test_an_interval_is_judged_by_its_median_and_shown_with_its_ends(shown: list[Any]) -> None:
    slow = timed(lambda: stats.Interval(1.0, 0.8, 1.5), above=1.2)
    assert not slow.holds
    claim("it is {n:.2f}", n=slow)
    assert shown[0].seen == "1.00 (0.80 to 1.50)"
    fast = timed(lambda: stats.Interval(1.0, 0.8, 1.5), above=0.9)
    claim("it is {n:.1f} ({n.low:.1f} to {n.high:.1f})", n=fast)
    assert said(shown) == ["it is 1.0 (0.8 to 1.5)"]


def test_each_run_is_replaced_by_its_own_record(shown: list[Any]) -> None:
    pair = {"a": live(1.0, 10.0), "b": live(2.0, 5.0)}

    def quotient(runs: dict[str, Run], third: Run) -> float:
        return runs["a"].rate / runs["b"].rate / third.rate

    claim("{n}", n=timed(quotient, pair, live(1.0, 4.0), above=1))
    assert (shown[0].seen, shown[0].recorded) == ("0.5", "0.5")
    # what is a record itself stands for itself; what nobody recorded is not made up
    claim("{n}", n=timed(quotient, pair, Run(2.0, recorded=True), above=1))
    assert shown[1].recorded == "1"
    claim("{n}", n=timed(quotient, {"a": Run(1.0), "b": Run(2.0)}, Run(1.0), above=1))
    assert shown[2].recorded == ""


@pytest.mark.parametrize(
    "value",
    [
        lambda _: 1 / 0,
        lambda _: stats.median([]),
        lambda _: stats.paired_ratio([1.0], [0.0]).median,
    ],
)
def test_what_a_starved_run_leaves_undefined_is_a_miss(value: Any, shown: list[Any]) -> None:
    claim("{n:.1f} of {n.low:.1f}", n=timed(value, live(1.0, 1.0), above=1))
    assert shown[0].seen.startswith("cannot be worked out: ")


def test_mistakes_in_a_claim_are_not_misses(shown: list[Any]) -> None:
    with pytest.raises(AttributeError):
        timed(lambda run: run.spelt_wrong, Run(1.0), above=1)
    assert not shown


def test_a_reference_run_must_not_miss(shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(claims.RECORD, "1")
    claim("{n}", n=timed(rate, Run(3.0), above=1))
    with pytest.raises(ContendedError, match=r"no reference run: .*it is above 1"):
        claim("it is {n}", n=timed(rate, Run(1.0), above=1))


def test_a_record_that_cannot_be_read_is_left_out(shown: list[Any]) -> None:
    run = Run(1.0)

    def damaged() -> Run:
        raise ContendedError("cut short")

    claims.remember(run, damaged)
    claim("{n}", n=timed(rate, run, above=1))
    assert shown[0].recorded == ""


def test_a_box_says_whether_anything_was_measured_now(shown: list[Any]) -> None:
    """A time of a recorded run is the same on every machine; of an edited model it is not."""
    kept, fresh = Run(1.0, recorded=True), live(1.0, 2.6)
    for runs in ((kept,), (kept, fresh), (Run(1.0),), ({"one": kept},), ({"one": fresh},)):
        claim("{n}", n=timed(lambda *_: 1.0, *runs, above=2))
    assert [box.live for box in shown] == [False, True, True, False, True]
    assert 'data-live="false"' in shown[0]._repr_html_()
    assert 'data-live="true"' in shown[1]._repr_html_()
