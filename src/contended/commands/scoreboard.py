# SPDX-License-Identifier: MIT
"""`contended scoreboard`: every published number beside what was seen here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from contended import register
from contended.cases.evidence import Reading
from contended.commands import commandline
from contended.scoreboard import board, simulated
from contended.scoreboard.board import Entry
from contended.show.table import columns


def fill(parser: argparse.ArgumentParser) -> None:
    """Give `contended scoreboard` its arguments."""
    about = """Put every published number beside what the models show in userspace,
        what the kernel lab saw, and what was timed in virtual time, simulated and naively guessed
        at the published size, with verdicts by one rule. What the book measured when it was built
        is used where it is at hand, the reference runs in results/ elsewhere."""
    add = commandline.arguments(parser, _scoreboard, about)
    add("--json", type=Path, metavar="FILE|-", help="write it as JSON")
    again = "simulate anew first, and keep it in results/ (seconds)"
    add("--simulate", action="store_true", help=again)


def _scoreboard(args: argparse.Namespace) -> None:
    commandline.check_writable(args.json)
    if args.simulate:
        simulated.record(register.slugs())
    entries = board.board()
    skill = dict(zip(("rows", "ours", "naive"), board.skill(entries), strict=True))
    tallied = {"tally": board.tally(entries), "held where a guess can be made": skill}
    content = {**tallied, "figures": [asdict(entry) for entry in entries]}
    text = "\n\n".join(["\n".join(_block(entry)) for entry in entries] + [board.summary(entries)])
    commandline.deliver(args.json, lambda: json.dumps(content, indent=2) + "\n", lambda: text)


def _block(entry: Entry) -> Iterator[str]:
    yield f"{entry.chapter:02} {entry.slug}: {entry.figure}"
    rows = [["", "published", "virtual time", "simulated", "naive guess", "verdict"]]
    for row in entry.rows:
        there = (each.ends if each else "-" for each in row.sides)
        rows.append([row.name, row.text, *there, row.told])
    yield from (f"  {line}" for line in columns(rows).splitlines())
    yield from _readings("userspace", entry.userspace, entry.no_userspace)
    yield from _readings("kernel", entry.kernel, entry.no_kernel)
    yield f"  {entry.url}"


def _readings(where: str, readings: Sequence[Reading], why: str) -> list[str]:
    said = [f"{r.what}: {r.text} [{'this build' if r.live else 'recorded'}]" for r in readings]
    return [f"  {where}: {text}" for text in said or [why]]
