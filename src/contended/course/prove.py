# SPDX-License-Identifier: MIT
"""Grade work beforehand: a student's by the visible tests, and what is known of a lab by all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from contended import tree
from contended.course import ask, exports, grade, lab, notebook, release, sandbox, submission
from contended.course.grades import Grade
from contended.course.lab import Lab
from contended.course.submission import Taken
from contended.errors import ContendedError, UsageError
from contended.show.table import Table


@dataclass(frozen=True, slots=True, repr=False)
class Checked(Table):
    """What the visible tests say of the saved work, part by part, and whether every part passed."""

    passed: bool = False
    grade: Grade | None = None
    file: str = ""  #: The file of the lab that a student works in.


def check(folder: str | Path = ".") -> Checked | None:
    """Run the visible tests of a lab's folder on what is saved; None if that is being graded."""
    if ask.current() is not None:
        return None
    place = Path(folder).resolve()
    if not (place / "lab.toml").is_file():
        raise UsageError(f"{place} holds no lab: name the folder with its lab.toml")
    named = place.name
    # What is wrong with it is said better of the submission.
    with suppress(OSError, ValueError, AttributeError):
        book = json.loads((place / f"{named}.ipynb").read_text(encoding="utf-8"))
        named = book.get("metadata", {}).get("contended", {}).get("lab", named)
    if named != place.name:
        raise UsageError(f"{place}: the folder of the lab {named} must be called {named}")
    about = lab.load(place)
    taken = submission.take(about, place)
    if taken.empty:
        raise ContendedError(" ".join(taken.notes))
    student = os.environ.get("USER", "") or "you"
    # It is the student's own code on the student's own machine.
    got = grade.one(about, taken, student=student, unsafe=bool(sandbox.problem()))
    said = [(part.title, " ".join(part.reason.split())) for part in got.parts]
    rows = [(title, "FAIL" if why else "pass", why) for title, why in said]
    head = ("part", "visible tests", "what is wrong")
    passed, file = got.earned == got.points, exports.place_of(about.slug, about)
    return Checked("", head, rows, got.notes, passed=passed, grade=got, file=file)


@dataclass(frozen=True, slots=True)
class Proof:
    """A submission by name, the points that each part must get, and what it got."""

    name: str
    expected: Mapping[str, int]
    grade: Grade

    @property
    def misses(self) -> list[str]:
        """The parts that got something else."""
        return [
            f"{self.name}: {part.id} got {part.earned} of {part.points} points instead of "
            f"{self.expected[part.id]}" + (f": {part.reason}" if part.reason else "")
            for part in self.grade.parts
            if part.earned != self.expected[part.id]
        ]


def known(about: Lab) -> Iterator[tuple[str, Mapping[str, int], Taken]]:
    """A lab's submissions of which the grade is known."""
    full = {part.id: part.points for part in about.parts}
    cells = notebook.students(notebook.read(about))
    files = {name: (about.folder / name).read_bytes() for name in about.files}
    if about.patch.solution:
        files[about.files[0]] = (tree.home() / about.patch.solution).read_bytes()
    yield "solution", full, Taken(cells, files)
    released = release.contents(about)
    stubs = {name: released[name] for name in about.files}
    yield "stub", dict.fromkeys(full, 0), Taken(notebook.stubs(about), stubs)
    for right in sorted(about.folder.glob("private/right/*.patch")):
        yield right.stem, full, Taken(cells, files | {about.files[0]: right.read_bytes()})
    for wrong in lab.wrong(about):
        yield wrong.name, wrong.points, Taken(cells | wrong.cells, files | wrong.files)


def prove(about: Lab, *, unsafe: bool = False) -> Iterator[Proof]:
    """Grade a lab's known submissions; raises ContendedError if one could not be graded at all."""
    for name, expected, taken in known(about):
        yield Proof(name, expected, grade.one(about, taken, student=name, unsafe=unsafe))
