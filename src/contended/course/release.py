# SPDX-License-Identifier: MIT
"""Students' copies of the labs: what they must not see is taken out, and looked for afterwards."""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat

from contended import tree
from contended.course import lab, notebook
from contended.course.lab import Lab
from contended.errors import ContendedError, UsageError

TELLING = 16
"""A line with so many characters, blanks aside, is not in two places by chance."""

_C_REGION = re.compile(
    r"^[ \t]*/\* BEGIN SOLUTION \*/[ \t]*\n(?P<solution>.*?)^[ \t]*/\* END SOLUTION \*/[ \t]*\n"
    r"(?:[ \t]*/\* BEGIN STUB[ \t]*\n(?P<stub>.*?)^[ \t]*END STUB \*/[ \t]*\n)?",
    re.S | re.M,
)
_EPOCH = (1980, 1, 1, 0, 0, 0)


class Leak(ContendedError):
    """Something of a solution or a hidden test is in a student's copy."""


def contents(about: Lab) -> dict[str, bytes]:
    """A student's copy of a lab: names relative to its folder, and what is in the files.

    Raises:
        UsageError: a marker is missing or in the wrong place.
        Leak: something of a solution or a hidden test is left.
    """
    found = {about.notebook.name: notebook.write(notebook.stub(about)).encode()}
    found |= dict(material(about))
    found["lab.toml"] = _public((about.folder / "lab.toml").read_text()).encode()
    check(about, found)
    return dict(sorted(found.items()))


def material(about: Lab) -> Iterator[tuple[str, bytes]]:
    """The files of a lab that come with its notebook and its lab.toml, as students get them."""
    for name in about.material():
        if name not in (about.notebook.name, "lab.toml"):
            content = (about.folder / name).read_bytes()
            if b" SOLUTION" in content or b" STUB" in content:
                content = _stripped(about.folder / name, content.decode()).encode()
            yield name, content


def _stripped(file: Path, text: str) -> str:
    def stub(match: re.Match[str]) -> str:
        indent = re.match(r"[ \t]*", match[0])
        return match["stub"] or f"{indent[0] if indent else ''}/* YOUR CODE HERE */\n"

    text = _C_REGION.sub(stub, text)
    if left := notebook.MARKERS.search(text):
        line = text[: left.start()].count("\n") + 1
        raise UsageError(f"{file}: {left[0]} near line {line} has no partner")
    return text


def _public(text: str) -> str:
    """A lab.toml without the place of the solution."""
    text = re.sub(r"^solution\s*=.*\n", "", text, flags=re.M)
    if "solution" in tomllib.loads(text).get("patch", {}):
        raise UsageError("lab.toml: patch.solution must be a line of its own")
    return text


def secrets(about: Lab) -> Iterator[str]:
    """The lines that no student's copy may have, without blanks."""
    texts = list(notebook.secrets(about))
    for name in about.material():
        if name != about.notebook.name:
            text = (about.folder / name).read_text(encoding="utf-8", errors="replace")
            texts += [match["solution"] for match in _C_REGION.finditer(text)]
    private = [p for p in sorted((about.folder / "private").rglob("*")) if p.is_file()]
    if about.patch.solution:
        private.append(tree.home() / about.patch.solution)
    for path in private:
        text = path.read_text(encoding="utf-8", errors="replace")
        # Of a patch only what it adds is secret: the rest is Linux.
        added = re.findall(r"^\+(?!\+\+)(.*)$", text, re.M)
        texts.append("\n".join(added) if path.suffix == ".patch" else text)
    for text in texts:
        for line in text.splitlines():
            bare = "".join(line.split())
            told = notebook.MARKERS.search(line) or "SPDX-License-Identifier" in line
            if len(bare) >= TELLING and not told:
                yield bare


def check(about: Lab, copy: Mapping[str, bytes]) -> None:
    """See that nothing that students must not see is in their copy.

    Raises:
        Leak: something is; the message says what and where.
    """
    hidden = set(secrets(about))
    for name, content in copy.items():
        if {*lab.PRIVATE} & set(Path(name).parts):
            raise Leak(f"{about.slug}: {name} must not be released")
        for line in _lines(name, content):
            if notebook.MARKERS.search(line):
                raise Leak(f"{about.slug}: {name} still has a marker: {line.strip()[:60]}")
            if "".join(line.split()) in hidden:
                raise Leak(
                    f"{about.slug}: {name} shows a line of a solution or hidden test: "
                    f"{line.strip()[:60]}"
                )


def _lines(name: str, content: bytes) -> list[str]:
    text = content.decode(errors="replace")
    if not name.endswith(".ipynb"):
        return text.splitlines()
    book: Any = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    lines = []
    for cell in book.cells:
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count):
            raise Leak(f"{name} has an output")
        lines += cell.source.splitlines()
        lines += str(cell.metadata).splitlines()
    return lines


_CONFIG = """\
# SPDX-License-Identifier: MIT
# Written by `contended course release --nbgrader`. Student code runs in the sandbox, as it does
# when `contended course grade` grades it; the kernel labs are graded by that command alone.
c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "contended"
c.ClearSolutions.enforce_metadata = True
c.Autograde.autograde_preprocessors = [
    "contended.course.execute.InSandbox",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
"""


def run(out: Path, names: Sequence[str] | None = None, *, nbgrader: bool = False) -> list[Path]:
    """Write students' copies: `OUT/release/<lab>/` as nbgrader has it, and `OUT/<lab>.zip`.

    Either all labs are written, or none.

    Args:
        out: A folder, made if need be.
        names: The labs; default: all.
        nbgrader: Make it a course folder of nbgrader's as well: `OUT/source/<lab>/` with the
            instructor's notebook, which has the solutions, and a configuration.

    Returns:
        The zip files.

    Raises:
        UsageError: no such lab, or a mistake in one.
        Leak: something of a solution or a hidden test would be released.
        ContendedError: the folder cannot be written.
    """
    known = lab.slugs()
    for name in names or ():
        if name not in known:
            raise UsageError(f"no lab {name!r}; there are: {', '.join(known)}")
    chosen = [lab.load(lab.folder() / name) for name in names or known]
    copies = {about.slug: contents(about) for about in chosen}
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".releasing-", dir=out) as scratch:
            for about in chosen:
                _write(Path(scratch), about, copies[about.slug])
            (out / "release").mkdir(exist_ok=True)
            if nbgrader:
                for about in chosen:
                    _write_source(out / "source" / about.slug, about, copies[about.slug])
                (out / "nbgrader_config.py").write_text(_CONFIG)
            for slug in copies:
                shutil.rmtree(out / "release" / slug, ignore_errors=True)
                (Path(scratch) / slug).replace(out / "release" / slug)
                (Path(scratch) / f"{slug}.zip").replace(out / f"{slug}.zip")
    except OSError as error:
        raise ContendedError(f"cannot write to {out}: {error.strerror}") from error
    return [out / f"{slug}.zip" for slug in copies]


def _write_source(place: Path, about: Lab, copy: Mapping[str, bytes]) -> None:
    """What nbgrader makes its own release of: it strips notebooks, and nothing else."""
    shutil.rmtree(place, ignore_errors=True)
    write_files(place, copy)
    shutil.copyfile(about.notebook, place / about.notebook.name)


def write_files(place: Path, contents: Mapping[str, bytes]) -> None:
    """Write files below a folder, by their names relative to it."""
    for name, content in contents.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _write(place: Path, about: Lab, copy: Mapping[str, bytes]) -> None:
    write_files(place / about.slug, copy)
    packed = place / f"{about.slug}.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(copy.items()):
            # The same labs give the same bytes, whenever they are packed.
            entry = zipfile.ZipInfo(f"{about.slug}/{name}", _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    # What is handed out is what is in the file, so that is looked at once more.
    with zipfile.ZipFile(packed) as archive:
        inside = {n.partition("/")[2]: archive.read(n) for n in archive.namelist()}
    check(about, inside)
