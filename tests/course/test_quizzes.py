# SPDX-License-Identifier: MIT
"""The quiz bank: enough of it, no answer given away, and the forms that platforms read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from contended import cli
from contended.course import quizzes
from contended.errors import ContendedError
from contended.show import quiz
from contended.show.quiz import Bank, Question, Wrong, html

ODD = Question("Is {a=b} ~ c: #1?", "yes: <it> is", [Wrong("no \\ no", "= means & {set}")])


def test_every_chapter_has_questions_and_there_are_enough(root: Path) -> None:
    bank = quiz.load()
    assert list(bank.chapters) == sorted(p.stem for p in (root / "notebooks").glob("*.ipynb"))
    assert sum(map(len, bank.chapters.values())) >= 60
    for questions in bank.chapters.values():
        assert len(questions) >= 5
        for one in questions:
            assert one.question.endswith(("?", "."))
            assert len(one.wrong) >= 2
            assert "`" not in str(one), "a form shows it as it is"
            assert all(w.misconception and not w.misconception.endswith(".") for w in one.wrong)


def test_the_order_of_answers_tells_nothing() -> None:
    """In no place is the right answer much more often than by chance."""
    asked = [one for questions in quiz.load().chapters.values() for one in questions]
    places = [one.answers().index(one.answer) for one in asked]
    assert all(0.15 < places.count(n) / len(places) < 0.55 for n in range(3)), places


@pytest.mark.parametrize("field", ["question", "answer"])
def test_two_alike_are_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    value = json.loads((root / "docs" / "quiz.json").read_text())
    one = value["chapters"]["01-measuring"][0]
    if field == "answer":
        one["answer"] = one["wrong"][0]["answer"]
    else:
        value["chapters"]["10-mount-hash"].append(one)
    (tmp_path / "quiz.json").write_text(json.dumps(value))
    monkeypatch.setattr(quiz, "PLACE", tmp_path / "quiz.json")
    with pytest.raises(ContendedError, match="is there twice, or an answer of it is"):
        quiz.load()


def test_gift_escapes_what_means_something_to_it() -> None:
    text = quizzes.gift(Bank(1, "", {"00-x": [ODD]}))
    assert "::00-x 1::Is \\{a\\=b\\} \\~ c\\: \\#1? {" in text
    assert "\t~no \\\\ no #\\= means & \\{set\\}" in text
    bare = re.sub(r"\\.", "", text)
    assert (bare.count("{"), bare.count("}"), bare.count("=")) == (1, 1, 1)


def test_the_command_writes_both_and_they_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["course", "quiz", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "out" / name) for name in ("quiz.gift", "quiz.xml")
    ]
    asked = [one for questions in quiz.load().chapters.values() for one in questions]
    parsed = ElementTree.parse(tmp_path / "out" / "quiz.xml").getroot()
    made = parsed.findall("question[@type='multichoice']")
    assert [e.findtext("questiontext/text") for e in made] == [one.question for one in asked]
    for element, one in zip(made, asked, strict=True):
        answers = element.findall("answer")
        right = [a.findtext("text") for a in answers if a.get("fraction") == "100"]
        assert right == [one.answer]
        believed = [a.findtext("feedback/text") for a in answers if a.get("fraction") == "0"]
        assert believed == [w.misconception for w in one.wrong]
    gift = (tmp_path / "out" / "quiz.gift").read_text()
    assert gift.count("\n\t=") == len(asked)
    assert gift.count("\n\t~") == sum(len(one.wrong) for one in asked)


def test_a_page_shows_them_without_markup_of_their_own() -> None:
    shown = html([ODD])
    assert shown.count("<details>") == 2
    assert "yes: &lt;it&gt; is</summary><p>Yes.</p>" in shown
    assert "Who says so believes: = means &amp; {set}." in shown


def test_each_built_chapter_ends_in_its_questions(book: Path) -> None:
    for name, questions in quiz.load().chapters.items():
        page = (book / "notebooks" / f"{name}.html").read_text()
        assert 'href="#test-yourself"' in page, "in the page's contents"
        assert page.count('<div class="quiz">') == 1
        assert page.count("<p>Yes.</p>") == len(questions)
