# SPDX-License-Identifier: MIT
"""Calls that ftrace counts, on a made-up tracefs: all are added up, and nothing is left of it.

A real one is counted on in a kernel of the lab, by tests/kernel/test_inside.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import PATIENCE_S, eventually, our_mounts

from contended.measure import tracing
from contended.measure.private import Refused

# What the kernel does when a folder is made, or removed, among the instances.
FAKE = """\
import json, os, shutil, sys
from pathlib import Path
from contended.measure import tracing

root, refused = Path(sys.argv[1]), sys.argv[2]
STATS = "entries: 3\\noverrun: {0}\\ncommit overrun: 900\\nbytes: 900\\ndropped events: 1\\n"

def mkdir(self):
    for cpu in (0, 1):
        os.makedirs(self / f"per_cpu/cpu{cpu}")
        (self / f"per_cpu/cpu{cpu}/stats").write_text(STATS.format(10 * cpu) + "read events: 0\\n")
    os.makedirs(self / "options")
    if refused:
        os.makedirs(self / refused)  # which cannot be written to

def rmdir(self):
    told = {name: (self / name).read_text() for name in os.listdir(self) if (self / name).is_file()}
    (root / f"told-{self.name}").write_text(json.dumps(told))
    shutil.rmtree(self)

Path.mkdir, Path.rmdir, tracing._tracefs = mkdir, rmdir, lambda: root
sys.exit(tracing.main("77", "try_to_unlazy", "dput"))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "instances").mkdir()
    return tmp_path


def helper(root: Path, refused: str = "") -> subprocess.Popen[str]:
    """The counting child, on a tracefs of ours."""
    return subprocess.Popen(
        [sys.executable, "-c", FAKE, str(root), refused],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )


def instances(root: Path) -> list[str]:
    return [place.name for place in (root / "instances").iterdir()]


def test_all_calls_on_all_cpus_are_added_up_and_nothing_stays(root: Path) -> None:
    """What is still in the buffers, what was overwritten there, and what was dropped."""
    child = helper(root)
    assert child.stdout
    assert child.stdout.readline() == "{}\n"
    assert len(instances(root)) == 2
    said, _ = child.communicate(timeout=PATIENCE_S)
    assert json.loads(said) == {"try_to_unlazy": 18, "dput": 18}
    assert instances(root) == []
    (told,) = (json.loads(f.read_text()) for f in root.glob("told-*-dput"))
    assert told["set_ftrace_filter"] == "dput"
    assert told["set_ftrace_pid"] == "77"
    assert told["current_tracer"] == "nop", "it was turned off before it went"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_goes_when_it_is_told_to_and_when_its_parent_dies(root: Path, number: int) -> None:
    """SIGTERM is for the child, SIGKILL for who started it."""
    code = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {FAKE!r}, *sys.argv[1:]])"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(root), ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    with parent:
        assert parent.stdout
        assert parent.stdout.readline() == "{}\n"
        (pid,) = {int(name.split("-")[1]) for name in instances(root)}
        os.kill(parent.pid if number == signal.SIGKILL else pid, number)
        assert eventually(lambda: not instances(root))


def test_what_a_killed_one_left_goes_and_what_another_uses_stays(root: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    for pid in (dead.pid, os.getpid()):
        (root / "instances" / f"contended-{pid}-x" / "per_cpu").mkdir(parents=True)
    child = helper(root)
    child.communicate(timeout=PATIENCE_S)
    assert instances(root) == [f"contended-{os.getpid()}-x"]


def test_a_kernel_that_refuses_says_so_in_a_line(root: Path) -> None:
    child = helper(root, refused="set_ftrace_filter")
    said, _ = child.communicate(timeout=PATIENCE_S)
    assert "calls of try_to_unlazy cannot be counted: the kernel refuses" in said
    assert said.count("\n") == 1
    assert instances(root) == []


def test_without_root_or_tracing_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Refused, match="as root only"):
        tracing._tracefs()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tracing, "TRACING", tmp_path / "none")
    with pytest.raises(Refused, match="traces no functions"):
        tracing._tracefs()


def test_here_it_counts_or_says_why_not_and_leaves_no_mount() -> None:
    """Whatever this machine allows."""
    before = our_mounts()
    said = ""
    try:
        with tracing.counting(["path_mount"]) as calls:
            subprocess.run(["true"], check=True)
        said = f"{set(calls)}, counted"
    except tracing.NotCounted as refused:
        said = str(refused)
    assert "path_mount" in said or "calls" in said
    assert "counted" in said
    assert "\n" not in said
    assert our_mounts() == before
