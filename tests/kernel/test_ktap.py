# SPDX-License-Identifier: MIT
"""KTAP as others read it: parsed by the rules of Documentation/dev-tools/ktap.rst, nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from contended import cli, tree
from contended.kernel import ktap, record, run, variants
from contended.kernel.record import KernelRun

SLUG = "umount-grace-period"
RESULT = re.compile(
    r"(?P<result>ok|not ok) (?P<number>\d+)(?: (?P<name>[^#]*[^# ]))?"
    r"(?: #(?: (?P<directive>SKIP|TODO|XFAIL|TIMEOUT|ERROR)\b)?(?P<data>.*))?"
)


@dataclass
class Case:
    """A test case result line, with the cases that are nested in it."""

    ok: bool
    name: str
    directive: str
    data: str
    nested: list[Case] = field(default_factory=list)


def parse(lines: list[str], level: int = 0) -> list[Case]:
    """The cases of one level; consumes the lines. Raises if a rule is broken."""
    indent = "  " * level
    assert lines.pop(0) == f"{indent}KTAP version 1"
    plan = re.fullmatch(rf"{indent}1\.\.(\d+)", lines.pop(0))
    assert plan, "the plan follows the version"
    found: list[Case] = []
    nested: list[Case] = []
    while lines and len(found) < int(plan[1]):
        line = lines[0]
        if line == f"{indent}  KTAP version 1":
            assert not nested, "a second nested plan for one test"
            nested = parse(lines, level + 1)
            continue
        lines.pop(0)
        assert line.startswith(indent), f"not of this level: {line}"
        line = line[len(indent) :]
        if line.startswith("# "):
            continue
        match = RESULT.fullmatch(line)
        assert match, f"neither a result nor a diagnostic line: {line}"
        assert int(match["number"]) == len(found) + 1
        directive, data = match["directive"] or "", (match["data"] or "").strip()
        case = Case(match["result"] == "ok", match["name"], directive, data, nested)
        if directive in ("TIMEOUT", "ERROR"):
            assert not case.ok
        if nested:  # what fails inside fails outside
            assert case.ok == all(inner.ok or inner.directive == "SKIP" for inner in nested)
        found.append(case)
        nested = []
    assert len(found) == int(plan[1])
    return found


def read(text: str) -> list[Case]:
    assert text.isprintable() or "\n" in text
    lines = text.splitlines()
    found = parse(lines)
    assert not lines, "lines after the last test"
    return found


@pytest.fixture(scope="module")
def kept() -> KernelRun:
    return record.load(tree.home() / "results" / SLUG / "kernel.json")


def test_a_recorded_run_is_ktap(kept: KernelRun) -> None:
    every = variants.load(SLUG).variants
    found = read(ktap.report(kept, every))
    assert [case.name for case in found] == list(every)
    assert sum(len(case.nested) for case in found) == len(kept.outcomes)
    assert all(case.ok for case in found) == kept.held


def test_failures_skips_and_directives(kept: KernelRun) -> None:
    first, second, third, *rest = [o for o in kept.outcomes if o.variant == "before"][:3]
    assert not rest
    outcomes = [
        replace(first, held=False, reason="ERROR #7 is\nabove 3", seen=7.0),
        replace(second, held=True, expected="one # of them"),
        replace(third, held=False, seen=None, reason="hang: 180 s", run="stuck"),
        replace(third, held=False, seen=None, reason="panic: oops", run="dead", variant="after"),
    ]
    boot = replace(kept.boots[0], variant="before", run="stuck", failed="hang: 180 s")
    boots = [boot, replace(boot, variant="after", run="dead", failed="panic: oops")]
    done = replace(kept, outcomes=outcomes, boots=boots)
    before, after, other = read(ktap.report(done, ["before", "after", "third"]))
    assert [case.ok for case in before.nested] == [False, True, False]
    lost, held, stuck = before.nested
    assert (lost.directive, lost.data) == ("", "(ERROR no. 7 is above 3)")
    assert held.name.endswith("one no. of them")
    assert (stuck.directive, stuck.data) == ("TIMEOUT", "hang: 180 s")
    assert [c.directive for c in after.nested] == ["ERROR"]
    assert not before.ok
    assert (other.ok, other.directive, other.data) == (True, "SKIP", "it was not asked for")


def test_the_parser_sees_what_is_no_ktap(kept: KernelRun) -> None:
    good = ktap.report(kept)
    for old, new in (("1..", "1.."[:2]), ("ok 2 ", "ok 3 "), ("KTAP version 1", "KTAP")):
        with pytest.raises(AssertionError):
            read(good.replace(old, new, 1))


@pytest.mark.parametrize("held", [True, False])
def test_the_command_prints_it_and_its_exit_status_says_the_same(
    kept: KernelRun,
    held: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes = [replace(o, held=held, reason="" if held else "no") for o in kept.outcomes]
    monkeypatch.setattr(run, "run", lambda *_, **__: replace(kept, outcomes=outcomes))
    file = tmp_path / "out.json"
    status = cli.main(["kernel", "run", SLUG, "--ktap", "--json", str(file)])
    found = read(capsys.readouterr().out)
    assert status == (0 if held else 1)
    assert all(case.ok for case in found if case.nested) is held
    assert record.load(file).held is held
    assert cli.main(["kernel", "run", SLUG, "--ktap", "--json", "-"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "give --json a file" in said.err
