# SPDX-License-Identifier: MIT
"""On which drawn costs a value depends: known answers, and none where it is chance."""

from __future__ import annotations

import random
from statistics import correlation

import pytest

from contended.cases import depends
from contended.kernel import prices
from contended.simulate import machines

NAMES = ("near", "far", "pause", "share", "request", "take")


def drawn(seed: int, draws: int = 30) -> list[dict[str, float]]:
    chance = random.Random(seed)
    costs = [{name: chance.uniform(1, 2) for name in NAMES} for _ in range(draws)]
    return [{**each, "take": float(chance.random() < 0.5)} for each in costs]


def test_a_cost_that_values_follow_is_found_with_its_direction() -> None:
    costs, noise = drawn(1), random.Random(2)
    values = [1e6 / (each["pause"] + 0.1 * noise.random()) for each in costs]
    (found,) = depends.depends(costs, values) or ()
    assert found.cost == "pause"
    assert -1 <= found.rank < -0.9
    assert str(found) == f"a pause's time ({found.rank:.2f})"
    # two of them, the stronger first; one of these has two values only, so that ranks are tied
    values = [3 * each["take"] + each["far"] for each in costs]
    both = depends.depends(costs, values) or ()
    assert [each.cost for each in both] == ["take", "far"]
    assert all(each.rank > 0.4 for each in both)


def test_it_is_spearmans_correlation() -> None:
    """Of ranks: a value may grow as it likes."""
    costs = drawn(3)
    order = sorted(each["near"] for each in costs)
    values = [each["near"] ** 9 - (each["near"] == order[4]) for each in costs]
    (found,) = depends.depends(costs, values) or ()
    first = [sorted(each["near"] for each in costs).index(each["near"]) for each in costs]
    second = [sorted(values).index(value) for value in values]
    assert found.rank == pytest.approx(correlation(first, second))


def test_chance_is_seldom_taken_for_a_dependence() -> None:
    """A twentieth of values that depend on nothing follow one cost as much as is asked for."""
    tries = 200
    wrong = 0
    for seed in range(tries):
        chance = random.Random(1000 + seed)
        found = depends.depends(drawn(seed), [chance.random() for _ in range(30)])
        assert found is not None
        wrong += bool(found)
    assert tries * 0.01 < wrong < tries * 0.1


@pytest.mark.parametrize("draws", [0, 1, depends.FEWEST - 1])
def test_of_few_draws_nothing_is_told(draws: int) -> None:
    costs = drawn(5, draws)
    assert depends.depends(costs, [each["near"] for each in costs]) is None


def test_nor_where_nothing_differs() -> None:
    same = [dict.fromkeys(NAMES, 1.0)] * 30
    assert depends.depends(same, [float(n) for n in range(30)]) is None
    assert depends.depends(drawn(6), [1.0] * 30) is None


def test_each_cost_has_words() -> None:
    assert set(prices.costs(machines.get("1x24"))) == set(depends.WORDS)
