# SPDX-License-Identifier: MIT
"""Measured sentences: each is computed, checked and said by one call of `claim`.

A chapter claims two kinds of things. What the program's text decides (counts, steps, equal results,
recorded runs, simulations) must hold: if it does not, something is wrong, and the cell fails. What
a busy machine can change (ratios of live measurements, latencies, slopes over time, counts of how
often threads met) is wrapped in `timed`: if that misses its bound, a box says what was expected,
what was measured and what the recorded run shows, and the chapter goes on.

A box is one element of class `contended-claim` whose `data-holds` is "true" (then it is hidden) or
"false": the book's status page counts them (`contended.book`).
"""

from __future__ import annotations

import os
import re
import statistics
import string
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol, runtime_checkable

from contended.errors import ContendedError

RECORD = "CONTENDED_RECORD"
"""Set to 1 while reference runs are made, which must not miss a claim."""

ADVICE = "Times depend on what else the machine does: run the cell again on a quiet machine."
WITH_KERNELS = (
    "Kernels share the host with all that runs on it: run the cell again when it is quiet."
)


@runtime_checkable
class Spread(Protocol):
    """A median with an interval: `stats.Interval` and `results.RatioAt` are such."""

    @property
    def median(self) -> float: ...  # noqa: D102
    @property
    def low(self) -> float: ...  # noqa: D102
    @property
    def high(self) -> float: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim about time and what became of it in this run; shows itself if it missed.

    Attributes:
        expected: The claim as a sentence, with its bound.
        holds: Whether it holds in this run.
        seen: What this run measured, or why that could not be worked out.
        recorded: The same of the recorded run; empty without one.
        advice: What to do about a miss.
        live: Whether something of it was measured just now; else it can miss on no machine.
    """

    expected: str
    holds: bool
    seen: str
    recorded: str = ""
    advice: str = ADVICE
    live: bool = True

    def _repr_html_(self) -> str:
        attributes = (
            f'data-holds="{str(self.holds).lower()}" data-expected="{escape(self.expected)}" '
            f'data-live="{str(self.live).lower()}"'
        )
        if self.holds:
            return f'<div class="contended-claim" hidden {attributes}></div>'
        rows = [("Expected", self.expected), ("This run", self.seen)]
        rows += [("Recorded run", self.recorded)] if self.recorded else []
        facts = "".join(f"<li><strong>{name}:</strong> {escape(text)}</li>" for name, text in rows)
        return (
            f'<div class="admonition warning contended-claim" {attributes} '
            'style="border-left: 0.25em solid #b35900; padding: 0.5em 1em">'
            '<p class="admonition-title"><strong>Not as expected in this run</strong></p>'
            f"<ul>{facts}</ul><p>{escape(self.advice)}</p></div>"
        )

    def __repr__(self) -> str:
        if self.holds:
            return f"held: {self.expected} ({self.seen})"
        beside = f"; recorded run: {self.recorded}" if self.recorded else ""
        return (
            f"Not as expected in this run. Expected: {self.expected}; this run: {self.seen}"
            f"{beside}. {self.advice}"
        )


@dataclass(frozen=True, slots=True)
class Sentence:
    """Markdown that shows itself as such where that is possible."""

    text: str

    def _repr_markdown_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


class Timed:
    """A number that rests on time, with the bound that it is claimed to keep; see `timed`.

    It is written with a number's format ("{two:.1f}"); `median`, `low` and `high` are the measured
    value and, where there is one, the interval around it.
    """

    def __init__(
        self,
        value: Callable[..., float | Spread],
        runs: tuple[Any, ...],
        above: float | None,
        below: float | None,
    ) -> None:
        if above is None and below is None:
            raise ValueError("a claim about time needs a bound: above, below or both")
        self._work_out, self._runs, self._bounds = value, runs, {"above": above, "below": below}
        self._found, self._why = _try(value, runs)
        self.median, self.low, self.high = _ends(self._found)
        # what is no number is on neither side
        self.holds = (
            self.median == self.median
            and (above is None or self.median > above)
            and (below is None or self.median < below)
        )

    def __float__(self) -> float:
        return self.median

    def __format__(self, form: str) -> str:
        return format(self.median, form or ",.3g")

    @property
    def live(self) -> bool:
        """Whether it rests on a run that is not the recorded one."""
        return any(recorded_of(run) is not run for run in self._runs)

    def seen(self, form: str) -> str:
        """What this run measured, in a sentence's format, or why it could not."""
        return _seen(self._found, self._why, form)

    def recorded(self, form: str) -> str:
        """The same of the recorded run; empty without one."""
        kept = tuple(recorded_of(run) for run in self._runs)
        # where recorded runs stand in for all that was to be measured, once is enough
        if None in kept or all(a is b for a, b in zip(self._runs, kept, strict=True)):
            return ""
        return _seen(*_try(self._work_out, kept), form)

    def bound(self, form: str) -> str:
        """The bound in words: "above 1.2 and below 3"."""
        parts = (f"{k} {format(v, form)}" for k, v in self._bounds.items() if v is not None)
        return " and ".join(parts)


def timed(
    value: Callable[..., float | Spread],
    *runs: Any,
    above: float | None = None,
    below: float | None = None,
) -> Timed:
    """A number for `claim` that rests on time, and that a busy machine may spoil.

    Args:
        value: Works the number out of the runs; called once with `runs`, and on a miss once with
            the recorded runs in their places. It returns a number, or a median with its interval.
        runs: What `live`, `sweep` or `chapter.outcomes` returned, or mappings of it.
        above: The value must be greater.
        below: The value must be less.
    """
    return Timed(value, runs, above, below)


def claim(sentence: str, *, holds: bool = True, **values: Any) -> None:
    """Say something that was measured, if it is so.

    Args:
        sentence: Markdown with the values' names in braces, as for `str.format`.
        holds: Whether what the sentence says is so, as far as no time decides it.
        values: What the sentence names; those that rest on time are `timed`, each by its own name.

    Raises:
        ContendedError: it does not hold; or a time misses its bound, in a run that was to become
            the reference run.
    """
    text = textwrap.dedent(sentence).strip()
    about_time = {name: v for name, v in values.items() if isinstance(v, Timed)}
    if not holds:
        raise ContendedError(f"this does not hold: {_bare(text.format(**values))}")
    inside = (v for group in values.values() if isinstance(group, Mapping) for v in group.values())
    if any(isinstance(v, Timed) for v in inside):
        raise TypeError("a timed value inside a mapping would not be judged: give it a name")
    forms = dict.fromkeys(about_time, ",.3g") | _forms(text)
    unsaid = dict.fromkeys(about_time, _Words("…"))
    missed = {name: number for name, number in about_time.items() if not number.holds}
    # what missed is one box, so that its sentence is read once
    for group in [*({name: v} for name, v in about_time.items() if v.holds), missed]:
        bounds = {name: _Words(number.bound(forms[name])) for name, number in group.items()}
        recorded = [v.recorded(forms[name]) for name, v in group.items() if not v.holds]
        if group:
            show(
                Claim(
                    expected=_bare(text.format(**values | unsaid | bounds)),
                    holds=group is not missed,
                    seen="; ".join(v.seen(forms[name]) for name, v in group.items()),
                    recorded="; ".join(r or "…" for r in recorded) if any(recorded) else "",
                    live=any(v.live for v in group.values()),
                )
            )
    if not missed:
        display(Sentence(text.format(**values)))


class _Words(str):
    """Words in the place of a number, however that was to be written."""

    __slots__ = ()
    median = low = high = property(lambda _: _Words("…"))

    def __format__(self, _form: str) -> str:
        return str(self)


def _forms(text: str) -> dict[str, str]:
    """How a sentence writes each of its values: the first format of each name."""
    found: dict[str, str] = {}
    for _, field, form, _ in string.Formatter().parse(text):
        if field and form:
            found.setdefault(re.split(r"[.\[]", field)[0], form)
    return found


def _bare(text: str) -> str:
    """A sentence in one line and without its markup."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"\*\*|`", "", text).split())


def show(claim: Claim) -> None:
    """Display a claim.

    Raises:
        ContendedError: it does not, in a run that was to become the reference run.
    """
    if not claim.holds and os.environ.get(RECORD) == "1":
        raise ContendedError(f"no reference run: {claim!r}")
    display(claim)


def display(thing: object) -> None:
    """Show something in a notebook, before its cell ends."""
    # A notebook has it; whoever imports this elsewhere need not wait for it.
    from IPython import display as ipython

    ipython.display(thing)  # type: ignore[attr-defined, no-untyped-call, unused-ignore]


_KEPT: dict[int, tuple[Any, Callable[[], Any]]] = {}


def remember(run: Any, load: Callable[[], Any]) -> None:
    """Note how the recorded counterpart of a live run is loaded."""
    _KEPT[id(run)] = (run, load)  # holding the run keeps its id its own


def recorded_of(run: Any) -> Any:
    """The recorded counterpart of a run, or None: of a mapping, a mapping of them."""
    if isinstance(run, Mapping):
        kept = {key: recorded_of(one) for key, one in run.items()}
        if all(kept[key] is one for key, one in run.items()):
            return run
        return None if None in kept.values() else kept
    if getattr(run, "recorded", False):
        return run
    if id(run) not in _KEPT:
        return None
    try:
        return _KEPT[id(run)][1]()
    except ContendedError:
        return None  # a measurement that nobody has recorded yet


def _try(
    value: Callable[..., float | Spread], runs: tuple[Any, ...]
) -> tuple[float | Spread | None, str]:
    """The value, or None and why a starved run has none."""
    try:
        return value(*runs), ""
    except ZeroDivisionError:
        return None, "cannot be worked out: a count or a rate of this run is 0"
    except (ArithmeticError, ContendedError, statistics.StatisticsError) as error:
        return None, f"cannot be worked out: {error}"


def _ends(found: float | Spread | None) -> tuple[float, float, float]:
    if found is None:
        return (float("nan"),) * 3
    if isinstance(found, Spread):
        return float(found.median), float(found.low), float(found.high)
    return (float(found),) * 3


def _seen(found: float | Spread | None, why: str, form: str) -> str:
    if found is None:
        return why
    middle, low, high = (format(value, form) for value in _ends(found))
    return f"{middle} ({low} to {high})" if isinstance(found, Spread) else middle
