# SPDX-License-Identifier: MIT
"""Sphinx extension: the tables `shared-machines` and `published-machines`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from contended.book import status
from contended.measure import share
from contended.measure.results import number
from contended.show.machines import machines_table
from contended.simulate import machines

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata


def _shared(_app: Sphinx, _docname: str) -> list[nodes.Node]:
    table = machines_table(share.recorded())
    notes = [nodes.list_item("", nodes.paragraph(text=note)) for note in table.notes]
    body = status.table(("What", *table.head[1:]), table.rows, len(table.head))
    return [body, *([nodes.bullet_list("", *notes)] if notes else [])]


def _published(_app: Sphinx, _docname: str) -> list[nodes.Node]:
    rows = []
    for name in machines.names():
        if name == machines.HERE:
            continue
        model = machines.get(name)
        cells = []
        for cost in ("near", "far"):
            about, value = model.parameters[cost], getattr(model.costs, cost)
            ends = f"{number(about.low, 3)} to {number(about.high, 3)}"
            single = model.sockets == 1 and cost == "far"
            shown = f"{number(value, 3)} ({ends}; {about.basis})"
            cells.append("one socket" if single else shown)
        rows.append((name, model.title, *cells))
    head = ("Machine", "What it is", "In the socket (ns)", "Between sockets (ns)")
    return [status.table(head, rows, len(head))]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives."""
    status.add(app, "shared-machines", _shared)
    status.add(app, "published-machines", _published)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
