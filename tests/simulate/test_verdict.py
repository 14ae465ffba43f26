# SPDX-License-Identifier: MIT
"""The one rule of all verdicts: known cases, and what must hold of any."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contended.simulate.draws import latin
from contended.simulate.verdict import NARROW, Kind, Range, Verdict, between, gap, judge, near, told
from contended.stats import percentiles

PUBLISHED = (50.0, 55.0)


@pytest.mark.parametrize(
    ("ours", "published", "unit", "kind", "verdict"),
    [
        # overlapping and narrow; the ends of a prediction touch what was published
        ((40.0, 60.0), PUBLISHED, "s", "predicted", "held"),
        ((55.0, 110.0), PUBLISHED, "s", "predicted", "held"),
        ((52.0, 52.0), PUBLISHED, "s", "predicted", "held"),
        # overlapping and wide
        ((30.0, 61.0), PUBLISHED, "s", "predicted", "consistent"),
        ((0.0, 60.0), PUBLISHED, "s", "predicted", "consistent"),
        ((-10.0, 60.0), PUBLISHED, "s", "predicted", "consistent"),
        # disjoint, however near and however wide
        ((56.0, 60.0), PUBLISHED, "s", "predicted", "differs"),
        ((1.0, 49.0), PUBLISHED, "s", "predicted", "differs"),
        ((8.4, 8.4), (8.5, 8.5), "ratio", "predicted", "differs"),
        # the first seed's headline, 3.3 to 5.5 times, simulated as 25.6
        ((20.0, 30.0), (10 / 3, 5.5), "ratio", "predicted", "differs"),
        # a change in per cent is the ratio that it is: -60.2 % is 0.398
        ((-65.0, -55.0), (-60.2, -60.2), "%", "predicted", "held"),
        ((-80.0, -50.0), (-60.2, -60.2), "%", "predicted", "consistent"),
        ((-45.0, -34.0), (-60.2, -60.2), "%", "predicted", "differs"),
        # what went into a parameter is not held by coming out again
        ((3.0, 3.1), (3.05, 3.05), "ms", "fitted", "consistent"),
        ((3.0, 3.1), (1.6, 1.6), "ms", "fitted", "differs"),
        # counts, and nothing that is nothing
        ((1.9, 1.9), (2.0, 2.0), "exponent of N", "counted", "counted"),
        ((1.8, 1.8), (2.0, 2.0), "exponent of N", "counted", "differs"),
        ((2.2, 2.2), (2.0, 2.0), "exponent of N", "counted", "differs"),
        ((4200.0, 4200.0), (4096.0, 4096.0), "chains", "counted", "counted"),
        ((2048.0, 2048.0), (4096.0, 4096.0), "chains", "counted", "differs"),
        ((0.0, 0.0), (0.0, 0.0), "HITM", "counted", "counted"),
        ((0.1, 0.1), (0.0, 0.0), "HITM", "counted", "differs"),
        ((0.0, 0.0), (0.0, 0.0), "HITM", "predicted", "consistent"),
        # nobody is right about what the source itself contradicts
        ((50.0, 55.0), PUBLISHED, "s", "contradicted", "inconsistent"),
        (None, PUBLISHED, "s", "contradicted", "inconsistent"),
        (None, PUBLISHED, "s", "predicted", "cannot"),
    ],
)
def test_known_cases(
    ours: Range | None, published: Range, unit: str, kind: Kind, verdict: Verdict
) -> None:
    assert judge(ours, published, unit, kind) == verdict


@pytest.mark.parametrize(
    ("values", "apart"),
    [
        ((1.0, 1.2, 1.9, 2.0), True),
        ((1.0, 1.2, 1.55, 1.9, 2.0), False),  # one is as published
        ((1.0, 1.2), False),  # nothing beyond it
        ((1.9, 2.0), False),
        ((1.0, 1.2, 1.4, 1.6, 1.8, 2.0), False),  # no wider a gap than any other
        ((), False),
    ],
)
def test_what_lies_between_two_groups_is_said_to(values: tuple[float, ...], apart: bool) -> None:
    assert between(values, (1.5, 1.58)) == apart
    assert told("held", apart=True) != told("held")
    assert told("differs", 1.5, apart=True) == told("differs", 1.5)


def test_a_gap_is_the_factor_between_the_nearest_ends() -> None:
    assert gap((56.0, 60.0), (50.0, 55.0)) == pytest.approx(56 / 55)
    assert gap((10.0, 20.0), (50.0, 55.0)) == 2.5
    assert gap((54.0, 60.0), (50.0, 55.0)) == 1
    assert gap((0.0, 0.0), (5.0, 5.0)) == math.inf
    assert gap((-34.0, -34.0), (-60.2, -60.2), "%") == pytest.approx(0.66 / 0.398)
    assert told("differs", 2.5) == "differs, 2.5 times"
    assert told("differs", 1.0017) == "differs, under 1.01 times"
    assert told("differs", math.inf) == "differs"
    assert told("consistent", 1.0) == "consistent, says little"


numbers = st.floats(1e-6, 1e9)
ranges = st.tuples(numbers, numbers).map(lambda ends: (min(ends), max(ends)))


@given(ranges, ranges)
def test_a_verdict_does_not_depend_on_the_unit_s_size(ours: Range, published: Range) -> None:
    for factor in (2.0**-10, 2.0**10):
        a, b = ((low * factor, high * factor) for low, high in (ours, published))
        assert judge(a, b) == judge(ours, published)


@given(ranges, ranges, st.integers(1, 40))
def test_few_draws_hold_nothing(ours: Range, published: Range, draws: int) -> None:
    """And change nothing else."""
    told, many = judge(ours, published, draws=draws), judge(ours, published)
    assert told == ("consistent" if many == "held" and draws < 10 else many)


@given(ranges, ranges)
def test_agreeing_is_mutual_and_differing_has_a_gap(ours: Range, published: Range) -> None:
    factor = gap(ours, published)
    assert factor == gap(published, ours) >= 1
    assert (judge(ours, published) == "differs") == (factor > 1)
    if factor > 1:  # it is what the one must be multiplied by to touch the other
        nearer = ours[0] if ours[0] > published[1] else published[0]
        farther = published[1] if ours[0] > published[1] else ours[1]
        assert nearer / farther == factor


@given(ranges, ranges, st.floats(1, 10), st.floats(1, 10))
def test_knowing_less_never_turns_into_having_held(
    ours: Range, published: Range, below: float, above: float
) -> None:
    """A wider prediction may come to agree; if it was held, it can only lose."""
    wider = ours[0] / below, ours[1] * above
    if judge(ours, published) in ("held", "consistent"):
        assert judge(wider, published) in ("held", "consistent")
    if judge(wider, published) == "held":
        assert wider[1] <= NARROW * wider[0]
    if judge(ours, published) == "consistent":
        assert judge(wider, published) == "consistent"


@given(ranges, ranges)
def test_what_was_fitted_or_contradicts_itself_is_never_held(ours: Range, published: Range) -> None:
    assert judge(ours, published, kind="fitted") in ("consistent", "differs")
    assert judge(ours, published, kind="contradicted") == "inconsistent"
    assert judge(ours, published, kind="counted") in ("counted", "differs")


@given(st.dictionaries(st.text(min_size=1), ranges, min_size=1, max_size=4), st.integers(2, 60))
def test_joint_draws_come_from_every_part_of_every_range(
    known: dict[str, Range], draws: int
) -> None:
    drawn = latin(known, draws)
    assert drawn == latin(known, draws), "the same each time"
    assert len(drawn) == draws
    for name, (low, high) in known.items():
        values = sorted(each[name] for each in drawn)
        assert low <= values[0] <= values[-1] <= high
        for part, value in enumerate(values):
            slack = 1e-9 * high
            assert value >= low + (high - low) * part / draws - slack
            assert value <= low + (high - low) * (part + 1) / draws + slack


def test_two_parameters_are_not_drawn_in_step() -> None:
    """One at a time, or all from low to high, would miss what they do together."""
    from contended import stats

    drawn = latin({"near": (0.0, 1.0), "far": (0.0, 1.0)}, 40)
    corner = [each for each in drawn if each["near"] < 0.5 < each["far"]]
    assert 4 <= len(corner) <= 16
    assert stats.median([each["far"] for each in drawn]) == pytest.approx(0.5, abs=0.03)


def test_percentiles_lie_between_the_nearest_values() -> None:
    assert percentiles([3.0]) == (3.0, 3.0)
    assert percentiles(range(101)) == (5.0, 95.0)
    assert percentiles([0, 10]) == pytest.approx((0.5, 9.5))
    low, high = percentiles([1.0] * 39 + [100.0])
    assert (low, high) == (1.0, 1.0), "one draw of forty is no end"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.24], True),
        ([1.26], False),
        ([0.5, 1.2, 9.0], True),
        ([0.5, 1.3, 9.0], False),
        ([0.9, 1.1], True),
        # 1 is in the middle, and no draw is near it
        ([0.6, 0.7, 1.3, 1.4], False),
        ([1.0, 1.3], False),
    ],
)
def test_a_middle_is_near_where_there_are_values(values: list[float], said: bool) -> None:
    assert near(values, (1.0, 1.0)) == said
    assert near([100 * (each - 1) for each in values], (0.0, 0.0), "%") == said
