# SPDX-License-Identifier: MIT
"""Sphinx extension: formulas become MathML: the pages need no script, and no network to load one.

One that cannot be read is a warning with its source line, and so fails the build.
"""

from __future__ import annotations

import html
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

from docutils import nodes
from latex2mathml import converter
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata
    from sphinx.writers.html5 import HTML5Translator

# How many children MathML wants of an element; with another number a browser shows an error.
_CHILDREN = dict.fromkeys(("mfrac", "mover", "mroot", "msub", "msup", "munder"), 2)
_CHILDREN |= {"msubsup": 3, "munderover": 3}

_log = logging.getLogger(__name__)


def to_mathml(tex: str, *, block: bool) -> str:
    r"""One formula, without dollar signs, as a `<math>` element whose `alttext` is the TeX.

    A block is displayed on its own line; in one, `\\` and `&` may stand outside an environment, as
    in Sphinx's math directive. A formula that cannot be read is a ValueError.
    """
    source = tex = tex.strip()
    if block and "\\\\" in source and "\\begin" not in source:
        source = rf"\begin{{align*}}{source}\end{{align*}}"
    try:
        element = converter.convert_to_element(source, display="block" if block else "inline")
    except Exception as error:
        # The converter has a dozen exception classes with no common base.
        reason = str(error) or type(error).__name__
        raise ValueError(f"cannot read the formula {tex!r}: {reason}") from error
    if fault := _fault(source, element):
        raise ValueError(f"cannot read the formula {tex!r}: {fault}")
    for part in element.iter():
        # The converter leaves character references in the text, which would be escaped again.
        part.text = html.unescape(part.text) if part.text else part.text
    element.set("alttext", " ".join(tex.split()))
    return ET.tostring(element, encoding="unicode", short_empty_elements=False)


def _fault(source: str, element: ET.Element) -> str:
    # what the converter let pass although it is wrong
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


def _render(writer: HTML5Translator, node: Element) -> None:
    block = isinstance(node, nodes.math_block)
    # Focusable, since on a phone a wide formula scrolls sideways within its own box.
    tag, more = ("div", {"tabindex": "0"}) if block else ("span", {})
    attributes: dict[str, Any] = {"CLASS": "math notranslate", **more}
    writer.body.append(writer.starttag(node, tag, "", **attributes))
    if isinstance(node, nodes.math_block) and node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    try:
        writer.body.append(to_mathml(node.astext(), block=block))
    except ValueError as error:
        _log.warning("%s", error, location=node, type="contended", subtype="math")
        writer.body.append(writer.encode(node.astext()))
    writer.body.append(f"</{tag}>" + ("\n" if block else ""))
    raise nodes.SkipNode


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the renderer; conf.py selects it by `html_math_renderer = "mathml"`."""
    app.add_html_math_renderer("mathml", (_render, None), (_render, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
