# SPDX-License-Identifier: MIT
"""What the lab's modules share: its folder in the cache, room, locks, and programs that it asks."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contended import tree
from contended.errors import ContendedError

ROOM = "make room, or set CONTENDED_CACHE to a folder on another disk"

Say = Callable[[str], None]
"""Told in a line what will take a while."""


def ask(command: Sequence[str | Path], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program that is asked nothing, and answers in English; its exit status is no error."""
    pipe = subprocess.PIPE
    more = {"stdout": pipe, "stderr": pipe, "env": {**os.environ, "LC_ALL": "C"}, **more}
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, text=True, errors="replace", check=False, **more
    )


def is_full(said: str) -> bool:
    """Whether a program's words, in English, say that a disk, or a user's share of it, is full."""
    return any(os.strerror(number) in said for number in (errno.ENOSPC, errno.EDQUOT))


def cache() -> Path:
    """The folder of all that the kernel lab keeps."""
    return tree.cache_dir() / "kernel"


def free(where: Path) -> tuple[Path, int]:
    """The folder itself, or the nearest above it that exists, and the bytes free on its disk."""
    there = next(p for p in (where, *where.absolute().parents) if p.exists())
    return there, shutil.disk_usage(there).free


def need_space(where: Path, needed: int, purpose: str) -> None:
    """See that the disk has so many bytes left; raises ContendedError, which names the purpose."""
    there, left = free(where)
    if left < needed:
        raise ContendedError(
            f"{purpose} needs about {needed / 1e9:.1f} GB and {there} has {left / 1e9:.1f} GB free:"
            f" {ROOM}"
        )


@contextmanager
def making(home: Path, say: Say) -> Iterator[Path | None]:
    """A folder that becomes `home` if all goes well, and nothing otherwise.

    None if somebody else made it while we waited for the lock.
    """
    with locked(home.parent / "lock", say):
        for left in home.parent.glob(".new-*"):  # somebody was killed: we have the lock
            shutil.rmtree(left, ignore_errors=True)
        if home.exists():
            yield None
            return
        with tempfile.TemporaryDirectory(prefix=".new-", dir=home.parent) as scratch:
            work = Path(scratch) / home.name
            work.mkdir()
            yield work
            work.replace(home)


@contextmanager
def locked(file: Path, say: Say) -> Iterator[int]:
    """Hold a lock file; yields its descriptor, with which a child keeps the lock until it ends."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        stream = file.open("a")
    except OSError as error:
        raise ContendedError(
            f"cannot write to {file.parent} ({error.strerror}): "
            "set CONTENDED_CACHE to a folder that you can write"
        ) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build to end")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield stream.fileno()
