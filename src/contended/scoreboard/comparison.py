# SPDX-License-Identifier: MIT
"""What a chapter shows of the scoreboard: its own rows."""

from __future__ import annotations

from collections.abc import Iterable

from contended import register
from contended.cases.evidence import Reading
from contended.scoreboard import board
from contended.scoreboard.board import Row
from contended.show.table import Table

_SIDES = ("real kernel, virtual time", "simulator", "naive guess")
_COUNTS = ("C model", "real kernel, in the lab")


def table(slug: str) -> Table:
    """Each published number of a case beside what speaks to it here, and the scoreboard's verdict.

    That is the real kernel in virtual time, the simulator and a guess, each as the range from the
    5th to the 95th percentile of what came out, in the unit of what is published. Of a case that
    has counts alone it is those of the C model and of the lab's kernel. Raises ContendedError if a
    record is missing.
    """
    entries = board.of_case(register.get(slug))
    rows = [(entry, row) for entry in entries for row in entry.rows]
    counts = not any(side for _, row in rows for side in row.sides)
    seen = [
        (_counted(entry.userspace, row), _counted(entry.kernel, row))
        if counts
        else tuple(side.ends if side else "-" for side in row.sides)
        for entry, row in rows
    ]
    return Table(
        "Published, and what came of it here",
        ("figure", "value", "published", *(_COUNTS if counts else _SIDES), "verdict"),
        [
            (entry.figure, row.name, row.text, *each, row.told)
            for (entry, row), each in zip(rows, seen, strict=True)
        ],
        [board.DOUBT] * any(row.timed and row.timed.doubtful for _, row in rows),
    )


def _counted(readings: Iterable[Reading], row: Row) -> str:
    same = [reading for reading in readings if reading.of == row.name]
    what = [reading.what.removeprefix(f"{row.name}: ") for reading in same]
    return "; ".join(f"{w}: {r.text}" for w, r in zip(what, same, strict=True)) or "-"
