# SPDX-License-Identifier: MIT
"""Sphinx extension: what a published site needs besides its pages: a 404 page and a sitemap.

`CONTENDED_SITE` says where it will be published; a book that is read from disk needs neither.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata


def address() -> str:
    """Where the site begins, with a slash at its end: "/" unless CONTENDED_SITE says it."""
    return os.environ.get("CONTENDED_SITE", "").rstrip("/") + "/"


def _lost(_app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    # A server shows it in the place of a page at any depth, so its links cannot be relative.
    yield "404", {"site": address()}, "404.html"


def _sitemap(app: Sphinx, failed: Exception | None) -> None:
    if failed or address() == "/":
        return
    pages = sorted(app.builder.get_target_uri(name) for name in app.env.found_docs)
    rows = "".join(f"<url><loc>{escape(address() + page)}</loc></url>\n" for page in pages)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    name = "http://www.sitemaps.org/schemas/sitemap/0.9"
    text = f'{head}<urlset xmlns="{name}">\n{rows}</urlset>\n'
    (Path(app.outdir) / "sitemap.xml").write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Write both at the end of a build."""
    app.connect("html-collect-pages", _lost)
    app.connect("build-finished", _sitemap)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
