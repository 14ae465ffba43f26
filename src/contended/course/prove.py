# SPDX-License-Identifier: MIT
"""Prove that a lab grades as it says: the solution gets all, the stub nothing, wrong ones lose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from contended import tree
from contended.course import grade, lab, notebook, release, submission
from contended.course.grades import Grade
from contended.course.lab import Lab
from contended.course.submission import Taken


@dataclass(frozen=True, slots=True)
class Proof:
    """One submission with a known grade, graded.

    Attributes:
        name: `solution`, `stub`, or the wrong solution's name.
        expected: The points that each part must get.
        grade: What it got.
    """

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
    cells = notebook.solutions(about) if about.cells else {}
    files = {name: (about.folder / name).read_bytes() for name in about.files}
    if about.patch.solution:
        files[about.files[0]] = (tree.home() / about.patch.solution).read_bytes()
    yield "solution", full, _taken(cells, files)
    released = release.contents(about)
    stubs = {name: released[name] for name in about.files}
    yield (
        "stub",
        dict.fromkeys(full, 0),
        _taken(notebook.stubs(about) if about.cells else {}, stubs),
    )
    for wrong in lab.wrong(about):
        yield wrong.name, wrong.points, _taken({**cells, **wrong.cells}, {**files, **wrong.files})


def _taken(cells: Mapping[str, str], files: Mapping[str, bytes]) -> Taken:
    return submission.Taken(cells=cells, files=files, notes=(), empty=False)


def prove(about: Lab, *, unsafe: bool = False) -> Iterator[Proof]:
    """Grade a lab's known submissions.

    Raises:
        ContendedError: one could not be graded at all.
    """
    for name, expected, taken in known(about):
        yield Proof(name, expected, grade.one(about, taken, student=name, unsafe=unsafe))
