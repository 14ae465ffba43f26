# SPDX-License-Identifier: MIT
"""A table, for a terminal and for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """A small table with sentences below it; the caption, which may be empty, is for a notebook.

    Cells are shown as `str` does; in a row with fewer cells than there are heads the last is wide.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()

    def _repr_html_(self) -> str:
        def cells(row: Sequence[Any], tag: str) -> str:
            shown = [f"<{tag}>{escape(str(cell))}</{tag}>" for cell in row]
            if row and (more := len(self.head) - len(row)) > 0:
                shown[-1] = shown[-1].replace(">", f' colspan="{more + 1}">', 1)
            return f"<tr>{''.join(shown)}</tr>"

        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            '<table class="table">'
            + (f"<caption>{escape(self.caption)}</caption>" if self.caption else "")
            + f"<thead>{cells(self.head, 'th')}</thead>"
            f"<tbody>{''.join(cells(row, 'td') for row in self.rows)}</tbody></table>"
            + (f"<ul>{notes}</ul>" if notes else "")
        )

    def __repr__(self) -> str:
        rows = [[str(cell) for cell in row] for row in (self.head, *self.rows)]
        rows = [[*row, *[""] * (len(self.head) - len(row))] for row in rows]
        return "\n".join([columns(rows), *(f"note: {note}" for note in self.notes)])


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text as aligned columns, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
