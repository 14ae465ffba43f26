# SPDX-License-Identifier: MIT
"""What the commands share: what stands on a command line, output, and a progress bar."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from contended.errors import UsageError
from contended.records import write_whole

STDOUT = Path("-")  # where `--json -` writes
Command = Callable[[argparse.Namespace], int | None]
Add = Callable[..., argparse.Action]


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


def between(text: str) -> tuple[float, float]:
    """A number, or the least and the most like `0.2,0.3`, for argparse."""
    try:
        low, *rest = (float(part) for part in text.split(","))
        (high,) = rest or [low]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 0.2 or 0.2,0.3") from error
    return low, high


def positive(text: str) -> int:
    """A number from 1 up, for argparse."""
    with suppress(ValueError):
        if (value := int(text)) >= 1:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 up")


def setting(text: str) -> tuple[str, str]:
    """A parameter of a workload like `name=9`; it goes into the guest's command line."""
    if found := re.fullmatch(r"([a-z][a-z0-9_]*)=([A-Za-z0-9_.-]+)", text):
        return found[1], found[2]
    raise argparse.ArgumentTypeError(f"{text!r} is not like name=9")


def costs(text: str) -> list[tuple[str, float]]:
    """A cost with the values that it has in turn, like `pause=20,60`."""
    name, _, values = text.partition("=")
    try:
        return [(name, float(value)) for value in values.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not like pause=20,60") from error


def arguments(parser: argparse.ArgumentParser, does: Command, about: str | None = None) -> Add:
    """What adds arguments to the parser of a command; `does` gives the exit status, None for 0."""
    parser.description = about
    parser.set_defaults(command=lambda args: does(args) or 0)
    return parser.add_argument


def subcommands(parser: argparse.ArgumentParser, metavar: str) -> Callable[..., Add]:
    """What adds a subcommand, and gives what adds arguments to that."""
    commands = parser.add_subparsers(required=True, metavar=metavar)

    def add(name: str, does: Command, says: str, about: str | None = None) -> Add:
        return arguments(commands.add_parser(name, help=says), does, about)

    return add


def options(args: argparse.Namespace, *wanted: str) -> dict[str, Any]:
    """Some of the arguments, for a function that has parameters of their names."""
    return {name: getattr(args, name) for name in wanted}


def say(text: str) -> None:
    """A line of output."""
    sys.stdout.write(f"{text}\n")


def mention(text: str) -> None:
    """A line beside the output."""
    sys.stderr.write(f"{text}\n")


def complain(text: str) -> None:
    """A line about what went wrong, while the command goes on."""
    mention(f"contended: {text}")


def check_writable(path: Path | None) -> None:
    """Better to find out before a long measurement than after it."""
    if path is None or path == STDOUT:
        return
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file, or - for standard output")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}: make it first")
    # A pipe or a device is written to; a file is replaced, which is up to its folder.
    if not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written: choose a file in a folder that can")


def deliver(target: Path | None, as_json: Callable[[], str], text: Callable[[], object]) -> None:
    """Write the JSON where it was asked for, and the text unless the JSON takes its place."""
    if target is not None:
        write_whole(target, as_json())
    if target != STDOUT:
        say(str(text()))


@contextmanager
def bar(unit: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, nothing in a pipe or a file."""
    with tqdm(unit=unit, leave=False, disable=None) as shown:

        def update(done: int, planned: int) -> None:
            shown.total = planned
            shown.update(done - shown.n)

        yield update


@contextmanager
def lines() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal; elsewhere a line for each thing that is begun."""
    style = "{desc} {bar} {n_fmt}/{total_fmt} {elapsed}"
    with tqdm(leave=False, disable=None, bar_format=style) as shown:

        def update(what: str, done: int, total: int) -> None:
            if shown.disable and what != getattr(shown, "desc", ""):
                mention(what)
            if done < shown.n:
                shown.reset()
            shown.total = total or None  # 0 stands for unknown
            shown.set_description_str(what, refresh=False)
            shown.update(done - shown.n)
            shown.refresh()

        yield update
