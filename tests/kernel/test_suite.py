# SPDX-License-Identifier: MIT
"""Random operations: a planted bug is found and cut down, and what was recorded is judged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from contended import cli, tree
from contended.kernel import fuzz, suite, variants
from contended.kernel.fuzz import Heard

pytest_plugins = ("labfixtures",)


def kernel(*bug: int, ends: bool = False) -> fuzz.Hear:
    """A made-up kernel: operation n gives n, unless the bug's operations all went before it."""

    def hear(first: int, worlds: int, keep: Sequence[int] | None) -> Heard:
        heard = Heard()
        for world in range(first, first + worlds):
            done, wrong = list[int](), False
            for n in range(fuzz.WORLD) if keep is None else keep:
                done.append(world * fuzz.WORLD + n)
                wrong = bool(bug) and set(bug) <= set(done)
                if wrong and ends:
                    heard.ended = "panic: the kernel panicked"
                    return heard
                if keep is not None:
                    heard.log.append((f"{done[-1]} do", "wrong" if wrong else "right"))
            heard.worlds[world] = 2 if wrong else 1
        return heard

    return hear


def found(other: fuzz.Hear, worlds: int = 3) -> fuzz.Difference | None:
    one = kernel()
    return fuzz.compare(7, one, other, one(0, worlds, None), other(0, worlds, None))


def test_kernels_that_are_the_same_do_not_differ() -> None:
    assert found(kernel()) is None


@pytest.mark.parametrize("ends", [False, True])
def test_a_planted_bug_is_cut_down_to_its_operations(ends: bool) -> None:
    difference = found(kernel(103, 117, 150, ends=ends))
    assert difference
    assert (difference.seed, difference.keep) == (7, [3, 17, 50])
    if ends:
        assert "panicked" in difference.seen
    else:
        assert (difference.operation, difference.reference, difference.seen) == (
            150,
            "right",
            "wrong",
        )
    assert [line.split()[0] for line in difference.shortest] == ["103", "117", "150"]
    assert "seed 7" in suite.said(difference)


def test_what_does_not_come_again_is_no_operations_fault() -> None:
    one, other = kernel(), kernel(105)
    difference = fuzz.compare(7, one, one, one(0, 3, None), other(0, 3, None))
    assert difference
    assert difference.operation is None
    assert "not when it is run again" in suite.said(difference)


def test_nothing_of_what_is_left_can_be_spared() -> None:
    asked = list[tuple[int, ...]]()

    def still(items: Sequence[int]) -> bool:
        asked.append(tuple(items))
        return {4, 5, 90} <= set(items)

    assert fuzz.shrunk(range(100), still) == [4, 5, 90]
    assert len(asked) < 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seed", "-1"], "seed -1: give 0 to"),
        (["--ops", "150"], "150 operations: give a multiple of 100"),
        (["--config", "up"], "no configuration 'up' here; there are: base"),
        (["--variants", "stack/before"], "name two variants or more"),
        (["--variants", "stack/before,stack/nope"], "no kernel variant 'stack/nope'"),
        (["--repeats", "0"], "0 repeats"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["kernel", "suite", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_addresses_are_no_difference_between_reports() -> None:
    line = "[    1.5] BUG: KASAN: use-after-free in dput+0x{}/0x400\n"
    assert suite.reports(line.format("1a") + line.format("2b")) == [
        "BUG: KASAN: use-after-free in dput"
    ]


def test_the_record_has_all_operations_and_just_the_findings_that_are_known() -> None:
    """Right fixes are as the kernel without; a reader by number, and a wrong patch, are found."""
    record = suite.load(tree.home() / "results" / "suite" / "base.json")
    assert record.ops == fuzz.OPS
    for one in record.tested:
        assert (one.worlds * fuzz.WORLD, one.ended, one.reports) == (record.ops, "", [])
        assert one.smoke_checks > 100
        assert min(one.done.values()) > 50
        assert one.smoke_failed == [] or one.variant == "stack/never-copy"
    assert {one.variant for one in record.tested} == {k.variant for k in record.kernels}
    right = [one for one in record.tested if variants.pick(one.variant).right]
    assert {one.variant.partition("/")[2] for one in right} == {"after"}
    assert len(right) >= 3
    found = {each.variant: each.difference for each in record.findings if each.kind == "fuzz"}
    assert set(found) == {"proc-mounts-seek/before", "stack/never-copy"}
    for difference in found.values():
        assert difference
        assert difference.reference != difference.seen
        assert 1 <= len(difference.shortest) <= 3
