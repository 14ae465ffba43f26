# SPDX-License-Identifier: MIT
"""Where the repository is, and where what is made from it is kept."""

import os
from pathlib import Path

from contended.errors import ContendedError
from contended.packages import cache_directory

PACKED = Path(__file__).resolve().parent / "_tree"
"""What a wheel holds of the repository (setup.py); in a clone there is no such folder."""


def home() -> Path:
    """The repository, or a wheel's part of it; raises ContendedError if there is no `csrc/`."""
    clone = PACKED if PACKED.is_dir() else Path(__file__).resolve().parents[2]
    where = Path(os.environ.get("CONTENDED_HOME") or clone)
    if not (where / "csrc" / "abi.h").is_file():
        raise ContendedError(
            f"no C models in {where / 'csrc'}: set CONTENDED_HOME to a clone of the repository"
        )
    return where


def cache_dir() -> Path:
    """Where what takes time to make is kept: models, kernels, plugins, what was found out.

    `CONTENDED_CACHE`, or the user's cache directory.
    """
    try:
        return cache_directory()
    except RuntimeError as error:
        raise ContendedError(
            "this user has no home directory: set CONTENDED_CACHE to a folder that you can write"
        ) from error
