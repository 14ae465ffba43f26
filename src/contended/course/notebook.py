# SPDX-License-Identifier: MIT
"""A lab's notebook: which cell plays which part, what students see of it, what is executed.

A cell's part is in nbgrader's metadata; solutions and hidden tests stand between its markers.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import nbformat

from contended.course.lab import Lab
from contended.errors import UsageError

MARKERS = re.compile(r"(BEGIN|END) (SOLUTION|STUB|HIDDEN TESTS)")
_SOLUTION = re.compile(r"### BEGIN SOLUTION.*?### END SOLUTION", re.S)
_HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", re.S)


@contextmanager
def quiet() -> Iterator[logging.Logger]:
    """Silence what nbgrader's dependencies call deprecated; gives a logger that says nothing."""
    silent = logging.getLogger("contended.course.nbgrader")
    silent.setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", kind)
        # SQLAlchemy and traitlets have classes of their own for the same.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"nbgrader(\.|$)")
        warnings.filterwarnings("ignore", message="Object of type <Submitted.* not in session")
        yield silent


def parsed(text: str) -> Any:
    """A notebook as nbformat has it."""
    return nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]


def read(lab: Lab) -> Any:
    """The lab's notebook; a UsageError says why it is none, or not one of this lab."""
    try:
        book = parsed(lab.notebook.read_text(encoding="utf-8"))
        nbformat.validate(book)
    except Exception as error:  # nbformat raises what its parsers raise
        raise UsageError(f"{lab.notebook}: {str(error).splitlines()[0]}") from error
    for what in _mistakes(lab, book):
        raise UsageError(f"{lab.notebook}: {what}")
    return book


def _about(cell: Any, what: str) -> Any:
    return cell.get("metadata", {}).get("nbgrader", {}).get(what, "")


def grade_id(cell: Any) -> str:
    """The name that nbgrader knows a cell by; empty for other cells."""
    return str(_about(cell, "grade_id"))


def role(cell: Any) -> str:
    """Who writes a cell and what for: `student`, a `test` that counts, given code for `setup`."""
    if _about(cell, "solution"):
        return "student"
    if _about(cell, "grade"):
        return "test"
    return "setup" if _is_tagged(cell) else ""


def _is_tagged(cell: Any) -> bool:
    return cell.cell_type == "code" and "setup" in cell.get("metadata", {}).get("tags", [])


def students(book: Any) -> dict[str, str]:
    """The text of each student cell, by its name."""
    return {grade_id(c): str(c.source) for c in book.cells if role(c) == "student"}


def _mistakes(lab: Lab, book: Any) -> Iterator[str]:
    own = [grade_id(cell) for cell in book.cells if role(cell) == "student"]
    tests = {
        grade_id(c): c.metadata.nbgrader.get("points") for c in book.cells if role(c) == "test"
    }
    if lab.kind == "patch":
        if tests or own:
            yield "a patch is graded by its parts: no cell may be a test or a solution"
        return
    if sorted(own) != sorted(lab.cells):
        yield f"its student cells are {own}, and lab.toml's cells {list(lab.cells)}"
    parts = {part.id: part.points for part in lab.parts}
    if list(tests.items()) != list(parts.items()):
        yield f"its tests are {tests}, and lab.toml's parts {parts}: same names, points and order"
    for cell in filter(_is_tagged, book.cells):
        if role(cell) == "student":
            yield f"the cell {grade_id(cell)} is a student's and must be nothing else"
        if MARKERS.search(cell.source):
            yield f"the set-up cell {grade_id(cell)} holds a solution or hidden tests"


def stub(lab: Lab) -> Any:
    """The notebook as students get it: no solution, hidden test or output; with checksums."""
    book = read(lab)
    with quiet() as log:
        # It brings a web server and a database along, which only a release needs.
        from nbgrader import preprocessors as given

        steps = (given.CheckCellMetadata, given.LockCells, given.ClearSolutions, given.ClearOutput)
        for step in (*steps, given.ClearHiddenTests, given.ComputeChecksums):
            made = step()
            made.log = log
            try:
                book, _ = made.preprocess(book, {"metadata": {"name": lab.slug}})
            except Exception as error:  # nbgrader raises RuntimeError and ValidationError
                raise UsageError(f"{lab.notebook}: {' '.join(str(error).split())}") from error
    book.metadata["contended"] = {"lab": lab.slug}
    nbformat.validate(book)
    return book


def write(book: Any) -> str:
    """A notebook's text, as JupyterLab would save it."""
    return f"{nbformat.writes(book)}\n"  # type: ignore[no-untyped-call]


def stubs(lab: Lab) -> dict[str, str]:
    """The text of each student cell as it is released; none of a lab without such cells."""
    return students(stub(lab)) if lab.cells else {}


def secrets(lab: Lab) -> Iterator[str]:
    """The texts in a notebook that students must not see: solutions and hidden tests."""
    for cell in read(lab).cells:
        for region in (_SOLUTION, _HIDDEN):
            yield from region.findall(cell.source)
        if role(cell) == "student" and not _SOLUTION.search(cell.source):
            yield cell.source


def overlay(lab: Lab, cells: Mapping[str, str]) -> Any:
    """A clean copy of the notebook, hidden tests and all, with a student's cells in it."""
    book = read(lab)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if role(cell) == "student":
            cell.source = cells[grade_id(cell)]
    return book


def for_student(lab: Lab, cells: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What a student's process executes, in order: set-up cells and the student's own."""
    found = []
    for number, cell in enumerate(read(lab).cells):
        if _is_tagged(cell):
            found.append((grade_id(cell) or f"setup-{number}", str(cell.source)))
        elif role(cell) == "student" and cell.cell_type == "code":
            found.append((grade_id(cell), cells[grade_id(cell)]))
    return tuple(found)
