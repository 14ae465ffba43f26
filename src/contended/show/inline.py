# SPDX-License-Identifier: MIT
"""A figure as part of a page: matplotlib's SVG without what a page does not need."""

from __future__ import annotations

import hashlib
import re
from html import escape
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

# A hundredth of a point: nobody sees less
_NUMBER = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"(?<=#)(\w+)")
_NAMES = re.compile(r"\{[^}]*\}")


def inline(svg: bytes, alt: str, style: str) -> str:
    """The `<svg>` element for a page, with `alt` as its label and `style` on it.

    Text stays text, in sizes of the picture's own coordinates. Ids are of this picture alone, and
    the same for the same picture: what it shows and says is in them.
    """
    root = ElementTree.fromstring(svg)
    for found in list(root.iter()):
        for child in list(found):
            if _NAMES.sub("", child.tag) in ("metadata", "style"):
                found.remove(child)
    _thin(root)
    box = " ".join(map(_rounded, root.attrib["viewBox"].split()))
    parts = "".join(map(_written, root))
    # matplotlib sets this for every element of the document, which would be the page
    parts = f'<g stroke-linejoin="round">{parts}</g>'
    own = hashlib.sha256((parts + alt).encode()).hexdigest()[:8]
    ids = {name: f"f{own}{n}" for n, name in enumerate(re.findall(r' id="(\w+)"', parts))}
    parts = re.sub(r'(?<= id=")\w+', lambda found: ids[found[0]], parts)
    parts = _REFERENCE.sub(lambda found: ids.get(found[0], found[0]), parts)
    label = escape(alt)
    return f'<svg viewBox="{box}" role="img" aria-label="{label}" style="{style}">{parts}</svg>'


def _thin(element: Element) -> None:
    """Leave out empty groups and those that say nothing, ids that only number, repeated styles."""
    children: list[Element] = []
    for child in element:
        _thin(child)
        tag = _NAMES.sub("", child.tag)
        if tag not in ("path", "clipPath", "pattern"):
            child.attrib.pop("id", None)
        if tag in ("g", "defs") and not len(child):
            continue
        children += child if tag == "g" and not child.attrib else [child]
    styles = {child.get("style", "") for child in children}
    style = styles.pop() if len(styles) == 1 and len(children) > 1 else ""
    # opacity is of a group as a whole, all else is inherited
    if style and _NAMES.sub("", element.tag) == "g" and not re.search(r"(^|; )opacity", style):
        element.set("style", style)
        for child in children:
            del child.attrib["style"]
    element[:] = children


def _written(element: Element) -> str:
    tag = _NAMES.sub("", element.tag)
    attributes = {_NAMES.sub("", name): " ".join(v.split()) for name, v in element.attrib.items()}
    styles = re.findall(r"([\w-]+): *([^;]+)", attributes.pop("style", ""))
    attributes |= {name: value for name, value in styles if name != "font-family"}
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    words = "".join(
        f' {name}="{escape(value if "#" in value else _rounded(value))}"'
        for name, value in attributes.items()
    )
    inside = escape(element.text or "") if tag == "text" else ""
    inside += "".join(map(_written, element))
    return f"<{tag}{words}>{inside}</{tag}>" if inside else f"<{tag}{words}/>"


def _rounded(value: str) -> str:
    return _NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), value)
