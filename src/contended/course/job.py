# SPDX-License-Identifier: MIT
"""What the judge's kernel is told: whose work it judges, and by which lab.

A test cell says `course.call("reader", ...)` and nothing else. Where a student tries it out, there
is no job, and the call goes to the function in the same notebook. When it is graded, the grader has
put a job beside it, and the call goes to another process, in a sandbox.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from contended import records
from contended.errors import UsageError
from contended.records import Record

VARIABLE = "CONTENDED_COURSE_JOB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Record):
    """One submission that is being judged.

    Attributes:
        lab: The lab's folder, with all that is private.
        taken: The folder with the files that were taken from the submission.
        given: The folder with the files that student code finds where it runs.
        cells: What the student's process executes before anything else, in order: names and
            texts of set-up cells and of the student's.
        unsafe: Whether to do without a sandbox.
    """

    lab: str
    taken: str
    given: str
    cells: tuple[tuple[str, str], ...]
    unsafe: bool = False


def current() -> Job | None:
    """The job of this process; None in a student's notebook."""
    place = os.environ.get(VARIABLE)
    if not place:
        return None
    found: Job = records.adapter(Job).validate_json(Path(place).read_bytes())
    return found


def private(name: str) -> Path:
    """A file of the lab's folder `private/`, which only hidden tests use: students never see it.

    Raises:
        UsageError: this is not a lab that is being graded, or it has no such file.
    """
    now = current()
    path = Path(now.lab if now else ".") / "private" / name
    if not path.is_file():
        raise UsageError(f"no file {name!r} in the lab's folder private/")
    return path
