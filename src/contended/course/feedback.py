# SPDX-License-Identifier: MIT
"""A student's feedback: one page of HTML that needs nothing else."""

from __future__ import annotations

from html import escape

from contended.course.grades import Grade, PartGrade
from contended.course.lab import Lab

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
    """The page; everything in it that came from a submission is escaped."""
    notes = "".join(f"<li>{_text(note)}</li>" for note in grade.notes)
    parts = "".join(_part(lab, part) for part in grade.parts)
    failed = (
        f"<p><strong>Not graded yet:</strong> {_text(grade.failed)}</p>" if grade.failed else ""
    )
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
graded {_text(grade.graded)}.</p>
{failed}{f"<h2>About what you handed in</h2><ul>{notes}</ul>" if notes else ""}
{parts}</body>
</html>
"""


def _part(lab: Lab, part: PartGrade) -> str:
    about = next(each for each in lab.parts if each.id == part.id)
    lines = [f'<section class="{"full" if part.earned == part.points else "lost"}">']
    lines.append(f'<span class="points">{part.earned} / {part.points}</span>')
    lines.append(f"<h2>{_text(part.title)}</h2><p>{_text(about.rubric)}</p>")
    if part.reason:
        lines.append(f"<p><strong>Lost because:</strong> {_text(part.reason)}</p>")
        if about.hint:
            lines.append(f"<p><strong>Hint:</strong> {_text(about.hint)}</p>")
    if part.detail:
        lines.append(
            f"<details><summary>What was seen</summary><pre>{_text(part.detail)}</pre></details>"
        )
    return "\n".join([*lines, "</section>\n"])


def _text(text: str) -> str:
    """Text for HTML: escaped, without the control characters that HTML does not know."""
    return escape("".join(c for c in text if c in "\n\t" or c >= " "))
