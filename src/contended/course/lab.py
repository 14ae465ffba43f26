# SPDX-License-Identifier: MIT
"""What `labs/<slug>/lab.toml` says; a mistake in it is one line that names file and key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from contended import records, tree
from contended.errors import ContendedError, UsageError

PRIVATE = ("private", "wrong")  # folders of a lab that students never see

ALLOWED = ("fs/", "block/", "lib/", "include/linux/")  # where a patch may change the kernel at all

_SKIPPED = ("__pycache__", ".ipynb_checkpoints")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is graded for itself: all its points or none, and none without the parts it `needs`.

    In a notebook `id` is the test cell's; of a patch, a `step` or the outcomes of `runs` must hold.
    Of a run `RUN/LABEL` only those of that label, which then are no other part's.
    """

    id: str
    title: str
    points: int
    rubric: str
    hint: str = ""
    step: Literal["", "applies", "builds", "boots"] = ""
    runs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CRules:
    """What a student's object file must define, may use, and if it may keep data by itself."""

    exports: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    static_data: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchRules:
    """Where a patch may change the kernel, and the instructor's, which a student's copy lacks."""

    allow: tuple[str, ...] = ALLOWED
    solution: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A lab, as its lab.toml describes it; `cells` and `files` are taken from a submission."""

    folder: Path
    slug: str
    title: str
    kind: Literal["notebook", "c", "patch"]
    minutes: int
    objectives: tuple[str, ...]
    parts: tuple[Part, ...]
    cells: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    c: CRules = CRules()
    patch: PatchRules = PatchRules()

    @property
    def notebook(self) -> Path:
        """The lab's notebook."""
        return self.folder / f"{self.slug}.ipynb"

    @property
    def points(self) -> int:
        """What can be earned."""
        return sum(part.points for part in self.parts)

    @property
    def labels(self) -> frozenset[str]:
        """Each `RUN/LABEL` that a part has for itself."""
        return frozenset(name for part in self.parts for name in part.runs if "/" in name)

    def material(self) -> Iterator[str]:
        """The files that students get, relative to the folder, sorted."""
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if path.is_file() and not {*PRIVATE, *_SKIPPED} & set(name.parts):
                yield name.as_posix()

    def private(self) -> list[Path]:
        """The files that only hidden tests use, sorted."""
        return sorted(path for path in (self.folder / "private").rglob("*") if path.is_file())

    def digest(self) -> str:
        """A digest of all that a grade of this lab depends on, but the submission."""
        running = hashlib.sha256()
        for file in (*(self.folder / name for name in self.material()), *self.private()):
            running.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
        return running.hexdigest()[:32]


def folder() -> Path:
    """Where the repository's labs are; not there if the package was installed away from it."""
    place = tree.home() / "labs"
    if not place.is_dir():
        raise ContendedError(f"no labs in {place}: set CONTENDED_HOME to a whole clone")
    return place


def slugs() -> list[str]:
    """The repository's labs, sorted."""
    return sorted(file.parent.name for file in folder().glob("*/lab.toml"))


def known(names: Iterable[str]) -> list[str]:
    """These slugs, each once; a UsageError lists those that there are if one is no lab's."""
    there = slugs()
    for name in names:
        if name not in there:
            raise UsageError(f"no lab {name!r}; there are: {', '.join(there)}")
    return list(dict.fromkeys(names))


def find(name: str) -> Lab:
    """A lab by its slug, or by the folder of a student's copy; else a UsageError that lists all."""
    for place in ([folder() / name] if _NAME.fullmatch(name) else []) + [Path(name).resolve()]:
        if (place / "lab.toml").is_file():
            return load(place)
    raise UsageError(f"no lab {name!r}; there are: {', '.join(slugs())}, or name a lab's folder")


def load(place: Path) -> Lab:
    """The lab in a folder; raises UsageError that names the key if its lab.toml has a mistake."""
    file = place / "lab.toml"
    content = {**records.toml(file), "folder": str(place), "slug": place.name}
    lab = records.made(Lab, content, str(file))
    for is_mistake, key, what in _mistakes(lab):
        if is_mistake:
            raise UsageError(f"{file}: {key} {what}")
    return lab


def _mistakes(lab: Lab) -> Iterator[tuple[bool, str, str]]:
    yield not lab.parts, "parts", "has no entry"
    yield not lab.notebook.is_file(), "", f"there is no {lab.notebook.name} beside it"
    for name in lab.files:
        there = _FILE.fullmatch(name) and (lab.folder / name).is_file()
        yield not there, "files", f"{name!r} is no file beside this one"
    is_patch = lab.kind == "patch"
    wanted = "exactly one of step and runs" if is_patch else "no step or runs"
    ids = [part.id for part in lab.parts]
    for number, part in enumerate(lab.parts):
        key = f"parts.{part.id}"
        yield ids.count(part.id) > 1, key, "is there twice"
        yield part.points < 1, f"{key}.points", "must be 1 or more"
        yield bool(part.step) + bool(part.runs) != is_patch, key, f"must have {wanted}"
        for needed in part.needs:
            other = needed in ids and needed != part.id
            yield not other, f"{key}.needs", f"{needed!r} is no other part"
        late = part.step and any(earlier.runs for earlier in lab.parts[:number])
        yield bool(late), key, "is a step: it must be before all runs"
    told = "names no cell, so nothing would be taken from a submission"
    yield lab.kind == "notebook" and not lab.cells, "cells", told
    told = "and c.exports must each name something"
    yield lab.kind == "c" and not (lab.files and lab.c.exports), "files", told
    if is_patch:
        whole = len(lab.files) == 1 and not lab.cells
        yield not whole, "files", "must be one patch, and cells empty"
        for place in lab.patch.allow:
            known = ", ".join(ALLOWED)
            yield place not in ALLOWED, "patch.allow", f"{place!r} is none of {known}"
        there = (lab.folder / "kernel.toml").is_file()
        yield not there, "", "there is no kernel.toml beside it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What `wrong/<name>/expected.toml` says: `patch` is relative to the repository."""

    summary: str
    points: dict[str, int]
    patch: str = ""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A plausible wrong solution: what it replaces of the right one, and must get for each part."""

    name: str
    points: dict[str, int]
    cells: dict[str, str]
    files: dict[str, bytes]


def wrong(lab: Lab) -> list[Wrong]:
    """The lab's wrong solutions, by name; a mistake in an expected.toml is a UsageError."""
    return [_wrong(lab, file) for file in sorted(lab.folder.glob("wrong/*/expected.toml"))]


def _wrong(lab: Lab, file: Path) -> Wrong:
    said = records.made(Expected, records.toml(file), str(file))
    ids = [part.id for part in lab.parts]
    if set(said.points) != set(ids):
        raise UsageError(f"{file}: points must name each part: {', '.join(ids)}")
    beside = (path for path in file.parent.iterdir() if path.is_file() and path != file)
    files = {path.name: path.read_bytes() for path in beside}
    if said.patch:
        files[lab.files[0]] = (tree.home() / said.patch).read_bytes()
    cells = {p.stem: p.read_text(encoding="utf-8") for p in file.parent.glob("cells/*.py")}
    for name in (files.keys() - set(lab.files)) | (cells.keys() - set(lab.cells)):
        raise UsageError(f"{file}: {name} is not taken from a submission, so it changes nothing")
    return Wrong(file.parent.name, said.points, cells, files)
