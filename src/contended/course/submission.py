# SPDX-License-Identifier: MIT
"""Take from a student's folder what is graded, and nothing else.

What comes in may be anything: cut short, in another encoding, another lab's, 200 MB, a link to
somewhere else. So it is read by the few keys that matter; what is missing or odd becomes a note on
the student's feedback page, never an error of the grader's.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contended.course import notebook
from contended.course.lab import Lab

NOTEBOOK_BYTES = 20 << 20
FILE_BYTES = 1 << 20
CELL_CHARS = 200_000


class Unreadable(Exception):
    """A file that cannot be taken; the message is for its author."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What is graded of a submission.

    Attributes:
        cells: Every student cell of the lab, by grade_id; what was not there is the stub.
        files: The files, by name; what was not there is missing here as well.
        notes: What was odd, in sentences for the student.
        empty: Whether nothing at all could be taken.
    """

    cells: Mapping[str, str]
    files: Mapping[str, bytes]
    notes: tuple[str, ...]
    empty: bool

    def digest(self, *more: str) -> str:
        """A digest of it, and of whatever else a grade depends on."""
        running = hashlib.sha256(json.dumps(more).encode())
        for name, text in sorted(self.cells.items()):
            running.update(f"{name}\0{text}\0".encode(errors="surrogatepass"))
        for name, content in sorted(self.files.items()):
            running.update(f"{name}\0".encode() + content + b"\0")
        running.update("\n".join(self.notes).encode(errors="surrogatepass"))
        return running.hexdigest()[:32]


def take(lab: Lab, folder: Path) -> Taken:
    """Read a submission."""
    notes: list[str] = []
    cells: dict[str, str] = {}
    files: dict[str, bytes] = {}
    if folder.is_symlink() or not folder.is_dir():
        notes.append("There is no folder with a submission.")
    else:
        if lab.cells:
            try:
                cells = _cells(lab, folder, notes)
            except Unreadable as error:
                notes.append(str(error))
        for name in lab.files:
            try:
                files[name] = read_file(folder / name, FILE_BYTES)
            except Unreadable as error:
                notes.append(str(error))
    empty = not cells and not files
    released = notebook.stubs(lab) if lab.cells else {}
    return Taken(cells={**released, **cells}, files=files, notes=tuple(notes), empty=empty)


def read_file(path: Path, limit: int) -> bytes:
    """The content of a file that somebody else has put there.

    Raises:
        Unreadable: it is missing, a link, a device, or too large.
    """
    try:
        # Neither follow a link nor wait at a pipe's end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if path.is_symlink():
            raise Unreadable(f"{path.name} is a link: hand in the file itself.") from error
        raise Unreadable(f"{path.name} is missing.") from error
    seen = os.fstat(descriptor)
    if not stat.S_ISREG(seen.st_mode):
        os.close(descriptor)
        raise Unreadable(f"{path.name} is no file.")
    with os.fdopen(descriptor, "rb") as stream:
        if seen.st_size > limit:
            raise Unreadable(
                f"{path.name} has {seen.st_size / 1e6:.0f} MB; at most {limit / 1e6:.0f} MB are "
                "read. Clear the outputs of a notebook and hand it in again."
            )
        return stream.read(limit)


def _cells(lab: Lab, folder: Path, notes: list[str]) -> dict[str, str]:
    """The student cells of a notebook, as far as they are there."""
    book = _parsed(folder / lab.notebook.name)
    found: dict[str, list[tuple[int, str]]] = {}
    own, given = 0, notebook.ids(lab)
    for number, cell in enumerate(book):
        name = _name(cell)
        if name in lab.cells:
            found.setdefault(name, []).append((number, _text(cell)))
        elif not name and cell.get("cell_type") == "code" and cell.get("id") not in given:
            own += bool(_text(cell).strip())
    if not found:
        there = sorted({_name(cell) for cell in book} - {""})
        wanted = ", ".join(lab.cells)
        seen = f"it has {', '.join(there[:6])}" if there else "it has none with a name"
        raise Unreadable(
            f"{lab.notebook.name} has none of this lab's cells ({wanted}; {seen}): is it the "
            "notebook of another lab?"
        )
    cells = {}
    for name in lab.cells:
        if name not in found:
            notes.append(f"The cell {name} is missing; it was graded as if it were empty.")
            continue
        if len(found[name]) > 1:
            notes.append(f"The cell {name} is there {len(found[name])} times; the first counts.")
        cells[name] = found[name][0][1]
        if len(cells[name]) > CELL_CHARS:
            notes.append(f"The cell {name} is too long to be read; it counts as empty.")
            del cells[name]
    places = [found[name][0][0] for name in lab.cells if name in found]
    if places != sorted(places):
        notes.append("The cells are not in the lab's order; they were put back into it.")
    if own:
        notes.append(
            f"Code cells that you added ({own}) were not taken: what your solution needs must be "
            "in the cells of the lab."
        )
    return cells


def _parsed(path: Path) -> list[dict[str, Any]]:
    content = read_file(path, NOTEBOOK_BYTES)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(
            f"{path.name} is not in UTF-8 (byte {error.start}): save it with JupyterLab."
        ) from error
    try:
        book = json.loads(text)
    except RecursionError as error:
        raise Unreadable(f"{path.name} is no notebook: it is nested too deeply.") from error
    except ValueError as error:
        short = " It ends too early." if "Expecting" in str(error) else ""
        raise Unreadable(f"{path.name} is no notebook: {error}.{short}") from error
    cells = book.get("cells") if isinstance(book, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise Unreadable(f"{path.name} is no notebook of format 4: it has no list of cells.")
    return cells


def _name(cell: Mapping[str, Any]) -> str:
    metadata = cell.get("metadata")
    about = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    name = about.get("grade_id") if isinstance(about, dict) else None
    return _whole(name)


def _text(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return _whole(source)


def _whole(text: object) -> str:
    """A text; half a surrogate pair, which is legal JSON, is none."""
    return text.encode(errors="replace").decode() if isinstance(text, str) else ""
