# SPDX-License-Identifier: MIT
"""What a chapter shows of the scoreboard: its own rows."""

from __future__ import annotations

from contended import register
from contended.scoreboard import board
from contended.show.table import Table

_HEAD = (
    *("figure", "value", "published", "real kernel, virtual time", "simulator"),
    *("naive guess", "verdict"),
)


def table(slug: str) -> Table:
    """Each published number of a case beside the real kernel's, the simulator's and a guess.

    Each is the range from the 5th to the 95th percentile of what came out, in the unit of what is
    published; the verdict is the scoreboard's. Raises ContendedError if a record is missing.
    """
    rows = [
        (entry.figure, row) for entry in board.of_case(register.get(slug)) for row in entry.rows
    ]
    return Table(
        "Published, and what came of it here",
        _HEAD,
        [
            (figure, row.name, row.text, *(s.ends if s else "-" for s in row.sides), row.told)
            for figure, row in rows
        ],
        [board.DOUBT] * any(row.timed and row.timed.doubtful for _, row in rows),
    )
