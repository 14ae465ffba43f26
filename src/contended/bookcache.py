# SPDX-License-Identifier: MIT
"""Sphinx extension: run a chapter again when, and only when, something it rests on has changed.

myst-nb keeps executed notebooks in a jupyter-cache, whose key is the text of the code cells and
the kernel's specification: an edit in the library or in a model's C would show old results. So
each notebook is handed to myst-nb with a digest of all it depends on written into its kernel's
specification. The digest is thereby part of the cache's key, and Sphinx is told to read every
notebook again whose digest is not the one it was last read with.

A chapter depends on what all chapters share (`SHARED`), on the model, patches and recorded results
of each case that its code cells name, as a slug (`mount-hash`) or a file name (`mount_hash`), and
on whatever glob patterns its metadata list: `{"contended": {"depends": ["csrc/models/*.c"]}}`.
Whether it could measure and boot, or had to show a recorded run (see `circumstances` and
`kernels`), is in the digest too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contended import doctor, machine
from contended.errors import ContendedError

if TYPE_CHECKING:
    from nbformat import NotebookNode
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment
    from sphinx.util.typing import ExtensionMetadata

SHARED = (
    "src/contended/*",
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
)
"""Glob patterns of what belongs to one case; `name` is the slug with underscores."""

PER_PACKAGE = {
    "kernel": ("src/contended/kernel/*", "csrc/guest/*", "csrc/qemu/*", "patches/config/*"),
    "simulate": ("src/contended/simulate/*",),
}
"""Glob patterns of what only those chapters depend on that import this part of the package."""

_IGNORED = {"__pycache__", ".ipynb_checkpoints"}


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


def circumstances() -> str:
    """What decides on this machine whether a chapter measures or shows its recorded run.

    That is whether there are two CPUs, and which libraries the models could be linked with.
    """
    headers = [p.name for p in doctor.PACKAGES if p.header and p.there()]
    return f"{'two CPUs' if len(machine.allowed_cpus()) > 1 else 'one CPU'} {headers}"


def kernels(notebook: dict[str, Any]) -> str:
    """Which cases' kernels a chapter of the kernel lab cannot boot here, and why."""
    code = code_of(notebook)
    if not re.search(r"\bcontended\.kernel\b", code):
        return ""
    from contended.kernel import chapter, variants

    named = [slug for slug in variants.slugs() if re.search(rf"\b{re.escape(slug)}\b", code)]
    return "; ".join(f"{slug}: {chapter.missing(slug)}" for slug in named)


def digest(root: Path, files: Iterable[Path], circumstances: str = "") -> str:
    """A digest over the circumstances, and the files' names, relative to `root`, and contents."""
    total = hashlib.sha256(circumstances.encode())
    for path in files:
        total.update(f"{path.relative_to(root)}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def stamp(root: Path, text: str) -> str:
    """A notebook's JSON with its digest in the kernel's specification, part of the cache's key.

    Raises:
        ContendedError: It is not a notebook, or names no kernel.
    """
    try:
        notebook = json.loads(text)
        kernel = notebook["metadata"]["kernelspec"]
        here = f"{circumstances()} {kernels(notebook)}"
        kernel["contended_digest"] = digest(root, dependencies(root, notebook), here)
    except (ValueError, KeyError, TypeError) as error:
        raise ContendedError(f"not a notebook with a kernelspec: {error!r}") from error
    return json.dumps(notebook)


def parse(text: str) -> NotebookNode:
    """A notebook's JSON as the cache wants it."""
    import nbformat

    node: NotebookNode = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    return node


def drop_stale(cache_path: Path, notebook: Path, text: str) -> int:
    """Remove the notebook's records that the stamped text does not match.

    Args:
        cache_path: The jupyter-cache's directory.
        notebook: The notebook's own path, by which the cache remembers where a record came from.
        text: What `stamp` returned.

    Returns:
        How many records were removed. They would never be read again.
    """
    if not cache_path.exists():
        return 0
    from jupyter_cache import get_cache

    cache = get_cache(cache_path)
    try:
        current = cache.match_cache_notebook(parse(text)).pk
    except KeyError:
        current = None
    records = [record for record in cache.list_cache_records() if record.uri == str(notebook)]
    stale = [record.pk for record in records if record.pk != current]
    for pk in stale:
        cache.remove_cache(pk)
    return len(stale)


def _notebooks(env: BuildEnvironment) -> Iterable[tuple[str, Path]]:
    for docname in sorted(env.found_docs):
        path = Path(env.doc2path(docname))
        if path.suffix == ".ipynb":
            yield docname, path


def _digest_in(stamped: str) -> str:
    return str(json.loads(stamped)["metadata"]["kernelspec"]["contended_digest"])


def _outdated(app: Sphinx, env: BuildEnvironment, *_known: set[str]) -> list[str]:
    """Name the notebooks whose digest is not the one of their last reading."""
    known: dict[str, str] = getattr(env, "contended_digests", {})
    root = Path(app.srcdir)
    return [
        docname
        for docname, path in _notebooks(env)
        if known.get(docname) != _digest_in(stamp(root, path.read_text(encoding="utf-8")))
    ]


def _stamp_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Hand myst-nb the stamped notebook instead of the file's text."""
    path = Path(app.env.doc2path(docname))
    if path.suffix != ".ipynb":
        return
    source[0] = stamp(Path(app.srcdir), source[0])
    known: dict[str, str] = getattr(app.env, "contended_digests", {})
    app.env.contended_digests = {**known, docname: _digest_in(source[0])}  # type: ignore[attr-defined]
    drop_stale(Path(app.env.mystnb_config.execution_cache_path), path, source[0])  # type: ignore[attr-defined]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect to the build's events."""
    # The chapters' kernels inherit it: pages have no server behind them, so widgets stand still.
    os.environ["CONTENDED_BOOK"] = "1"
    app.connect("env-get-outdated", _outdated)
    app.connect("source-read", _stamp_source)
    # Chapters measure: two of them must never run at once, so no parallel reading, even with -j.
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
