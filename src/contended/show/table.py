# SPDX-License-Identifier: MIT
"""A table, for a terminal and for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Table:
    """A small table; in a row with fewer cells than there are heads the last one is wide.

    Attributes:
        caption: Stands above it in a notebook; may be empty.
        head: The columns' heads.
        rows: The cells; what is no text is shown as `str` does.
        notes: Sentences below it.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()

    def _repr_html_(self) -> str:
        def cells(row: Sequence[Any], tag: str) -> str:
            spans = [""] * len(row)
            if row and len(row) < len(self.head):
                spans[-1] = f' colspan="{len(self.head) - len(row) + 1}"'
            shown = (
                f"<{tag}{span}>{escape(str(cell))}</{tag}>"
                for cell, span in zip(row, spans, strict=True)
            )
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
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
