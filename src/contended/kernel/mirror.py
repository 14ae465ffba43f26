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
    """All paths under a folder, in a fixed order with folders first, and what `lstat` says of them.

    Paths that match one of the `fnmatch` patterns `without` are left out, with all that is in them.
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


def sync(source: Path, target: Path, without: Collection[str] = ()) -> None:
    """Make `target` the image of `source`; what is left out of this is removed from that."""
    target.mkdir(parents=True, exist_ok=True)
    wanted, there = dict(entries(source, without)), dict(entries(target))
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
        elif path not in there or _image(there[path]) != _image(seen):
            place.unlink(missing_ok=True)
            shutil.copy2(source / path, place, follow_symlinks=False)


def _image(seen: os.stat_result) -> tuple[int, int, int]:
    return seen.st_size, seen.st_mtime_ns, seen.st_mode
