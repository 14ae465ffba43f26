# SPDX-License-Identifier: MIT
"""A chapter's digest covers what it rests on: the right files, and what it uses of the machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contended import doctor
from contended.book import digest
from contended.errors import ContendedError
from contended.kernel import chapter


def notebook(code: str, prose: str = "", **metadata: Any) -> dict[str, Any]:
    """A notebook as JSON has it: sources may be text or a list of lines."""
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}, **metadata},
        "cells": [
            {"cell_type": "markdown", "id": "a", "metadata": {}, "source": [prose]},
            {
                "cell_type": "code",
                "id": "b",
                "metadata": {},
                "source": code,
                "outputs": [],
                "execution_count": None,
            },
        ],
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "src/contended/stats.py",
        "src/contended/kernel/run.py",
        "src/contended/simulate/locks.py",
        "src/contended/cases/__init__.py",
        "src/contended/cases/beyond.py",
        "src/contended/cases/timed.py",
        "src/contended/cases/mount_hash.py",
        "csrc/guest/init.c",
        "csrc/qemu/coherence.c",
        "patches/config/base.config",
        "src/contended/register.toml",
        "src/contended/__pycache__/stats.pyc",
        "csrc/harness.h",
        "csrc/models/pingpong.c",
        "csrc/models/mount_hash.c",
        "csrc/models/overlay_creds.c",
        "patches/mount-hash/variants.toml",
        "patches/mount-hash/0001-x.patch",
        "patches/overlay-creds/0001-y.patch",
        "results/mount-hash.json",
        "results/mount-hash-2cpu.json",
        "results/history/time/mount-hash.json",
        "results/history/time/overlay-creds.json",
        "results/mount-hash/two-cpus/run.json",
        "results/overlay-creds.json",
        "constraints.txt",
        "README.md",
        "docs/glossary.md",
        "tests/test_x.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


SHARED = {
    "constraints.txt",
    "csrc/harness.h",
    "csrc/models/pingpong.c",
    "src/contended/register.toml",
    "src/contended/stats.py",
}
MOUNT_HASH = {
    "src/contended/cases/mount_hash.py",
    "csrc/models/mount_hash.c",
    "patches/mount-hash/0001-x.patch",
    "patches/mount-hash/variants.toml",
    "results/history/time/mount-hash.json",
    "results/mount-hash-2cpu.json",
    "results/mount-hash.json",
    "results/mount-hash/two-cpus/run.json",
}


KERNEL = {
    "src/contended/kernel/run.py",
    "csrc/guest/init.c",
    "csrc/qemu/coherence.c",
    "patches/config/base.config",
}


BEYOND = {
    "src/contended/simulate/locks.py",
    "src/contended/cases/__init__.py",
    "src/contended/cases/beyond.py",
    "src/contended/cases/timed.py",
}


@pytest.mark.parametrize(
    ("code", "case_files"),
    [
        ("1 + 1", set()),
        ("measure('mount-hash')", MOUNT_HASH),
        ("build('csrc/models/mount_hash.c')", MOUNT_HASH),
        ("load('results/mount-hash-2cpu.json')", MOUNT_HASH),
        ("from contended.kernel import chapter", KERNEL),
        ("import contended.simulate.locks", {"src/contended/simulate/locks.py"}),
        ("from contended.cases import beyond", BEYOND),
        ("from contended.cases import mount_hash", BEYOND | MOUNT_HASH),
        ("amount_hash = 1; mount_hashes = 2", set()),
    ],
)
def test_a_chapter_depends_on_the_cases_its_code_names(
    tree: Path, code: str, case_files: set[str]
) -> None:
    found = digest.dependencies(tree, notebook(code, prose="see overlay-creds"))
    assert {str(path.relative_to(tree)) for path in found} == SHARED | case_files


def test_metadata_can_add_dependencies(tree: Path) -> None:
    extra = notebook("1", contended={"depends": ["csrc/models/*.c"]})
    found = {path.name for path in digest.dependencies(tree, extra)}
    assert {"mount_hash.c", "overlay_creds.c"} <= found


def test_the_digest_changes_with_exactly_these_files(tree: Path) -> None:
    text = json.dumps(notebook("measure('mount-hash')"))
    before = digest.digest(tree, text)
    assert digest.digest(tree, text) == before
    for path in sorted(p for p in tree.rglob("*") if p.is_file()):
        name = str(path.relative_to(tree))
        kept = path.read_text()
        path.write_text(kept + "edited")
        assert (digest.digest(tree, text) != before) == (name in SHARED | MOUNT_HASH), name
        path.write_text(kept)
    (tree / "patches/mount-hash/0002-z.patch").touch()
    assert digest.digest(tree, text) != before, "a new file counts"


def test_a_renamed_file_changes_the_digest(tree: Path) -> None:
    text = json.dumps(notebook("measure('mount-hash')"))
    before = digest.digest(tree, text)
    (tree / "patches/mount-hash/0001-x.patch").rename(tree / "patches/mount-hash/0001-y.patch")
    assert digest.digest(tree, text) != before


def test_the_tree_itself_has_its_models_covered(root: Path) -> None:
    for model in root.glob("csrc/models/*.c"):
        found = digest.dependencies(root, notebook(f"measure('{model.stem}')"))
        assert model in found


def test_the_digest_is_of_the_code_and_not_of_the_prose(tree: Path) -> None:
    before = digest.digest(tree, json.dumps(notebook("1 + 1", prose="one")))
    assert digest.digest(tree, json.dumps(notebook("1 + 1", prose="two"))) == before
    assert digest.digest(tree, json.dumps(notebook("1 + 2", prose="one"))) != before


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"metadata": {}, "cells": []}'])
def test_what_is_not_a_notebook_is_refused_in_one_line(tree: Path, text: str) -> None:
    with pytest.raises(ContendedError, match="kernelspec") as caught:
        digest.digest(tree, text)
    assert "\n" not in str(caught.value)


def test_a_chapter_runs_again_where_it_could_not_measure(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(notebook("1"))
    monkeypatch.setattr("contended.machine.allowed_cpus", lambda: [0])
    alone = digest.digest(tree, text)
    monkeypatch.setattr("contended.machine.allowed_cpus", lambda: [0, 1])
    assert digest.digest(tree, text) != alone
    monkeypatch.setattr("contended.machine.allowed_cpus", lambda: [4, 7, 9])
    assert digest.digest(tree, text) == digest.digest(tree, text) != alone


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A machine without any of the doctor's packages, and a way to install one."""
    there: set[str] = set()
    monkeypatch.setattr(doctor.Package, "there", lambda package: package.name in there)
    monkeypatch.setattr(chapter, "missing", lambda slug: "" if "qemu" in there else "no QEMU")
    digest._there.cache_clear()

    def install(name: str) -> None:
        there.add(name)
        digest._there.cache_clear()

    yield install
    digest._there.cache_clear()


CODE = {
    "model with the library": "measure('umount-grace-period')",
    "another model": "measure('mount-hash')",
    "kernels, by a name": "from contended.kernel import chapter\nX = 'mount-hash'\n"
    "chapter.outcomes(X)",
    "kernels, of records": "from contended.kernel import chapter\nchapter.recorded('mount-hash')",
}


@pytest.mark.parametrize(
    ("package", "concerned"),
    [
        ("liburcu-dev", {"model with the library"}),
        ("libelf-dev", set()),
        ("qemu", {"kernels, by a name"}),
    ],
)
def test_a_system_package_runs_only_the_chapters_that_it_concerns(
    root: Path, install: Callable[[str], None], package: str, concerned: set[str]
) -> None:
    def all_digests() -> dict[str, str]:
        return {what: digest.digest(root, json.dumps(notebook(c))) for what, c in CODE.items()}

    before = all_digests()
    install(package)
    after = all_digests()
    assert {what for what in CODE if before[what] != after[what]} == concerned


def test_liburcu_concerns_only_the_chapters_that_name_its_case(
    root: Path, install: Callable[[str], None]
) -> None:
    def all_digests() -> dict[str, str]:
        return {p.stem: digest.digest(root, p.read_text()) for p in root.glob("notebooks/*.ipynb")}

    before = all_digests()
    install("liburcu-dev")
    after = all_digests()
    concerned = {name for name in before if before[name] != after[name]}
    assert concerned == {"06-umount-grace-period", "12-nine-bugs"}


@pytest.mark.parametrize(
    ("code", "kernels"),
    [
        ("chapter.outcomes('mount-hash')", "mount-hash: not built"),
        ("S = 'mount-hash'\nchapter.outcomes(S, x=1)", "mount-hash: not built"),
        ("chapter.outcomes(S); 'mount-hash'", "mount-hash: not built"),
        ("chapter.recorded('mount-hash')", ""),
    ],
)
def test_a_chapter_that_boots_kernels_depends_on_what_is_built(
    monkeypatch: pytest.MonkeyPatch, code: str, kernels: str
) -> None:
    monkeypatch.setattr(chapter, "missing", lambda slug: "not built")
    assert digest.kernels(notebook(f"from contended.kernel import chapter\n{code}")) == kernels
    assert digest.kernels(notebook(code)) == ""
