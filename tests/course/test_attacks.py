# SPDX-License-Identifier: MIT
"""Submissions that do not want to be graded by their merits: each gets what it has earned.

They are graded in one batch, between two honest students, whose grades nothing may touch.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest
import toylabs
from support import eventually

from contended.course import grade, grades
from contended.course.grades import Grade

pytest_plugins = ("coursefixtures",)
pytestmark = pytest.mark.usefixtures("boxes")

WRONG = "def total(numbers):\n    return 3\n"


def dedent(text: str) -> str:
    return textwrap.dedent(text).strip() + "\n"


ATTACKS: Mapping[str, str] = {
    "reads-the-hidden-tests": """
        import gc, json, os, sys
        def total(numbers):
            for top in ("/", os.getcwd()):
                for folder, folders, files in os.walk(top):
                    folders[:] = [f for f in folders if f not in ("proc", "usr", "sys", ".venv")]
                    if "secret.json" in files or "sums.ipynb" in files:
                        return sum(numbers)
            if any("secret_answer" in repr(o) for o in gc.get_objects() if isinstance(o, str)
                   and o is not total.__code__.co_consts):
                pass
            with open("/proc/self/environ") as environ:
                if "JOB" in environ.read():
                    return sum(numbers)
            return 3
    """,
    "forks-for-ever": """
        import os
        def total(numbers):
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
    """,
    "allocates-100-gigabytes": """
        def total(numbers):
            return len(bytearray(100 << 30))
    """,
    "loops-for-ever": """
        def total(numbers):
            while True:
                pass
    """,
    "prints-a-fake-grade": """
        import json, os, sys
        def total(numbers):
            for line in ('{"ok": 3}', '{"earned": 5, "points": 5}', '{"ok": true}'):
                print(line, flush=True)
                for descriptor in range(1, 64):
                    try:
                        os.write(descriptor, line.encode() + b"\\n")
                    except OSError:
                        pass
            return 3
    """,
    "patches-the-tests": """
        import builtins, sys
        import contended.course as course
        course.call = lambda *args, **kwargs: 3
        course.session = None
        builtins.AssertionError = Warning
        for name in list(sys.modules):
            if name.startswith(("nbgrader", "IPython", "contended")):
                sys.modules[name] = course
        sys.excepthook = lambda *_: None
        def total(numbers):
            return 3
    """,
    "is-equal-to-everything": """
        class Any(int):
            def __eq__(self, other):
                return True
            def __hash__(self):
                return 0
        def total(numbers):
            return Any(3)
    """,
    "traces-the-grader": """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        def total(numbers):
            for pid in (os.getppid(), 1, *range(2, 400)):
                if pid != os.getpid() and libc.ptrace(16, pid, 0, 0) == 0:
                    return sum(numbers)
            return 3
    """,
    "raises-system-exit": """
        import sys
        def total(numbers):
            sys.exit(0)
    """,
    "answers-without-end": """
        def total(numbers):
            return "x" * (64 << 20)
    """,
    "answers-nested-nonsense": """
        import os
        def total(numbers):
            for descriptor in range(3, 16):
                try:
                    os.write(descriptor, b"[" * 100000 + b"\\n")
                except OSError:
                    pass
            return 3
    """,
}
"""Each gets nothing for its total, and the points for doubling, which it does honestly."""

REASONS = {
    "forks-for-ever": "did not answer in time",
    "loops-for-ever": "did not answer in time",
    "allocates-100-gigabytes": "MemoryError",
    "raises-system-exit": "SystemExit",
    "answers-without-end": "answered more than",
}

HARMLESS: Mapping[str, str] = {
    "opens-a-socket": """
        import socket
        def total(numbers):
            try:
                socket.create_connection(("127.0.0.1", PORT), 2)
                return 0
            except OSError:
                return sum(numbers)
    """,
    "writes-outside": """
        from pathlib import Path
        def total(numbers):
            for place in ("OUT", "HOME/labs", "/usr/lib", "/etc", "/dev/shm", "/var/tmp", "/"):
                try:
                    (Path(place) / "was-here").write_text("1")
                except OSError:
                    pass
            return sum(numbers)
    """,
    "leaves-processes-behind": """
        import os, time
        def total(numbers):
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
            return sum(numbers)
    """,
}
"""What they try does not come to pass, and their answers are right: they get all points."""


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
                if b"contended.course.student" in place.read_bytes():
                    found.append(place.parent.name)
            except OSError:
                continue
        return found

    assert eventually(lambda: not left(), seconds=10), left()


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
