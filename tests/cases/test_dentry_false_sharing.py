# SPDX-License-Identifier: MIT
"""The model behind chapter 3: where the lockref lies, and which bytes lookups read beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ctools import execute, mutant, oracle, runner
from support import brief, raced, two_cpus

from contended.errors import UsageError
from contended.measure import measure, models, native
from contended.measure.models import ModelField
from contended.show import draw

SLUG = "dentry-false-sharing"
LINE = 64
# All names have one hash: length, parent and name alone tell them apart.
POOR_HASH = ("* 16777619u", "* 0u")
LAYOUTS = ("before", "after", "moved-32")


@pytest.fixture(scope="module")
def fields() -> dict[str, list[ModelField]]:
    """The members of each layout, as the compiled model says."""
    said = models.describe(SLUG).fields
    return {name: [f for f in said if f.of == name] for name in LAYOUTS}


def member(fields: list[ModelField], name: str) -> ModelField:
    return next(f for f in fields if f.name == name)


def bytes_beside_lockref(fields: list[ModelField]) -> int:
    """How many bytes of what lookups may read are on the lockref's line."""
    line = member(fields, "lockref").offset // LINE
    return sum(
        at // LINE == line
        for f in fields
        if f.kind == "lookup"
        for at in range(f.offset, f.offset + f.size)
    )


def read_beside_lockref(fields: list[ModelField], length: int) -> int:
    """How many of them a lookup of a name of that length does read."""
    iname, lockref = member(fields, "iname"), member(fields, "lockref")
    if length >= iname.size:
        return 0  # kept outside
    words = range(iname.offset, iname.offset + length, 8)
    return sum(8 for at in words if at // LINE == lockref.offset // LINE)


def test_lookup_fields_beside_the_lockref(fields: dict[str, list[ModelField]]) -> None:
    assert bytes_beside_lockref(fields["before"]) > 0
    assert bytes_beside_lockref(fields["after"]) == 0
    assert bytes_beside_lockref(fields["moved-32"]) > 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_members_neither_overlap_nor_leave_holes(
    layout: str, fields: dict[str, list[ModelField]]
) -> None:
    at = 0
    for f in sorted(fields[layout], key=lambda f: f.offset):
        assert f.offset == at, f"{f.name} is not where its neighbour ends"
        at = f.offset + f.size
    assert at == 192


@pytest.mark.parametrize("length", [1, 8, 9, 18, 31, 32, 39, 40, 120])
def test_what_a_lookup_reads_there(length: int, fields: dict[str, list[ModelField]]) -> None:
    """The trace of a real lookup agrees with arithmetic on the offsets."""
    run = brief(SLUG, name=length)
    for layout in LAYOUTS:
        lookups = run.count(layout, "lookups")
        assert lookups == run.count(layout, "ops") > 0
        expected = read_beside_lockref(fields[layout], length)
        assert run.count(layout, "shared") == expected * lookups
        assert run.count(layout, "read") > run.count(layout, "shared")


def test_will_it_scale_name_is_shared_before_and_not_after() -> None:
    run = brief(SLUG)
    assert run.count("before", "shared") > 0
    assert run.count("after", "shared") == 0
    assert run.count("moved-32", "shared") > 0


@two_cpus
@pytest.mark.parametrize("roles", [0, 1, 2])
def test_each_role_does_its_work(roles: int) -> None:
    run = brief(SLUG, threads=2, roles=roles)
    for layout in LAYOUTS:
        ops, lookups, refs = (run.count(layout, c) for c in ("ops", "lookups", "refs"))
        assert run.count(layout, "lost") == 0
        if roles == 0:
            assert (lookups, refs) == (ops, 2 * ops)
        elif roles == 1:
            assert lookups > 0
            assert refs > 0
            assert 2 * lookups + refs == 2 * ops
        else:
            assert (lookups, refs) == (ops, 0)


@pytest.mark.parametrize("poor_hash", [False, True], ids=["hash", "poor-hash"])
def test_lookups_agree_with_string_comparison(poor_hash: bool, tmp_path: Path) -> None:
    """With a hash that tells nothing, all depends on length, parent and name."""
    model = native.source(SLUG)
    if poor_hash:
        model = mutant(tmp_path, SLUG, POOR_HASH)
    binary = oracle(tmp_path, model, "-O1", "-fsanitize=address,undefined")
    for seed in range(5):
        run = execute(binary, "find", str(seed))
        assert run.returncode == 0, run.stdout + run.stderr
        assert "good" in run.stdout


def test_a_rename_never_shows_a_mixture(tmp_path: Path) -> None:
    run = execute(oracle(tmp_path, native.source(SLUG), "-O2"), "rename", "1")
    assert run.returncode == 0, run.stdout + run.stderr


def test_renames_and_lookups_are_clean_for_the_thread_sanitizer(tmp_path: Path) -> None:
    binary = oracle(tmp_path, native.source(SLUG), "-g", "-O1", "-fsanitize=thread")
    run = execute(binary, "rename", "1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert not run.stderr


@raced
@two_cpus
def test_without_the_second_look_at_seq_a_mixture_shows(tmp_path: Path) -> None:
    mistake = ("memory_order_relaxed) != seq)", "memory_order_relaxed) == ~seq)")
    model = mutant(tmp_path, SLUG, mistake)
    run = execute(oracle(tmp_path, model, "-O2"), "rename", "1")
    assert run.returncode == 1, run.stdout + run.stderr


@pytest.mark.parametrize(
    "mistake",
    [
        ("WORDS(q->hash_len >> 32); i++", "WORDS(q->hash_len >> 32) - 1; i++"),
        ("if (SEE(trace, d->parent) != q->parent)", "if (0)"),
        ("if (seq & 1 ||", "if ("),
    ],
)
def test_the_oracle_sees_a_broken_lookup(mistake: tuple[str, str], tmp_path: Path) -> None:
    model = mutant(tmp_path, SLUG, mistake, POOR_HASH)
    run = execute(oracle(tmp_path, model, "-O1"), "find", "1")
    assert run.returncode == 1, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([("\treference(w, ref, -1u);\n", "\tw->count[REFS]++;\n")], "updates were lost"),
        (  # the lookup asks for another name than the dentry has
            [
                ("other[len - 1] = '!';", "name[len - 1] = '!';"),
                (
                    "dentry_set(s->target, s->parent, name,",
                    "dentry_set(s->target, s->parent, other,",
                ),
            ],
            "a lookup does not find the dentry",
        ),
        ([("w->count[REFS]++;\n", "w->count[REFS] += 2;\n")], "not what the roles say"),
    ],
)
def test_the_check_fails_a_broken_model(
    changes: list[tuple[str, str]], words: str, tmp_path: Path
) -> None:
    run = execute(runner(tmp_path, mutant(tmp_path, SLUG, *changes), "-O1"), "1", "0", "200000")
    assert run.returncode == 1, run.stdout + run.stderr
    assert words in run.stdout


@pytest.mark.parametrize(
    ("params", "span"),
    [({"name": 0}, "1 to 120"), ({"name": 121}, "1 to 120"), ({"roles": 3}, "0 to 2")],
)
def test_values_out_of_range_are_refused(params: dict[str, int], span: str) -> None:
    with pytest.raises(UsageError, match=span):
        measure(SLUG, params=params)


def test_the_drawing_says_what_is_on_each_line(fields: dict[str, list[ModelField]]) -> None:
    members = [draw.Field(f.name, f.offset, f.size, f.kind) for f in fields["before"]]
    figure = draw.cache_lines("Lines", {"before": members}, alt="The point.")
    assert "before from byte 64: iname, lockref" in figure.alt
    assert figure.svg() == figure.svg()
