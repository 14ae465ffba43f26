# SPDX-License-Identifier: MIT
"""Where the repository is, and where what is made from it is kept."""

from __future__ import annotations

import os
from pathlib import Path

from contended.errors import ContendedError
from contended.packages import cache_directory


def home() -> Path:
    """The repository: the folder that holds `csrc/`.

    Raises:
        ContendedError: the package was installed away from its repository.
    """
    where = Path(os.environ.get("CONTENDED_HOME") or Path(__file__).resolve().parents[2])
    if not (where / "csrc" / "abi.h").is_file():
        raise ContendedError(
            f"no C models in {where / 'csrc'}: set CONTENDED_HOME to a clone of the repository"
        )
    return where


def cache_dir() -> Path:
    """Where compiled models are kept: `CONTENDED_CACHE`, or the user's cache directory.

    Raises:
        ContendedError: the user has no home directory, as in some containers.
    """
    try:
        return cache_directory()
    except RuntimeError as error:
        raise ContendedError(
            "this user has no home directory: set CONTENDED_CACHE to a folder that you can write"
        ) from error
