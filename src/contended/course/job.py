# SPDX-License-Identifier: MIT
"""What the judge's kernel is told: whose work it judges, and by which lab.

A test cell says `course.call("reader", ...)` and nothing else. Where a student tries it out, there
is no job, and the call goes to the function in the same notebook. When it is graded, the grader has
put a job beside it, and the call goes to another process, in a sandbox.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from contended.errors import UsageError

VARIABLE = "CONTENDED_COURSE_JOB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
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

    def save(self, path: Path) -> None:
        """Write it for the kernel to read."""
        path.write_text(json.dumps(asdict(self)))


def current() -> Job | None:
    """The job of this process; None in a student's notebook."""
    place = os.environ.get(VARIABLE)
    if not place:
        return None
    content = json.loads(Path(place).read_text())
    return Job(**{**content, "cells": tuple((name, text) for name, text in content["cells"])})


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
