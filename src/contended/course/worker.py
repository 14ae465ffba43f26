# SPDX-License-Identifier: MIT
"""Grade one submission: `python -m contended.course.worker TASK.json`.

Each submission has a process of its own, so that nothing of one reaches the next, and the grader
survives whatever happens in here.
"""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from contended import child, machine, records
from contended.course import grades, lab, sandbox
from contended.course.grades import Grade
from contended.course.lab import Lab
from contended.course.submission import Taken
from contended.errors import ContendedError
from contended.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Record):
    """One submission to be graded.

    Attributes:
        student: The folder's name.
        lab: The lab's folder, which must be at the same place wherever this runs.
        digest: Of what is graded and by what.
        lab_digest: Of the lab, to see that a worker elsewhere has the same.
        taken: What is graded.
        unsafe: Whether to do without a sandbox.
    """

    student: str
    lab: str
    digest: str
    lab_digest: str
    taken: Taken
    unsafe: bool

    # What is handed in may be any bytes.
    __pydantic_config__: ClassVar = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}


def grade(what: Task) -> tuple[Grade, str]:
    """Grade a submission, here and now.

    Returns:
        The grade, and the autograded notebook's text (empty for patches).

    Raises:
        ContendedError: it could not be graded: this machine lacks something.
    """
    start = time.monotonic()
    about = lab.load(Path(what.lab))
    if about.digest() != what.lab_digest:
        raise ContendedError(f"{what.lab} is not the same lab here as where grading was started")
    book = ""
    if what.taken.empty:
        reason = "nothing could be taken from the submission: see the notes"
        parts = grades.nothing(about, reason)
    else:
        sandbox.require(what.unsafe)
        parts, book = _judge(about, what)
    return (
        Grade(
            student=what.student,
            lab=about.slug,
            digest=what.digest,
            notes=list(what.taken.notes),
            parts=parts,
            failed="",
            graded=machine.now(),
            seconds=time.monotonic() - start,
        ),
        book,
    )


def _judge(about: Lab, what: Task) -> tuple[list[grades.PartGrade], str]:
    # Neither kind of lab should wait for what judges the other: nbgrader, or the kernel lab.
    book = ""
    if about.kind == "patch":
        from contended.course import patches

        verdicts = patches.judge(about, what.taken.files[about.files[0]], unsafe=what.unsafe)
    else:
        from contended.course import judge

        verdicts, book = judge.judge(about, what.taken, unsafe=what.unsafe)
    return grades.assemble(about, verdicts.__getitem__), book


def main(argv: list[str]) -> int:
    """Grade what TASK.json says, and write grade.json beside it."""
    # Told to end, end in order: kernels and machines go with the blocks that started them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    child.die_with_parent(signal.SIGTERM)
    file = Path(argv[0])
    try:
        found, book = grade(records.adapter(Task).validate_json(file.read_bytes()))
    except ContendedError as error:
        records.write_whole(file.with_name("failed.txt"), str(error))
        return 1
    if book:
        records.write_whole(file.with_name("autograded.ipynb"), book)
    records.write_whole(file.with_name("grade.json"), found.to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
