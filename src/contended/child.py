# SPDX-License-Identifier: MIT
"""What processes that we start have in common: they find the package, and they end with us."""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from contended.errors import ContendedError

PR_SET_PDEATHSIG = 1
_CAUSES = {
    **dict.fromkeys(("SIGSEGV", "SIGBUS"), "it used memory that is not there"),
    "SIGABRT": "it, or a checker, gave up",
    "SIGFPE": "a division by zero, most likely",
}


def die_with_parent(number: signal.Signals, parent: int = 0) -> None:
    """Have the kernel signal this process when the one that started it (`parent`) ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
    if parent and os.getppid() != parent:
        os._exit(1)  # it ended before it could be watched


def fork(work: Callable[[], Any]) -> tuple[int, int]:
    """Do the work in a fork, which ends with us: its number, and a pipe to read from.

    A line of JSON comes: {"done": result}, {"failed": a ContendedError's message}, or nothing.
    """
    parent = os.getpid()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        die_with_parent(signal.SIGKILL, parent)
        os.close(reading)
        try:
            answer = {"done": work()}
        except ContendedError as error:
            answer = {"failed": str(error)}
        with os.fdopen(writing, "w") as out:
            out.write(json.dumps(answer) + "\n")
        # What C printed is still in its buffer, and _exit() would drop it.
        ctypes.CDLL(None).fflush(None)
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
        os._exit(1)
    os._exit(0)


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
