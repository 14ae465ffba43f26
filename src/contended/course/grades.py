# SPDX-License-Identifier: MIT
"""Grades: what a submission earned, part by part, and why not more; and a page for the student."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from contended import records
from contended.course.lab import Lab, Part
from contended.records import Record

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class PartGrade:
    """What a part earned; if it was lost, `reason` says why to the student, `detail` at length."""

    id: str
    title: str
    points: int
    earned: int
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Grade(Record):
    """What a submission earned, when (UTC) it was graded, and in how many seconds.

    `digest` is of what was graded and by what; `failed` is trouble of the grader's, to be retried;
    `sandbox` is the mode in which it was run, empty if nothing was.
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
    sandbox: str = ""

    @property
    def earned(self) -> int:
        """The points of all parts."""
        return sum(part.earned for part in self.parts)

    @property
    def points(self) -> int:
        """What could be earned."""
        return sum(part.points for part in self.parts)


def load(path: Path) -> Grade:
    """Read a saved grade; raises ContendedError if it is missing or does not fit the schema."""
    return records.load(Grade, path, "grade", SCHEMA, "grade again")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a part was passed; if not, why, and what was seen."""

    reason: str = ""
    detail: str = ""


def assemble(lab: Lab, judge: Callable[[str], Verdict]) -> list[PartGrade]:
    """A lab's parts with the points that the verdicts give, needs included."""
    verdicts = {part.id: judge(part.id) for part in lab.parts}
    titles = {part.id: part.title for part in lab.parts}
    parts = []
    for part in lab.parts:
        verdict = verdicts[part.id]
        lost = [titles[needed] for needed in part.needs if verdicts[needed].reason]
        if lost and not verdict.reason:
            verdict = Verdict(f"it counts only together with: {', '.join(lost)}")
        earned = 0 if verdict.reason else part.points
        judged = (earned, verdict.reason, verdict.detail)
        parts.append(PartGrade(part.id, part.title, part.points, *judged))
    return parts


def nothing(lab: Lab, reason: str) -> list[PartGrade]:
    """No points for any part, for one reason."""
    return assemble(lab, lambda _: Verdict(reason))


_STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 0; }
section { border-left: 0.3rem solid #b34700; padding: 0.2rem 1rem; margin: 1.2rem 0; }
section.full { border-color: #00664b; }
pre { background: #f4f4f4; padding: 0.7rem; overflow-x: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.points { float: right; font-weight: bold; }
@media (prefers-color-scheme: dark) {
  body { color: #e8e8e8; background: #161616; } pre { background: #262626; }
  section { border-color: #ff9f5a; } section.full { border-color: #4fd1a5; } }
"""


def page(lab: Lab, grade: Grade) -> str:
    """A student's feedback: a page of HTML that needs nothing else, with all text escaped."""
    notes = "".join(f"<li>{_text(note)}</li>" for note in grade.notes)
    told = f"<h2>About what you handed in</h2><ul>{notes}</ul>" if notes else ""
    parts = "".join(map(_section, lab.parts, grade.parts))
    ran = f", run in the sandbox \u201c{_text(grade.sandbox)}\u201d" if grade.sandbox else ""
    failed = _shown("<p><strong>Not graded yet:</strong> {}</p>", grade.failed)
    # No script, no picture, nothing from elsewhere: even if something slipped through.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(lab.title)}: {grade.earned} of {grade.points} points</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{_text(lab.title)}</h1>
<p>{_text(grade.student)}: <strong>{grade.earned} of {grade.points} points</strong>,
graded {_text(grade.graded)}{ran}.</p>
{failed}{told}
{parts}</body>
</html>
"""


def _section(about: Part, part: PartGrade) -> str:
    lines = [
        f'<section class="{"full" if part.earned == part.points else "lost"}">',
        f'<span class="points">{part.earned} / {part.points}</span>',
        f"<h2>{_text(part.title)}</h2><p>{_text(about.rubric)}</p>",
        _shown("<p><strong>Lost because:</strong> {}</p>", part.reason),
        _shown("<p><strong>Hint:</strong> {}</p>", about.hint if part.reason else ""),
        _shown("<details><summary>What was seen</summary><pre>{}</pre></details>", part.detail),
        "</section>\n",
    ]
    return "\n".join(filter(None, lines))


def _shown(form: str, text: str) -> str:
    return form.format(_text(text)) if text else ""


def _text(text: str) -> str:
    # without the control characters that HTML does not know
    return escape("".join(c for c in text if c in "\n\t" or c >= " "))
