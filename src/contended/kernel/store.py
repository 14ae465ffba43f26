# SPDX-License-Identifier: MIT
"""What the lab's modules share: programs that are asked, room, locks, and images of folders.

An image has the times of modification to the nanosecond: `make` decides by these what to compile.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from operator import attrgetter
from pathlib import Path
from typing import Any

from contended import tree
from contended.errors import ContendedError

ROOM = "make room, or set CONTENDED_CACHE to a folder on another disk"
Say = Callable[[str], None]  #: Told in a line what will take a while.


class ToolError(ContendedError):
    """A program refused; what it said is attached as a note."""

    def __init__(self, message: str, said: str = "") -> None:
        super().__init__(message)
        if said:
            self.add_note(said.rstrip())


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
    """A folder that becomes `home` if all goes well; None if somebody else was making it."""
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


def entries(root: Path, without: Collection[str] = ()) -> Iterator[tuple[str, os.stat_result]]:
    """All paths under a folder, in a fixed order with folders first, and what `lstat` says of them.

    Without what matches one of these `fnmatch` patterns, and all that is in it.
    """
    todo = [""]
    while todo:
        folder = todo.pop()
        with os.scandir(root / folder) as found:
            for entry in sorted(found, key=lambda e: e.name):
                path = f"{folder}/{entry.name}" if folder else entry.name
                if any(fnmatch(path, pattern) for pattern in without):
                    continue
                yield path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(path)


def folder_digest(root: Path, without: Collection[str] = ()) -> str:
    """A digest of a folder's names, sizes and times of modification: 32 hexadecimal digits."""
    running = hashlib.sha256()
    for path, seen in entries(root, without):
        # A folder's own size and time say nothing that its entries do not.
        what = (0, 0) if stat.S_ISDIR(seen.st_mode) else (seen.st_size, seen.st_mtime_ns)
        running.update(f"{path}\0{seen.st_mode}\0{what}\n".encode(errors="surrogateescape"))
    return running.hexdigest()[:32]


def sync(source: Path, target: Path, without: Collection[str] = ()) -> None:
    """Make `target` the image of `source`; what is left out of this is removed from that."""
    target.mkdir(parents=True, exist_ok=True)
    wanted, there = dict(entries(source, without)), dict(entries(target))
    image = attrgetter("st_size", "st_mtime_ns", "st_mode")
    for path, old in there.items():
        if path not in wanted or stat.S_IFMT(old.st_mode) != stat.S_IFMT(wanted[path].st_mode):
            place = target / path
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
    for path, seen in wanted.items():
        place = target / path
        if stat.S_ISDIR(seen.st_mode):
            place.mkdir(exist_ok=True)
        elif path not in there or image(there[path]) != image(seen):
            place.unlink(missing_ok=True)
            shutil.copy2(source / path, place, follow_symlinks=False)
