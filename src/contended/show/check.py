# SPDX-License-Identifier: MIT
"""Readers check an answer to an exercise: it is right, or a hint names what may be behind it.

The rules are in `answers.toml` beside the register, so that no chapter shows what it asks for. What
depends on the machine is worked out of the reader's own run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from contended import records
from contended.errors import pick
from contended.measure.results import Measurement, number
from contended.show.lesson import Note

PATH = Path(__file__).parents[1] / "answers.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """What to say to a wrong answer; each names a misconception, and one way to know it by.

    Attributes:
        text: The hint; it does not say what is right.
        value: The answer is this number.
        times: It is so many times the right one.
        side: It is above the right one, or below.
        words: It has one of these words.
    """

    text: str
    value: float | None = None
    times: float | None = None
    side: Literal["above", "below", ""] = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How the answer to one exercise is judged: as words, a number, or a number out of a run.

    Attributes:
        chapter: The file of the chapter, without its ending.
        otherwise: What to say to a wrong answer that no hint knows.
        hint: What to say to others; the first that fits.
        right: Words, any one of which is right; the order of words in it does not matter.
        value: The number that is right.
        ratio: Two counts of the run; the number is the first for each of the second.
        variant, phase, threads: Of which samples; an empty phase is the only one.
        scale: The ratio is taken so many times.
        tolerance: How far off a number may be, as a part of the right one; of 0, in itself.
    """

    chapter: str
    otherwise: str
    hint: tuple[Hint, ...] = ()
    right: tuple[str, ...] = ()
    value: float | None = None
    ratio: tuple[str, str] | None = None
    variant: str = ""
    phase: str = ""
    threads: int = 1
    scale: float = 1
    tolerance: float = 0.05

    def __post_init__(self) -> None:
        if [bool(self.right), self.value is not None, self.ratio is not None].count(True) != 1:
            raise ValueError("one of right, value and ratio must be given")

    def expected(self, run: Measurement | None) -> float | None:
        """The number that is right, or None if this run cannot tell."""
        if self.ratio is None or run is None:
            return self.value
        at = {"phase": self.phase} if self.phase else {}
        above, below = (
            run.count(self.variant, counter, threads=self.threads, **at) for counter in self.ratio
        )
        return self.scale * above / below if below else None


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of an answer: `right` is None as long as nothing could be judged."""

    right: bool | None
    text: str

    def _note(self) -> Note:
        title = {True: "Right", False: "Not yet", None: "Check your answer"}[self.right]
        return Note(title, self.text, {True: "tip", False: "warning", None: "note"}[self.right])

    def _repr_html_(self) -> str:
        return self._note()._repr_html_()

    def __repr__(self) -> str:
        return repr(self._note())


@cache
def rules() -> dict[str, Rule]:
    """The rules by their labels; raises UsageError for one that is malformed."""
    return {
        label: records.made(Rule, content, f"{PATH.name}, {label}")
        for label, content in records.toml(PATH).items()
    }


def check(
    label: str, answer: float | str | Iterable[str] | None, run: Measurement | None = None
) -> Checked:
    """Judge the answer to an exercise.

    Args:
        label: The exercise's.
        answer: A number, a word, or several words as one text or a set; None: there is none yet.
        run: Your own measurement, where the right answer is that machine's.

    Raises:
        UsageError: there is no such label.
    """
    rule = pick(rules(), label, "exercise")
    if answer is None or answer == "":
        return Checked(None, "Put your answer in the place of None and run this cell again.")
    if rule.right:
        return _words(rule, answer)
    given = _number(answer)
    if given is None:
        return Checked(None, "A number is asked for: write it as 2.5 or 1e3.")
    if rule.ratio is not None and run is None:
        return Checked(None, f'Give your run as well: check("{label}", answer, run).')
    expected = rule.expected(run)
    if expected is None:
        return Checked(None, "This run counted none of what is asked for: measure once more.")
    if _near(given, expected, rule.tolerance):
        exact = given == expected
        return Checked(True, "Exactly." if exact else f"It is {number(expected, 4)}.")
    said = (hint.text for hint in rule.hint if _fits(hint, given, expected, rule.tolerance))
    return Checked(False, next(said, rule.otherwise))


def _number(answer: object) -> float | None:
    if isinstance(answer, bool):
        return None
    if isinstance(answer, str):
        answer = answer.replace(",", "").replace("_", "")
    try:
        found = float(answer)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def _near(given: float, wanted: float, tolerance: float) -> bool:
    return abs(given - wanted) <= tolerance * (abs(wanted) or 1)


def _fits(hint: Hint, given: float, expected: float, tolerance: float) -> bool:
    return (
        (hint.value is not None and _near(given, hint.value, tolerance))
        or (hint.times is not None and _near(given, hint.times * expected, tolerance))
        or (hint.side == "above" and given > expected)
        or (hint.side == "below" and given < expected)
    )


def _words(rule: Rule, answer: object) -> Checked:
    if isinstance(answer, (int, float)):
        return Checked(None, "Words are asked for, not a number.")
    text = answer if isinstance(answer, str) else " ".join(map(str, answer))  # type: ignore[call-overload]
    given = _bag(text)
    if any(given == _bag(right) for right in rule.right):
        return Checked(True, "So it is.")
    said = (h.text for h in rule.hint if given & frozenset(h.words))
    return Checked(False, next(said, rule.otherwise))


def _bag(text: str) -> frozenset[str]:
    """The words of a text, without those that say nothing."""
    return frozenset(re.findall(r"[\w-]+", text.lower())) - {"and", "it", "is", "like", "the"}
