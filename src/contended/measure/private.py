# SPDX-License-Identifier: MIT
"""A mount namespace of our own, which leaves nothing behind, and what is measured in it.

All this runs in the process that `contended.measure.controls` is, and in its forks.
"""

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from contended import stats
from contended.errors import ContendedError

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Ask = Mapping[str, Any]

MS_RDONLY, MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 1, 1 << 12, 1 << 14, 1 << 18, 1 << 20
MNT_DETACH = 2
CLONE_NEWNS, CLONE_NEWUSER = 1 << 17, 1 << 28
# Which directory the private tmpfs covers: the first that exists and holds nothing we run from.
_PLACES = ("/mnt", "/media", "/srv", "/var/tmp", "/tmp")


class Refused(ContendedError):
    """The kernel said no; the message is for the reader."""


def libc() -> ctypes.CDLL:
    """The C library, with errno kept."""
    return ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount, or raise Refused."""
    what = (source.encode(), target.encode(), kind.encode())
    if libc().mount(*what, ctypes.c_ulong(flags), data.encode() or None):
        said = os.strerror(ctypes.get_errno())
        raise Refused(
            f"mounting {kind or source} in a private namespace is refused ({said}): "
            "run as root, or allow user namespaces to mount (AppArmor, SELinux, container rules)"
        )


def unshare(flags: int) -> None:
    """Leave namespaces, or raise OSError."""
    if libc().unshare(flags):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def enter() -> str:
    """Enter a mount namespace of our own; returns the directory that its tmpfs covers."""
    maps = {"setgroups": "deny", "uid_map": f"0 {os.geteuid()} 1", "gid_map": f"0 {os.getegid()} 1"}
    try:
        unshare(CLONE_NEWUSER | CLONE_NEWNS)
    except OSError as error:
        maps = {}
        try:
            unshare(CLONE_NEWNS)
        except OSError:
            raise Refused(
                f"this kernel gives us no private mount namespace ({error.strerror}): run as root, "
                "or allow user namespaces (sysctl user.max_user_namespaces, container rules)"
            ) from error
    try:
        for name, text in maps.items():
            Path("/proc/self", name).write_text(text)
    except OSError as error:
        message = f"a user namespace cannot be set up here ({error.strerror}): run as root"
        raise Refused(message) from error
    # First of all: from here on, what we mount is nobody else's business.
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    needed = [Path(p).resolve() for p in (sys.executable, sys.prefix, __file__, *sys.path) if p]
    for place in _PLACES:
        if Path(place).is_dir() and not any(p.is_relative_to(place) for p in needed):
            mount("contended", place, "tmpfs", 0, "mode=755")
            os.chdir(place)
            return place
    raise Refused(f"none of {', '.join(_PLACES)} is free to be covered in a namespace")


def touch(path: str) -> str:
    """Make an empty file; returns its path."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    return path


def make(*places: str) -> None:
    """Make directories, and those above them."""
    for place in places:
        Path(place).mkdir(parents=True)


def waits() -> Callable[[], int]:
    """What tells how long this process has waited for a CPU, ns, even after a chroot(2)."""
    try:
        account = os.open("/proc/self/schedstat", os.O_RDONLY)
    except OSError:
        return lambda: 0  # the kernel keeps no such account
    return lambda: int(os.pread(account, 99, 0).split()[1])


def row(
    values: Sequence[float], repeat: int, waited: int, counts: Mapping[str, int], **more: Any
) -> Row:
    """The fields of a `results.Sample`."""
    span = {"value": stats.median(values), "low": min(values), "high": max(values)}
    usual = {"threads": 1, "phase": "run", "pingpong_ns": None, "start_skew_ns": 0}
    own = {"stop_skew_ns": 0, "repeat": repeat, "runq_wait_ns": waited, "counts": counts}
    return {**usual, **span, **own, **more}


def turns(names: Iterable[str], repeat: int) -> list[str]:
    """The names in the order of a repeat: there, or back again."""
    return list(names)[:: -1 if repeat % 2 else 1]


def finish(pid: int, reading: int) -> Any:
    """The answer of what `child.fork` started; raises Refused if it failed."""
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(pid, 0)
    if not text:
        raise RuntimeError("a forked process gave no answer")
    answer = json.loads(text)
    if "failed" in answer:
        raise Refused(answer["failed"])
    return answer["done"]
