# SPDX-License-Identifier: MIT
"""Make one folder the image of another, times of modification to the nanosecond included.

`make` decides by these times what to compile, so a copy that keeps them can stand in for the
original, and a file whose size and time are the same need not be copied again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from fnmatch import fnmatch
from pathlib import Path


def entries(root: Path, without: Collection[str] = ()) -> Iterator[tuple[str, os.stat_result]]:
    """All that is under a folder, folders before what is in them, in a fixed order.

    Args:
        root: The folder.
        without: Patterns (as of `fnmatch`) of paths relative to it that are left out, with all that
            is in them.

    Yields:
        Paths relative to it, and what `lstat` says of them.
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


def digest(root: Path, without: Collection[str] = ()) -> str:
    """A digest of a folder's names, sizes and times of modification: 32 hexadecimal digits."""
    running = hashlib.sha256()
    for path, seen in entries(root, without):
        # A folder's own size and time say nothing that its entries do not.
        what = (0, 0) if stat.S_ISDIR(seen.st_mode) else (seen.st_size, seen.st_mtime_ns)
        running.update(f"{path}\0{seen.st_mode}\0{what}\n".encode(errors="surrogateescape"))
    return running.hexdigest()[:32]


def sync(source: Path, target: Path, without: Collection[str] = ()) -> int:
    """Make `target` the image of `source`.

    What is left out of the source is removed from the target.

    Returns:
        The number of files that were copied.
    """
    target.mkdir(parents=True, exist_ok=True)
    wanted = dict(entries(source, without))
    there = dict(entries(target))
    for path in there.keys() - wanted.keys():
        _remove(target / path)
    copied = 0
    for path, seen in wanted.items():
        old = there.get(path)
        if old is not None and stat.S_IFMT(old.st_mode) != stat.S_IFMT(seen.st_mode):
            _remove(target / path)
            old = None
        if stat.S_ISDIR(seen.st_mode):
            (target / path).mkdir(exist_ok=True)
        elif old is None or _differ(old, seen):
            (target / path).unlink(missing_ok=True)
            shutil.copy2(source / path, target / path, follow_symlinks=False)
            copied += 1
    return copied


def _differ(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_size, one.st_mtime_ns, one.st_mode) != (
        other.st_size,
        other.st_mtime_ns,
        other.st_mode,
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
