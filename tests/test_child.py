# SPDX-License-Identifier: MIT
"""Temporary folders: they go with who made them, or with whoever comes next."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from contended import child

MAKE = """
import os, signal, sys
from pathlib import Path
from contended import child
with child.scratch() as place:
    (place / "file").write_text("1")
    print(place, flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.readline()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def start(how: str) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKE, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child.environment(),
    )
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def age(folder: Path) -> None:
    os.utime(folder, (time.time() - 60,) * 2)


def test_what_a_killed_process_left_is_removed_by_the_next(place: Path) -> None:
    process, left = start("killed")
    process.communicate()
    assert (left / "file").exists()
    with child.scratch():
        assert left.exists(), "it may be one that is just being made"
    age(left)
    with child.scratch() as mine:
        assert list(place.iterdir()) == [mine]
    assert list(place.iterdir()) == []


def test_what_somebody_uses_stays(place: Path) -> None:
    process, used = start("goes on")
    age(used)
    with child.scratch(), child.scratch():
        assert (used / "file").exists()
    process.communicate("\n")
    assert list(place.iterdir()) == []
