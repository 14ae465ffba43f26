# SPDX-License-Identifier: MIT
"""The quiz questions, `docs/quiz.json`: by chapter, each wrong answer with its misconception."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from contended import records, tree
from contended.errors import ContendedError

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
