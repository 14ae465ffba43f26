# SPDX-License-Identifier: MIT
"""The commands as they are called, a student's own check, and nbgrader on what we release."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import toylabs

from contended import course
from contended.cli import main
from contended.course import ask, lab
from contended.course.ask import StudentError
from contended.errors import UsageError

pytest_plugins = ("coursefixtures",)


@pytest.fixture
def mine(toys: Path, tmp_path: Path) -> Path:
    """A student's copies of the labs."""
    assert main(["course", "release", str(tmp_path / "out")]) == 0
    return tmp_path / "out" / "release"


def edit(folder: Path, **cells: str) -> None:
    """Write student cells as JupyterLab would save them."""
    (file,) = folder.glob("*.ipynb")
    book = json.loads(file.read_text())
    for cell in book["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if name in cells:
            cell["source"] = cells[name].splitlines(keepends=True)
    file.write_text(json.dumps(book))


def test_a_student_sees_what_fails_and_then_that_all_passes(
    mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    edit(mine / "sums", total=toylabs.RIGHT_TOTAL)
    assert main(["course", "check", str(mine / "sums")]) == 1
    out = capsys.readouterr().out
    assert "Adds a list       pass" in out
    assert "Doubles a number  FAIL           NotImplementedError" in out
    edit(mine / "sums", twice=toylabs.RIGHT_TWICE)
    monkeypatch.chdir(mine / "sums")
    assert main(["course", "check"]) == 0
    found = course.check()
    assert found is not None
    assert found.passed
    assert ">pass</td>" in found._repr_html_()


def test_a_check_says_what_it_cannot_check(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["course", "check", str(tmp_path)]) == 2
    assert "holds no lab" in capsys.readouterr().err
    (mine / "sums").rename(mine / "renamed")
    assert main(["course", "check", str(mine / "renamed")]) == 2
    assert "there is no renamed.ipynb" in capsys.readouterr().err
    (mine / "renamed").rename(mine / "sums")
    (mine / "sums" / "sums.ipynb").write_text("{")
    assert main(["course", "check", str(mine / "sums")]) == 2
    assert "does not appear to be JSON" in capsys.readouterr().err


def test_a_check_within_grading_does_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ask.GradingJob(lab="x", taken="x", given="x", cells=()).save(tmp_path / "job.json")
    monkeypatch.setenv(ask.JOB, str(tmp_path / "job.json"))
    assert course.check() is None


@pytest.mark.usefixtures("boxes")
def test_prove_and_grade_and_their_exit_status(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toylabs.submit(tmp_path / "in", "ada", "sums", {"sums.ipynb": "{"})
    command = ["course", "grade", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    assert main([*command, "--lab", "sums"]) == 0
    assert "ada      sums  0       5" in capsys.readouterr().out
    assert main(["course", "grade", str(tmp_path / "in"), "--out", "x", "--lab", "nothing"]) == 2
    assert main(["course", "prove", "nothing"]) == 2
    capsys.readouterr()
    assert main(["course", "prove", "counting"]) == 0
    assert "counting  stub        0       4" in capsys.readouterr().out


def test_without_a_sandbox_grading_refuses(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from contended.course import sandbox

    monkeypatch.setattr(sandbox, "problem", lambda: sandbox.MISSING)
    toylabs.submit(tmp_path / "in", "ada", "sums", {"sums.ipynb": "{"})
    command = ["course", "grade", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    assert main(command) == 1
    assert "apt-get install bubblewrap; or grade with --unsafe" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_in_a_notebook_the_same_calls_reach_its_own_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = sys.modules["__main__"].__dict__
    monkeypatch.setitem(names, "toy_pair", lambda a, b=1: (a, {b}))
    monkeypatch.setitem(names, "toy_value", 3)
    monkeypatch.setitem(names, "toy_wrong", lambda: 1 / 0)
    assert course.call("toy_pair", (1, 2), b=3) == [[1, 2], [3]]
    assert course.value("toy_value") == 3
    assert course.raises("toy_wrong") == "ZeroDivisionError"
    assert course.raises("toy_pair", 1) == ""
    with pytest.raises(StudentError, match="ZeroDivisionError: division by zero"):
        course.call("toy_wrong")
    with course.session() as student, pytest.raises(StudentError, match="run its cell"):
        student.call("toy_missing")
    with pytest.raises(UsageError, match="no file"):
        course.private("x")


def test_importing_the_course_is_light() -> None:
    code = (
        "import sys, contended.course, contended.course.student\n"
        "print([m for m in ('numpy', 'nbgrader', 'nbformat', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.check
@pytest.mark.usefixtures("boxes")
def test_nbgrader_releases_and_grades_it_as_usual(toys: Path, tmp_path: Path) -> None:
    place = tmp_path / "course"
    assert main(["course", "release", str(place), "--lab", "sums", "--nbgrader"]) == 0
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "HOME": str(tmp_path),
    }

    def nbgrader(*words: str) -> None:
        command = [sys.executable, "-m", "nbgrader", *words]
        done = subprocess.run(
            command, cwd=place, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]

    nbgrader("generate_assignment", "sums", "--force")
    released = nbformat.read(place / "release" / "sums" / "sums.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert "secret_answer" not in str(released)
    shutil.copytree(place / "release" / "sums", place / "submitted" / "ada" / "sums")
    # Right, but only for a user that no machine has: the one in the sandbox.
    boxed = "import os\n" + toylabs.RIGHT_TOTAL.replace(
        "    return", "    assert os.getuid() > 65000\n    return"
    )
    edit(place / "submitted" / "ada" / "sums", total=boxed)
    nbgrader("autograde", "sums")
    nbgrader("export")
    with (place / "grades.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    assert (row["student_id"], row["score"], row["max_score"]) == ("ada", "3.0", "5.0")
    assert lab.load(place / "release" / "sums").points == 5


def test_a_mode_of_the_sandbox_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from contended.course import grade, sandbox

    seen: list[str] = []

    def run(*_: object, **__: object) -> list[object]:
        seen.append(sandbox.chosen())
        return []

    monkeypatch.setenv(sandbox.CHOICE, "")  # put back afterwards
    monkeypatch.setattr(grade, "run", run)
    command = ["course", "grade", str(tmp_path), "--out", str(tmp_path / "out"), "--sandbox"]
    assert main([*command, "landlock"]) == 0
    assert seen == ["landlock"]
    with pytest.raises(SystemExit):
        main([*command, "docker"])
    assert "bubblewrap" in capsys.readouterr().err
