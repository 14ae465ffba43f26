# SPDX-License-Identifier: MIT
"""Grade a folder of submissions: `SUBMISSIONS/<student>/<lab>/`, as nbgrader collects them.

Every submission is graded in a process of its own and its grade is written as soon as it is there,
so a grader that is killed goes on where it was. A grade carries a digest of what it was made from:
what has not changed is not graded again.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contended import child, cluster, machine, records
from contended.course import feedback, grades, lab, sandbox, submission
from contended.course.grades import Grade
from contended.course.lab import Lab
from contended.course.submission import Taken
from contended.course.worker import Task
from contended.errors import ContendedError, UsageError

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""

RECIPE = 1
"""Raised when everything must be graded anew although nobody's work has changed."""

# A patch may have to wait for somebody else's build of the same tree; what it does itself is
# bounded by the deadlines of its boots and the CPU time of its compilers.
DEADLINE_S = {"notebook": 300.0, "c": 300.0, "patch": 3600.0}
_CLEAN_UP_S = 15.0


@dataclass(frozen=True, slots=True)
class Graded:
    """A process's answer: a grade, or why there is none; and the autograded notebook."""

    grade: str = ""
    notebook: str = ""
    failed: str = ""


def run(
    submissions: Path,
    out: Path,
    *,
    labs: Sequence[str] | None = None,
    jobs: int = 0,
    dask: str | None = None,
    unsafe: bool = False,
    progress: Progress | None = None,
) -> list[Grade]:
    """Grade all submissions of a folder.

    Args:
        submissions: A folder for each student, with a folder for each lab in it.
        out: Where grades and feedback are written.
        labs: Which labs; default: those that any student has handed in.
        jobs: How many notebooks are graded at once; 0: as many as there are CPUs. Patches are
            graded one after the other: they are timed against each other.
        dask: The address of a Dask scheduler, whose workers then do it. They must see the labs at
            the same place.
        unsafe: Run students' code without a sandbox.
        progress: Called with what is done, how much of it is done, and of how much.

    Returns:
        The grades, by student and lab.

    Raises:
        UsageError: there is no such folder or lab, or nothing to grade.
        ContendedError: there is no sandbox and `unsafe` is false, or somebody else is grading.
    """
    if not submissions.is_dir():
        raise UsageError(f"there is no folder {submissions}")
    if dask is None:
        sandbox.require(unsafe)
    chosen = [lab.load(lab.folder() / name) for name in _chosen(submissions, labs)]
    students = _students(submissions, out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ContendedError(f"cannot write to {out}: {error.strerror}") from error
    with _alone(out):
        found: dict[tuple[str, str], Grade] = {}
        tasks: list[Task] = []
        for about in chosen:
            same = about.digest()
            for student in students:
                taken = _taken(about, submissions / student)
                task = _task(about, same, student, taken, unsafe)
                old = _graded_before(out, student, about)
                if old is not None and old.digest == task.digest and not old.failed:
                    found[student, about.slug] = old
                else:
                    tasks.append(task)
        kinds = {str(about.folder): str(about.kind) for about in chosen}
        total = len(found) + len(tasks)
        with closing(_carry_out(tasks, kinds, jobs, dask)) as answers:
            for task, answer in answers:
                about = next(each for each in chosen if str(each.folder) == task.lab)
                grade = _keep(out, about, task, answer)
                found[grade.student, grade.lab] = grade
                if progress is not None:
                    progress(f"{grade.student}: {grade.lab}", len(found), total)
        every = [found[key] for key in sorted(found)]
        write_tables(out, every)
    return every


def _chosen(submissions: Path, labs: Sequence[str] | None) -> list[str]:
    known = lab.slugs()
    if labs is not None:
        for name in labs:
            if name not in known:
                raise UsageError(f"no lab {name!r}; there are: {', '.join(known)}")
        return list(dict.fromkeys(labs))
    there = [name for name in known if any(True for _ in submissions.glob(f"*/{name}"))]
    if not there:
        raise UsageError(
            f"no submissions in {submissions}: it needs STUDENT/LAB/, with LAB one of "
            f"{', '.join(known)}, or name the lab with --lab"
        )
    return there


def _students(submissions: Path, out: Path) -> list[str]:
    names = sorted(
        path.name
        for path in submissions.iterdir()
        if path.is_dir() and path.name[0] != "." and path.resolve() != out.resolve()
    )
    if not names:
        raise UsageError(f"no student has a folder in {submissions}")
    return names


def _task(about: Lab, same: str, student: str, taken: Taken, unsafe: bool) -> Task:
    return Task(
        student=student,
        lab=str(about.folder),
        digest=taken.digest(about.slug, same, str(RECIPE), str(unsafe)),
        lab_digest=same,
        taken=taken,
        unsafe=unsafe,
    )


def _taken(about: Lab, folder: Path) -> Taken:
    # A link here would show one student's work as another's.
    return submission.take(about, folder if folder.is_symlink() else folder / about.slug)


def _graded_before(out: Path, student: str, about: Lab) -> Grade | None:
    with suppress(ContendedError):
        return grades.load(_grade_file(out, student, about.slug))
    return None


def _grade_file(out: Path, student: str, slug: str) -> Path:
    return out / "grades" / student / f"{slug}.json"


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    with (out / ".lock").open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ContendedError(f"another process is grading into {out}: wait for it") from error
        yield


def _keep(out: Path, about: Lab, task: Task, answer: Graded) -> Grade:
    """Write a grade and what belongs to it; the grade last, since it says that all is there."""
    if answer.failed:
        grade = _failed(about, task, answer.failed)
    else:
        grade = records.adapter(Grade).validate_json(answer.grade)
    if answer.notebook:
        place = out / "autograded" / task.student / about.slug
        place.mkdir(parents=True, exist_ok=True)
        records.write_whole(place / about.notebook.name, answer.notebook)
    place = out / "feedback" / task.student / about.slug
    place.mkdir(parents=True, exist_ok=True)
    records.write_whole(place / f"{about.slug}.html", feedback.page(about, grade))
    file = _grade_file(out, task.student, about.slug)
    file.parent.mkdir(parents=True, exist_ok=True)
    grade.save(file)
    return grade


def _failed(about: Lab, task: Task, why: str) -> Grade:
    return Grade(
        student=task.student,
        lab=about.slug,
        digest=task.digest,
        notes=list(task.taken.notes),
        parts=grades.nothing(about, "not graded"),
        failed=why,
        graded=machine.now(),
        seconds=0.0,
    )


def write_tables(out: Path, every: Sequence[Grade]) -> None:
    """All grades in one CSV and one JSON file."""
    text = io.StringIO()
    csv.writer(text).writerows([[_harmless(cell) for cell in row] for row in grades.rows(every)])
    records.write_whole(out / "grades.csv", text.getvalue())
    content = [json.loads(grade.to_json()) for grade in every]
    records.write_whole(out / "grades.json", json.dumps(content, indent=2) + "\n")


def _harmless(cell: str) -> str:
    """A spreadsheet must not compute what a student wrote."""
    return f"'{cell}" if cell[:1] in tuple("=+-@\t\r") and not cell.isdecimal() else cell


def _carry_out(
    tasks: Sequence[Task], kinds: dict[str, str], jobs: int, dask: str | None
) -> Generator[tuple[Task, Graded], None, None]:
    if not tasks:
        return
    if dask is not None:
        yield from _on_cluster(tasks, kinds, dask)
        return
    jobs = jobs or len(machine.allowed_cpus())
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        single = stack.enter_context(ThreadPoolExecutor(1))
        # Whatever ends this block early: what has not begun does not begin.
        stack.callback(single.shutdown, cancel_futures=True)
        stack.callback(pool.shutdown, cancel_futures=True)
        # And what has begun ends; this comes first.
        stack.push(_end_all)
        notebooks = [task for task in tasks if kinds[task.lab] != "patch"]
        patches = [task for task in tasks if kinds[task.lab] == "patch"]
        futures = {_submit(pool, task, kinds): task for task in notebooks}
        for future in as_completed(futures):
            yield futures[future], future.result()
        # Only now: a patch's latencies are measured, and need the machine for themselves.
        futures = {_submit(single, task, kinds): task for task in patches}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _submit(pool: ThreadPoolExecutor, task: Task, kinds: dict[str, str]) -> Future[Graded]:
    return pool.submit(in_process, task.to_json(), DEADLINE_S[kinds[task.lab]])


def _on_cluster(
    tasks: Sequence[Task], kinds: dict[str, str], address: str
) -> Iterator[tuple[Task, Graded]]:
    with cluster.connected(address, len(tasks)) as client:
        futures: dict[Any, Task] = {
            client.submit(in_process, task.to_json(), DEADLINE_S[kinds[task.lab]], pure=False): task
            for task in tasks
        }
        for future in cluster.done(futures):
            try:
                answer: Graded = future.result()
            except Exception as error:
                said = str(error).splitlines()[0] if str(error) else type(error).__name__
                answer = Graded(failed=f"the cluster lost it: {said}")
            yield futures[future], answer


_running: set[subprocess.Popen[bytes]] = set()


def _end_all(kind: type[BaseException] | None, *_: object) -> None:
    """When grading is broken off, those who grade are in sessions of their own and go on."""
    if kind is not None:
        for process in list(_running):
            process.terminate()


def in_process(text: str, deadline_s: float) -> Graded:
    """Grade a task in a process of its own; whatever happens to that process is the answer."""
    with tempfile.TemporaryDirectory(prefix="contended-grade-") as scratch:
        place = Path(scratch)
        (place / "task.json").write_text(text)
        log = place / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "contended.course.worker", str(place / "task.json")],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                env={**child.environment(), "TMPDIR": scratch},
            )
            _running.add(process)
            try:
                process.wait(deadline_s)
                late = False
            except subprocess.TimeoutExpired:
                late = True
            finally:
                _running.discard(process)
                _end(process)
        with suppress(OSError):
            book = place / "autograded.ipynb"
            return Graded(
                grade=(place / "grade.json").read_text(),
                notebook=book.read_text() if book.exists() else "",
            )
        if late:
            return Graded(failed=f"it was not done after {deadline_s:.0f} s")
        with suppress(OSError):
            return Graded(failed=(place / "failed.txt").read_text())
        said = log.read_text(errors="replace").strip().splitlines()
        why = said[-1] if said else f"it ended with status {process.returncode}"
        return Graded(failed=f"the grader's process failed: {why[:500]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_CLEAN_UP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def one(about: Lab, taken: Taken, *, student: str, unsafe: bool) -> Grade:
    """Grade one submission now; nothing is written."""
    what = _task(about, about.digest(), student, taken, unsafe)
    answer = in_process(what.to_json(), DEADLINE_S[about.kind])
    if answer.failed:
        raise ContendedError(f"{about.slug} could not be graded: {answer.failed}")
    found: Grade = records.adapter(Grade).validate_json(answer.grade)
    return replace(found, student=student)
