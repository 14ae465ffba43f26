# SPDX-License-Identifier: MIT
"""What a student runs: the visible tests on what is saved, as a table.

The same judge as the grader's, on the student's own copy. So it tells what a test cell alone cannot
tell: whether the work still stands when the kernel is started anew, and nothing else is there.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from contended.course import grade, job, lab, sandbox, submission
from contended.course.grades import Grade
from contended.errors import ContendedError, UsageError
from contended.show.table import Table


@dataclass(frozen=True, slots=True)
class Checked:
    """What the visible tests say of the saved work."""

    grade: Grade
    sandboxed: bool

    @property
    def passed(self) -> bool:
        """Whether every part does."""
        return self.grade.earned == self.grade.points

    def table(self) -> Table:
        """What they say, part by part."""
        rows = [
            (part.title, "FAIL" if part.reason else "pass", " ".join(part.reason.split()))
            for part in self.grade.parts
        ]
        return Table("", ("part", "visible tests", "what is wrong"), rows, self.grade.notes)

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def check(folder: str | Path = ".") -> Checked | None:
    """Run the visible tests of the lab in a folder on what is saved there.

    Args:
        folder: A student's copy of a lab; default: the working directory, as in its notebook.

    Returns:
        What they say; None within a notebook that is being graded.

    Raises:
        UsageError: it is no lab's folder.
        ContendedError: the tests could not be run.
    """
    if job.current() is not None:
        return None
    place = Path(folder).resolve()
    if not (place / "lab.toml").is_file():
        raise UsageError(f"{place} holds no lab: name the folder with its lab.toml")
    _see_that_it_is_a_copy(place)
    about = lab.load(place)
    # It is the student's own code on the student's own machine.
    boxed = not sandbox.problem()
    taken = submission.take(about, place)
    if taken.empty:
        raise ContendedError(" ".join(taken.notes))
    student = os.environ.get("USER", "") or "you"
    return Checked(grade.one(about, taken, student=student, unsafe=not boxed), boxed)


def _see_that_it_is_a_copy(place: Path) -> None:
    try:
        book = json.loads((place / f"{place.name}.ipynb").read_text(encoding="utf-8"))
        named = book.get("metadata", {}).get("contended", {}).get("lab", place.name)
    except (OSError, ValueError, AttributeError):
        return  # the submission's own words say it better
    if named != place.name:
        raise UsageError(f"{place}: the folder of the lab {named} must be called {named}")
