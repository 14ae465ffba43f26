# SPDX-License-Identifier: MIT
"""A chapter runs again when, and only when, something it rests on has changed: its digest.

A chapter rests on its code cells, on what all share (`_SHARED`), on the model, patches and recorded
results of each case that its code cells name, as a slug or a file name (`mount_hash`), and on glob
patterns that its metadata list: `{"contended": {"depends": ["csrc/models/*.c"]}}`. Of the machine
there is only what decides whether it measures and boots, or shows a recorded run.
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

# Glob patterns, from the root, of what every chapter depends on.
_SHARED = (
    *("src/contended/*", "src/contended/measure/*", "src/contended/show/*"),
    *("csrc/*.h", "csrc/models/pingpong.c", "constraints.txt"),
)
# Of what belongs to one case; `name` is the slug with underscores.
_PER_CASE = (
    *("csrc/models/{name}.c", "src/contended/cases/{name}.py"),
    *("patches/{slug}/**/*", "results/{slug}*", "results/{slug}*/**/*"),
    "results/history/time/{slug}.json",
)
# Of what only those chapters depend on that import this part of the package.
_KERNEL = "src/contended/kernel/* src/contended/profile/* csrc/guest/* csrc/qemu/* patches/config/*"
_SIMULATE = "src/contended/simulate/*"
_PER_PACKAGE = {
    "kernel": _KERNEL,
    "simulate": _SIMULATE,
    "cases": f"{_SIMULATE} src/contended/cases/__init__.py src/contended/cases/beyond.py "
    "src/contended/cases/timed.py",
}
_IGNORED = {"__pycache__", ".ipynb_checkpoints"}


def read(text: str) -> dict[str, Any]:
    """A notebook from its JSON; a ContendedError if it is none, or names no kernel."""
    try:
        notebook: dict[str, Any] = json.loads(text)
        _code(notebook)
        str(notebook["metadata"]["kernelspec"]["name"])
    except (ValueError, KeyError, TypeError) as error:
        raise ContendedError(f"not a notebook with a kernelspec: {error!r}") from error
    return notebook


def _code(notebook: dict[str, Any]) -> str:
    """The text of a notebook's code cells: prose may name a case without depending on it."""
    cells = (cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code")
    return "\n".join("".join(source) for source in cells)


def dependencies(root: Path, notebook: dict[str, Any]) -> list[Path]:
    """The files that a notebook's outputs rest on beside its own cells, sorted."""
    code = _code(notebook)
    patterns = [*_SHARED, *notebook["metadata"].get("contended", {}).get("depends", [])]
    for package, more in _PER_PACKAGE.items():
        if re.search(rf"\bcontended\.{package}\b", code):
            patterns += more.split()
    # Of every case that has a model, patches or results.
    slugs = {path.stem.replace("_", "-") for path in root.glob("csrc/models/*.c")}
    slugs |= {path.name for path in root.glob("patches/*") if path.is_dir()}
    slugs |= {path.name.partition(".")[0] for path in root.glob("results/*")}
    for slug in slugs:
        name = slug.replace("-", "_")
        if re.search(rf"(?<![a-z0-9-])({re.escape(slug)}|{re.escape(name)})(?![a-z0-9])", code):
            patterns += [pattern.format(slug=slug, name=name) for pattern in _PER_CASE]
    files = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return sorted(path for path in files if not _IGNORED & set(path.parts))


def _circumstances(notebook: dict[str, Any], files: Iterable[Path]) -> str:
    """What decides on this machine whether a chapter measures or shows recorded runs."""
    if lesson.from_records():
        return "recorded runs"
    cpus = "two CPUs" if len(machine.allowed_cpus()) > 1 else "one CPU"
    models = [path.read_text("utf-8", "replace") for path in files if path.suffix == ".c"]
    included = re.findall(r"^\s*#\s*include\s*<([^>]+)>", "\n".join(models), re.M)
    packages = [package for package in doctor.PACKAGES if package.header in included]
    return f"{cpus} {sorted(p.name for p in packages if _there(p))} {kernels(notebook)}"


@functools.cache  # the compiler is asked; a build lasts minutes, and asks for each chapter
def _there(package: doctor.Package) -> bool:
    return package.there()


def kernels(notebook: dict[str, Any]) -> str:
    """Which kernels a chapter that boots some cannot boot here, and why."""
    code = _code(notebook)
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
    """A digest of all that the outputs of a notebook rest on, given its JSON; raises as `read`."""
    notebook = read(text)
    files = dependencies(root, notebook)
    kernel = notebook["metadata"]["kernelspec"]["name"]
    total = hashlib.sha256(f"{kernel} {_circumstances(notebook, files)}".encode())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            total.update("".join(cell["source"]).encode() + b"\0")
    for path in files:
        total.update(f"{path.relative_to(root)}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
