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

from contended import tree
from contended.course import lab, notebook
from contended.course.lab import Lab
from contended.errors import ContendedError, UsageError

_TELLING = 16  # characters, blanks aside, that are not in two places by chance

_C_REGION = re.compile(
    r"^[ \t]*/\* BEGIN SOLUTION \*/[ \t]*\n(?P<solution>.*?)^[ \t]*/\* END SOLUTION \*/[ \t]*\n"
    r"(?:[ \t]*/\* BEGIN STUB[ \t]*\n(?P<stub>.*?)^[ \t]*END STUB \*/[ \t]*\n)?",
    re.S | re.M,
)


class Leak(ContendedError):
    """Something of a solution or a hidden test is in a student's copy."""


def contents(about: Lab) -> dict[str, bytes]:
    """A student's copy of a lab, by names in its folder; UsageError or Leak if it is bad."""
    found = {about.notebook.name: notebook.write(notebook.stub(about)).encode()}
    found |= dict(material(about))
    # The place of the solution is not told.
    text = (about.folder / "lab.toml").read_text()
    text = re.sub(r"^solution\s*=.*\n", "", text, flags=re.M)
    if "solution" in tomllib.loads(text).get("patch", {}):
        raise UsageError("lab.toml: patch.solution must be a line of its own")
    found["lab.toml"] = text.encode()
    _check(about, found)
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


def _secrets(about: Lab) -> Iterator[str]:
    """The lines that no student's copy may have, without blanks."""
    texts = list(notebook.secrets(about))
    for name in about.material():
        if name != about.notebook.name:
            text = (about.folder / name).read_text("utf-8", "replace")
            texts += [match["solution"] for match in _C_REGION.finditer(text)]
    solution = [tree.home() / about.patch.solution] if about.patch.solution else []
    for path in (*about.private(), *solution):
        text = path.read_text("utf-8", "replace")
        # Of a patch only what it adds is secret: the rest is Linux.
        added = re.findall(r"^\+(?!\+\+)(.*)$", text, re.M)
        texts.append("\n".join(added) if path.suffix == ".patch" else text)
    for line in "\n".join(texts).splitlines():
        bare = "".join(line.split())
        told = notebook.MARKERS.search(line) or "SPDX-License-Identifier" in line
        if len(bare) >= _TELLING and not told:
            yield bare


def _check(about: Lab, copy: Mapping[str, bytes]) -> None:
    """See that nothing that students must not see is in their copy; else a Leak says what."""
    hidden = set(_secrets(about))
    for name, content in copy.items():
        if {*lab.PRIVATE} & set(Path(name).parts):
            raise Leak(f"{about.slug}: {name} must not be released")
        for line in _lines(name, content):
            if notebook.MARKERS.search(line):
                raise Leak(f"{about.slug}: {name} still has a marker: {line.strip()[:60]}")
            if "".join(line.split()) in hidden:
                what = f"shows a line of a solution or hidden test: {line.strip()[:60]}"
                raise Leak(f"{about.slug}: {name} {what}")


def _lines(name: str, content: bytes) -> list[str]:
    text = content.decode(errors="replace")
    if not name.endswith(".ipynb"):
        return text.splitlines()
    cells = notebook.parsed(text).cells
    if any(c.cell_type == "code" and (c.outputs or c.execution_count) for c in cells):
        raise Leak(f"{name} has an output")
    return [line for c in cells for line in f"{c.source}\n{c.metadata}".splitlines()]


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

    Either all labs are written, or none; returns the zips. With `nbgrader`, OUT becomes a course
    folder of nbgrader's: `OUT/source/<lab>/` has the solutions, and a configuration is beside it.
    """
    chosen = [lab.load(lab.folder() / name) for name in lab.known(names or ()) or lab.slugs()]
    copies = [(about, contents(about)) for about in chosen]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".releasing-", dir=out) as scratch:
            for about, copy in copies:
                write_files(Path(scratch) / about.slug, copy)
                _pack(Path(scratch) / f"{about.slug}.zip", about, copy)
            (out / "release").mkdir(exist_ok=True)
            if nbgrader:
                for about, copy in copies:
                    # What nbgrader makes its own release of: it strips notebooks, and nothing else.
                    place = out / "source" / about.slug
                    shutil.rmtree(place, ignore_errors=True)
                    write_files(place, copy)
                    shutil.copyfile(about.notebook, place / about.notebook.name)
                (out / "nbgrader_config.py").write_text(_CONFIG)
            for about in chosen:
                place, packed = out / "release" / about.slug, f"{about.slug}.zip"
                shutil.rmtree(place, ignore_errors=True)
                (Path(scratch) / about.slug).replace(place)
                (Path(scratch) / packed).replace(out / packed)
    except OSError as error:
        raise ContendedError(f"cannot write to {out}: {error.strerror}") from error
    return [out / f"{about.slug}.zip" for about in chosen]


def write_files(place: Path, contents: Mapping[str, bytes]) -> None:
    """Write files below a folder, by their names relative to it."""
    for name, content in contents.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def add(archive: zipfile.ZipFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Put a file into an archive: the same files give the same bytes, whenever they are packed."""
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = mode << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _pack(packed: Path, about: Lab, copy: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(copy.items()):
            add(archive, f"{about.slug}/{name}", content)
    # What is handed out is what is in the file, so that is looked at once more.
    with zipfile.ZipFile(packed) as archive:
        _check(about, {n.partition("/")[2]: archive.read(n) for n in archive.namelist()})
