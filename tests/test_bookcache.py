# SPDX-License-Identifier: MIT
"""A chapter's digest covers the right files, and stale records leave the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn

from contended import bookcache
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
        "csrc/guest/init.c",
        "csrc/qemu/coherence.c",
        "patches/config/base.config",
        "src/contended/cases.toml",
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
    "src/contended/cases.toml",
    "src/contended/stats.py",
}
MOUNT_HASH = {
    "csrc/models/mount_hash.c",
    "patches/mount-hash/0001-x.patch",
    "patches/mount-hash/variants.toml",
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


@pytest.mark.parametrize(
    ("code", "case_files"),
    [
        ("1 + 1", set()),
        ("measure('mount-hash')", MOUNT_HASH),
        ("build('csrc/models/mount_hash.c')", MOUNT_HASH),
        ("load('results/mount-hash-2cpu.json')", MOUNT_HASH),
        ("from contended.kernel import chapter", KERNEL),
        ("import contended.simulate.locks", {"src/contended/simulate/locks.py"}),
        ("amount_hash = 1; mount_hashes = 2", set()),
    ],
)
def test_a_chapter_depends_on_the_cases_its_code_names(
    tree: Path, code: str, case_files: set[str]
) -> None:
    found = bookcache.dependencies(tree, notebook(code, prose="see overlay-creds"))
    assert {str(path.relative_to(tree)) for path in found} == SHARED | case_files


def test_metadata_can_add_dependencies(tree: Path) -> None:
    extra = notebook("1", contended={"depends": ["csrc/models/*.c"]})
    found = {path.name for path in bookcache.dependencies(tree, extra)}
    assert {"mount_hash.c", "overlay_creds.c"} <= found


def test_the_digest_changes_with_exactly_these_files(tree: Path) -> None:
    text = json.dumps(notebook("measure('mount-hash')"))
    before = bookcache.stamp(tree, text)
    assert bookcache.stamp(tree, text) == before
    for path in sorted(p for p in tree.rglob("*") if p.is_file()):
        name = str(path.relative_to(tree))
        kept = path.read_text()
        path.write_text(kept + "edited")
        assert (bookcache.stamp(tree, text) != before) == (name in SHARED | MOUNT_HASH), name
        path.write_text(kept)
    (tree / "patches/mount-hash/0002-z.patch").touch()
    assert bookcache.stamp(tree, text) != before, "a new file counts"


def test_a_renamed_file_changes_the_digest(tree: Path) -> None:
    text = json.dumps(notebook("measure('mount-hash')"))
    before = bookcache.stamp(tree, text)
    (tree / "patches/mount-hash/0001-x.patch").rename(tree / "patches/mount-hash/0001-y.patch")
    assert bookcache.stamp(tree, text) != before


def test_the_tree_itself_has_its_models_covered(root: Path) -> None:
    for model in root.glob("csrc/models/*.c"):
        found = bookcache.dependencies(root, notebook(f"measure('{model.stem}')"))
        assert model in found


def put(cache_path: Path, stamped: str, uri: Path) -> None:
    """Store a notebook as if it had just been run."""
    node = bookcache.parse(stamped)
    node.cells[1].execution_count = 1
    get_cache(cache_path).cache_notebook_bundle(CacheBundleIn(node, str(uri)), overwrite=True)


def test_stale_records_are_dropped_and_others_kept(tree: Path) -> None:
    cache_path = tree / "cache"
    mine, other = tree / "mine.ipynb", tree / "other.ipynb"
    text = json.dumps(notebook("measure('mount-hash')"))
    assert bookcache.drop_stale(cache_path, mine, bookcache.stamp(tree, text)) == 0
    assert not cache_path.exists()

    stamped = bookcache.stamp(tree, text)
    put(cache_path, stamped, mine)
    put(cache_path, bookcache.stamp(tree, json.dumps(notebook("2"))), other)
    assert bookcache.drop_stale(cache_path, mine, stamped) == 0
    assert get_cache(cache_path).match_cache_notebook(bookcache.parse(stamped))

    (tree / "csrc/models/mount_hash.c").write_text("edited")
    edited = bookcache.stamp(tree, text)
    with pytest.raises(KeyError):
        get_cache(cache_path).match_cache_notebook(bookcache.parse(edited))
    assert bookcache.drop_stale(cache_path, mine, edited) == 1
    assert [r.uri for r in get_cache(cache_path).list_cache_records()] == [str(other)]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"metadata": {}, "cells": []}'])
def test_what_is_not_a_notebook_is_refused_in_one_line(tree: Path, text: str) -> None:
    with pytest.raises(ContendedError, match="kernelspec") as caught:
        bookcache.stamp(tree, text)
    assert "\n" not in str(caught.value)


def test_a_chapter_runs_again_where_it_could_not_measure(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(notebook("1"))
    monkeypatch.setattr("contended.machine.allowed_cpus", lambda: [0])
    alone = bookcache.stamp(tree, text)
    monkeypatch.setattr("contended.machine.allowed_cpus", lambda: [0, 1])
    assert bookcache.stamp(tree, text) != alone
    monkeypatch.setattr("contended.machine.allowed_cpus", lambda: [4, 7, 9])
    assert bookcache.stamp(tree, text) == bookcache.stamp(tree, text) != alone
    monkeypatch.setattr("contended.doctor.Package.there", lambda package: False)
    without = bookcache.stamp(tree, text)
    monkeypatch.setattr("contended.doctor.Package.there", lambda package: True)
    assert bookcache.stamp(tree, text) != without


def test_a_chapter_of_the_kernel_lab_depends_on_what_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chapter, "missing", lambda slug: f"{slug} is not built")
    lab = {"cells": [{"cell_type": "code", "source": "from contended.kernel import chapter\n"
                      "chapter.outcomes('mount-hash')"}], "metadata": {}}  # fmt: skip
    model = {"cells": [{"cell_type": "code", "source": "measure('mount-hash')"}], "metadata": {}}
    assert bookcache.kernels(lab) == "mount-hash: mount-hash is not built"
    assert bookcache.kernels(model) == ""
