# SPDX-License-Identifier: MIT
"""Formulas as MathML."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from contended.book.mathml import to_mathml

SPACE = {"m": "http://www.w3.org/1998/Math/MathML"}


@pytest.mark.parametrize("block", [False, True])
def test_a_formula_becomes_mathml(block: bool) -> None:
    math = ET.fromstring(to_mathml(r" \frac{N}{1 + \sigma (N-1)}", block=block))
    assert math.get("display") == ("block" if block else "inline")
    assert math.get("alttext") == r"\frac{N}{1 + \sigma (N-1)}"
    assert math.find(".//{*}mfrac") is not None
    assert "\N{GREEK SMALL LETTER SIGMA}" in "".join(math.itertext())


def test_aligned_lines_become_a_table() -> None:
    math = ET.fromstring(to_mathml("a &= b \\\\ c &= d", block=True))
    assert len(math.findall(".//{*}mtr")) == 2
    assert "&" not in "".join(math.itertext())


def test_special_characters_stay_text() -> None:
    math = ET.fromstring(to_mathml(r'a < b \text{ "q" }', block=False))
    assert "<" in "".join(math.itertext())


@pytest.mark.parametrize("tex", [r"\frac{1}", r"{x", r"\begin{matrix} a", r"\nosuch x"])
def test_what_cannot_be_read_is_refused(tex: str) -> None:
    with pytest.raises(ValueError, match="cannot read the formula"):
        to_mathml(tex, block=False)
