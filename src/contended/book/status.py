# SPDX-License-Identifier: MIT
"""Sphinx extension: the tables `book-chapters` and `book-machine`, filled in at each build."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from contended import __version__, doctor, machine
from contended.book import chapters

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

# The distributions whose versions a reader is most likely to ask about.
_SHOWN = ("numpy", "scipy", "matplotlib", "numba", "cffi", "sphinx", "myst-nb", "ipykernel")
_HEAD = ("Chapter", "Ran (UTC)", "Took", "Claims about time", "Missed")

_Row = Sequence[nodes.Node | str]


def table(head: _Row, rows: Iterable[_Row], columns: int) -> nodes.table:
    """A table whose first column names the rows."""
    thead = nodes.thead("", _row(head))
    sizes = [nodes.colspec(colwidth=1) for _ in range(columns)]
    sizes[0]["stub"] = 1  # the first column names the rows
    group = nodes.tgroup("", *sizes, thead, nodes.tbody("", *map(_row, rows)), cols=columns)
    return nodes.table("", group, classes=["colwidths-auto"])


def _row(cells: _Row) -> nodes.row:
    texts = (nodes.Text(cell) if isinstance(cell, str) else cell for cell in cells)
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", text)) for text in texts))


class Place(nodes.General, nodes.Element):
    """Where a directive's content goes when the chapters have run: `what` is its name."""


class Placing(SphinxDirective):
    """A directive of `add`, without arguments, options or content."""

    def run(self) -> list[nodes.Node]:
        """Leave a place for the content, which may need the links of the page that it is on."""
        self.env.note_reread()
        return [Place(what=self.name)]


def add(app: Sphinx, name: str, content: Callable[[Sphinx, str], list[nodes.Node]]) -> None:
    """Register a directive that is filled in at each build, for the page of a name."""

    def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
        for place in list(doctree.findall(Place)):
            if place["what"] == name:
                place.replace_self(content(app, docname))

    app.add_directive(name, Placing)
    app.connect("doctree-resolved", fill)


def _machine(_app: Sphinx, _docname: str) -> list[nodes.Node]:
    rows = [
        ("Built", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
        ("contended", __version__),
        ("Processor", machine.cpu_model()),
        ("Kernel", f"{platform.system()} {platform.release()}"),
    ]
    for check in doctor.report().checks:
        if check.name != "cache directory":
            # Where Python is installed says who built the book, not how.
            rows.append((check.name, check.detail.partition(" (/")[0]))
    return [
        table(
            ("What", "In this build"),
            [*rows, *((name, metadata.version(name)) for name in _SHOWN)],
            2,
        )
    ]


def _chapters(app: Sphinx, docname: str) -> list[nodes.Node]:
    rows: list[_Row] = []
    missed: list[nodes.Node] = []
    made = 0
    for chapter in chapters.of(app):
        uri = app.builder.get_relative_uri(docname, chapter.docname)
        link = nodes.reference("", chapter.title, internal=True, refuri=uri)
        misses = [nodes.Text(f": {c.expected}") for c in chapter.claims if not c.holds]
        told = (nodes.paragraph("", "", link.deepcopy(), miss) for miss in misses)
        missed += [nodes.list_item("", each) for each in told]
        made += len(chapter.claims)
        assert chapter.run  # all have run
        ended = f"{datetime.fromtimestamp(chapter.run.ended, UTC):%Y-%m-%d %H:%M}"
        took = f"{chapter.run.seconds:.0f} s" + (", failed" if chapter.failure else "")
        rows.append((link, ended, took, str(len(chapter.claims)), str(len(misses))))
    total = f"{len(missed)} of {made} claims about time missed in this build."
    total = total if made else "No claims about time were made in this build."
    lists = [nodes.bullet_list("", *missed)] if missed else []
    return [table(_HEAD, rows, 5), nodes.paragraph(text=total), *lists]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives."""
    add(app, "book-machine", _machine)
    add(app, "book-chapters", _chapters)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
