# SPDX-License-Identifier: MIT
"""The room that the files of a box take, where nothing caps it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

_BLOCK = 512  # of `st_blocks`
_ENTRY = 4096  # what a name costs at least, so that there is an end to empty files


def fits(folder: Path, processes: Mapping[int, int], most: int) -> bool:
    """Whether a folder, and files without a name that processes have open, are small enough."""
    used = 0
    try:
        for size in _sizes(folder, processes):
            used += size
            if used > most:
                return False
    except OSError:  # a path that is too long, in a folder that is not meant to be looked at
        return False
    return True


def _sizes(folder: Path, processes: Mapping[int, int]) -> Iterator[int]:
    folders = [str(folder)]
    for place in folders:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(place) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    about = entry.stat(follow_symlinks=False)
                    yield max(about.st_blocks * _BLOCK, _ENTRY)
                    if stat.S_ISDIR(about.st_mode):
                        folders.append(entry.path)
    seen = set()
    for pid in processes:
        # It may just have ended; those of the box itself are the grader's to see.
        with suppress(OSError):
            for open_file in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    about = open_file.stat()
                    identity = about.st_dev, about.st_ino
                    if about.st_nlink == 0 and stat.S_ISREG(about.st_mode) and identity not in seen:
                        seen.add(identity)
                        yield about.st_blocks * _BLOCK
