# SPDX-License-Identifier: MIT
"""Interleavings to step through: what is drawn and said, in a page, in a widget and as text."""

from __future__ import annotations

import re
import sys
from typing import Any
from xml.etree import ElementTree

import pytest

from contended.errors import UsageError
from contended.show import widget
from contended.show.steps import WRONG, Step, Stepper, steps

SVG = "{http://www.w3.org/2000/svg}"
COLUMNS = ("CPU 0", "the line", "CPU 1")


def story(**more: Any) -> Stepper:
    taken = Step("CPU 1 takes `it` & reads.", {"CPU 1": "reads", "the line": "shared"}, **more)
    return steps(
        "A line <goes>",
        COLUMNS,
        [
            Step("CPU 0 writes.", {"CPU 0": "writes", "the line": "modified"}),
            Step("CPU 0 writes once more.", {"CPU 0": "writes again and again"}),
            taken,
        ],
        state=("the line",),
    )


def parsed(svg: str) -> ElementTree.Element:
    # within a page the name space goes without saying
    return ElementTree.fromstring(svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1))


def drawn(svg: str) -> list[ElementTree.Element]:
    """The rows of a picture."""
    root = parsed(svg)
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == "A line <goes>"
    return [group for group in root if group.get("class") == "step"]


def words(row: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in row.iter(f"{SVG}text")]


def test_a_row_a_step_in_which_a_state_stays_until_it_changes() -> None:
    rows = drawn(story().svg())
    assert [words(row) for row in rows] == [
        ["1", "writes", "modified"],
        ["2", "writes again and", "again", "modified"],
        ["3", "shared", "reads"],
    ]
    assert not [row for row in rows if row.get("visibility")], "all of them are visible"
    assert all(row[0].get("stroke") == "none" for row in rows), "and none stands out"


def box(row: ElementTree.Element, text: str) -> tuple[float, float]:
    """Top and bottom of the rectangle before a text."""
    last = row[0]
    for each in row:
        if each.text == text:
            break
        last = each if each.tag == f"{SVG}rect" else last
    top = float(last.attrib["y"])
    return top, top + float(last.attrib["height"])


def test_a_state_is_a_band_without_a_gap_as_long_as_it_lasts() -> None:
    rows = drawn(story().svg())
    states = ("modified", "modified", "shared")
    first, same, other = (box(row, text) for row, text in zip(rows, states, strict=True))
    assert first[1] == same[0]
    assert same[1] < other[0]
    assert box(rows[0], "writes")[1] < box(rows[1], "writes again")[0], "actions are apart"


def test_at_a_step_the_rows_up_to_it_are_there_and_its_own_is_framed() -> None:
    whole = story().svg()
    for now in range(3):
        svg = story().svg(now)
        assert svg.split(">")[0] == whole.split(">")[0], "its size does not change"
        rows = drawn(svg)
        assert [row.get("visibility") for row in rows] == [None] * (now + 1) + ["hidden"] * (
            2 - now
        )
        assert [row[0].get("stroke") for row in rows].index("currentcolor") == now
        assert sum(row[0].get("stroke") == "currentcolor" for row in rows) == 1
        assert len(parsed(svg)) == 2 + len(rows), "nothing is drawn beside heads and rows"


def ends(row: ElementTree.Element) -> tuple[float, float]:
    _, path = row.iter(f"{SVG}path")  # behind the dotted lines
    found = re.match(r"M([\d.]+) [\d.]+H([\d.]+)m(-?\d+) ", path.attrib["d"])
    assert found
    start, end, barb = map(float, found.groups())
    assert (start < end) == (barb < 0), "the head is at the end"
    return start, end


def test_an_arrow_goes_from_column_to_column() -> None:
    texts = parsed(story().svg()).iter(f"{SVG}text")
    places = {text.text: float(text.attrib["x"]) for text in texts}
    for way in (("CPU 0", "CPU 1"), ("CPU 1", "the line")):
        row = drawn(story(moves=way).svg())[2]
        assert ends(row) == (places[way[0]], places[way[1]])
    assert len(list(drawn(story().svg())[2].iter(f"{SVG}path"))) == 1


def test_where_it_goes_wrong_is_said_in_words() -> None:
    wrong = story(wrong=True)
    row = drawn(wrong.svg())[2]
    assert words(row)[1] == WRONG
    (caption,) = (text for text in row.iter(f"{SVG}text") if text.text == WRONG)
    assert float(row[0].attrib["y"]) + 12 < float(caption.attrib["y"]) < box(row, "reads")[0]
    assert WRONG not in words(drawn(wrong.svg())[1])
    assert repr(wrong).splitlines()[3].startswith(f"3. {WRONG}: CPU 1")
    assert wrong._repr_html_().count(f"<strong>{WRONG}:</strong>") == 1
    assert WRONG not in story()._repr_html_()


def test_all_sentences_are_in_the_page_and_in_the_text() -> None:
    html = story()._repr_html_()
    assert re.findall(r"<li>(.*?)</li>", html) == [
        "CPU 0 writes.",
        "CPU 0 writes once more.",
        "CPU 1 takes <code>it</code> &amp; reads.",
    ]
    assert 'role="group" aria-label="A line &lt;goes&gt;"' in html
    assert repr(story()).splitlines() == [
        "A line <goes>",
        "1. CPU 0 writes. (CPU 0: writes; the line: modified)",
        "2. CPU 0 writes once more. (CPU 0: writes again and again)",
        "3. CPU 1 takes `it` & reads. (CPU 1: reads; the line: shared)",
    ]


def test_it_is_small() -> None:
    does = dict.fromkeys(("a", "b", "c", "d"), "twenty wide")
    many = [Step("x" * 120, does, moves=("a", "d"), wrong=True)] * 8
    assert len(steps("Many", tuple(does), many)._repr_html_()) < 15_000


@pytest.mark.parametrize(
    ("columns", "step", "more", "why"),
    [
        (("one",), Step("It.", {}), {}, "give 2 to 4"),
        (("1", "2", "3", "4", "5"), Step("It.", {}), {}, "give 2 to 4"),
        (("a", "a"), Step("It.", {}), {}, "different"),
        (COLUMNS, None, {}, "no steps"),
        (COLUMNS, Step("It.", {"CPU 2": "x"}), {}, "no column 'CPU 2'; there are: CPU 0, the"),
        (COLUMNS, Step("It.", {}, moves=("CPU 0", "CPU 3")), {}, "no column 'CPU 3'"),
        (COLUMNS, Step("It.", {}), {"state": ("a line",)}, "no column 'a line'"),
        (COLUMNS, Step("It.", {}, moves=("CPU 0", "CPU 0")), {}, "to itself"),
        (COLUMNS, Step("", {}), {}, "0 characters"),
        (COLUMNS, Step("x" * 241, {}), {}, "241 characters"),
        (COLUMNS, Step("It.", {"CPU 0": "compare-and-exchange"}), {}, "too long for one of 3"),
        (
            COLUMNS,
            Step("It.", {"CPU 0": "first this happens, then that, then more"}),
            {},
            "too long",
        ),
        (("a", "a column of so many words that they need three lines"), Step("It.", {}), {}, "too"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    columns: tuple[str, ...], step: Step | None, more: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        steps("It", columns, [step] if step else [], **more)


def test_in_jupyterlab_it_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(widget.BOOK, raising=False)
    told = story(wrong=True)
    assert "application/vnd.jupyter.widget-view+json" in told._repr_mimebundle_()
    title, buttons, said, picture = told.widget().children
    assert title.value == "<strong>A line &lt;goes&gt;</strong>"
    back, on = buttons.children
    assert (back.description, on.description) == ("Previous", "Next")

    def shown() -> tuple[int, str]:
        """The step that the picture shows, and what is said to those who see and who listen."""
        (visible,) = re.findall(r'<div style="grid-area: 1 / 1"[^>]*>(.*?)</div>', said.value)
        number = re.match(r"<strong>Step (\d) of 3\.</strong> ", visible)
        assert number
        assert picture.value == told.svg(int(number[1]) - 1)
        return int(number[1]), visible[number.end() :]

    assert shown() == (1, "CPU 0 writes.")
    assert "alert" not in said.value, "nothing is read out before anybody asks"
    back.click()
    assert shown()[0] == 1
    on.click()
    assert shown() == (2, "CPU 0 writes once more.")
    assert said.value.count('role="alert"') == 1
    on.click()
    on.click()
    assert shown() == (3, f"<strong>{WRONG}:</strong> CPU 1 takes <code>it</code> &amp; reads.")
    back.click()
    assert shown()[0] == 2


def test_without_widgets_it_is_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    still = {"text/plain": repr(story()), "text/html": story()._repr_html_()}
    monkeypatch.setenv(widget.BOOK, "1")
    assert story()._repr_mimebundle_() == still
    monkeypatch.delenv(widget.BOOK)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert story()._repr_mimebundle_() == still
