# SPDX-License-Identifier: MIT
"""Sphinx extension: the `scoreboard` directive, the table on the book's first page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes

from contended import __version__
from contended.book import status
from contended.cases.evidence import Reading
from contended.scoreboard import board
from contended.scoreboard.board import SHOWN, Entry, Row
from contended.show import lesson

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

_HEADS = (
    *("published", "simulated at that size", "verdict, and why"),
    *("userspace, here", "real kernel, in the lab"),
)


def html(entries: Sequence[Entry], chapters: str = "notebooks/") -> str:
    """The table of a board's entries; `chapters` is the chapters' folder as seen from the page."""
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in _HEADS)
    bodies = ""
    for _, group in groupby(entries, key=lambda entry: entry.slug):
        of_case = list(group)
        case = of_case[0]
        bodies += (
            f'<tbody><tr><th scope="rowgroup" colspan="{len(_HEADS)}" class="scoreboard-case">'
            f'<a href="{_page(case, chapters)}">{case.chapter}. {escape(case.title)}</a></th></tr>'
            f"</tbody>{''.join(_body(entry, _page(entry, chapters)) for entry in of_case)}"
        )
    return (
        f'<p class="scoreboard-tally">{escape(board.summary(tuple(entries)))}</p>'
        '<div class="scoreboard" tabindex="0" role="region" aria-label="Scoreboard">'
        '<table class="table"><caption>Every published number, and what became of it here'
        f"</caption><thead><tr>{heads}</tr></thead>{bodies}</table></div>"
    )


def _page(entry: Entry, chapters: str) -> str:
    return escape(f"{chapters}{entry.notebook}.html")


def _body(entry: Entry, page: str) -> str:
    sizes = ((entry.workers, "workers"), (entry.cpus, "CPUs"))
    size = ", ".join(f"{count} {what}" for count, what in sizes if count is not None)
    rows = "".join(_row(entry, row, place, page) for place, row in enumerate(entry.rows))
    return (
        f'<tbody><tr><td colspan="{len(_HEADS)}" class="scoreboard-figure">'
        f"{_sentence(entry.what)} {_sentence(entry.workload)}{f' {size}.' if size else ''} "
        f'<a href="{escape(entry.url)}">Source</a></td></tr>{rows}</tbody>'
    )


def _sentence(text: str) -> str:
    return escape(f"{text[0].upper()}{text[1:]}.".replace("`", ""))


def _row(entry: Entry, row: Row, place: int, page: str) -> str:
    simulated = "none" if row.simulated is None else board.shown(row.simulated, row.unit)
    cells = (
        f'<th scope="row"><span class="scoreboard-name">{escape(row.name)}</span> '
        f"{escape(row.text)}</th>"
        f"<td>{escape(simulated)}</td>"
        f'<td><details class="scoreboard-{row.verdict}"><summary>{SHOWN[row.verdict]}</summary>'
        f"<p>{escape(row.why)}</p><p>{escape(entry.note)} "
        f'<a href="{page}#{escape(entry.section)}">Chapter {entry.chapter}</a></p></details></td>'
    )
    if place == 0:
        start = f'<td rowspan="{len(entry.rows)}">'
        cells += f"{start}{_readings(entry.userspace, entry.no_userspace)}</td>"
        cells += f"{start}{_readings(entry.kernel, entry.no_kernel)}</td>"
    return f"<tr>{cells}</tr>"


def _readings(readings: Sequence[Reading], why: str) -> str:
    if not readings:
        return f"<em>{escape(why)}</em>"
    lines: dict[str, list[str]] = {}
    for reading in readings:
        variant, colon, quantity = reading.what.partition(": ")
        if not colon:
            variant, quantity = "", reading.what
        number = f"<strong>{escape(reading.text)}</strong>"
        lines.setdefault(quantity, []).append(f"{escape(variant)} {number}".strip())
    items = "".join(f"<li>{escape(what)}: {', '.join(told)}</li>" for what, told in lines.items())
    live = all(reading.live for reading in readings)
    return f"<ul>{items}</ul><small>{'measured by this build' if live else 'recorded'}</small>"


def _content(_app: Sphinx, docname: str) -> list[nodes.Node]:
    table = html(board.board(), "../" * docname.count("/") + "notebooks/")
    return [nodes.raw("", table, format="html")]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive, and have the chapters leave what they measure beside the pages."""
    status.add(app, "scoreboard", _content)
    os.environ.setdefault(lesson.FRESH, str(Path(app.outdir).resolve().parent / "runs"))
    return {"version": __version__, "parallel_read_safe": True, "parallel_write_safe": True}
