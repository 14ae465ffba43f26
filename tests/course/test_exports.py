# SPDX-License-Identifier: MIT
"""Grades in others' forms: held to what those have published, whatever a student wrote."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import formats
import pytest

from contended.cli import main
from contended.course import exports, prove
from contended.course.grades import Grade, PartGrade
from contended.errors import ContendedError, UsageError

pytest_plugins = ("coursefixtures",)

EVIL = '=1+1,"a"\r\n::error::100% of, this: not a line\x1b[31m\x00'


def grade(student: str, total: int = 3, twice: int = 2, **more: Any) -> Grade:
    parts = [
        PartGrade("test-total", "Adds a list", 3, total, "" if total else EVIL, "seen: " + EVIL),
        PartGrade("test-twice", "Doubles, or: 100%", 2, twice, "" if twice else "not doubled"),
    ]
    about: dict[str, Any] = {"notes": [], "parts": parts, "failed": "", "lab": "sums"}
    about |= {"digest": "d", "graded": "2026-11-23T01:00:00Z", "seconds": 1.6}
    return Grade(student=student, **about | more)


@pytest.fixture
def graded(toys: Path, tmp_path: Path) -> Path:
    """What `contended course grade` left: three students, of whom one could not be graded."""
    place = tmp_path / "grades"
    every = [
        grade("ada"),
        grade("eve", total=0, notes=[EVIL]),
        grade("bob", total=0, twice=0, failed="the machine was switched off"),
        grade("ada", lab="counting", parts=[PartGrade("test-count", "Ticks", 4, 4)]),
    ]
    for one in every:
        file = place / "grades" / one.student / f"{one.lab}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        one.save(file)
    return place


def test_gradescope_gets_a_results_json(graded: Path, tmp_path: Path) -> None:
    made = exports.export(graded, tmp_path / "out", ["gradescope"])
    place = tmp_path / "out" / "gradescope"
    assert made == [place / "/".join(n) / "results.json"
                    for n in (("ada", "counting"), ("ada", "sums"), ("eve", "sums"))]  # fmt: skip
    found = formats.gradescope(made[2].read_text())
    assert found["score"] == sum(test["score"] for test in found["tests"]) == 2
    assert [test["status"] for test in found["tests"]] == ["failed", "passed"]
    assert [test["max_score"] for test in found["tests"]] == [3, 2]
    lost = found["tests"][0]["output"]
    assert "Hint: Start at 0." in lost
    assert "::error::100% of" in lost
    assert "\x1b" not in lost
    assert found["stdout_visibility"] == "hidden"
    assert formats.gradescope(made[1].read_text())["score"] == 5


def test_nobody_gets_a_zero_for_trouble_of_the_grader_s(graded: Path, tmp_path: Path) -> None:
    forms = ["gradescope", "canvas", "moodle", "github"]
    for path in exports.export(graded, tmp_path / "out", forms):
        assert b"bob" not in path.read_bytes()


def test_canvas_and_moodle_can_read_their_tables(graded: Path, tmp_path: Path) -> None:
    there = tmp_path / "out"
    exports.export(graded, there, ["canvas", "moodle"])
    labs, rows = formats.canvas((there / "canvas.csv").read_text())
    assert labs == ["counting", "sums"]
    # Who has not handed in has no grade, which is not zero points.
    assert rows == {
        "ada": {"counting": "4", "sums": "5"},
        "eve": {"counting": "", "sums": "2"},
    }
    assert (there / "canvas.csv").read_text().splitlines()[1].endswith(",4,5")
    marks = formats.moodle((there / "moodle.csv").read_text())
    assert {name: (row["counting"], row["sums"]) for name, row in marks.items()} == {
        "ada": ("4", "5"),
        "eve": ("", "2"),
    }
    assert marks["ada"]["sums feedback"] == "all points"
    assert marks["eve"]["sums feedback"].startswith("Adds a list: =1+1")


def test_spreadsheets_compute_no_student_s_name() -> None:
    for text in (exports.canvas([grade("=A1")]), exports.moodle([grade("@eve")])):
        assert ",=A1" not in text
        assert not any(line[:1] in "=@" for line in text.splitlines())


def test_annotations_stay_what_they_are_whatever_a_student_wrote(
    graded: Path, tmp_path: Path
) -> None:
    made = exports.export(graded, tmp_path / "out", ["github"])
    eve = next(path for path in made if "eve" in path.parts)
    error, warning, notice = formats.github(eve.read_text())
    assert error[:2] == (
        "error",
        {"file": "eve/sums/sums.ipynb", "line": "1", "title": "Adds a list"},
    )
    assert "\n::error::100% of, this: not a line" in error[2]
    assert warning[0] == "warning"
    assert notice == ("notice", {"title": "sums"}, "2 of 5 points")
    both = formats.github("\n".join(exports.commands(grade("eve", twice=0), "a,b: c/x.ipynb")))
    assert both[0][1] == {"file": "a,b: c/x.ipynb", "line": "1", "title": "Doubles, or: 100%"}


def test_nbgrader_s_gradebook_is_filled_and_kept_up_to_date(
    graded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nbgrader")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as for who has not activated the environment
    (file,) = exports.export(graded, tmp_path / "out", ["nbgrader"])
    ask = (
        "select submitted_assignment.student_id, base_cell.name, auto_score, needs_manual_grade"
        " from grade join base_cell on base_cell.id = cell_id"
        " join submitted_notebook on submitted_notebook.id = grade.notebook_id"
        " join submitted_assignment on submitted_assignment.id = submitted_notebook.assignment_id"
    )

    def scores() -> dict[tuple[str, str], tuple[float, int]]:
        with closing(sqlite3.connect(file)) as book:
            return {
                (who, part): (score, by_hand) for who, part, score, by_hand in book.execute(ask)
            }

    assert scores() == {
        ("ada", "test-count"): (4, 0),
        ("ada", "test-total"): (3, 0),
        ("ada", "test-twice"): (2, 0),
        ("eve", "test-total"): (0, 0),
        ("eve", "test-twice"): (2, 0),
    }
    with closing(sqlite3.connect(file)) as book, book:
        book.execute("update grade set manual_score = 1 where auto_score = 0")
    grade("eve", total=3).save(graded / "grades" / "eve" / "sums.json")
    exports.export(graded, tmp_path / "out", ["nbgrader"])
    assert scores()["eve", "test-total"] == (3, 1)  # and a human looks at it again
    assert len(scores()) == 5
    from contended.course import notebook

    with notebook.quiet():  # and as nbgrader itself reads it
        from nbgrader.api import Gradebook

        with Gradebook(f"sqlite:///{file}", course_id="contended") as gradebook:
            every = [s for n in ("sums", "counting") for s in gradebook.assignment_submissions(n)]
            got = {(s.student.id, s.assignment.name): (s.score, s.max_score) for s in every}
        gradebook.engine.dispose()  # now that the session has given its connection back
    # The score that a human gave goes first.
    assert got == {("ada", "sums"): (5, 5), ("eve", "sums"): (3, 5), ("ada", "counting"): (4, 4)}


def test_without_nbgrader_it_says_so(
    graded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(exports, "find_spec", lambda name: None)
    with pytest.raises(ContendedError, match="pip install nbgrader"):
        exports.export(graded, tmp_path / "out", ["canvas", "nbgrader"])
    assert not (tmp_path / "out").exists()
    assert main(["course", "export", str(graded), str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "canvas.csv" in said.out
    assert "gradebook cannot be written" in said.err
    assert not (tmp_path / "out" / "gradebook.db").exists()


def test_what_cannot_be_exported_is_said_before_anything_is_written(
    graded: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no form 'blackboard'; there are: gradescope, canvas"):
        exports.export(graded, tmp_path / "out", ["canvas", "blackboard"])
    with pytest.raises(UsageError, match="no grades in"):
        exports.export(tmp_path, tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is no folder"):
        exports.export(graded, tmp_path / "file")
    assert not (tmp_path / "out").exists()


def test_a_student_s_check_annotates_a_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = prove.Checked("", ("part",), [], grade=grade("you", twice=0), file="sums.ipynb")
    monkeypatch.setattr(prove, "check", lambda folder: seen)
    assert main(["course", "check", "labs/sums", "--github"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    found = formats.github("\n".join(lines))
    assert [command for command, _, _ in found] == ["error", "notice"]
    assert found[0][1]["file"] == "labs/sums/sums.ipynb"
    assert found[1][2] == "3 of 5 points"
