# SPDX-License-Identifier: MIT
"""tools/fresh.py: what it says of wrong arguments and of a machine that cannot make the system."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def fresh(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(root / "tools" / "fresh.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "suite"),
        (("--user",), "suite"),
        (("--no-such-option", "trixie"), "--no-such-option"),
        (("../trixie",), "'../trixie' is no suite"),
        (("--home", "reader", "trixie"), "--home 'reader'"),
        (("--home", "/home/../reader", "trixie"), "--home '/home/../reader'"),
        (("--home", "/a:b", "trixie"), "--home '/a:b'"),
        (("--cache", "/no/such/folder", "trixie"), "/no/such/folder is no folder"),
        (("--mirror", "deb.debian.org", "trixie"), "'deb.debian.org' is no URL"),
        (("--packages",), "--packages"),
    ],
)
def test_wrong_arguments_are_one_line_and_status_2(
    root: Path, tmp_path: Path, arguments: tuple[str, ...], word: str
) -> None:
    done = fresh(root, *arguments, TMPDIR=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 2, done
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("fresh.py: ")
    assert word in line
    assert not any(tmp_path.iterdir())


def test_what_is_not_there_is_one_line_and_status_1(root: Path, tmp_path: Path) -> None:
    """Whether debootstrap is missing or does not know the suite depends on the machine."""
    done = fresh(root, "nosuchsuite", TMPDIR=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    assert "nosuchsuite" in line or "apt-get install debootstrap" in line
    assert not any(tmp_path.iterdir())


def test_help_names_the_defaults(root: Path) -> None:
    done = fresh(root, "--help")
    assert done.returncode == 0
    assert "default: make book" in done.stdout
    assert "/home/reader" in done.stdout


@pytest.mark.parametrize(
    ("first", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)]
)
def test_a_second_signal_does_not_stop_what_removes_the_system(
    root: Path, first: int, status: int
) -> None:
    text = (
        "import fresh, time\n"
        "fresh.end_once()\n"
        "try:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "finally:\n    print('removes', flush=True)\n    time.sleep(0.5)\n"
        "    print('removed', flush=True)\n"
    )
    command = [sys.executable, "-B", "-c", text]
    with subprocess.Popen(
        command, cwd=root / "tools", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        assert run.stdout
        assert run.stdout.readline() == "ready\n"
        run.send_signal(first)
        assert run.stdout.readline() == "removes\n"
        for again in (signal.SIGINT, signal.SIGTERM):
            run.send_signal(again)
        assert run.stdout.read() == "removed\n"
    assert run.returncode == status
