# SPDX-License-Identifier: MIT
"""Grades in the forms of the places where courses keep them.

Each form is written by what its place has published, and the tests hold it to that:

- Gradescope's results.json: https://gradescope-autograders.readthedocs.io/en/latest/specs/
- Canvas's CSV, as its importer reads it: lib/gradebook_importer.rb in
  https://github.com/instructure/canvas-lms
- Moodle's CSV: https://docs.moodle.org/en/Grade_import
- nbgrader's gradebook: https://nbgrader.readthedocs.io/en/stable/api/gradebook.html
- GitHub's annotations:
  https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

import csv
import io
import json
import os
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from contended.course import grades, lab, notebook
from contended.course.grades import Grade, PartGrade
from contended.course.lab import Lab
from contended.errors import ContendedError, UsageError
from contended.records import write_whole

NO_NBGRADER = "nbgrader is not installed, so its gradebook cannot be written: pip install nbgrader"

_RISKY = ("=", "+", "-", "@", "\t", "\r")


def installed() -> list[str]:
    """The forms that can be written here."""
    return [form for form in _FORMS if form != "nbgrader" or find_spec("nbgrader")]


def export(folder: Path, out: Path, forms: Sequence[str] | None = None) -> list[Path]:
    """Write the grades that `contended course grade --out FOLDER` made; by default in all forms.

    What could not be graded is in none of them: nobody gets a zero for trouble of the grader's. An
    nbgrader gradebook that is there is brought up to date.
    """
    wanted = list(installed() if forms is None else dict.fromkeys(forms))
    for form in wanted:
        if form not in _FORMS:
            raise UsageError(f"no form {form!r}; there are: {', '.join(_FORMS)}")
        if form not in installed():
            raise ContendedError(NO_NBGRADER)
    files = sorted((folder / "grades").glob("*/*.json"))
    if not files:
        made = "contended course grade SUBMISSIONS --out"
        raise UsageError(f"no grades in {folder}: name the folder that {made} wrote")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is no folder: name another")
    every = [grade for grade in map(grades.load, files) if not grade.failed]
    try:
        out.mkdir(parents=True, exist_ok=True)
        return [path for form in wanted for path in _FORMS[form](every, out)]
    except OSError as error:
        raise ContendedError(f"cannot write to {out}: {error.strerror}") from error


def _known(slug: str) -> Lab | None:
    """The lab of a grade, if it is still there: it has the hints, and the names of files."""
    with suppress(ContendedError):
        return lab.load(lab.folder() / slug) if slug in lab.slugs() else None
    return None


def plain(text: str) -> str:
    """A text without the control characters that none of these places shows."""
    return "".join(c for c in text if c in "\n\t" or c >= " ")


# --- Gradescope ----------------------------------------------------------------------------------


def results(grade: Grade, hints: Mapping[str, str] | None = None, said: str = "") -> dict[str, Any]:
    """A grade as Gradescope's results.json; `said` stands before the notes."""
    words = [said, *grade.notes]
    return {
        "score": grade.earned,
        "execution_time": round(grade.seconds),
        "output": plain("\n".join(filter(None, words))),
        "output_format": "text",
        "visibility": "visible",
        # What a grader prints is for whoever runs it.
        "stdout_visibility": "hidden",
        "tests": [_test(part, (hints or {}).get(part.id, "")) for part in grade.parts],
        "extra_data": {"lab": grade.lab, "digest": grade.digest, "graded": grade.graded},
    }


def _test(part: PartGrade, hint: str) -> dict[str, Any]:
    lost = part.earned < part.points
    words = [part.reason, f"Hint: {hint}" if lost and hint else "", part.detail]
    return {
        "name": plain(part.title),
        "name_format": "text",
        "score": part.earned,
        "max_score": part.points,
        "status": "failed" if lost else "passed",
        "output": plain("\n\n".join(filter(None, words))),
        "output_format": "text",
        "visibility": "visible",
    }


def _gradescope(every: Sequence[Grade], out: Path) -> list[Path]:
    made = []
    for grade in every:
        about = _known(grade.lab)
        hints = {part.id: part.hint for part in about.parts} if about else {}
        text = json.dumps(results(grade, hints), indent=2) + "\n"
        made.append(_put(out / "gradescope" / grade.student / grade.lab / "results.json", text))
    return made


# --- Learning platforms --------------------------------------------------------------------------


def _cell(text: str) -> str:
    """A student's name as a spreadsheet must show it: as text, never as a formula."""
    return f"'{text}" if text[:1] in _RISKY else text


def _sheet(every: Sequence[Grade]) -> tuple[dict[str, int], dict[str, dict[str, Grade]]]:
    """The labs with their points, and each student's grades by lab."""
    points: dict[str, int] = {}
    students: dict[str, dict[str, Grade]] = {}
    for grade in sorted(every, key=lambda grade: (grade.lab, grade.student)):
        points[grade.lab] = grade.points
        students.setdefault(grade.student, {})[grade.lab] = grade
    return points, dict(sorted(students.items()))


def _csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def canvas(every: Sequence[Grade]) -> str:
    """A table for Canvas: a column a lab, students by their login, and what can be earned."""
    points, students = _sheet(every)
    known = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    rows = [[*known, *points], ["    Points Possible", "", "", "", "", *map(str, points.values())]]
    for student, earned in students.items():
        marks = [str(earned[slug].earned) if slug in earned else "" for slug in points]
        rows.append([_cell(student), "", "", _cell(student), "", *marks])
    return _csv(rows)


def moodle(every: Sequence[Grade]) -> str:
    """A table for Moodle: a column a lab, and one with why points were lost, to map as feedback."""
    points, students = _sheet(every)
    rows = [["username", *(name for slug in points for name in (slug, f"{slug} feedback"))]]
    for student, earned in students.items():
        row = [_cell(student)]
        for slug in points:
            row += _marked(earned[slug]) if slug in earned else ["", ""]
        rows.append(row)
    return _csv(rows)


def _marked(grade: Grade) -> list[str]:
    lost = [f"{part.title}: {part.reason}" for part in grade.parts if part.reason]
    # Moodle drops a grade whose feedback column is mapped and empty.
    said = " | ".join(" ".join(plain(text).split()) for text in lost) or "all points"
    return [str(grade.earned), _cell(said)]


# --- nbgrader ------------------------------------------------------------------------------------


@contextmanager
def _scripts_on_path() -> Iterator[None]:
    """For nbgrader, which starts a script that was installed with it, by its name alone."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join((sysconfig.get_path("scripts"), before))
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _nbgrader(every: Sequence[Grade], out: Path) -> list[Path]:
    """Bring a gradebook up to date; what a human has graded by hand stays, marked for review."""
    file = out / "gradebook.db"
    place = f"sqlite:///{file.resolve()}"
    with notebook.quiet(), _scripts_on_path():
        from nbgrader.api import Gradebook, MissingEntry

        with ExitStack() as after, Gradebook(place, course_id="contended") as book:
            # The engine's connections outlive the session, and warn when they are collected.
            after.callback(book.engine.dispose)
            for slug in dict.fromkeys(grade.lab for grade in every):
                book.update_or_create_assignment(slug)
                book.update_or_create_notebook(slug, slug)
                (first, *_) = (grade for grade in every if grade.lab == slug)
                for part in first.parts:
                    about = {"max_score": part.points, "cell_type": "code"}
                    book.update_or_create_grade_cell(part.id, slug, slug, **about)
            for grade in every:
                book.update_or_create_student(grade.student)
                book.update_or_create_submission(grade.lab, grade.student)
                for part in grade.parts:
                    try:
                        entry = book.find_grade(part.id, grade.lab, grade.lab, grade.student)
                    except MissingEntry as error:
                        old = f"{file} has {grade.student}'s {grade.lab} from before it had"
                        todo = f"nbgrader db submission remove {grade.lab} {grade.student}"
                        raise ContendedError(f"{old} the part {part.id}: {todo}") from error
                    entry.auto_score = part.earned
                    entry.needs_manual_grade = entry.manual_score is not None
            book.db.commit()
    return [file]


# --- GitHub --------------------------------------------------------------------------------------


def _escaped(text: str, *, value: bool = False) -> str:
    """A text that stays one workflow command, whatever a student wrote into it."""
    text = plain(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if value else text


def commands(grade: Grade, place: str) -> list[str]:
    """A grade as workflow commands: an error for each part that was lost, and the total.

    `place` is the file to show them at, relative to the repository.
    """
    at = f"file={_escaped(place, value=True)},line=1"
    lines = [
        f"::error {at},title={_escaped(part.title, value=True)}::{_escaped(part.reason)}"
        for part in grade.parts
        if part.earned < part.points
    ]
    lines += [f"::warning {at}::{_escaped(note)}" for note in grade.notes]
    total = f"{grade.earned} of {grade.points} points"
    return [*lines, f"::notice title={_escaped(grade.lab, value=True)}::{total}"]


def place_of(slug: str, about: Lab | None) -> str:
    """The file of a lab that a student works in."""
    return about.files[0] if about and about.files else f"{slug}.ipynb"


def _github(every: Sequence[Grade], out: Path) -> list[Path]:
    made = []
    for grade in every:
        place = f"{grade.student}/{grade.lab}/{place_of(grade.lab, _known(grade.lab))}"
        text = "\n".join(commands(grade, place)) + "\n"
        made.append(_put(out / "github" / grade.student / f"{grade.lab}.txt", text))
    return made


def _put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    return path


_FORMS: dict[str, Callable[[Sequence[Grade], Path], list[Path]]] = {
    "gradescope": _gradescope,
    "canvas": lambda every, out: [_put(out / "canvas.csv", canvas(every))],
    "moodle": lambda every, out: [_put(out / "moodle.csv", moodle(every))],
    "nbgrader": _nbgrader,
    "github": _github,
}
