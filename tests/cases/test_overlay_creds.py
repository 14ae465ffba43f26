# SPDX-License-Identifier: MIT
"""The model behind chapter 5: who counts, who reverts, and what is caught if somebody does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from ctools import execute, mutant, oracle, runner
from support import brief, two_cpus

from contended.errors import UsageError
from contended.measure import measure, native

SLUG = "overlay-creds"
COUNTED = ("before", "own-line")
UNCOUNTED = ("after", "guarded")


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=two_cpus)])
def test_two_atomic_operations_before_and_none_after(threads: int) -> None:
    run = brief(SLUG, threads)
    for variant in COUNTED:
        assert run.count(variant, "atomic") == 2 * run.count(variant, "ops") > 0
    for variant in UNCOUNTED:
        assert run.count(variant, "ops") > 0
        assert run.count(variant, "atomic") == 0
    for variant in run.variants:
        for counter in ("unpaired", "early", "borrowed", "denied"):
            assert run.count(variant, counter) == 0


def test_a_forgotten_revert_is_counted_and_a_guard_forgets_nothing() -> None:
    run = brief(SLUG, early=10)
    for variant in run.variants:
        ops, early = run.count(variant, "ops"), run.count(variant, "early")
        # slices begin and end anywhere in the ten
        assert abs(early - ops / 10) <= 1
        forgets = variant != "guarded"
        assert run.count(variant, "unpaired") == (early if forgets else 0)
        # from the first forgotten revert on, at the latest the tenth operation and mostly in the
        # warm-up, the task never has its own credentials again
        borrowed = run.count(variant, "borrowed")
        assert ops - 10 < borrowed <= ops if forgets else borrowed == 0
    assert run.count("before", "atomic") == 2 * run.count("before", "ops") - run.count(
        "before", "early"
    )


def test_nested_overrides_agree_with_a_stack(tmp_path: Path) -> None:
    binary = oracle(tmp_path, native.source(SLUG), "-O1", "-fsanitize=address,undefined")
    for seed in range(5):
        run = execute(binary, str(seed), "20000")
        assert run.returncode == 0, run.stdout + run.stderr
        assert "good" in run.stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("cleanup(cred_scope_end), unused", "unused", "the wrong credentials"),
        ("set_current_cred(w, old);\n", "", "the wrong credentials"),
        ("put_cred(w, usage_of(borrowed, kind));", "(void)borrowed;", "a wrong count"),
        ("mode >>= 3;", "mode >>= 6;", "a wrong permission"),
        ("cred->fsuid == inode->uid", "cred->euid == inode->uid", "a wrong permission"),
    ],
)
def test_the_oracle_sees_a_broken_model(old: str, new: str, words: str, tmp_path: Path) -> None:
    run = execute(oracle(tmp_path, mutant(tmp_path, SLUG, (old, new)), "-O1"), "1", "20000")
    assert run.returncode == 1, run.stdout + run.stderr
    assert words in run.stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        # an early return of one's own, without a revert, where none was planted
        ("error = may_read(w, &overlay->below);", "return 0;", "overrides without a revert"),
        ("cleanup(cred_scope_end), unused", "unused", "overrides without a revert"),
        ("set_current_cred(w, old);\n", "", "borrowed credentials"),
        ("put_cred(w, usage_of(borrowed, kind));", "(void)borrowed;", "the counts say"),
        (
            "atomic_fetch_add_explicit(usage, 1, memory_order_relaxed);",
            "(void)usage;",
            "the last reference is gone",
        ),
        ("{ 1000, 1000, 0644 }", "{ 1000, 1000, 0600 }", "refused"),
    ],
)
def test_the_check_fails_a_broken_model(old: str, new: str, words: str, tmp_path: Path) -> None:
    binary = runner(tmp_path, mutant(tmp_path, SLUG, (old, new)), "-O1")
    run = execute(binary, "1", "0", "200000")
    assert run.returncode == 1, run.stdout + run.stderr
    assert words in run.stdout


@pytest.mark.parametrize(
    ("params", "span"),
    [({"mounts": 2}, "0 to 1"), ({"early": -1}, "0 to 1000000000"), ({"mounts": -1}, "0 to 1")],
)
def test_values_out_of_range_are_refused(params: dict[str, int], span: str) -> None:
    with pytest.raises(UsageError, match=span):
        measure(SLUG, params=params)
