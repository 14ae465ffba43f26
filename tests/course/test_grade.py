# SPDX-License-Identifier: MIT
"""A batch is graded to its end, whatever is in it and whatever happens meanwhile."""

from __future__ import annotations

import csv
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import toylabs
from support import PATIENCE_S, eventually

from contended.course import grade, grades, lab
from contended.course.grades import Grade, PartGrade
from contended.errors import ContendedError, UsageError

pytest_plugins = ("coursefixtures",)

RIGHT = toylabs.sums(toylabs.RIGHT_TOTAL, toylabs.RIGHT_TWICE)
COUNT = '#include "tick.h"\nvoid count(int n)\n{\n\tfor (int i = 0; i < n; i++)\n\t\ttick();\n}\n'


@pytest.mark.usefixtures("boxes")
def test_bad_input_is_reported_and_the_batch_goes_on(toys: Path, tmp_path: Path) -> None:
    there = tmp_path / "in"
    toylabs.submit(there, "cut-short", "sums", {"sums.ipynb": RIGHT[:-100]})
    toylabs.submit(there, "empty", "sums", {})
    toylabs.submit(there, "other-lab", "sums", {"sums.ipynb": toylabs.book()})
    toylabs.submit(there, "right", "sums", {"sums.ipynb": RIGHT})
    toylabs.submit(there, "right", "counting", {"count.c": COUNT})
    toylabs.submit(there, "right", "patching", {"fix.patch": b"--- a/fs/x.c\r\n+++ b/fs/x.c\r\n"})
    (there / ".ipynb_checkpoints").mkdir()
    (there / "a-file").write_text("no student")
    (there / "nothing").mkdir()
    found = {(g.student, g.lab): g for g in grade.run(there, tmp_path / "out")}
    students = ["cut-short", "empty", "nothing", "other-lab", "right"]
    assert sorted({student for student, _ in found}) == students
    assert {key: g.earned for key, g in found.items() if g.earned} == {
        ("right", "sums"): 5,
        ("right", "counting"): 4,
    }
    assert all(g.notes for g in found.values() if not g.earned and g.lab == "sums")
    assert "CRLF" in found["right", "patching"].parts[0].reason
    assert not any(g.failed for g in found.values())

    with (tmp_path / "out" / "grades.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    totals = {(r["student"], r["lab"]): r["earned"] for r in rows if r["part"] == "(all)"}
    assert totals == {key: str(g.earned) for key, g in found.items()}
    page = tmp_path / "out" / "feedback" / "right" / "sums" / "sums.html"
    assert "5 of 5 points" in page.read_text()
    book = tmp_path / "out" / "autograded" / "right" / "sums" / "sums.ipynb"
    sources = ["".join(cell["source"]) for cell in json.loads(book.read_text())["cells"]]
    assert toylabs.RIGHT_TOTAL in sources


@pytest.mark.usefixtures("boxes")
def test_a_grader_opens_no_port(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of two that are graded side by side, one could find its port taken, and would die.
    where = "from ipykernel.connect import get_connection_info\nconnection = get_connection_info()"
    monkeypatch.setattr(toylabs, "SETUP", f"{toylabs.SETUP}\n{where}")
    asked = 'assert json.loads(connection)["transport"] == "ipc", connection\n'
    monkeypatch.setattr(toylabs, "TEST_TOTAL", asked + toylabs.TEST_TOTAL)
    monkeypatch.setenv("CONTENDED_HOME", str(toylabs.home(tmp_path / "home", root)))
    toylabs.submit(tmp_path / "in", "ada", "sums", {"sums.ipynb": RIGHT})
    (found,) = grade.run(tmp_path / "in", tmp_path / "out")
    assert found.earned == 5, found


def test_a_part_counts_only_together_with_what_it_needs() -> None:
    about = lab.load(lab.folder() / "open-creat-unlazy")
    leaning = {part.id for part in about.parts if part.needs}
    assert leaning
    alone = grades.assemble(about, lambda part: grades.Verdict("lost" if part == "gain" else ""))
    assert {part.id for part in alone if part.earned == 0} == {"gain"} | leaning
    for part in alone:
        assert part.id not in leaning or part.reason.startswith("it counts only together")
    every = grades.assemble(about, lambda _: grades.Verdict())
    assert [part.earned for part in every] == [part.points for part in about.parts]


@pytest.mark.check
@pytest.mark.usefixtures("boxes")
def test_a_killed_grader_goes_on_where_it_was(toys: Path, tmp_path: Path) -> None:
    there, out = tmp_path / "in", tmp_path / "out"
    for student in ("ada", "bob", "eve"):
        toylabs.submit(there, student, "sums", {"sums.ipynb": RIGHT})
    command = [sys.executable, "-m", "contended.cli", "course", "grade", str(there)]
    command += ["--out", str(out), "--jobs", "1"]
    grader = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: any(out.glob("grades/*/sums.json")))
        assert eventually(lambda: bool(_workers(grader.pid)))
        workers = _workers(grader.pid)
    finally:
        grader.send_signal(signal.SIGKILL)
        grader.wait()
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    done = {file: file.read_text() for file in out.glob("grades/*/sums.json")}
    assert 1 <= len(done) < 3
    found = grade.run(there, out)
    assert [(g.student, g.earned) for g in found] == [("ada", 5), ("bob", 5), ("eve", 5)]
    assert {file: file.read_text() for file in done} == done


@pytest.mark.usefixtures("boxes")
def test_an_interrupted_grader_ends_at_once_and_in_order(toys: Path, tmp_path: Path) -> None:
    there = tmp_path / "in"
    forever = toylabs.sums("while True:\n    pass\n", "")
    toylabs.submit(there, "ada", "sums", {"sums.ipynb": forever})
    command = [sys.executable, "-m", "contended.cli", "course", "grade", str(there)]
    grader = subprocess.Popen(
        [*command, "--out", str(there / "out")], stderr=subprocess.PIPE, text=True
    )
    assert eventually(lambda: bool(_workers(grader.pid)))
    workers = _workers(grader.pid)
    grader.send_signal(signal.SIGINT)
    _, said = grader.communicate(timeout=PATIENCE_S)
    assert grader.returncode == 130
    assert "the grades so far are kept" in said
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), seconds=60)


def _workers(parent: int) -> list[int]:
    """Who grades for it; what it asks the sandbox before is another child."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            grades = b"contended.course.grade\0" in (place / "cmdline").read_bytes()
            started = (place / "stat").read_text().rpartition(")")[2].split()
            if grades and int(started[1]) == parent:
                found.append(int(place.name))
        except OSError:
            continue
    return found


def test_who_begins_while_all_others_are_ended_is_ended_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = subprocess.Popen

    def starts(*command: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*command, **options)
        grade._end_all(KeyboardInterrupt)
        return process

    monkeypatch.setattr(grade, "_broken_off", threading.Event())
    monkeypatch.setattr(grade, "_GRADER", (sys.executable, "-c", "import time; time.sleep(90)"))
    monkeypatch.setattr(subprocess, "Popen", starts)
    assert "process failed: it ended with status -15" in grade.in_process("{}", 60).failed


@pytest.mark.usefixtures("boxes")
def test_only_what_has_changed_is_graded_again(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graded: list[str] = []
    lost: set[str] = set()

    def instead(text: str, deadline_s: float) -> grade.Graded:
        task = json.loads(text)
        graded.append(task["student"])
        if task["student"] == "unlucky" and not lost:
            lost.add("unlucky")
            return grade.Graded(failed="the machine was switched off")
        return grade.Graded(grade=_made(task["student"], task["digest"]).to_json())

    monkeypatch.setattr(grade, "in_process", instead)
    there, out = tmp_path / "in", tmp_path / "out"
    for student in ("ada", "bob", "unlucky"):
        toylabs.submit(there, student, "sums", {"sums.ipynb": RIGHT})
    first = grade.run(there, out, jobs=1)
    assert [g.failed for g in first] == ["", "", "the machine was switched off"]
    assert "Not graded yet" in (out / "feedback/unlucky/sums/sums.html").read_text()
    graded.clear()
    toylabs.submit(there, "bob", "sums", {"sums.ipynb": toylabs.sums()})
    (out / "grades" / "ada" / "sums.json").write_text("{")
    assert not any(g.failed for g in grade.run(there, out, jobs=1))
    assert sorted(graded) == ["ada", "bob", "unlucky"]
    graded.clear()
    grade.run(there, out)
    assert graded == []
    (toys / "labs" / "sums" / "private" / "secret.json").write_text("[1]")
    try:
        grade.run(there, out)
    finally:
        (toys / "labs" / "sums" / "private" / "secret.json").write_text("[10, 20, 30]")
    assert sorted(graded) == ["ada", "bob", "unlucky"]


def _made(student: str, digest: str = "", **more: Any) -> Grade:
    part = PartGrade(id="test-total", title="Adds", points=3, earned=3)
    fields: dict[str, Any] = {"notes": [], "parts": [part], "failed": ""}
    return Grade(
        student=student, lab="sums", digest=digest, graded="2026", seconds=1.0, **fields | more
    )


def test_two_graders_do_not_write_into_one_folder(toys: Path, tmp_path: Path) -> None:
    toylabs.submit(tmp_path / "in", "ada", "sums", {})
    (tmp_path / "out").mkdir()
    with (
        grade._alone(tmp_path / "out"),
        pytest.raises(ContendedError, match="another process is grading"),
    ):
        grade.run(tmp_path / "in", tmp_path / "out", unsafe=True)


def test_what_is_asked_for_must_be_there(toys: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        grade.run(tmp_path / "nowhere", tmp_path / "out", unsafe=True)
    with pytest.raises(UsageError, match="no submissions in"):
        grade.run(tmp_path, tmp_path / "out", unsafe=True)
    with pytest.raises(UsageError, match="no lab 'x'; there are: counting, patching, sums"):
        grade.run(tmp_path, tmp_path / "out", labs=["x"], unsafe=True)
    assert not (tmp_path / "out").exists()


def test_a_worker_that_dies_is_a_reason_and_no_crash(tmp_path: Path) -> None:
    assert "grader's process failed" in grade.in_process("no json", 60).failed


@pytest.mark.parametrize("gone", [True, False])
def test_a_worker_whose_grader_ended_while_it_started_does_nothing(
    gone: bool, tmp_path: Path
) -> None:
    """It would go on for as long as a grade takes, with nobody to take it."""
    (tmp_path / "task.json").write_text("no task")
    parent = 1 if gone else os.getpid()
    command = [*grade._GRADER, str(tmp_path / "task.json"), str(parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert ("ValidationError" in done.stderr) is not gone


def test_a_worker_that_hangs_is_ended(toys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not done after 0 s" in grade.in_process("{}", 0.01).failed


def test_spreadsheets_compute_nothing_that_a_student_wrote(tmp_path: Path) -> None:
    evil = PartGrade(id="a", title="A", points=1, earned=0, reason="=HYPERLINK(1)")
    grade.write_tables(tmp_path, [_made("@eve", parts=[evil])])
    with (tmp_path / "grades.csv").open() as stream:
        rows = list(csv.reader(stream))
    assert not [cell for row in rows for cell in row if cell[:1] in tuple("=@+-")]


def test_feedback_shows_what_a_student_wrote_as_text(toys: Path) -> None:
    about = lab.load(toys / "labs" / "sums")
    evil = "<script>alert(1)</script>\x00\x1b[31m"
    part = PartGrade(id="test-total", title=evil, points=3, earned=0, reason=evil, detail=evil)
    page = grades.page(about, _made(evil, notes=[evil], parts=[part]))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\x00" not in page
    assert "Start at 0." in page


def test_a_damaged_grade_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "grade.json"
    _made("ada").save(file)
    assert grades.load(file).student == "ada"
    file.write_text(file.read_text().replace('"schema": 1', '"schema": 99'))
    with pytest.raises(ContendedError, match="schema 99"):
        grades.load(file)
    file.write_text("{}")
    with pytest.raises(ContendedError, match="no valid grade"):
        grades.load(file)


@pytest.mark.usefixtures("boxes")
# Dask closes sockets and loops in its own time; pytest makes errors of such warnings.
@pytest.mark.check
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_cluster_gives_the_same_grades(toys: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    there = tmp_path / "in"
    toylabs.submit(there, "ada", "sums", {"sums.ipynb": RIGHT})
    toylabs.submit(there, "bob", "sums", {"sums.ipynb": toylabs.sums(toylabs.RIGHT_TOTAL, "")})
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        env={"CONTENDED_HOME": os.environ["CONTENDED_HOME"]},
    ) as cluster:
        found = grade.run(there, tmp_path / "out", dask=cluster.scheduler_address)
    assert [(g.student, g.earned, g.failed) for g in found] == [("ada", 5, ""), ("bob", 3, "")]
