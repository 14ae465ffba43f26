# SPDX-License-Identifier: MIT
"""What `labs/<slug>/lab.toml` says: what students hand in, what is graded, and for how many points.

The file is written by hand, so every mistake in it is one line that names the file and the key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from contended import records, tree
from contended.errors import ContendedError, UsageError

Kind = Literal["notebook", "c", "patch"]
Step = Literal["", "applies", "builds", "boots"]

PRIVATE = ("private", "wrong")
"""Folders of a lab that students never see."""

ALLOWED = ("fs/", "lib/", "include/linux/")
"""Where a patch may change the kernel at all."""

_SKIPPED = ("__pycache__", ".ipynb_checkpoints")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is graded for itself.

    Attributes:
        id: Kind notebook and c: the test cell's grade_id.
        title: One line.
        points: For all of it; there are no half parts.
        rubric: What earns them.
        hint: For those who lost them.
        step: Kind patch: what must have worked.
        runs: Kind patch: the runs whose outcomes must hold.
        needs: Parts without which this one counts nothing.
    """

    id: str
    title: str
    points: int
    rubric: str
    hint: str = ""
    step: Step = ""
    runs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CRules:
    """What the object file of a student's C may be.

    Attributes:
        exports: The global symbols that it defines.
        imports: Those that it may use.
        static_data: Whether it may keep data outside of functions.
    """

    exports: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    static_data: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchRules:
    """How a patch is judged.

    Attributes:
        allow: Where it may change the kernel.
        solution: The instructor's patches, relative to the repository; empty in a student's copy.
        extra: Further patches that kernel.toml names, relative to the repository.
        vcpus: Virtual processors of the runs that leave it open.
    """

    allow: tuple[str, ...] = ALLOWED
    solution: str = ""
    extra: tuple[str, ...] = ()
    vcpus: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A lab, as its lab.toml describes it.

    Attributes:
        folder: Where it is.
        slug: Its name: of the folder, and of the notebook.
        cells: The student cells that are taken from a submission, by grade_id.
        files: The files that are taken from a submission.
        parts: In order.
    """

    folder: Path
    slug: str
    title: str
    kind: Kind
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

    def material(self) -> Iterator[str]:
        """The files that students get, relative to the folder, sorted."""
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if path.is_file() and not {*PRIVATE, *_SKIPPED} & set(name.parts):
                yield name.as_posix()

    def digest(self) -> str:
        """A digest of all that a grade of this lab depends on, but the submission."""
        running = hashlib.sha256()
        own = [self.folder / name for name in self.material()]
        own += sorted(p for p in (self.folder / "private").rglob("*") if p.is_file())
        own += [tree.home() / name for name in self.patch.extra]
        for file in own:
            running.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
        return running.hexdigest()[:32]


def folder() -> Path:
    """Where the repository's labs are.

    Raises:
        ContendedError: there are none: the package was installed away from its repository.
    """
    place = tree.home() / "labs"
    if not place.is_dir():
        raise ContendedError(f"no labs in {place}: set CONTENDED_HOME to a whole clone")
    return place


def slugs() -> list[str]:
    """The repository's labs, sorted."""
    return sorted(file.parent.name for file in folder().glob("*/lab.toml"))


def find(name: str) -> Lab:
    """A lab by its slug, or by the folder of a student's copy.

    Raises:
        UsageError: there is no such lab; the message lists those that there are.
    """
    if _NAME.fullmatch(name) and (folder() / name / "lab.toml").is_file():
        return load(folder() / name)
    if (Path(name) / "lab.toml").is_file():
        return load(Path(name).resolve())
    raise UsageError(f"no lab {name!r}; there are: {', '.join(slugs())}, or name a lab's folder")


def load(place: Path) -> Lab:
    """Read the lab in a folder.

    Raises:
        UsageError: its lab.toml cannot be read or has a mistake; the message names the key.
    """
    file = place / "lab.toml"
    content = records.toml(file)
    renamed: dict[str, Any] = {**content, "folder": str(place), "slug": place.name}
    if isinstance(patch := content.get("patch"), dict) and "with" in patch:
        renamed["patch"] = {("extra" if k == "with" else k): v for k, v in patch.items()}
    lab = records.made(Lab, renamed, str(file))
    for key, what in _mistakes(lab):
        raise UsageError(f"{file}: {key} {what}")
    return lab


def _mistakes(lab: Lab) -> Iterator[tuple[str, str]]:
    """What a type cannot say: the key, and what is wrong with it."""
    if not lab.parts:
        yield "parts", "has no entry"
    if not lab.notebook.is_file():
        yield "", f"there is no {lab.notebook.name} beside it"
    for name in lab.files:
        if not _FILE.fullmatch(name) or not (lab.folder / name).is_file():
            yield "files", f"{name!r} is no file beside this one"
    ids = [part.id for part in lab.parts]
    for number, part in enumerate(lab.parts):
        key = f"parts.{part.id}"
        if ids.count(part.id) > 1:
            yield key, "is there twice"
        if part.points < 1:
            yield f"{key}.points", "must be 1 or more"
        if bool(part.step) + bool(part.runs) != (lab.kind == "patch"):
            wanted = "exactly one of step and runs" if lab.kind == "patch" else "no step or runs"
            yield key, f"must have {wanted}"
        for needed in part.needs:
            if needed not in ids or needed == part.id:
                yield f"{key}.needs", f"{needed!r} is no other part"
        if part.step and any(earlier.runs for earlier in lab.parts[:number]):
            yield key, "is a step: it must be before all runs"
    if lab.kind == "notebook" and not lab.cells:
        yield "cells", "names no cell, so nothing would be taken from a submission"
    if lab.kind == "c" and not (lab.files and lab.c.exports):
        yield "files", "and c.exports must each name something"
    if lab.kind == "patch":
        if len(lab.files) != 1 or lab.cells:
            yield "files", "must be one patch, and cells empty"
        for place in lab.patch.allow:
            if place not in ALLOWED:
                yield "patch.allow", f"{place!r} is none of {', '.join(ALLOWED)}"
        if not (lab.folder / "kernel.toml").is_file():
            yield "", "there is no kernel.toml beside it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What `wrong/<name>/expected.toml` says: `patch` is relative to the repository."""

    summary: str
    points: dict[str, int]
    patch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A plausible wrong solution, and what it must get.

    Attributes:
        name: Of its folder.
        summary: What is wrong with it.
        points: By part.
        cells: The student cells in which it differs from the instructor's solution.
        files: The files in which it does.
    """

    name: str
    summary: str
    points: Mapping[str, int]
    cells: Mapping[str, str]
    files: Mapping[str, bytes]


def wrong(lab: Lab) -> list[Wrong]:
    """The lab's wrong solutions, by name.

    Raises:
        UsageError: an expected.toml has a mistake.
    """
    return [_wrong(lab, file.parent) for file in sorted(lab.folder.glob("wrong/*/expected.toml"))]


def _wrong(lab: Lab, place: Path) -> Wrong:
    file = place / "expected.toml"
    said = records.made(Expected, records.toml(file), str(file))
    if set(said.points) != {part.id for part in lab.parts}:
        raise UsageError(
            f"{file}: points must name each part: {', '.join(p.id for p in lab.parts)}"
        )
    files = {
        path.name: path.read_bytes()
        for path in place.iterdir()
        if path.is_file() and path.name != "expected.toml"
    }
    if said.patch:
        files[lab.files[0]] = (tree.home() / said.patch).read_bytes()
    cells = {p.stem: p.read_text(encoding="utf-8") for p in place.glob("cells/*.py")}
    for name in (files.keys() - set(lab.files)) | (cells.keys() - set(lab.cells)):
        raise UsageError(f"{file}: {name} is not taken from a submission, so it changes nothing")
    return Wrong(
        name=place.name, summary=said.summary, points=said.points, cells=cells, files=files
    )
