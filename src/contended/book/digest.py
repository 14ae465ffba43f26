# SPDX-License-Identifier: MIT
"""A chapter runs again when, and only when, something it rests on has changed: its digest.

A chapter rests on its code cells, on what all chapters share (`SHARED`), on the model, patches and
recorded results of each case that its code cells name, as a slug (`mount-hash`) or a file name
(`mount_hash`), and on whatever glob patterns its metadata list:
`{"contended": {"depends": ["csrc/models/*.c"]}}`. What of this machine decides whether it measures
and boots, or shows a recorded run, is in the digest too (see `circumstances`), and nothing else of
the machine: a package concerns the chapters that use it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from contended import doctor, machine
from contended.errors import ContendedError
from contended.kernel import chapter, variants
from contended.show import lesson

SHARED = (
    "src/contended/*",
    "src/contended/measure/*",
    "src/contended/show/*",
    "csrc/*.h",
    "csrc/models/pingpong.c",
    "constraints.txt",
)
"""Glob patterns, from the root, of what every chapter depends on."""

PER_CASE = (
    "csrc/models/{name}.c",
    "patches/{slug}/**/*",
    "results/{slug}*",
    "results/{slug}*/**/*",
    "src/contended/cases/{name}.py",
)
"""Glob patterns of what belongs to one case; `name` is the slug with underscores."""

PER_PACKAGE = {
    "kernel": (
        "src/contended/kernel/*",
        "src/contended/profile/*",
        "csrc/guest/*",
        "csrc/qemu/*",
        "patches/config/*",
    ),
    "simulate": ("src/contended/simulate/*",),
    "cases": (
        "src/contended/simulate/*",
        "src/contended/cases/__init__.py",
        "src/contended/cases/beyond.py",
    ),
}
"""Glob patterns of what only those chapters depend on that import this part of the package."""

_IGNORED = {"__pycache__", ".ipynb_checkpoints"}


def read(text: str) -> dict[str, Any]:
    """A notebook from its JSON.

    Raises:
        ContendedError: It is not a notebook, or names no kernel.
    """
    try:
        notebook: dict[str, Any] = json.loads(text)
        code_of(notebook)
        str(notebook["metadata"]["kernelspec"]["name"])
    except (ValueError, KeyError, TypeError) as error:
        raise ContendedError(f"not a notebook with a kernelspec: {error!r}") from error
    return notebook


def code_of(notebook: dict[str, Any]) -> str:
    """The text of a notebook's code cells: prose may name a case without depending on it."""
    cells = (cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code")
    return "\n".join("".join(source) for source in cells)


def slugs(root: Path) -> set[str]:
    """The slug of every case that has a model, patches or results."""
    found = {path.stem.replace("_", "-") for path in root.glob("csrc/models/*.c")}
    found |= {path.name for path in root.glob("patches/*") if path.is_dir()}
    found |= {path.name.partition(".")[0] for path in root.glob("results/*")}
    return found


def dependencies(root: Path, notebook: dict[str, Any]) -> list[Path]:
    """The files that a notebook's outputs rest on, beside its own cells.

    Args:
        root: The top of the tree.
        notebook: The notebook, as read from its JSON.

    Returns:
        Existing files, sorted, without duplicates.
    """
    code = code_of(notebook)
    patterns = [*SHARED, *notebook["metadata"].get("contended", {}).get("depends", [])]
    for package, more in PER_PACKAGE.items():
        if re.search(rf"\bcontended\.{package}\b", code):
            patterns += more
    for slug in slugs(root):
        name = slug.replace("-", "_")
        if re.search(rf"(?<![a-z0-9])({re.escape(slug)}|{re.escape(name)})(?![a-z0-9])", code):
            patterns += [pattern.format(slug=slug, name=name) for pattern in PER_CASE]
    files = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return sorted(path for path in files if not _IGNORED & set(path.parts))


def circumstances(notebook: dict[str, Any], files: Iterable[Path]) -> str:
    """What decides on this machine whether a chapter measures or shows recorded runs.

    That is whether it is to measure at all (`lesson.RECORDED`) and, if so, whether there are two
    CPUs, which of the headers that its models include are installed, and which kernels that it
    boots are built.

    Args:
        notebook: The notebook, as read from its JSON.
        files: What `dependencies` returned.
    """
    if lesson.from_records():
        return "recorded runs"
    cpus = "two CPUs" if len(machine.allowed_cpus()) > 1 else "one CPU"
    packages = {package for path in files if path.suffix == ".c" for package in _packages(path)}
    there = [package.name for package in packages if _there(package)]
    return f"{cpus} {sorted(there)} {kernels(notebook)}"


def _packages(source: Path) -> set[doctor.Package]:
    """The packages of the doctor's table whose headers a C file includes."""
    text = source.read_text(encoding="utf-8", errors="replace")
    included = set(re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.M))
    return {package for package in doctor.PACKAGES if package.header in included}


@functools.cache  # the compiler is asked; a build lasts minutes, and asks for each chapter
def _there(package: doctor.Package) -> bool:
    return package.there()


def kernels(notebook: dict[str, Any]) -> str:
    """Which kernels a chapter that boots some cannot boot here, and why."""
    code = code_of(notebook)
    # `chapter.outcomes` is the one thing that boots; the rest of the lab is shown from records
    booted = re.findall(r"\boutcomes\(\s*(?:[\"']([\w-]+)[\"']|(\w+))", code)
    if not re.search(r"\bcontended\.kernel\b", code):
        return ""
    named: set[str] = set()
    for slug, variable in booted:
        values = re.findall(rf"^{variable}\s*=\s*[\"']([\w-]+)[\"']", code, re.M)
        # a name that cannot be followed may be any case that the chapter names
        named |= {slug} if slug else set(values) or {s for s in variants.slugs() if s in code}
    return "; ".join(f"{slug}: {chapter.missing(slug)}" for slug in sorted(named))


def digest(root: Path, text: str) -> str:
    """A digest over all that a notebook's outputs rest on.

    Args:
        root: The top of the tree.
        text: The notebook's JSON.

    Raises:
        ContendedError: It is not a notebook, or names no kernel.
    """
    notebook = read(text)
    files = dependencies(root, notebook)
    kernel = notebook["metadata"]["kernelspec"]["name"]
    total = hashlib.sha256(f"{kernel} {circumstances(notebook, files)}".encode())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            total.update("".join(cell["source"]).encode() + b"\0")
    for path in files:
        total.update(f"{path.relative_to(root)}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
