# SPDX-License-Identifier: MIT
"""Every lab grades as it says: the solution gets all, the stub nothing, wrong ones as planned.

The labs with a kernel patch need a built kernel and QEMU, and minutes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from contended import machine, tree
from contended.course import grade, lab, notebook, prove, release
from contended.errors import ContendedError
from contended.kernel import qemu, source

pytest_plugins = ("coursefixtures",)

BRISK = "proc-mounts-seek"
LABS = sorted(path.parent.name for path in (tree.home() / "labs").glob("*/lab.toml"))


def _is_patch(slug: str) -> bool:
    return lab.load(tree.home() / "labs" / slug).kind == "patch"


#: Of the patch labs, where one grade takes minutes; `make labs` proves all of them.
PROVED = {
    "umount-grace-period": ("solution", "stub", "leaks-without-memory"),
    "open-creat-unlazy": ("solution", "stub", "another-line"),
}


def submissions() -> list[tuple[str, str]]:
    """The names of each lab's known submissions; grading needs a fixture, collecting does not."""
    found = []
    for slug in LABS:
        folder = tree.home() / "labs" / slug
        wrong = sorted(path.parent.name for path in folder.glob("wrong/*/expected.toml"))
        right = sorted(path.stem for path in folder.glob("private/right/*.patch"))
        known = ("solution", "stub", *right, *wrong)
        chosen = PROVED.get(slug, known)
        assert set(chosen) <= set(known), f"{slug}: no submission of that name"
        found += [(slug, name) for name in chosen]
    return found


def _marked() -> list[object]:
    """All of them; `make test` proves one lab, the others are for `make check`."""
    return [
        pytest.param(*each, marks=() if each[0] == BRISK else pytest.mark.check)
        for each in submissions()
    ]


def _need_kernels() -> None:
    if shutil.which(qemu.QEMU) is None:
        pytest.skip(qemu.QEMU_MISSING)
    try:
        source.find()
    except ContendedError as error:
        pytest.skip(str(error))


def _prove(slug: str, name: str) -> prove.Proof:
    about = lab.load(lab.folder() / slug)
    known = {each: (expected, taken) for each, expected, taken in prove.known(about)}
    expected, taken = known[name]
    return prove.Proof(name, expected, grade.one(about, taken, student=name, unsafe=False))


@pytest.fixture(scope="module")
def notebooks(
    boxes: None, request: pytest.FixtureRequest
) -> Iterator[dict[tuple[str, str], Future[prove.Proof]]]:
    """The chosen proofs of all labs but the patches, as many at once as there are CPUs."""
    chosen = {item.name for item in request.session.items}
    asked = [
        e for e in submissions() if not _is_patch(e[0]) and any("-".join(e) in n for n in chosen)
    ]
    with ThreadPoolExecutor(len(machine.allowed_cpus())) as pool:
        yield {each: pool.submit(_prove, *each) for each in asked}
        pool.shutdown(cancel_futures=True)


@pytest.mark.usefixtures("boxes")
@pytest.mark.parametrize(("slug", "name"), _marked())
def test_a_known_submission_gets_what_it_must(
    slug: str, name: str, notebooks: dict[tuple[str, str], Future[prove.Proof]]
) -> None:
    if _is_patch(slug):
        _need_kernels()
        # One after the other, and nothing beside it: latencies are compared.
        wait(notebooks.values())
        proof = _prove(slug, name)
    else:
        proof = notebooks[slug, name].result()
    assert proof.misses == []


@pytest.mark.parametrize("slug", LABS)
def test_a_lab_has_three_wrong_solutions_that_lose_something(slug: str) -> None:
    about = lab.load(lab.folder() / slug)
    wrong = lab.wrong(about)
    assert len(wrong) >= 3
    for each in wrong:
        assert sum(each.points.values()) < about.points, each.name


@pytest.mark.parametrize("slug", LABS)
def test_a_lab_is_released_without_a_leak(slug: str, tmp_path: Path) -> None:
    release.run(tmp_path, [slug])
    about = lab.load(tmp_path / "release" / slug)
    assert about.points == lab.load(lab.folder() / slug).points
    assert about.objectives
    assert about.minutes > 0
    if about.kind != "patch":
        cells = {notebook.grade_id(cell) for cell in notebook.read(about).cells}
        assert {*about.cells, *(part.id for part in about.parts)} <= cells
