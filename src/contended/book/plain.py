# SPDX-License-Identifier: MIT
"""Sphinx extension: what the book adds to chapters that are plain Markdown.

A section called "Solution" is folded. A table's first column names its rows. A link into the
glossary gets the term's meaning, shown on hover; a link to a source that `references.bib` names
gets its number in the book's list.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from docutils import nodes
from sphinx.transforms import SphinxTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

GLOSSARY = "docs/glossary"
_MEANING = 280  # characters


class Solutions(SphinxTransform):
    """Fold each section with the title "Solution"."""

    default_priority = 500

    def apply(self, **_: object) -> None:
        """Put a `<details>` in the section's place, so that contents do not list it either."""
        for section in list(self.document.findall(nodes.section)):
            title = section[0]
            if isinstance(title, nodes.title) and title.astext() == "Solution":
                opening = '<details class="solution"><summary>Solution</summary>'
                section.replace_self(
                    [
                        nodes.raw("", opening, format="html"),
                        *section[1:],
                        nodes.raw("", "</details>", format="html"),
                    ]
                )


class RowHeads(SphinxTransform):
    """The first column of a Markdown table is of row heads, unless one of its cells is empty."""

    default_priority = 500

    def apply(self, **_: object) -> None:
        """Mark the column as docutils marks that of a `list-table` with row heads."""
        for group in self.document.findall(nodes.tgroup):
            rows = [row for body in group.findall(nodes.tbody) for row in body.findall(nodes.row)]
            if all(row[0].astext() for row in rows):
                next(iter(group.findall(nodes.colspec)))["stub"] = 1


def _mend(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _: object) -> None:
    """What docutils leaves out of its HTML or has of an older standard."""
    body = context.get("body", "")
    # of what a head is the head
    body = re.sub(r'<th class="head\b[^"]*"', r'\g<0> scope="col"', body)
    body = body.replace('<th class="stub"', '<th class="stub" scope="row"')
    # a role that ARIA 1.2 has given up, and a list whose children are not all items of it
    context["body"] = body.replace(' role="doc-biblioentry"', "").replace(
        '<div role="list" class="citation-list">', '<div class="citation-list">'
    )


def meanings(app: Sphinx) -> dict[str, str]:
    """The beginning of each of the glossary's entries, by the id of its section."""
    found = {}
    if GLOSSARY in app.env.found_docs:
        for section in app.env.get_doctree(GLOSSARY).findall(nodes.section):
            paragraph = next(iter(section.findall(nodes.paragraph)), None)
            if paragraph is not None:
                text = " ".join(paragraph.astext().split())
                if len(text) > _MEANING:
                    text = re.sub(r"\W+\w*$", " …", text[:_MEANING])
                found.update(dict.fromkeys(section["ids"], text))
    return found


def _complete(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    numbers = {}
    for citation in app.env.get_domain("cite").citations:  # type: ignore[attr-defined]
        page = citation.bibliography_key.docname
        fields = citation.entry.fields
        if url := fields.get("url") or ((doi := fields.get("doi")) and f"https://doi.org/{doi}"):
            label = citation.formatted_entry.label
            numbers[unquote(url)] = (page, citation.citation_id, label)
    pages = {page for page, _, _ in numbers.values()}
    terms = {} if docname == GLOSSARY else meanings(app)
    glossary = app.builder.get_relative_uri(docname, GLOSSARY)
    for link in list(doctree.findall(nodes.reference)):
        page, _, anchor = link.get("refuri", "").partition("#")
        if page == glossary and anchor in terms:
            link["reftitle"] = terms[anchor]
        elif docname not in pages and (found := numbers.get(unquote(link.get("refuri", "")))):
            uri = f"{app.builder.get_relative_uri(docname, found[0])}#{found[1]}"
            number = nodes.reference("", f"[{found[2]}]", internal=True, refuri=uri)
            link.parent.insert(
                link.parent.index(link) + 1, [nodes.Text("\N{NO-BREAK SPACE}"), number]
            )


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the transforms and the events."""
    app.add_transform(Solutions)
    app.add_transform(RowHeads)
    app.connect("doctree-resolved", _complete)
    app.connect("html-page-context", _mend)
    return {
        "version": "1",
        # with another number, pages that were read by older transforms are read again
        "env_version": 1,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
