# SPDX-License-Identifier: MIT
"""Grade a folder of submissions: `SUBMISSIONS/<student>/<lab>/`, as nbgrader collects them.

Each is graded in a process of its own, `python -m contended.course.grade TASK.json PARENT`, and its
grade written at once, with a digest of what it was made from: a grader that is killed goes on where
it was, and what has not changed is not graded again.
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
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from contended import child, cluster, machine, records
from contended.course import grades, lab, sandbox, submission
from contended.course.grades import Grade, PartGrade
from contended.course.lab import Lab
from contended.course.submission import Taken
from contended.errors import ContendedError, UsageError
from contended.records import Record

RECIPE = 2  # raised when all must be graded anew although nobody's work has changed

# A patch may have to wait for somebody else's build of the same tree; what it does itself is
# bounded by the deadlines of its boots and the CPU time of its compilers.
_DEADLINE_S = {"notebook": 300.0, "c": 300.0, "patch": 3600.0}
_CLEAN_UP_S = 15.0
_GRADER = (sys.executable, "-m", "contended.course.grade")


@dataclass(frozen=True, slots=True)
class GradingTask(Record):
    """One submission to be graded; `unsafe` is to do without a sandbox.

    `sandbox` is the mode of it that was asked for; empty: the best there. The folder `lab` must be,
    wherever this runs, at the same place and, by `lab_digest`, the same.
    """

    student: str
    lab: str
    digest: str
    lab_digest: str
    taken: Taken
    unsafe: bool
    sandbox: str = ""

    # What is handed in may be any bytes.
    __pydantic_config__: ClassVar = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}

    def graded(
        self, parts: list[PartGrade], seconds: float = 0.0, failed: str = "", ran: str = ""
    ) -> Grade:
        """Its grade, now; it `ran` in that mode of the sandbox."""
        about = (self.student, Path(self.lab).name, self.digest, list(self.taken.notes))
        return Grade(*about, parts, failed, machine.now(), seconds, sandbox=ran)


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
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> list[Grade]:
    """Grade all submissions of a folder, and write grades and feedback; the grades are in order.

    It has a folder for each student, with one for each lab in it; without `labs`, all are graded
    that any student has handed in. `jobs` notebooks are graded at once, 0: as many as there are
    CPUs; patches one after the other, since they are timed against each other. `dask` is a
    scheduler's address; its workers must see the labs at the same place. `progress` is told what is
    done, how much of it is done, and of how much.
    """
    if not submissions.is_dir():
        raise UsageError(f"there is no folder {submissions}")
    if dask is None:
        sandbox.require(unsafe)
    if labs is None:
        known = lab.slugs()
        names = [name for name in known if any(submissions.glob(f"*/{name}"))]
        if not names:
            need = f"it needs STUDENT/LAB/, with LAB one of {', '.join(known)}"
            raise UsageError(f"no submissions in {submissions}: {need}, or name the lab with --lab")
    chosen = [
        lab.load(lab.folder() / name) for name in (names if labs is None else lab.known(labs))
    ]
    folders = [path for path in submissions.iterdir() if path.is_dir() and path.name[0] != "."]
    students = sorted(path.name for path in folders if path.resolve() != out.resolve())
    if not students:
        raise UsageError(f"no student has a folder in {submissions}")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ContendedError(f"cannot write to {out}: {error.strerror}") from error
    with _alone(out):
        found: dict[tuple[str, str], Grade] = {}
        tasks: list[_Todo] = []
        for about in chosen:
            same = about.digest()
            for student in students:
                folder = submissions / student
                # A link here would show one student's work as another's.
                folder = folder if folder.is_symlink() else folder / about.slug
                task = _task(about, same, student, submission.take(about, folder), unsafe)
                old = None
                with suppress(ContendedError):
                    old = grades.load(out / "grades" / student / f"{about.slug}.json")
                if old is not None and old.digest == task.digest and not old.failed:
                    found[student, about.slug] = old
                else:
                    tasks.append((about, task))
        total = len(found) + len(tasks)
        with closing(_carry_out(tasks, jobs, dask)) as answers:
            for (about, task), answer in answers:
                found[task.student, about.slug] = _keep(out, about, task, answer)
                progress(f"{task.student}: {about.slug}", len(found), total)
        every = [found[key] for key in sorted(found)]
        write_tables(out, every)
    return every


_Todo = tuple[Lab, GradingTask]


def _task(about: Lab, same: str, student: str, taken: Taken, unsafe: bool) -> GradingTask:
    digest = taken.digest(about.slug, same, str(RECIPE), str(unsafe))
    mode = os.environ.get(sandbox.CHOICE, "")
    return GradingTask(student, str(about.folder), digest, same, taken, unsafe, mode)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    with (out / ".lock").open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ContendedError(f"another process is grading into {out}: wait for it") from error
        yield


def _keep(out: Path, about: Lab, task: GradingTask, answer: Graded) -> Grade:
    """Write a grade and what belongs to it; the grade last, since it says that all is there."""
    if answer.failed:
        grade = task.graded(grades.nothing(about, "not graded"), failed=answer.failed)
    else:
        grade = records.adapter(Grade).validate_json(answer.grade)
    place = Path(task.student) / about.slug
    texts = {out / "feedback" / place / f"{about.slug}.html": grades.page(about, grade)}
    if answer.notebook:
        texts[out / "autograded" / place / about.notebook.name] = answer.notebook
    texts[out / "grades" / f"{place}.json"] = grade.to_json()
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        records.write_whole(file, text)
    return grade


def write_tables(out: Path, every: Sequence[Grade]) -> None:
    """All grades in one CSV and one JSON file."""
    table = [["student", "lab", "part", "earned", "points", "reason"]]
    for grade in every:
        note = grade.failed and f"not graded: {grade.failed}"
        rows = [(part.id, part.earned, part.points, part.reason) for part in grade.parts]
        for row in (*rows, ("(all)", grade.earned, grade.points, note)):
            table.append([grade.student, grade.lab, *map(str, row)])
    text = io.StringIO()
    for line in table:
        # A spreadsheet must not compute what a student wrote.
        risky = [cell[:1] in tuple("=+-@\t\r") and not cell.isdecimal() for cell in line]
        csv.writer(text).writerow([f"'{c}" if r else c for c, r in zip(line, risky, strict=True)])
    records.write_whole(out / "grades.csv", text.getvalue())
    content = [json.loads(grade.to_json()) for grade in every]
    records.write_whole(out / "grades.json", json.dumps(content, indent=2) + "\n")


def _carry_out(
    tasks: Sequence[_Todo], jobs: int, dask: str | None
) -> Generator[tuple[_Todo, Graded], None, None]:
    if dask is not None:
        yield from _on_cluster(tasks, dask) if tasks else ()
        return
    notebooks = [each for each in tasks if each[0].kind != "patch"]
    patches = [each for each in tasks if each[0].kind == "patch"]
    # Patches afterwards: their latencies are measured, and need the machine for themselves.
    for some, many in ((notebooks, jobs or len(machine.allowed_cpus())), (patches, 1)):
        with ExitStack() as stack:
            stack.callback(_broken_off.clear)
            pool = stack.enter_context(ThreadPoolExecutor(many))
            # Whatever ends this block early: what has not begun does not begin.
            stack.callback(pool.shutdown, cancel_futures=True)
            # And what has begun ends; this comes first.
            stack.push(_end_all)
            futures = {pool.submit(in_process, *_order(*each)): each for each in some}
            for future in as_completed(futures):
                yield futures[future], future.result()


def _order(about: Lab, task: GradingTask) -> tuple[str, float]:
    return task.to_json(), _DEADLINE_S[about.kind]


def _on_cluster(tasks: Sequence[_Todo], address: str) -> Iterator[tuple[_Todo, Graded]]:
    with cluster.connected(address, len(tasks)) as client:
        futures: dict[Any, _Todo] = {
            client.submit(in_process, *_order(*each), pure=False): each for each in tasks
        }
        for future in cluster.done(futures):
            try:
                answer: Graded = future.result()
            except Exception as error:
                said = str(error).splitlines()[0] if str(error) else type(error).__name__
                answer = Graded(failed=f"the cluster lost it: {said}")
            yield futures[future], answer


_running: set[subprocess.Popen[bytes]] = set()
_broken_off = threading.Event()


def _end_all(kind: type[BaseException] | None, *_: object) -> None:
    """When grading is broken off, those who grade are in sessions of their own and go on."""
    if kind is not None:
        _broken_off.set()
        for process in list(_running):
            process.terminate()


def in_process(text: str, deadline_s: float) -> Graded:
    """Grade a task in a process of its own; whatever happens to that process is the answer."""
    with child.scratch() as place:
        (place / "task.json").write_text(text)
        log = place / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*_GRADER, str(place / "task.json"), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                env={**child.environment(), "TMPDIR": str(place)},
            )
        _running.add(process)
        if _broken_off.is_set():  # it may have begun just when all others were ended
            process.terminate()
        late = True
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(deadline_s)
                late = False
        finally:
            _running.discard(process)
            _end(process)
        with suppress(OSError):
            book = place / "autograded.ipynb"
            text = book.read_text() if book.exists() else ""
            return Graded((place / "grade.json").read_text(), text)
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
    task = _task(about, about.digest(), student, taken, unsafe)
    answer = in_process(*_order(about, task))
    if answer.failed:
        raise ContendedError(f"{about.slug} could not be graded: {answer.failed}")
    found: Grade = records.adapter(Grade).validate_json(answer.grade)
    return found


def main(argv: list[str]) -> int:
    """Grade what TASK.json says, for the process PARENT, and write grade.json beside it."""
    # Told to end, end in order: kernels and machines go with the blocks that started them.
    child.end_in_order(143, int(argv[1]))
    file = Path(argv[0])
    try:
        task = records.adapter(GradingTask).validate_json(file.read_bytes())
        start = time.monotonic()
        parts, book, ran = _judge(task)
    except ContendedError as error:
        records.write_whole(file.with_name("failed.txt"), str(error))
        return 1
    if book:
        records.write_whole(file.with_name("autograded.ipynb"), book)
    task.graded(parts, time.monotonic() - start, ran=ran).save(file.with_name("grade.json"))
    return 0


def _judge(task: GradingTask) -> tuple[list[PartGrade], str, str]:
    about = lab.load(Path(task.lab))
    if about.digest() != task.lab_digest:
        raise ContendedError(f"{task.lab} is not the same lab here as where grading was started")
    if task.taken.empty:
        why = "nothing could be taken from the submission: see the notes"
        return grades.nothing(about, why), "", ""
    if task.sandbox:
        os.environ[sandbox.CHOICE] = task.sandbox
    # Found out once: the kernel that asks the student's code has it from here.
    if (ran := sandbox.require(task.unsafe)) != sandbox.UNBOXED:
        os.environ[sandbox.CHOICE] = ran
    # Neither kind of lab should wait for what judges the other: nbgrader, or the kernel lab.
    if about.kind == "patch":
        from contended.course import patches

        content = task.taken.files[about.files[0]]
        verdicts, book = patches.judge(about, content, unsafe=task.unsafe), ""
    else:
        from contended.course import execute

        verdicts, book = execute.judge(about, task.taken, unsafe=task.unsafe)
    return grades.assemble(about, verdicts.__getitem__), book, ran


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
