# SPDX-License-Identifier: MIT
"""Grades as data: what a submission earned, part by part, and why not more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contended import records
from contended.course.lab import Lab
from contended.records import Record

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartGrade:
    """What a part earned.

    Attributes:
        reason: Why it was lost, for the student; empty if it was earned.
        detail: What was seen, at length: a compiler's words, a kernel's report.
    """

    id: str
    title: str
    points: int
    earned: int
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade(Record):
    """What a submission earned.

    Attributes:
        student: The folder's name.
        lab: The slug.
        digest: Of what was graded and by what: the same needs no grading again.
        notes: What was odd about the submission.
        parts: In the lab's order.
        failed: Why it could not be graded: trouble of the grader's, not of the student's. It is
            then graded again the next time.
        graded: When, in UTC.
        seconds: How long that took.
    """

    student: str
    lab: str
    digest: str
    notes: list[str]
    parts: list[PartGrade]
    failed: str
    graded: str
    seconds: float
    schema: int = SCHEMA

    @property
    def earned(self) -> int:
        """The points of all parts."""
        return sum(part.earned for part in self.parts)

    @property
    def points(self) -> int:
        """What could be earned."""
        return sum(part.points for part in self.parts)


def load(path: Path) -> Grade:
    """Read a saved grade.

    Raises:
        ContendedError: the file is missing, is not JSON, or does not fit the schema.
    """
    return records.load(Grade, path, "grade", SCHEMA, "grade again")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a part was passed; if not, why, and what was seen."""

    reason: str = ""
    detail: str = ""


def assemble(lab: Lab, judge: Callable[[str], Verdict]) -> list[PartGrade]:
    """A lab's parts with the points that the verdicts give, needs included."""
    verdicts = {part.id: judge(part.id) for part in lab.parts}
    return [
        PartGrade(
            id=part.id,
            title=part.title,
            points=part.points,
            earned=0 if verdict.reason else part.points,
            reason=verdict.reason,
            detail=verdict.detail,
        )
        for part, verdict in _with_needs(lab, verdicts)
    ]


def _with_needs(lab: Lab, verdicts: dict[str, Verdict]) -> Iterator[tuple[Any, Verdict]]:
    titles = {part.id: part.title for part in lab.parts}
    for part in lab.parts:
        lost = [titles[needed] for needed in part.needs if verdicts[needed].reason]
        if lost and not verdicts[part.id].reason:
            yield part, Verdict(f"it counts only together with: {', '.join(lost)}")
        else:
            yield part, verdicts[part.id]


def nothing(lab: Lab, reason: str) -> list[PartGrade]:
    """No points for any part, for one reason."""
    return assemble(lab, lambda _: Verdict(reason))


def rows(grades: Sequence[Grade]) -> list[list[str]]:
    """A table with a header: a row for each part of each grade."""
    table = [["student", "lab", "part", "earned", "points", "reason"]]
    for grade in grades:
        about = [grade.student, grade.lab]
        for part in grade.parts:
            table.append([*about, part.id, str(part.earned), str(part.points), part.reason])
        note = grade.failed and f"not graded: {grade.failed}"
        table.append([*about, "(all)", str(grade.earned), str(grade.points), note])
    return table
