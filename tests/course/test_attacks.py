# SPDX-License-Identifier: MIT
"""Submissions that do not want to be graded by their merits: each gets what it has earned.

They are graded in one batch, between two honest students, whose grades nothing may touch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import toylabs
from attacks import ATTACKS, HARMLESS, dedent
from support import eventually

from contended.course import grade, grades
from contended.course.grades import Grade

pytest_plugins = ("coursefixtures",)
pytestmark = pytest.mark.usefixtures("boxes")

WRONG = "def total(numbers):\n    return 3\n"

REASONS = {
    "forks-for-ever": "did not answer in time",
    "loops-for-ever": "did not answer in time",
    "allocates-100-gigabytes": "MemoryError",
    "raises-system-exit": "SystemExit",
    "answers-without-end": "answered more than",
}


@pytest.fixture(scope="module")
def batch(
    tmp_path_factory: pytest.TempPathFactory, toy_home: Path
) -> tuple[Path, Mapping[str, Grade]]:
    place = tmp_path_factory.mktemp("attacks")
    submissions, out = place / "submissions", place / "grades"
    honest = toylabs.sums(toylabs.RIGHT_TOTAL, toylabs.RIGHT_TWICE)
    for student in ("a-honest", "z-honest"):
        toylabs.submit(submissions, student, "sums", {"sums.ipynb": honest})
    for student, text in {**ATTACKS, **HARMLESS}.items():
        code = dedent(text).replace("OUT", str(out)).replace("HOME", str(toy_home))
        code = code.replace("PORT", "9")
        book = toylabs.sums(code, toylabs.RIGHT_TWICE)
        toylabs.submit(submissions, student, "sums", {"sums.ipynb": book})
    leaves = toylabs.sums("import os\nos._exit(0)\n", toylabs.RIGHT_TWICE)
    toylabs.submit(submissions, "leaves-early", "sums", {"sums.ipynb": leaves})
    edited = toylabs.sums(
        WRONG,
        toylabs.RIGHT_TWICE,
        toylabs.cell("assert True", "test-total", points=3),
        toylabs.cell("import os; os._exit(0)", tags=["setup"]),
    )
    toylabs.submit(submissions, "edits-the-tests", "sums", {"sums.ipynb": edited})
    shadows = toylabs.submit(
        submissions,
        "shadows-the-package",
        "sums",
        {
            "sums.ipynb": toylabs.sums(WRONG, toylabs.RIGHT_TWICE),
            "contended.py": "raise SystemExit(0)\n",
            "sitecustomize.py": "import os\nos._exit(0)\n",
            "json.py": "dumps = lambda *a, **k: '{\"ok\": 60}'\n",
            "lab.toml": "points = 100\n",
        },
    )
    (shadows / "contended").mkdir()
    (shadows / "contended" / "__init__.py").write_text("raise SystemExit(0)\n")
    os.environ["CONTENDED_HOME"], before = str(toy_home), os.environ.get("CONTENDED_HOME")
    try:
        found = grade.run(submissions, out, labs=["sums"], jobs=2)
    finally:
        if before is None:
            del os.environ["CONTENDED_HOME"]
        else:
            os.environ["CONTENDED_HOME"] = before
    return out, {each.student: each for each in found}


Batch = tuple[Path, Mapping[str, Grade]]


def points(found: Grade) -> dict[str, int]:
    return {part.id: part.earned for part in found.parts}


def test_nobody_was_left_out(batch: Batch) -> None:
    assert [g.student for g in batch[1].values() if g.failed] == []


@pytest.mark.parametrize("student", ["a-honest", "z-honest", *HARMLESS])
def test_the_honest_get_all_points(batch: Batch, student: str) -> None:
    found = batch[1][student]
    assert points(found) == {"test-total": 3, "test-twice": 2}, found


@pytest.mark.parametrize("student", [*ATTACKS, "edits-the-tests", "shadows-the-package"])
def test_an_attack_earns_what_it_does_right(batch: Batch, student: str) -> None:
    found = batch[1][student]
    assert points(found) == {"test-total": 0, "test-twice": 2}, found
    assert REASONS.get(student, "") in found.parts[0].reason


def test_who_leaves_early_gets_nothing_and_is_told(batch: Batch) -> None:
    found = batch[1]["leaves-early"]
    assert points(found) == {"test-total": 0, "test-twice": 0}
    assert "left with exit status 0" in found.parts[0].reason


def test_nothing_was_written_outside(batch: Batch, toy_home: Path) -> None:
    places = [batch[0], toy_home / "labs", Path("/usr/lib"), Path("/etc"), Path("/dev/shm")]
    assert [p for p in (*places, Path("/"), Path("/var/tmp")) if (p / "was-here").exists()] == []


def test_no_process_is_left(batch: Batch) -> None:
    def left() -> list[str]:
        found = []
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                student = b"contended.course.student" in place.read_bytes()
                if student and not _another_s(int(place.parent.name)):
                    found.append(place.parent.name)
            except OSError:
                continue
        return found

    assert eventually(lambda: not left()), left()


def _another_s(pid: int) -> bool:
    """Whether it was started by other tests, which still run: what is left over has no such one."""
    above = []
    while pid > 1:
        status = Path(f"/proc/{pid}/stat").read_text()
        pid = int(status.rpartition(")")[2].split()[1])
        above.append(pid)
    others = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in above if pid > 1]
    return os.getpid() not in above and any(b"pytest" in command for command in others)


def test_no_hidden_test_is_in_the_feedback(batch: Batch) -> None:
    for page in (batch[0] / "feedback").rglob("*.html"):
        assert "secret_answer" not in page.read_text()
        assert "secret.json" not in page.read_text()


def test_the_saved_grades_are_the_graders_own(batch: Batch) -> None:
    out, found = batch
    for student, each in found.items():
        assert grades.load(out / "grades" / student / "sums.json") == each
    listed = json.loads((out / "grades.json").read_text())
    assert {each["student"] for each in listed} == set(found)


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        ("--- a/../../x.c\n+++ b/../../x.c\n@@ -0,0 +1 @@\n+x\n", "is no name like"),
        ("--- a/fs/Makefile\n+++ b/fs/Makefile\n@@ -1 +1 @@\n-a\n+b\n", "not fs/Makefile"),
        ("--- a/Makefile\n+++ b/Makefile\n@@ -1 +1 @@\n-a\n+b\n", "not Makefile"),
        ("--- a/fs/Kconfig\n+++ b/fs/Kconfig\n@@ -1 +1 @@\n-a\n+b\n", "not fs/Kconfig"),
        ("--- a/mm/slab.c\n+++ b/mm/slab.c\n@@ -1 +1 @@\n-a\n+b\n", "only change .c and .h"),
    ],
)
def test_a_patch_outside_of_its_folders_is_refused(
    toys: Path, tmp_path: Path, patch: str, reason: str
) -> None:
    toylabs.submit(tmp_path / "in", "one", "patching", {"fix.patch": patch})
    (found,) = grade.run(tmp_path / "in", tmp_path / "out")
    assert found.earned == 0
    assert found.failed == ""
    assert reason in found.parts[0].reason
    assert found.parts[1].reason.startswith("it was not reached")
