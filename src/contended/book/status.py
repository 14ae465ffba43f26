# SPDX-License-Identifier: MIT
"""Sphinx extension: what the status page shows of a build.

`book-chapters` is a table of the chapters, with what became of their claims about time, and
`book-machine` one of what the book was built with. Both are filled in at each build, not at each
edit of the page that shows them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from contended import __version__, doctor, machine
from contended.book import chapters, kept

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

SHOWN = ("numpy", "scipy", "matplotlib", "numba", "cffi", "sphinx", "myst-nb", "ipykernel")
"""The distributions whose versions a reader is most likely to ask about."""


def facts() -> list[tuple[str, str]]:
    """Name and value of each row of the table."""
    checks = [(c.name, c.detail) for c in doctor.report().checks if c.name != "cache directory"]
    return [
        ("Built", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
        ("contended", __version__),
        ("Processor", machine.cpu_model()),
        ("Kernel", f"{platform.system()} {platform.release()}"),
        # Where Python is installed says who built the book, not how.
        *((name, text.partition(" (/")[0]) for name, text in checks),
        *((name, metadata.version(name)) for name in SHOWN),
    ]


def table(head: Sequence[str], rows: Iterable[Sequence[nodes.Node | str]]) -> nodes.table:
    """A table whose columns are as wide as they need to be; without `head` it has no head."""
    rows = list(rows)
    made = nodes.table(classes=["colwidths-auto"])
    group = nodes.tgroup(cols=len(rows[0]) if rows else len(head))
    made += group
    group += [nodes.colspec(colwidth=1) for _ in range(group["cols"])]
    parts: list[tuple[nodes.Element, Sequence[Sequence[nodes.Node | str]]]]
    parts = [(nodes.thead(), [head])] if head else []
    for part, lines in [*parts, (nodes.tbody(), rows)]:
        group += part
        for line in lines:
            row = nodes.row()
            part += row
            for cell in line:
                text = nodes.paragraph()
                text += nodes.Text(cell) if isinstance(cell, str) else cell
                row += nodes.entry("", text)
    return made


class MachineTable(SphinxDirective):
    """The directive, without arguments, options or content."""

    def run(self) -> list[nodes.Node]:
        """Build the table."""
        self.env.note_reread()
        return [table((), facts())]


class ChaptersPlace(nodes.General, nodes.Element):
    """Where the chapters' table goes."""


class ChaptersTable(SphinxDirective):
    """The directive, without arguments, options or content."""

    def run(self) -> list[nodes.Node]:
        """Leave a place for the table, which needs the links of the page that it is on."""
        self.env.note_reread()
        return [ChaptersPlace()]


@dataclass(frozen=True, slots=True)
class Line:
    """A chapter in the table.

    Attributes:
        docname: What Sphinx calls it.
        title: Its number and title.
        run: Its last run.
        failed: Whether that stopped before its end.
    """

    docname: str
    title: str
    run: kept.Run
    failed: bool


def shown(lines: Sequence[Line], link: Callable[[Line], nodes.Node]) -> list[nodes.Node]:
    """The table of the chapters, how many claims about time missed, and which.

    Args:
        lines: The chapters.
        link: Makes a link to a chapter.
    """
    rows: list[list[nodes.Node | str]] = []
    missed: list[nodes.list_item] = []
    made = 0
    for line in lines:
        claims = kept.claims(line.run)
        misses = [claim.expected for claim in claims if not claim.holds]
        made += len(claims)
        ended = datetime.fromtimestamp(line.run.ended, UTC)
        ran = f"{line.run.seconds:.0f} s" + (", failed" if line.failed else "")
        rows.append(
            [link(line), f"{ended:%Y-%m-%d %H:%M}", ran, str(len(claims)), str(len(misses))]
        )
        for miss in misses:
            item = nodes.paragraph()
            item += [link(line), nodes.Text(f": {miss}")]
            missed.append(nodes.list_item("", item))
    total = f"{len(missed)} of {made} claims about time missed in this build."
    parts: list[nodes.Node] = [
        table(("Chapter", "Ran (UTC)", "Took", "Claims about time", "Missed"), rows),
        nodes.paragraph(text=total if made else "No claims about time were made in this build."),
    ]
    return [*parts, nodes.bullet_list("", *missed)] if missed else parts


def _fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    def link(line: Line) -> nodes.Node:
        uri = app.builder.get_relative_uri(docname, line.docname)
        return nodes.reference("", line.title, internal=True, refuri=uri)

    for place in list(doctree.findall(ChaptersPlace)):
        lines = [Line(c.docname, c.title, run, failed) for c, run, failed in chapters.of(app)]
        place.replace_self(shown(lines, link))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives."""
    app.add_node(ChaptersPlace)
    app.add_directive("book-machine", MachineTable)
    app.add_directive("book-chapters", ChaptersTable)
    app.connect("doctree-resolved", _fill)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
