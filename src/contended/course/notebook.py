# SPDX-License-Identifier: MIT
"""A lab's notebook: which cell plays which part, what students see of it, what is executed.

nbgrader's conventions and its own preprocessors: a cell's part is in its metadata, solutions and
hidden tests stand between its markers.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import nbformat

from contended.course.lab import Lab
from contended.errors import UsageError

SETUP = "setup"
"""The tag of given cells that student code needs."""

MARKERS = re.compile(r"(BEGIN|END) (SOLUTION|STUB|HIDDEN TESTS)")
_SOLUTION = re.compile(r"### BEGIN SOLUTION.*?### END SOLUTION", re.S)
_HIDDEN = re.compile(r"### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", re.S)


@contextmanager
def quiet() -> Iterator[None]:
    """Nbgrader 0.9 imports and calls what its own dependencies call deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        # SQLAlchemy and traitlets have classes of their own for the same.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"nbgrader(\.|$)")
        yield


def read(lab: Lab) -> Any:
    """The lab's notebook as nbformat has it.

    Raises:
        UsageError: it is no notebook, or not one of this lab; the message says what is wrong.
    """
    try:
        text = lab.notebook.read_text(encoding="utf-8")
        book = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
        nbformat.validate(book)
    except Exception as error:  # nbformat raises what its parsers raise
        raise UsageError(f"{lab.notebook}: {str(error).splitlines()[0]}") from error
    for what in mistakes(lab, book):
        raise UsageError(f"{lab.notebook}: {what}")
    return book


def grade_id(cell: Any) -> str:
    """The name that nbgrader knows a cell by; empty for other cells."""
    return str(cell.get("metadata", {}).get("nbgrader", {}).get("grade_id", ""))


def _is(cell: Any, what: str) -> bool:
    return bool(cell.get("metadata", {}).get("nbgrader", {}).get(what, False))


def is_student(cell: Any) -> bool:
    """Whether students write it."""
    return _is(cell, "solution")


def is_test(cell: Any) -> bool:
    """Whether it is a test that counts."""
    return _is(cell, "grade") and not _is(cell, "solution")


def is_setup(cell: Any) -> bool:
    """Whether it is given code that student code needs."""
    tags = cell.get("metadata", {}).get("tags", [])
    return cell.cell_type == "code" and SETUP in tags


def mistakes(lab: Lab, book: Any) -> Iterator[str]:
    """What of a notebook does not agree with its lab.toml."""
    students = [grade_id(cell) for cell in book.cells if is_student(cell)]
    if lab.kind != "patch" and sorted(students) != sorted(lab.cells):
        yield f"its student cells are {students}, and lab.toml's cells {list(lab.cells)}"
    tests = {grade_id(c): c.metadata.nbgrader.get("points") for c in book.cells if is_test(c)}
    if lab.kind == "patch":
        if tests or students:
            yield "a patch is graded by its parts: no cell may be a test or a solution"
        return
    parts = {part.id: part.points for part in lab.parts}
    if list(tests.items()) != list(parts.items()):
        yield f"its tests are {tests}, and lab.toml's parts {parts}: same names, points and order"
    for cell in book.cells:
        name, tagged = grade_id(cell), is_setup(cell)
        if (is_test(cell) or tagged) and is_student(cell):
            yield f"the cell {name} is a student's and must be nothing else"
        if tagged and MARKERS.search(cell.source):
            yield f"the set-up cell {name} holds a solution or hidden tests"


def stub(lab: Lab) -> Any:
    """The notebook as students get it: no solution, no hidden test, no output; with checksums.

    Raises:
        UsageError: as `read`, or a marker is missing.
    """
    book = read(lab)
    with quiet():
        # It brings a web server and a database along, which only a release needs.
        from nbgrader.preprocessors import (
            CheckCellMetadata,
            ClearHiddenTests,
            ClearOutput,
            ClearSolutions,
            ComputeChecksums,
            LockCells,
        )

        steps = (CheckCellMetadata, LockCells, ClearSolutions, ClearOutput, ClearHiddenTests)
        for step in (*steps, ComputeChecksums):
            made = step()
            made.log = logging.getLogger("contended.course.nbgrader")
            made.log.setLevel(logging.CRITICAL)
            try:
                book, _ = made.preprocess(book, {"metadata": {"name": lab.slug}})
            except Exception as error:  # nbgrader raises RuntimeError and ValidationError
                raise UsageError(f"{lab.notebook}: {' '.join(str(error).split())}") from error
    book.metadata["contended"] = {"lab": lab.slug}
    nbformat.validate(book)
    return book


def write(book: Any) -> str:
    """A notebook's text, as JupyterLab would save it."""
    out = io.StringIO()
    nbformat.write(book, out)  # type: ignore[no-untyped-call]
    return out.getvalue()


def stubs(lab: Lab) -> dict[str, str]:
    """The text of each student cell as it is released."""
    return {grade_id(c): c.source for c in stub(lab).cells if is_student(c)}


def solutions(lab: Lab) -> dict[str, str]:
    """The text of each student cell as the instructor solves it."""
    return {grade_id(c): c.source for c in read(lab).cells if is_student(c)}


def secrets(lab: Lab) -> Iterator[str]:
    """The texts in a notebook that students must not see: solutions and hidden tests."""
    for cell in read(lab).cells:
        for region in (_SOLUTION, _HIDDEN):
            yield from region.findall(cell.source)
        if is_student(cell) and not _SOLUTION.search(cell.source):
            yield cell.source


def overlay(lab: Lab, cells: Mapping[str, str]) -> Any:
    """A clean copy of the notebook, hidden tests and all, with a student's cells in it."""
    book = read(lab)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if is_student(cell):
            cell.source = cells[grade_id(cell)]
    return book


def for_student(lab: Lab, cells: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What a student's process executes, in order: set-up cells and the student's own."""
    found = []
    for number, cell in enumerate(read(lab).cells):
        if is_setup(cell):
            found.append((grade_id(cell) or f"setup-{number}", str(cell.source)))
        elif is_student(cell) and cell.cell_type == "code":
            found.append((grade_id(cell), cells[grade_id(cell)]))
    return tuple(found)


def ids(lab: Lab) -> set[str]:
    """The ids that Jupyter knows the lab's own cells by."""
    return {str(cell.get("id")) for cell in read(lab).cells}
