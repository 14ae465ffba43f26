# SPDX-License-Identifier: MIT
"""`contended scoreboard`: every published number beside what was seen here."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from contended import register
from contended.cases.evidence import Reading
from contended.commands import commandline
from contended.records import write_whole
from contended.scoreboard import board, simulated
from contended.scoreboard.board import SHOWN, Entry, Row
from contended.show.table import columns


def fill(parser: argparse.ArgumentParser) -> None:
    """Give `contended scoreboard` its arguments."""
    parser.description = (
        "Put every published number beside what the models show in userspace, what the kernel lab "
        "saw, and what was simulated at the published size. What the book measured when it was "
        "built is used where it is at hand, the reference runs in results/ elsewhere."
    )
    parser.add_argument("--json", type=Path, metavar="FILE|-", help="write it as JSON")
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="simulate anew first, and keep it in results/ (seconds)",
    )
    parser.set_defaults(command=scoreboard)


def scoreboard(args: argparse.Namespace) -> int:
    """Run the command; the exit status is 0, and anything else is an exception."""
    if args.json is not None:
        commandline.check_writable(args.json)
    if args.simulate:
        simulated.record(register.slugs())
    entries = board.board()
    if args.json is not None:
        content = {"tally": board.tally(entries), "figures": [asdict(entry) for entry in entries]}
        write_whole(args.json, json.dumps(content, indent=2) + "\n")
    if args.json != commandline.STDOUT:
        sys.stdout.write(text(entries) + "\n")
    return 0


def text(entries: Sequence[Entry]) -> str:
    """The scoreboard for a terminal: a block for each figure, and the tally."""
    blocks = ["\n".join(_block(entry)) for entry in entries]
    return "\n\n".join([*blocks, board.summary(tuple(entries))])


def _block(entry: Entry) -> Iterator[str]:
    yield f"{entry.chapter:02} {entry.slug}: {entry.figure}"
    rows = [["", "published", "simulated", "verdict"]]
    rows += [[row.name, row.text, _simulated(row), SHOWN[row.verdict]] for row in entry.rows]
    yield from (f"  {line}" for line in columns(rows).splitlines())
    yield from _readings("userspace", entry.userspace, entry.no_userspace)
    yield from _readings("kernel", entry.kernel, entry.no_kernel)
    yield f"  {entry.url}"


def _simulated(row: Row) -> str:
    return "-" if row.simulated is None else board.shown(row.simulated, row.unit)


def _readings(where: str, readings: Sequence[Reading], why: str) -> Iterator[str]:
    if not readings:
        yield f"  {where}: {why}"
    for reading in readings:
        made = "this build" if reading.live else "recorded"
        yield f"  {where}: {reading.what}: {reading.text} [{made}]"
