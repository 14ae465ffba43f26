# SPDX-License-Identifier: MIT
"""The per-CPU area map: correct against a trivial allocator, and quadratic where it should be."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest
from ctools import execute, mutant, oracle
from support import counted

from contended import stats
from contended.errors import UsageError
from contended.measure import measure, native
from contended.measure.results import Measurement

SLUG = "percpu-area-map"
SMALL, LARGE = (512, 1024, 2048, 4096), (16384, 131072, 1048576)
LINEAR = ("after", "bitmap")


@cache
def count(areas: int, order: int = 0, hole: int = 0) -> Measurement:
    """Allocate and free once, and count: deterministic, so once is enough."""
    variants = LINEAR if areas > max(SMALL) else None
    return counted(SLUG, {"areas": areas, "order": order, "hole": hole}, variants=variants)


def slope(variant: str, counters: tuple[str, ...], sizes: tuple[int, ...], **params: int) -> float:
    costs = []
    for n in sizes:
        one = count(n, **params)
        costs.append(float(sum(one.count(variant, counter) for counter in counters)))
    return stats.loglog_slope(sizes, costs).estimate


def ask(binary: Path, seed: int) -> subprocess.CompletedProcess[str]:
    return execute(binary, str(seed), "6000")


def test_every_variant_allocates_as_the_trivial_one(tmp_path: Path) -> None:
    flags = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    binary = oracle(tmp_path, native.source(SLUG), *flags)
    for seed in range(1, 5):
        run = ask(binary, seed)
        assert run.returncode == 0, run.stdout + run.stderr
        assert run.stdout.count("good") == 5


MISTAKES = {
    "a hint that is never taken back": (
        "	if (i < c->full)\n		c->full = i;\n	c->map[i] = wanted;",
        "	c->map[i] = wanted;",
    ),
    "a search that is off by one": ("	if (i == c->used || c->map[i] != entry)", "	if (0)"),
    "a merge that is forgotten": ("	gone += !(c->map[i + 1] & 1);", "	gone += 0;"),
    "lengths that ignore alignment": (
        "		head = round_up(off, align) - off;\n		tail = c->map[i] - head - size;",
        "		head = 0 * align;\n		tail = c->map[i] - head - size;",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_oracle_finds(mistake: str, tmp_path: Path) -> None:
    model = mutant(tmp_path, SLUG, MISTAKES[mistake])
    binary = oracle(tmp_path, model, "-O1")
    assert any(ask(binary, seed).returncode for seed in range(1, 4))


def test_the_model_refuses_its_own_wrong_answer(tmp_path: Path) -> None:
    """Without merging, the chunk does not become one area again, and no number comes out."""
    model = mutant(tmp_path, SLUG, MISTAKES["a merge that is forgotten"])
    measured = measure(
        model, variants=["before", "after"], threads=[1], repeats=1, ops=1, slices=1, sched="other"
    )
    assert [failure.variant for failure in measured.failures] == ["after"]
    assert "not one free area" in measured.failures[0].reason


@pytest.mark.parametrize("order", [0, 2], ids=["newest-first", "random"])
def test_steps_are_quadratic_before(order: int) -> None:
    assert slope("before", ("alloc_steps",), SMALL) == pytest.approx(2, abs=0.1)
    assert slope("before", ("free_steps",), SMALL, order=order) == pytest.approx(2, abs=0.1)
    both = ("alloc_steps", "free_steps")
    assert slope("before", both, SMALL, order=order) == pytest.approx(2, abs=0.1)


def test_each_fix_cures_its_half() -> None:
    for variant, cured, sick in (
        ("offset-bit", "free_steps", "alloc_steps"),
        ("first-free-hint", "alloc_steps", "free_steps"),
    ):
        assert slope(variant, (cured,), SMALL) < 1.2
        assert slope(variant, (sick,), SMALL) == pytest.approx(2, abs=0.1)


def test_steps_are_almost_linear_after() -> None:
    """N log N: its slope is 1 + 1/ln N, so it takes a large N to come below 1.1."""
    assert slope("after", ("alloc_steps",), SMALL) == pytest.approx(1, abs=0.01)
    assert slope("after", ("alloc_steps", "free_steps"), LARGE) <= 1.1
    assert slope("bitmap", ("alloc_steps", "free_steps"), LARGE) <= 1.1


@pytest.mark.parametrize("order", [0, 1, 2], ids=["newest-first", "oldest-first", "random"])
def test_a_free_looks_at_no_more_than_a_binary_search_must(order: int) -> None:
    n = 4096
    one = count(n, order)
    assert one.count("after", "alloc_steps") == n
    assert one.count("after", "free_steps") <= n * (n.bit_length() + 1)


def test_the_moves_stay() -> None:
    """The map is an array: freed in another order than newest first, it is shifted each time."""
    moves = ("alloc_moves", "free_moves")
    for variant in ("before", "after"):
        assert slope(variant, moves, SMALL, order=1) == pytest.approx(2, abs=0.1)
        assert slope(variant, moves, SMALL, order=2) == pytest.approx(2, abs=0.1)
        assert slope(variant, moves, SMALL, order=0) == pytest.approx(1, abs=0.1)
    assert sum(count(4096, order=2).count("bitmap", m) for m in moves) == 0


def test_one_hole_at_the_start_defeats_the_hint() -> None:
    assert slope("after", ("alloc_steps",), SMALL, hole=1) == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"align": 12}, "align must be a power of two, 4 to 256"),
        ({"areas": 65537}, "areas must be 1 to 65536 for a variant that scans"),
        ({"areas": 200000, "size": 4096}, "at most 268435456 fit"),
        ({"hole": 1, "size": 4}, "size must be above 4"),
    ],
    ids=str,
)
def test_what_does_not_fit_together_is_refused(params: dict[str, int], said: str) -> None:
    measured = measure(SLUG, variants=["before"], params=params, threads=[1], repeats=1)
    assert said in measured.failures[0].reason


@pytest.mark.parametrize(
    "params", [{"areas": 0}, {"areas": 1 << 21}, {"size": 0}, {"size": -8}, {"order": 3}], ids=str
)
def test_what_is_out_of_range_is_refused(params: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"is out of range: \d+ to \d+"):
        measure(SLUG, params=params, threads=[1])
