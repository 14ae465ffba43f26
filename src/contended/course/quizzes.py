# SPDX-License-Identifier: MIT
"""The quiz questions in the forms that learning platforms take: GIFT, and Moodle's XML."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from contended.errors import UsageError
from contended.records import write_whole
from contended.show import quiz
from contended.show.quiz import Bank


def export(out: Path) -> list[Path]:
    """Write `quiz.gift` and `quiz.xml` into a folder, made if need be."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is no folder: name another")
    out.mkdir(parents=True, exist_ok=True)
    bank = quiz.load()
    made = {out / "quiz.gift": gift(bank), out / "quiz.xml": moodle(bank)}
    for path, text in made.items():
        write_whole(path, text)
    return list(made)


def _escaped(text: str) -> str:
    return re.sub(r"([~=#{}:\\])", r"\\\1", text)


def gift(bank: Bank) -> str:
    """As GIFT: a category for each chapter, and the misconception as a wrong answer's feedback."""
    lines = []
    for chapter, questions in bank.chapters.items():
        lines += [f"$CATEGORY: contended/{chapter}", ""]
        for n, one in enumerate(questions, 1):
            lines.append(f"::{chapter} {n}::{_escaped(one.question)} {{")
            lines.append(f"\t={_escaped(one.answer)}")
            for wrong in one.wrong:
                lines.append(f"\t~{_escaped(wrong.answer)} #{_escaped(wrong.misconception)}")
            lines += ["}", ""]
    return "\n".join(lines)


def moodle(bank: Bank) -> str:
    """As Moodle's XML, with the same categories and feedback."""
    top = Element("quiz")
    for chapter, questions in bank.chapters.items():
        category = SubElement(top, "question", type="category")
        _text(SubElement(category, "category"), f"$course$/contended/{chapter}")
        for n, one in enumerate(questions, 1):
            made = SubElement(top, "question", type="multichoice")
            _text(SubElement(made, "name"), f"{chapter} {n}")
            _text(SubElement(made, "questiontext", format="plain_text"), one.question)
            SubElement(made, "single").text = "true"
            SubElement(made, "shuffleanswers").text = "1"
            for answer, why in [
                (one.answer, ""),
                *((w.answer, w.misconception) for w in one.wrong),
            ]:
                part = SubElement(made, "answer", fraction="0" if why else "100")
                part.set("format", "plain_text")
                _text(part, answer)
                _text(SubElement(part, "feedback", format="plain_text"), why)
    ElementTree.indent(top)
    return ElementTree.tostring(top, encoding="unicode", xml_declaration=True) + "\n"


def _text(parent: Element, text: str) -> None:
    SubElement(parent, "text").text = text
