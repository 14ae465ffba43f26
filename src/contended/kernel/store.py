# SPDX-License-Identifier: MIT
"""The kernel lab's folder in the cache: room, locks, and folders that are whole or not there."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from contended import tree
from contended.errors import ContendedError

ROOM = "make room, or set CONTENDED_CACHE to a folder on another disk"
"""What to do about a disk that is full."""


def is_full(said: str) -> bool:
    """Whether a program's words, in English, say that a disk, or a user's share of it, is full."""
    return any(os.strerror(number) in said for number in (errno.ENOSPC, errno.EDQUOT))


def cache() -> Path:
    """The folder of all that the kernel lab keeps."""
    return tree.cache_dir() / "kernel"


def need_space(where: Path, needed: int, purpose: str) -> None:
    """See that the disk has room.

    Args:
        where: A folder that may not exist yet.
        needed: Bytes.
        purpose: What they are for, for the message.

    Raises:
        ContendedError: it has not.
    """
    there = next(p for p in (where, *where.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise ContendedError(
            f"{purpose} needs about {needed / 1e9:.1f} GB and {there} has {free / 1e9:.1f} GB free:"
            f" {ROOM}"
        )


@contextmanager
def making(home: Path, say: Callable[[str], None]) -> Iterator[Path | None]:
    """A folder that becomes `home` if all goes well, and nothing otherwise.

    None if somebody else made it while we waited for the lock.
    """
    with locked(home.parent / "lock", say):
        for left in home.parent.glob(".new-*"):  # somebody was killed: we have the lock
            shutil.rmtree(left, ignore_errors=True)
        if home.exists():
            yield None
            return
        work = Path(tempfile.mkdtemp(prefix=".new-", dir=home.parent))
        try:
            yield work
            work.replace(home)
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def locked(file: Path, say: Callable[[str], None]) -> Iterator[int]:
    """Hold a lock file; yields its descriptor."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        stream = file.open("a")
    except OSError as error:
        raise ContendedError(
            f"cannot write to {file.parent} ({error.strerror}): "
            "set CONTENDED_CACHE to a folder that you can write"
        ) from error
    with stream:
        waiting = False
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    say("waiting for another build to end")
                waiting = True
                time.sleep(0.1)
        yield stream.fileno()
