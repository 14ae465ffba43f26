# SPDX-License-Identifier: MIT
"""A mount namespace of our own, which ends with its last process and leaves nothing behind.

Everything here is for a child process (`contended.measure.controls`).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from contended import child

MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 4096, 16384, 1 << 18, 1 << 20
MS_RDONLY = 1
MNT_DETACH = 2
CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
# Which directory the private tmpfs covers: the first that exists and holds nothing we run from.
_PLACES = ("/mnt", "/media", "/srv", "/var/tmp", "/tmp")


class Refused(Exception):
    """The kernel said no; the message is for the reader."""


def libc() -> ctypes.CDLL:
    """The C library's functions, for system calls that Python has no name for."""
    return ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount something, or change a mount.

    Raises:
        Refused: the kernel says no.
    """
    done = libc().mount(
        source.encode(),
        target.encode(),
        kind.encode(),
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    if done:
        said = os.strerror(ctypes.get_errno())
        raise Refused(
            f"mounting {kind or source} in a private namespace is refused ({said}): "
            "run as root, or allow user namespaces to mount (AppArmor, SELinux, container rules)"
        )


def unshare(flags: int) -> None:
    """Leave namespaces for new ones of our own."""
    if libc().unshare(flags):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def private() -> str:
    """Enter a mount namespace of our own; returns the directory that its tmpfs covers."""
    uid, gid, user_namespace = os.geteuid(), os.getegid(), True
    try:
        unshare(_CLONE_NEWUSER | CLONE_NEWNS)
    except OSError as error:
        user_namespace = False
        try:
            unshare(CLONE_NEWNS)
        except OSError:
            raise Refused(
                f"this kernel gives us no private mount namespace ({error.strerror}): run as root, "
                "or allow user namespaces (sysctl user.max_user_namespaces, container rules)"
            ) from error
    if user_namespace:
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        except OSError as error:
            raise Refused(
                f"a user namespace cannot be set up here ({error.strerror}): run as root"
            ) from error
    # First of all: from here on, what we mount is nobody else's business.
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    needed = [Path(p).resolve() for p in (sys.executable, sys.prefix, __file__, *sys.path) if p]
    for place in _PLACES:
        if Path(place).is_dir() and not any(p.is_relative_to(place) for p in needed):
            break
    else:
        raise Refused(f"none of {', '.join(_PLACES)} is free to be covered in a namespace")
    mount("contended", place, "tmpfs", 0, "mode=755")
    os.chdir(place)
    return place


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends.

    After unshare() and not before: a change of credentials would clear it.
    """
    child.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def touch(path: str) -> str:
    """Make an empty file; returns its path."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    return path


def runq_wait() -> int:
    """Nanoseconds that this process was runnable and not running."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1])
    except OSError:
        return 0  # the kernel keeps no such account


def start(work: Callable[[], Any]) -> tuple[int, int]:
    """Fork; the new process does the work, writes its result into a pipe and ends."""
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _forked(work, parent, reading, writing)
    os.close(writing)
    return pid, reading


def _forked(work: Callable[[], Any], parent: int, reading: int, writing: int) -> NoReturn:
    try:
        die_with(parent)
        os.close(reading)
        try:
            answer: dict[str, Any] = {"done": work()}
        except Refused as refused:
            answer = {"refused": str(refused)}
        with os.fdopen(writing, "w") as out:
            json.dump(answer, out)
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
        os._exit(1)
    os._exit(0)


def finish(pid: int, reading: int) -> Any:
    """What the work of `start` returned; waits for it."""
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(pid, 0)
    if not text:
        raise RuntimeError("a forked process gave no answer")
    answer = json.loads(text)
    if "refused" in answer:
        raise Refused(answer["refused"])
    return answer["done"]


def in_child(work: Callable[[], Any]) -> Any:
    """What a function returns, called in a process of its own."""
    return finish(*start(work))
