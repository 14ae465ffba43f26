# SPDX-License-Identifier: MIT
"""What processes that we start have in common: they find the package, and they end with us."""

import ctypes
import fcntl
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from contended.errors import ContendedError

PR_SET_PDEATHSIG = 1
_FRESH_S = 10.0  # between a folder's making and its lock, on a busy machine
_SOCKET_FOLDER = 70  # bytes; of the 107 that a socket's address may have, the rest is names
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


def end_in_order(status: int, parent: int = 0) -> None:
    """Have SIGTERM, which the end of our parent sends as well, raise SystemExit: once only.

    The end of a parent is signalled again for each thread that it has, and must not break off what
    clears up after the first. Nobody signals it if `parent` ended while we were starting, for which
    a busy machine takes seconds: then this does not return.
    """

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        sys.exit(status)

    signal.signal(signal.SIGTERM, stop)
    die_with_parent(signal.SIGTERM, parent)


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


@contextmanager
def scratch(place: Path | None = None) -> Iterator[Path]:
    """A temporary folder that goes with the block; what killed processes left of such goes first.

    Whoever has one holds a lock on it, which ends with its process however that ends.
    """
    place = place or Path(tempfile.gettempdir())
    for left in place.glob("contended.*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _FRESH_S:
                with _hold(left):
                    shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix="contended.", dir=place) as made, _hold(Path(made)):
        yield Path(made)


@contextmanager
def _hold(folder: Path) -> Iterator[None]:
    """Lock a folder; raises BlockingIOError if somebody has."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def environment() -> dict[str, str]:
    """This process's environment, with all that it can import in reach."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextmanager
def jupyter_sockets() -> Iterator[dict[str, str]]:
    """What to tell a Jupyter KernelManager so that its kernel is spoken to through private sockets.

    Ports are chosen before the kernel opens them: of two kernels that start at once, one may find
    its own taken, and dies. Others on the machine could listen at them as well.
    """
    usual = len(os.fsencode(tempfile.gettempdir())) < _SOCKET_FOLDER
    with scratch(None if usual else Path("/tmp")) as folder:
        yield {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}


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


def family(top: int) -> Mapping[int, int]:
    """A process and all below it, with their pages in memory."""
    pages: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for pid, fields in processes():
        pages[pid] = int(fields[21])
        children.setdefault(int(fields[1]), []).append(pid)
    below = [top]
    for pid in below:
        below += children.get(pid, [])
    return {pid: pages.get(pid, 0) for pid in below}


def memory(pages: Mapping[int, int]) -> int:
    """What they have in memory, in bytes; what they share is counted for each."""
    return sum(pages.values()) * resource.getpagesize()
