# SPDX-License-Identifier: MIT
"""The quiz questions, `docs/quiz.json`: by chapter, each wrong answer with its misconception.

`self_test` shows a chapter's own at its end: as a form in JupyterLab, elsewhere as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from contended import records, tree
from contended.errors import ContendedError, pick
from contended.show.widget import with_widget

SCHEMA = 1
PLACE = Path("docs") / "quiz.json"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong answer, and what somebody who chooses it believes."""

    answer: str
    misconception: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question with one right answer."""

    question: str
    answer: str
    wrong: list[Wrong]

    def answers(self) -> list[str]:
        """All answers in the order in which they are shown, which gives nothing away."""
        return sorted((self.answer, *(wrong.answer for wrong in self.wrong)))

    def said_to(self, answer: str) -> str:
        """What one of the answers is told: that it is right, or what it comes from."""
        believed = {wrong.answer: wrong.misconception for wrong in self.wrong}
        return f"No. Who says so believes: {believed[answer]}." if answer in believed else "Yes."


@dataclass(frozen=True, slots=True)
class Bank:
    """Questions by the name of the chapter's file, without its ending."""

    schema: int
    licence: str
    chapters: dict[str, list[Question]]


def load() -> Bank:
    """Read the questions; raises ContendedError if two are alike, or answers of one."""
    bank = records.load(Bank, tree.home() / PLACE, "quiz", SCHEMA, "put it right")
    asked = [question for questions in bank.chapters.values() for question in questions]
    for one in asked:
        alike = len(set(one.answers())) <= len(one.wrong) or not one.wrong
        if alike or sum(other.question == one.question for other in asked) > 1:
            raise ContendedError(f"{PLACE}: {one.question!r} is there twice, or an answer of it is")
    return bank


def html(questions: list[Question]) -> str:
    """The questions as details elements: an opened answer says whether it is right, or why not."""
    parts = []
    for one in questions:
        answers = "".join(
            f"<li><details><summary>{escape(answer)}</summary>"
            f"<p>{escape(one.said_to(answer))}</p></details></li>"
            for answer in one.answers()
        )
        parts.append(f"<p>{escape(one.question)}</p><ul>{answers}</ul>")
    return f'<div class="quiz">{"".join(parts)}</div>'


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The questions at a chapter's end, which say of each answer whether it is right."""

    questions: list[Question]

    def form(self) -> Any:
        """A choice for each question, as an ipywidgets box."""
        import ipywidgets as widgets  # an extra, and of use in JupyterLab only

        parts: list[Any] = [widgets.HTML("<strong>Test yourself.</strong>")]
        for one in self.questions:
            # labels are cut where they do not fit, unless the box takes its content's width
            choice = widgets.RadioButtons(
                options=one.answers(), value=None, layout={"width": "max-content"}
            )
            said = widgets.HTML()

            def chosen(change: Any, one: Question = one, said: Any = said) -> None:
                said.value = escape(one.said_to(change["new"]))

            choice.observe(chosen, names="value")
            parts += [widgets.HTML(escape(one.question)), choice, said]
        return widgets.VBox(parts)

    def __repr__(self) -> str:
        lines = ["Test yourself. (The right answers are in the book, at this chapter's end.)"]
        for n, one in enumerate(self.questions, 1):
            lines += ["", f"{n}. {one.question}"]
            lines += [
                f"   {letter}) {answer}"
                for letter, answer in zip("abcdef", one.answers(), strict=False)
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html(self.questions)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        still = {"text/plain": repr(self), "text/html": self._repr_html_()}
        return with_widget(still, self.form)


def self_test(chapter: str) -> SelfTest:
    """The questions of a chapter, by the name of its file without the ending.

    Raises:
        UsageError: there is no such chapter.
    """
    return SelfTest(pick(load().chapters, chapter, "no questions of chapter"))
