# SPDX-License-Identifier: MIT
"""The published rules of the formats that grades are written in: each function raises or passes.

Written from the descriptions that `contended.course.exports` names, without its code.
"""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

SHOWN = {"hidden", "after_due_date", "after_published", "visible"}
LOOKS = {"text", "html", "simple_format", "md", "ansi"}
TOP = {
    "score": (int, float), "execution_time": int, "output": str, "output_format": LOOKS,
    "test_output_format": LOOKS, "test_name_format": LOOKS, "visibility": SHOWN,
    "stdout_visibility": SHOWN, "extra_data": dict, "tests": list, "leaderboard": list,
}  # fmt: skip
TEST = {
    "score": (int, float), "max_score": (int, float), "status": {"passed", "failed"},
    "name": str, "name_format": LOOKS, "number": str, "output": str, "output_format": LOOKS,
    "tags": list, "visibility": SHOWN, "extra_data": dict,
}  # fmt: skip


def _fits(found: dict[str, Any], rules: dict[str, Any]) -> None:
    for key, value in found.items():
        assert key in rules, f"{key} is no key of the format"
        rule = rules[key]
        fits = value in rule if isinstance(rule, set) else isinstance(value, rule)
        assert fits, f"{key} is {value!r}"


def gradescope(text: str) -> dict[str, Any]:
    """https://gradescope-autograders.readthedocs.io/en/latest/specs/, "Output format"."""
    found: dict[str, Any] = json.loads(text)
    _fits(found, TOP)
    tests = found.get("tests", [])
    for test in tests:
        _fits(test, TEST)
    # A score at the top, or on each test; the one at the top goes first.
    assert "score" in found or (tests and all("score" in test for test in tests))
    return found


def canvas(text: str) -> tuple[list[str], dict[str, dict[str, str]]]:
    """What Canvas's GradebookImporter takes; assignments, and by login what each got."""
    head, *rows = list(csv.reader(io.StringIO(text)))
    assert all(len(row) == len(head) for row in rows)
    assert len(head) > 3
    assert "Student" in head[0]
    assert "ID" in head[1]
    columns = 3
    if re.search(r"SIS\s+Login\s+ID", head[2]):
        columns = 4
    elif re.search(r"SIS\s+User\s+ID", head[2]) and re.search(r"SIS\s+Login\s+ID", head[3]):
        columns = 5
    assert "Section" in head[columns - 1]
    named = head[columns:]
    read_only = re.compile("(Current|Final|Override) (Score|Points|Grade|Status)")
    assert not list(filter(read_only.search, named))
    assert not [name for name in named if re.search(r"\(\d+\)\s*$", name)], "an id of Canvas's"
    points, students = rows[0], rows[1:]
    assert "Points Possible" in points[0]
    login = head.index("SIS Login ID")
    # An empty cell leaves a grade as it is; pure numbers are taken with comma or point.
    for row in (points, *students):
        assert all(re.fullmatch(r"|EX|-?[0-9.,]+%?", cell) for cell in row[columns:])
    return named, {row[login]: dict(zip(named, row[columns:], strict=True)) for row in students}


def moodle(text: str) -> dict[str, dict[str, str]]:
    """https://docs.moodle.org/en/Grade_import: unique heads, users mapped by one, grades numbers.

    A grade whose feedback is mapped but empty is lost, so both are there or neither.
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    head = next(csv.reader(io.StringIO(text)))
    assert len(set(head)) == len(head)
    assert head[0] in ("username", "useremail", "useridnumber")
    for row in rows:
        assert None not in row
        for name in head[1::2]:
            assert re.fullmatch(r"|\d+(\.\d+)?", row[name])
            assert bool(row[name]) == bool(row[f"{name} feedback"])
    return {row[head[0]]: row for row in rows}


COMMAND = re.compile(r"::(error|warning|notice)(?: ([^:]*))?::(.*)")
PARAMETERS = {"file", "line", "endLine", "col", "endColumn", "title"}


def github(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Workflow commands as GitHub's runner reads them: one a line, with %, CR, LF escaped."""

    def read(said: str) -> str:
        for code, what in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")):
            said = said.replace(code, what)
        return said.replace("%25", "%")

    found = []
    for line in re.split(r"\r\n|\r|\n", text.removesuffix("\n")):
        match = COMMAND.fullmatch(line)
        assert match, f"no workflow command: {line}"
        pairs = [pair.partition("=") for pair in (match[2] or "").split(",") if pair]
        assert {name for name, _, _ in pairs} <= PARAMETERS
        assert not re.search(r"%(?!25|0D|0A|3A|2C)", line)
        found.append((match[1], {name: read(value) for name, _, value in pairs}, read(match[3])))
    return found
