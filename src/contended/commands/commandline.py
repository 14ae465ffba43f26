# SPDX-License-Identifier: MIT
"""What the commands share: lists and numbers on a command line, files to write, a progress bar."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from contended.errors import UsageError

STDOUT = Path("-")
"""Where `--json -` writes."""

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much, or 0 if unknown."""


def names(text: str) -> list[str]:
    """A list like `a,b`, for argparse."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError("give at least one name")
    return found


def counts(text: str) -> list[int]:
    """A list like `1,2,4`, for argparse."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list like 1,2,4") from error


def positive(text: str) -> int:
    """A number from 1 up, for argparse."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 up")
    return value


def check_writable(path: Path) -> None:
    """Better to find out before a long measurement than after it."""
    if path == STDOUT:
        return
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file, or - for standard output")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}: make it first")
    # A pipe or a device is written to; a file is replaced, which is up to its folder.
    if not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written: choose a file in a folder that can")


@contextmanager
def bar(unit: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal, nothing in a pipe or a file."""
    if not sys.stderr.isatty():
        yield None
        return
    with tqdm(unit=unit, leave=False) as shown:

        def update(done: int, planned: int) -> None:
            shown.total = planned
            shown.update(done - shown.n)

        yield update


@contextmanager
def lines() -> Iterator[Progress]:
    """A bar on a terminal; elsewhere a line for each thing that is begun."""
    if not sys.stderr.isatty():
        last = ""

        def tell(what: str, _done: int, _total: int) -> None:
            nonlocal last
            if what != last:
                sys.stderr.write(f"{what}\n")
                sys.stderr.flush()
            last = what

        yield tell
        return
    with tqdm(leave=False, bar_format="{desc} {bar} {n_fmt}/{total_fmt} {elapsed}") as shown:

        def update(what: str, done: int, total: int) -> None:
            if done < shown.n:
                shown.reset()
            shown.total = total or None
            shown.set_description_str(what, refresh=False)
            shown.update(done - shown.n)
            shown.refresh()

        yield update
