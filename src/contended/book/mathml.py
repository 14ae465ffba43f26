# SPDX-License-Identifier: MIT
"""Sphinx extension: formulas become MathML when the book is built.

Every browser draws MathML by itself, so the pages need no math script, and no network to load one
from. `latex2mathml` reads the TeX subset that the book uses; a formula that it cannot read is a
warning with its source line, and so fails the build.
"""

from __future__ import annotations

import html
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from docutils import nodes
from latex2mathml import converter
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata
    from sphinx.writers.html5 import HTML5Translator

_CHILDREN = {
    "mfrac": 2,
    "mover": 2,
    "mroot": 2,
    "msub": 2,
    "msubsup": 3,
    "msup": 2,
    "munder": 2,
    "munderover": 3,
}
"""How many children MathML wants of an element; with another number a browser shows an error."""

_log = logging.getLogger(__name__)


def to_mathml(tex: str, *, block: bool) -> str:
    r"""One formula as a `<math>` element.

    Args:
        tex: The formula without dollar signs. In a block, `\\` and `&` may stand outside an
            environment, as in Sphinx's math directive.
        block: Whether it is displayed on its own line.

    Returns:
        MathML whose `alttext` is the TeX, for readers that speak it.

    Raises:
        ValueError: The formula cannot be read.
    """
    source = tex.strip()
    if block and "\\\\" in source and "\\begin" not in source:
        source = rf"\begin{{align*}}{source}\end{{align*}}"
    try:
        element = converter.convert_to_element(source, display="block" if block else "inline")
    except Exception as error:
        # The converter has a dozen exception classes with no common base.
        reason = str(error) or type(error).__name__
        raise ValueError(f"cannot read the formula {tex.strip()!r}: {reason}") from error
    if fault := _fault(source, element):
        raise ValueError(f"cannot read the formula {tex.strip()!r}: {fault}")
    for part in element.iter():
        # The converter leaves character references in the text, which would be escaped again.
        part.text = html.unescape(part.text) if part.text else part.text
    element.set("alttext", " ".join(tex.split()))
    return ET.tostring(element, encoding="unicode", short_empty_elements=False)


def _fault(source: str, element: ET.Element) -> str:
    """What the converter let pass although it is wrong; empty if nothing is."""
    plain = source.replace(r"\{", "").replace(r"\}", "")
    if plain.count("{") != plain.count("}"):
        return "its braces do not match"
    for part in element.iter():
        name = part.tag.rpartition("}")[2]
        if part.text and part.text.startswith("\\"):
            return f"unknown command {part.text}"
        if len(part) != _CHILDREN.get(name, len(part)):
            return f"a part of {name} is missing"
    return ""


def _render(writer: HTML5Translator, node: Element, *, block: bool) -> None:
    try:
        writer.body.append(to_mathml(node.astext(), block=block))
    except ValueError as error:
        _log.warning("%s", error, location=node, type="contended", subtype="math")
        writer.body.append(writer.encode(node.astext()))


def visit_inline(writer: HTML5Translator, node: Element) -> None:
    """Write an inline formula."""
    writer.body.append(writer.starttag(node, "span", "", CLASS="math notranslate"))
    _render(writer, node, block=False)
    writer.body.append("</span>")
    raise nodes.SkipNode


def visit_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula, with its number and a permalink if it has a label."""
    # Focusable, since on a phone a wide formula scrolls sideways within its own box.
    writer.body.append(writer.starttag(node, "div", "", CLASS="math notranslate", tabindex="0"))
    if node["number"]:
        number = get_node_equation_number(writer, node)
        writer.body.append(f'<span class="eqno">({number})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    _render(writer, node, block=True)
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the renderer; conf.py selects it by `html_math_renderer = "mathml"`."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None)
    )
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
