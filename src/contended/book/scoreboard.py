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
from contended.book import picture, status
from contended.cases.evidence import Reading
from contended.scoreboard import board
from contended.scoreboard.board import Entry, Row, Said
from contended.show import lesson
from contended.simulate.predict import span
from contended.simulate.verdict import SHOWN

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

_HEADS = ("published", "verdict, and why", "real kernel, virtual time", "simulator", "naive guess")


def html(entries: Sequence[Entry], chapters: str = "notebooks/") -> str:
    """A board's picture and table; `chapters` is the chapters' folder as seen from the page."""
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
        f"{picture.html(entries, chapters)}"
        '<div class="scoreboard" tabindex="0" role="region" aria-label="Scoreboard">'
        '<table class="table"><caption>Every published number, and what became of it here'
        f"</caption><thead><tr>{heads}</tr></thead>{bodies}</table></div>"
    )


def _page(entry: Entry, chapters: str) -> str:
    return escape(f"{chapters}{entry.notebook}.html")


def _body(entry: Entry, page: str) -> str:
    sizes = ((entry.workers, "workers"), (entry.cpus, "CPUs"))
    size = ", ".join(f"{count} {what}" for count, what in sizes if count is not None)
    told = " ".join(f"{text}." for text in (size, entry.machine) if text)
    rows = "".join(_row(entry, row, page) for row in entry.rows)
    seen = (
        f"<dt>userspace, here</dt><dd>{_readings(entry.userspace, entry.no_userspace)}</dd>"
        f"<dt>real kernel, in the lab</dt><dd>{_readings(entry.kernel, entry.no_kernel)}</dd>"
    )
    return (
        f'<tbody><tr><td colspan="{len(_HEADS)}" class="scoreboard-figure">'
        f"<code>{escape(entry.figure)}</code>: {_sentence(entry.what)} "
        f"{_sentence(entry.workload)} {escape(told)} "
        f'<a href="{escape(entry.url)}">Source</a></td></tr>{rows}'
        f'<tr><td colspan="{len(_HEADS)}"><dl class="scoreboard-seen">{seen}</dl></td></tr></tbody>'
    )


def _sentence(text: str) -> str:
    return escape(f"{text[0].upper()}{text[1:]}.".replace("`", ""))


def _row(entry: Entry, row: Row, page: str) -> str:
    sides = zip(_HEADS[2:], row.sides, ("not timed", "none", "none"), strict=True)
    more = f'<a href="{page}#{escape(entry.section)}">Chapter {entry.chapter}</a>'
    if row.verdict == "differs":
        pages = page.rpartition("notebooks/")[0]
        more += f', <a href="{pages}docs/misses.html">what is known of misses</a>'
    return (
        f'<tr><th scope="row"><span class="scoreboard-name">{escape(row.name)}</span> '
        f"{escape(row.text)}</th>"
        f'<td><details class="scoreboard-{row.verdict}"><summary>{escape(row.told)}</summary>'
        f"<p>{escape(row.why)}</p><p>{escape(entry.note)} {more}</p></details></td>"
        f"{''.join(_side(head, said, none, row.unit) for head, said, none in sides)}</tr>"
    )


def _side(head: str, said: Said | None, none: str, unit: str) -> str:
    """A cell, which names its column where the table is too narrow for columns."""
    name = f'<span class="scoreboard-head">{escape(head)}: </span>'
    if said is None:
        return f'<td class="scoreboard-none">{name}<em>{none}</em></td>'
    doubt = f'<span title="{escape(board.DOUBT)}">\u00a0!</span>' * bool(said.doubtful)
    ends = f" <small>({escape(span(said.low, said.high))})</small>" * (said.low < said.high) + doubt
    mark = f'<span class="scoreboard-{said.verdict}"><span>{SHOWN[said.verdict]}</span></span>'
    return f"<td>{name}{escape(board.shown(said.middle, unit))}{ends} {mark}</td>"


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
