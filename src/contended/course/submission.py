# SPDX-License-Identifier: MIT
"""Take from a student's folder what is graded, and nothing else: it may hold anything.

So it is read by the few keys that matter; what is missing or odd becomes a note on the student's
feedback page, never an error of the grader's.
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

_NOTEBOOK_BYTES = 20 << 20
_FILE_BYTES = 1_000_000
_CELL_CHARS = 200_000


class NotTaken(Exception):
    """A file that cannot be taken; the message is for its author."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What is graded of a submission, and notes on what was odd about it, for the student.

    A cell that was not there is the stub, a file missing; `empty` is if nothing was there.
    """

    cells: Mapping[str, str]
    files: Mapping[str, bytes]
    notes: tuple[str, ...] = ()
    empty: bool = False

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
        return Taken(notebook.stubs(lab), {}, ("There is no folder with a submission.",), True)
    for name in ((lab.notebook.name,) if lab.cells else ()) + lab.files:
        try:
            if name == lab.notebook.name:
                cells = _cells(lab, folder / name, notes)
            else:
                files[name] = read_file(folder / name)
        except NotTaken as error:
            notes.append(str(error))
    return Taken(notebook.stubs(lab) | cells, files, tuple(notes), not cells and not files)


def read_file(path: Path, limit: int = _FILE_BYTES) -> bytes:
    """The content of a file that somebody else has put there, of at most `limit` bytes."""
    try:
        # Neither follow a link nor wait at a pipe's end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if path.is_symlink():
            raise NotTaken(f"{path.name} is a link: hand in the file itself.") from error
        raise NotTaken(f"{path.name} is missing.") from error
    seen = os.fstat(descriptor)
    if not stat.S_ISREG(seen.st_mode):
        os.close(descriptor)
        raise NotTaken(f"{path.name} is no file.")
    with os.fdopen(descriptor, "rb") as stream:
        if seen.st_size > limit:
            sizes = f"{seen.st_size / 1e6:.6g} MB; at most {limit / 1e6:.3g} MB are read"
            todo = " Clear its outputs and hand it in again." if path.suffix == ".ipynb" else ""
            raise NotTaken(f"{path.name} has {sizes}.{todo}")
        return stream.read(limit)


def _cells(lab: Lab, path: Path, notes: list[str]) -> dict[str, str]:
    book = _parsed(path)
    found: dict[str, list[tuple[int, str]]] = {}
    own, given = 0, {str(cell.get("id")) for cell in notebook.read(lab).cells}
    for number, cell in enumerate(book):
        name = _name(cell)
        if name in lab.cells:
            found.setdefault(name, []).append((number, _text(cell)))
        elif not name and cell.get("cell_type") == "code" and cell.get("id") not in given:
            own += bool(_text(cell).strip())
    if not found:
        there = sorted({_name(cell) for cell in book} - {""})
        seen = f"it has {', '.join(there[:6])}" if there else "it has none with a name"
        why = f"has none of this lab's cells ({', '.join(lab.cells)}; {seen})"
        raise NotTaken(f"{path.name} {why}: is it the notebook of another lab?")
    cells, places = {}, []
    for name in lab.cells:
        if name not in found:
            notes.append(f"The cell {name} is missing; it was graded as if it were empty.")
            continue
        if (times := len(found[name])) > 1:
            notes.append(f"The cell {name} is there {times} times; the first counts.")
        place, text = found[name][0]
        places.append(place)
        if len(text) > _CELL_CHARS:
            notes.append(f"The cell {name} is too long to be read; it counts as empty.")
        else:
            cells[name] = text
    if places != sorted(places):
        notes.append("The cells are not in the lab's order; they were put back into it.")
    if own:
        why = "what your solution needs must be in the cells of the lab."
        notes.append(f"Code cells that you added ({own}) were not taken: {why}")
    return cells


def _parsed(path: Path) -> list[dict[str, Any]]:
    try:
        book = json.loads(read_file(path, _NOTEBOOK_BYTES).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        why = f"is not in UTF-8 (byte {error.start}): save it with JupyterLab."
        raise NotTaken(f"{path.name} {why}") from error
    except RecursionError as error:
        raise NotTaken(f"{path.name} is no notebook: it is nested too deeply.") from error
    except ValueError as error:
        short = " It ends too early." if "Expecting" in str(error) else ""
        raise NotTaken(f"{path.name} is no notebook: {error}.{short}") from error
    cells = book.get("cells") if isinstance(book, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise NotTaken(f"{path.name} is no notebook of format 4: it has no list of cells.")
    return cells


def _name(cell: Mapping[str, Any]) -> str:
    about: object = cell
    for key in ("metadata", "nbgrader", "grade_id"):
        about = about.get(key) if isinstance(about, dict) else None
    return _whole(about)


def _text(cell: Mapping[str, Any]) -> str:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    return _whole(source)


def _whole(text: object) -> str:
    # half a surrogate pair is legal JSON, and no text
    return text.encode(errors="replace").decode() if isinstance(text, str) else ""
