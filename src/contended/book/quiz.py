# SPDX-License-Identifier: MIT
"""Sphinx extension: the chapter's quiz questions at its end, each answer behind a click."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from contended.show import quiz

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata


def _append(app: Sphinx, doctree: nodes.document) -> None:
    folder, _, name = app.env.docname.rpartition("/")
    questions = quiz.load().chapters.get(name, []) if folder == "notebooks" else []
    chapter = next(iter(doctree.findall(nodes.section)), None)
    if not questions or chapter is None:
        return
    about = "Open the answer that you would give: it says whether it is right."
    body = [nodes.paragraph(text=about), nodes.raw("", quiz.html(questions), format="html")]
    part = nodes.section("", nodes.title(text="Test yourself"), *body, ids=["test-yourself"])
    chapter.append(part)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Append them when a chapter is read, so that its table of contents has them."""
    # before the collector of tables of contents (500), after what makes sections
    app.connect("doctree-read", _append, priority=100)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
