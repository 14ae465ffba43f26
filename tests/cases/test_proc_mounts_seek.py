# SPDX-License-Identifier: MIT
"""Reading the list of mounts: which variant walks, and which one loses mounts that stay."""

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

SLUG = "proc-mounts-seek"
SIZES = (2000, 4000, 8000)
# Sizes in which N*N/2k dwarfs N: with 46 to 51 lines a read, the slope is 1.95 and more.
STEPS = ("walk_steps", "next_steps")


@cache
def count(mounts: int, churn: int = 0, place: int = 0, buffer: int = 4096) -> Measurement:
    """One pass over the list, all variants: deterministic, so once is enough."""
    params = {"mounts": mounts, "churn": churn, "place": place, "buffer": buffer}
    return counted(SLUG, params)


def slope(variant: str, churn: int = 0, buffer: int = 4096) -> float:
    runs = [count(n, churn, buffer=buffer) for n in SIZES]
    costs = [float(sum(run.count(variant, counter) for counter in STEPS)) for run in runs]
    return stats.loglog_slope(SIZES, costs).estimate


def ask(binary: Path, seed: int) -> subprocess.CompletedProcess[str]:
    return execute(binary, str(seed), "150")


def test_every_read_delivers_what_the_trivial_reader_does(tmp_path: Path) -> None:
    """And only the cursor keeps each mount that stays: numbers miss some and repeat others."""
    flags = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    binary = oracle(tmp_path, native.source(SLUG), *flags)
    for seed in range(1, 5):
        run = ask(binary, seed)
        assert run.returncode == 0, run.stdout + run.stderr
        said = {line.split()[0]: line.split()[1:] for line in run.stdout.splitlines()}
        for variant in ("before", "after"):
            assert said[variant][:4] == ["still", "0", "0", "changing"]
            missed, repeated = map(int, said[variant][4:])
            assert missed > 100
            assert repeated > 100
        assert said["before"] == said["after"]
        assert said["cursor"] == ["still", "0", "0", "changing", "0", "0"]


MISTAKES = {
    "a cache that ignores the event counter": (
        "r->cached_event == ns->event && r->cached_index == r->index",
        "r->cached_event != UINT64_MAX && r->cached_index == r->index",
    ),
    "a cursor behind the mount that comes next": (
        "			list_add_before(&r->cursor.link, node);",
        "			list_add_before(&r->cursor.link, node->next);",
    ),
    "a cursor that is shown as a mount": (
        "	} while (mount_of(node)->cursor);",
        "	} while (0);",
    ),
    "a line that did not fit and is lost": (
        "			break; /* it is shown again at the next read */",
        "{ r->index++; node = mount_after(ns, node, &count[NEXT_STEPS]); break; }",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_oracle_finds(mistake: str, tmp_path: Path) -> None:
    binary = oracle(tmp_path, mutant(tmp_path, SLUG, MISTAKES[mistake]), "-O1")
    assert any(ask(binary, seed).returncode for seed in range(1, 4))


def test_the_model_refuses_a_stale_pointer(tmp_path: Path) -> None:
    """Without the event counter, the cache follows a pointer to a mount that has gone."""
    model = mutant(tmp_path, SLUG, MISTAKES["a cache that ignores the event counter"])
    measured = measure(
        model,
        params={"churn": 8, "mounts": 1000},
        threads=[1],
        repeats=1,
        ops=20,
        slices=1,
        sched="other",
    )
    assert [failure.variant for failure in measured.failures] == ["after"]


def test_the_model_refuses_a_cursor_that_skips(tmp_path: Path) -> None:
    model = mutant(tmp_path, SLUG, MISTAKES["a cursor behind the mount that comes next"])
    measured = measure(model, threads=[1], repeats=1, ops=1, slices=1, sched="other")
    assert [failure.variant for failure in measured.failures] == ["cursor"]
    assert "were missed" in measured.failures[0].reason


def test_steps_are_quadratic_before_and_linear_after() -> None:
    assert slope("before") == pytest.approx(2, abs=0.1)
    assert slope("after") == pytest.approx(1, abs=0.1)
    assert slope("cursor") == pytest.approx(1, abs=0.1)


def test_the_cache_is_worth_nothing_if_something_changes_at_each_read() -> None:
    assert slope("after", churn=1) == pytest.approx(2, abs=0.1)
    assert slope("cursor", churn=1) == pytest.approx(1, abs=0.1)
    run = count(4000, churn=1)
    assert run.count("after", "walk_steps") == run.count("before", "walk_steps")


def test_the_walk_is_what_arithmetic_says() -> None:
    """Each read walks to where the last one ended, so the walks add up to reads * mounts / 2."""
    run = count(8000)
    reads = run.count("before", "reads")
    assert run.count("before", "walk_steps") == pytest.approx(reads * 8000 / 2, rel=0.02)
    assert run.count("before", "next_steps") == 8000
    assert run.count("cursor", "walk_steps") <= reads


def test_a_larger_buffer_divides_the_bug_and_does_not_cure_it() -> None:
    small, large = count(8000), count(8000, buffer=16384)
    ratio = small.count("before", "walk_steps") / large.count("before", "walk_steps")
    assert ratio == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize(
    ("place", "lost", "never"), [(0, "missed", "repeated"), (1, "repeated", "missed")]
)
def test_what_stays_is_read_once_by_the_cursor_only(place: int, lost: str, never: str) -> None:
    """At the end of the list, as in Linux, new mounts shift nothing, and umounts lose mounts."""
    run = count(4000, 2, place)
    for variant in ("before", "after"):
        assert 0 < run.count(variant, lost) <= run.count(variant, "changes")
        assert run.count(variant, never) == 0
    assert run.count("cursor", "missed") == run.count("cursor", "repeated") == 0
    assert run.count("cursor", "stayed") > 3000


def test_everybody_is_right_as_long_as_nothing_changes() -> None:
    run = count(4000)
    for variant in run.variants:
        assert run.count(variant, "missed") == run.count(variant, "repeated") == 0
        assert run.count(variant, "delivered") == run.count(variant, "stayed") == 4000


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"buffer": 64}, "buffer must be 88 to 1048576"),
        ({"churn": 24}, "churn must be 0 to 23"),
        ({"buffer": 100, "mounts": 50000}, "mounts must be 1 to"),
    ],
    ids=str,
)
def test_what_does_not_fit_together_is_refused(params: dict[str, int], said: str) -> None:
    measured = measure(SLUG, variants=["before"], params=params, threads=[1], repeats=1)
    assert said in measured.failures[0].reason


@pytest.mark.parametrize(
    "params", [{"mounts": 0}, {"mounts": 1_000_000}, {"churn": -1}, {"place": 2}], ids=str
)
def test_what_is_out_of_range_is_refused(params: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"is out of range: \d+ to \d+"):
        measure(SLUG, params=params, threads=[1])
