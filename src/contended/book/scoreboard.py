# SPDX-License-Identifier: MIT
"""Sphinx extension: the `scoreboard` directive, the table on the book's first page.

It is filled in at the end of each build, when the chapters have run: what they measured is then at
hand. Each verdict opens to its reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from contended import __version__
from contended.cases.evidence import Reading
from contended.scoreboard import board
from contended.scoreboard.board import SHOWN, Entry, Row
from contended.show import lesson

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

HEADS = (
    "published",
    "simulated at that size",
    "verdict, and why",
    "userspace, here",
    "real kernel, in the lab",
)


class Placeholder(nodes.General, nodes.Element):
    """Where the table goes when the chapters have run."""


class Scoreboard(SphinxDirective):
    """The directive, without arguments, options or content."""

    def run(self) -> list[nodes.Node]:
        """Leave a place for the table."""
        self.env.note_reread()
        return [Placeholder()]


def html(entries: Sequence[Entry], chapters: str = "notebooks/") -> str:
    """The table.

    Args:
        entries: What `board.board` returns.
        chapters: The chapters' folder as seen from the page.
    """
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in HEADS)
    bodies = "".join(_body(entry, chapters, first) for entry, first in _firsts(entries))
    return (
        f'<p class="scoreboard-tally">{escape(board.summary(tuple(entries)))}</p>'
        '<div class="scoreboard" tabindex="0" role="region" aria-label="Scoreboard">'
        '<table class="table"><caption>Every published number, and what became of it here'
        f"</caption><thead><tr>{heads}</tr></thead>{bodies}</table></div>"
    )


def _firsts(entries: Sequence[Entry]) -> Iterable[tuple[Entry, bool]]:
    """Each figure, and whether it is its case's first."""
    seen = ""
    for entry in entries:
        yield entry, entry.slug != seen
        seen = entry.slug


def _body(entry: Entry, chapters: str, first: bool) -> str:
    page = f"{chapters}{entry.notebook}.html"
    head = ""
    if first:
        head = (
            f'<tbody><tr><th scope="rowgroup" colspan="{len(HEADS)}" class="scoreboard-case">'
            f'<a href="{escape(page)}">{entry.chapter}. {escape(entry.title)}</a></th></tr></tbody>'
        )
    size = ", ".join(
        f"{count} {what}"
        for count, what in ((entry.workers, "workers"), (entry.cpus, "CPUs"))
        if count is not None
    )
    about = (
        f'<tr><td colspan="{len(HEADS)}" class="scoreboard-figure">{escape(_sentence(entry.what))} '
        f"{escape(_sentence(entry.workload))}{f' {size}.' if size else ''} "
        f'<a href="{escape(entry.url)}">Source</a></td></tr>'
    )
    rows = "".join(_row(entry, row, place, page) for place, row in enumerate(entry.rows))
    return f"{head}<tbody>{about}{rows}</tbody>"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}.".replace("`", "")


def _row(entry: Entry, row: Row, place: int, page: str) -> str:
    simulated = "none" if row.simulated is None else board.shown(row.simulated, row.unit)
    cells = [
        f'<th scope="row"><span class="scoreboard-name">{escape(row.name)}</span> '
        f"{escape(row.text)}</th>",
        f"<td>{escape(simulated)}</td>",
        f'<td><details class="scoreboard-{row.verdict}"><summary>{SHOWN[row.verdict]}</summary>'
        f"<p>{escape(row.why)}</p><p>{escape(entry.note)} "
        f'<a href="{escape(page)}#{escape(entry.section)}">Chapter {entry.chapter}</a></p>'
        "</details></td>",
    ]
    if place == 0:
        span = f' rowspan="{len(entry.rows)}"'
        cells += [
            f"<td{span}>{_readings(readings, why)}</td>"
            for readings, why in (
                (entry.userspace, entry.no_userspace),
                (entry.kernel, entry.no_kernel),
            )
        ]
    return f"<tr>{''.join(cells)}</tr>"


def _readings(readings: Sequence[Reading], why: str) -> str:
    """A line for each quantity, with the variants' numbers side by side."""
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


def _fill(_app: Sphinx, doctree: nodes.document, docname: str) -> None:
    places = list(doctree.findall(Placeholder))
    if not places:
        return
    chapters = "../" * docname.count("/") + "notebooks/"
    table = html(board.board(), chapters)
    for place in places:
        place.replace_self(nodes.raw("", table, format="html"))


def _where(app: Sphinx) -> None:
    """Have the chapters leave what they measure beside the built pages."""
    os.environ.setdefault(lesson.FRESH, str(Path(app.outdir).resolve().parent / "runs"))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_node(Placeholder)
    app.add_directive("scoreboard", Scoreboard)
    app.connect("builder-inited", _where)
    app.connect("doctree-resolved", _fill)
    return {"version": __version__, "parallel_read_safe": True, "parallel_write_safe": True}
