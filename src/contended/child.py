# SPDX-License-Identifier: MIT
"""What processes that we start have in common: they find the package, and they end with us."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

PR_SET_PDEATHSIG = 1
_CAUSES = {
    "SIGSEGV": "it used memory that is not there",
    "SIGBUS": "it used memory that is not there",
    "SIGABRT": "it, or a checker, gave up",
    "SIGFPE": "a division by zero, most likely",
}


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel signal this process when the one that started it ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)


def environment() -> dict[str, str]:
    """This process's environment, with all that it can import in reach."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def death(number: int, **causes: str) -> str:
    """How a signal ended a process, in words; `causes` are the likely ones of further signals."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"was killed by signal {number}"
    cause = {**_CAUSES, **causes}.get(name)
    return f"was killed by {name} ({cause})" if cause else f"was killed by {name}"


def processes() -> Iterator[tuple[int, list[str]]]:
    """All processes: numbers, and the fields of `/proc/PID/stat` from the state and parent on."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text(errors="replace")
        except OSError:
            continue  # it has just ended
        # "pid (name) state ppid ...": the name may hold anything, brackets and blanks too
        yield int(entry.name), stat.rpartition(")")[2].split()
