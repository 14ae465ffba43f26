# SPDX-License-Identifier: MIT
"""Sphinx extension: the `book-machine` directive, a table of what the book was built with.

It is filled in at each build, not at each edit of the page that shows it.
"""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from contended import __version__, doctor, machine

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

SHOWN = ("numpy", "scipy", "matplotlib", "numba", "cffi", "sphinx", "myst-nb", "jupyter-cache")
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


class MachineTable(SphinxDirective):
    """The directive, without arguments, options or content."""

    def run(self) -> list[nodes.Node]:
        """Build the table."""
        self.env.note_reread()
        table = nodes.table(classes=["colwidths-auto"])
        group = nodes.tgroup(cols=2)
        table += group
        group += [nodes.colspec(colwidth=1), nodes.colspec(colwidth=3)]
        body = nodes.tbody()
        group += body
        for name, value in facts():
            row = nodes.row()
            for text in (name, value):
                row += nodes.entry("", nodes.paragraph(text=text))
            body += row
        return [table]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("book-machine", MachineTable)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
