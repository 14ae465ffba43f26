# SPDX-License-Identifier: MIT
"""A table, for a terminal and for a notebook."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_UNIT = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?( ?[^\s\d]\S*)?(?: !)?")
"""A number with its unit, and the mark of a doubtful one."""


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
        # JupyterLab sets every cell to the right unless the cell itself says otherwise
        sides = [_side([row[n : n + 1] for row in self.rows]) for n in range(len(self.head))]

        def cells(row: Sequence[Any], scope: str = "") -> str:
            shown = ""
            for n, cell in enumerate(row):
                # what is empty names nothing
                head = (scope or ("row" if n == 0 else "")) if str(cell) else ""
                wide = len(self.head) - n if n == len(row) - 1 else 1
                style = f"text-align:{sides[n]}" + ";font-weight:normal" * (head == "row")
                style += ";white-space:nowrap" * bool(
                    " " in str(cell) and _UNIT.fullmatch(str(cell))
                )
                tag = f'th scope="{head}"' if head else "td"
                span = f' colspan="{wide}"' if wide > 1 else ""
                shown += f'<{tag}{span} style="{style}">{_breakable(str(cell))}</{tag[:2]}>'
            return f"<tr>{shown}</tr>"

        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            '<table class="table">'
            + (f"<caption>{escape(self.caption)}</caption>" if self.caption else "")
            + f"<thead>{cells(self.head, 'col')}</thead>"
            f"<tbody>{''.join(cells(row) for row in self.rows)}</tbody></table>"
            + (f"<ul>{notes}</ul>" if notes else "")
        )

    def __repr__(self) -> str:
        rows = [[str(cell) for cell in row] for row in (self.head, *self.rows)]
        rows = [[*row, *[""] * (len(self.head) - len(row))] for row in rows]
        return "\n".join([columns(rows), *(f"note: {note}" for note in self.notes)])


def _breakable(cell: str) -> str:
    """HTML in which a long name may end a line, or the columns beside it would have no room."""
    ends = re.compile(r"(_+|[/(]|[a-z]\.)(?=[^\W_])")
    return re.sub(r"\S{12,}", lambda name: ends.sub(r"\1<wbr>", name[0]), escape(cell))


def _side(column: Sequence[Sequence[Any]]) -> str:
    """Right for a column of numbers alone, or of numbers with one unit; some may be missing."""
    units = set()
    for cell in column:
        text = "".join(map(str, cell))
        if text not in ("", "-", "none"):
            found = _UNIT.fullmatch(text)
            if not found:
                return "left"
            units.add(found[1])
    return "right" if len(units) < 2 else "left"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text as aligned columns, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
