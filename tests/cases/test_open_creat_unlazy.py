# SPDX-License-Identifier: MIT
"""The path walk of open-creat-unlazy: who takes references on the root, by counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ctools import execute, mutant, oracle
from support import counted, raced, two_cpus

from contended.errors import UsageError
from contended.measure import measure, native
from contended.measure.results import Measurement

SLUG = "open-creat-unlazy"
# A reference that is never dropped.
KEPT = ("\tif (k->root_grabbed)\n\t\tpath_put(k->w, &k->root);\n", "")
VARIANTS = ("before", "after", "lookup-first")


def opens(threads: int = 1, *, ops: int = 3000, **params: int) -> Measurement:
    """A fixed number of opens, so that counts are exact where nobody interferes."""
    return counted(SLUG, params, threads=threads, slices=2, ops=ops)


def each(m: Measurement, variant: str, counter: str) -> float:
    """A counter, per open."""
    return m.count(variant, counter) / m.count(variant, "ops")


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=two_cpus)])
@pytest.mark.parametrize("components", [0, 2, 16])
def test_one_reference_on_the_root_before_and_none_after(threads: int, components: int) -> None:
    m = opens(threads, components=components)
    assert [each(m, v, "root_refs") for v in VARIANTS] == [1, 0, 0]
    # what a thread takes on its own: the directory and the file, or the file alone
    assert [each(m, v, "own_refs") for v in VARIANTS] == [2, 2, 1]
    assert [each(m, v, "unlazied") for v in VARIANTS] == [1, 1, 1]
    assert [each(m, v, "stale") for v in VARIANTS] == [0, 0, 0]


@pytest.mark.parametrize("links", [1, 2, 8])
def test_an_absolute_symlink_takes_the_root_again(links: int) -> None:
    """Ref walk takes the root once for each link; "after" must also fetch it under fs's lock."""
    m = opens(symlinks=links)
    assert [each(m, v, "root_refs") for v in VARIANTS] == [1 + links, 1 + links, 0]
    assert [each(m, v, "fs_locks") for v in VARIANTS] == [0, 1, 0]
    assert [each(m, v, "links") for v in VARIANTS] == [links] * 3


@pytest.mark.parametrize("params", [{"creat": 0}, {"relative": 1}])
def test_ways_around_it(params: dict[str, int]) -> None:
    m = opens(**params)
    assert [each(m, v, "root_refs") for v in VARIANTS] == [0, 0, 0]


def test_the_later_fix_hides_it_for_existing_files_only() -> None:
    m = opens(fresh=3)
    created = [m.count(v, "created") for v in VARIANTS]
    assert created == [m.count("before", "ops") // 3] * 3
    assert m.count("lookup-first", "root_refs") == created[2]
    assert m.count("after", "root_refs") == 0


@raced
@two_cpus
def test_a_stale_walk_starts_again_and_finds_the_file() -> None:
    m = opens(2, ops=100_000, mounts=3)
    for variant in VARIANTS:
        assert m.count(variant, "stale") > 0
        # the second attempt takes the root twice: for itself and to stand on
        assert m.count(variant, "root_refs") >= 2 * m.count(variant, "stale")
        assert m.count(variant, "fs_locks") == m.count(variant, "stale")


@raced
@two_cpus
def test_a_chroot_in_mid_walk_gives_two_roots_only_after() -> None:
    m = opens(2, ops=100_000, symlinks=1, shared_fs=1, chroots=3)
    assert m.count("before", "two_roots") == 0
    assert m.count("after", "two_roots") > 0


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        ({"components": -1}, "0 to 16"),
        ({"components": 17}, "0 to 16"),
        ({"symlinks": 9}, "0 to 8"),
        ({"work": -1}, "0 to 1000000 ns"),
        ({"creat": 2}, "0 to 1"),
        ({"fresh": -5}, "0 to 1000000000"),
    ],
)
def test_out_of_range_is_refused_with_the_range(params: dict[str, int], allowed: str) -> None:
    with pytest.raises(UsageError, match=allowed):
        measure(SLUG, params=params)


def compare(tmp_path: Path, model: Path, rounds: int) -> tuple[int, str]:
    run = execute(oracle(tmp_path, model, "-O1"), str(rounds), "20220112")
    return run.returncode, run.stdout


def test_the_walk_agrees_with_an_oracle(tmp_path: Path) -> None:
    """Random trees and paths; and a rename, a mount and a chroot between two steps."""
    code, said = compare(tmp_path, native.source(SLUG), 200)
    assert code == 0, said
    ends = dict(re.findall(r"(\w+) (\d+)", said))
    assert all(int(n) > 5_000 for n in ends.values()), said


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        # wrong directory, wrong mount, wrong place of an absolute target
        ("d->parent == parent && ", ""),
        ("while (next.dentry->mounted)", "while (false)"),
        ("if (*target == '/') {", "if (false) {"),
        # a change that nobody notices
        ("if (!seq_retry(&k->s->mount_seq, k->m_seq)) {", "if (true) {"),
        ("if (!seq_retry(&path->dentry->seq, seq))\n", "if (true)\n"),
        KEPT,
    ],
)
def test_the_oracle_catches_a_broken_walk(tmp_path: Path, good: str, bad: str) -> None:
    code, said = compare(tmp_path, mutant(tmp_path, SLUG, (good, bad)), 100)
    assert code == 1, said


def test_a_kept_reference_fails_the_run(tmp_path: Path) -> None:
    model = mutant(tmp_path, SLUG, KEPT)
    m = measure(model, threads=[1], repeats=1, slices=1, ops=100, sched="other")
    assert [f.variant for f in m.failures] == ["before"]
    assert 'the count of "/" is 101, not 1' in m.failures[0].reason


def test_counts_tell_a_patch_that_does_nothing(tmp_path: Path) -> None:
    """What the first test here would see if "after" did not forget the root."""
    model = mutant(tmp_path, SLUG, ("if (rule == AFTER)", "if (false)"))
    m = measure(model, threads=[1], repeats=1, slices=1, ops=100, sched="other")
    assert each(m, "after", "root_refs") == 1
