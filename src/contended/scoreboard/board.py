# SPDX-License-Identifier: MIT
"""The scoreboard: each published number, what speaks to it here, and whether it held.

Three things may stand beside a number, each judged by the rule of `simulate.verdict`: the real
kernel in virtual time, the simulator, and a naive guess. The row has the verdict of the first that
there is of: what was counted here, in the same unit; the kernel; the simulator. Which of these goes
first does not depend on which agrees. Other readings show the mechanism at this machine's size.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contended import cases, register, stats, tree
from contended.cases import evidence, timed
from contended.cases.evidence import Evidence, Reading, Runs
from contended.cases.timed import Timing
from contended.errors import ContendedError
from contended.kernel import times
from contended.measure.results import number
from contended.register import Case, Published
from contended.scoreboard import simulated
from contended.show import lesson
from contended.simulate.predict import Predicted, cannot, span
from contended.simulate.verdict import (
    DRAWS,
    SHOWN,
    Kind,
    Range,
    Verdict,
    between,
    gap,
    judge,
    near,
    told,
)

DOUBT = (
    f"! in some region ticks were more than {times.DOUBT:.0%} of the instructions, or as many "
    "waits for lines were given up"
)
"""What a mark says."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one of the three has to say of a row: its middle, its range, and the verdict on that."""

    middle: float
    low: float
    high: float
    verdict: Verdict
    gap: float  # the factor by which it differs, else 1
    doubtful: int = 0  # of the regions that were read, those that are marked
    close: bool = False  # whether its middle is near, see `verdict.near`

    @property
    def ends(self) -> str:
        """The range in words; with a mark, of which `DOUBT` says what it is."""
        return span(self.low, self.high) + " !" * bool(self.doubtful)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published number, or a ratio of two, called "a/b", and what stands beside it.

    `text` is how it was published, `published` its spread; `compared` are readings of the same
    quantity, by their `what`. `naive` is the guess of who knows of no cache lines.
    """

    name: str
    unit: str
    published: Range
    text: str
    timed: Said | None
    simulated: Said | None
    naive: Said | None
    machine: str
    cpus: int
    compared: tuple[str, ...]
    verdict: Verdict
    between: bool  # see `verdict.between`, of what was timed
    why: str

    @property
    def ours(self) -> Said | None:
        """What is shown and judged for us, the kernel where it was timed, else the simulator."""
        return self.timed or self.simulated

    @property
    def sides(self) -> tuple[Said | None, Said | None, Said | None]:
        """What the kernel, the simulator and the guess say, in a table's order."""
        return self.timed, self.simulated, self.naive

    @property
    def told(self) -> str:
        """The verdict in words."""
        return told(self.verdict, self.ours.gap if self.ours else 1.0, apart=self.between)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A published figure of a case, and a row for each value and each simulated ratio of it.

    `section` is the id of the one that discusses it in the chapter, `notebook`; `source` is the
    citation's key, `url` its address. Without readings of the C model or of the kernel lab,
    `no_userspace` or `no_kernel` says why. `note` is what to keep in mind when comparing.
    """

    slug: str
    chapter: int
    title: str
    notebook: str
    section: str
    figure: str
    what: str
    workload: str
    workers: int | None
    cpus: int | None
    machine: str | None
    source: str
    url: str
    userspace: tuple[Reading, ...]
    kernel: tuple[Reading, ...]
    no_userspace: str
    no_kernel: str
    note: str
    rows: tuple[Row, ...]


def board(fresh: Path | None = None) -> tuple[Entry, ...]:
    """All published figures, in the register's order.

    `fresh` is the folder of what was measured when the book was built; default: what the
    environment names, or the book's own. Raises ContendedError if a record is missing or damaged,
    or a figure's source has no address.
    """
    folder = fresh or Path(os.environ.get(lesson.FRESH) or tree.home() / "_build" / "runs")
    return tuple(entry for case in register.all() for entry in of_case(case, folder))


def of_case(case: Case, fresh: Path | None = None) -> list[Entry]:
    """A case's figures; without `fresh` what was recorded stands for what the book measured."""
    urls, runs, kept = _urls(), Runs(case.slug, fresh), simulated.load(case.slug)
    found = []
    for figure in case.published:
        if figure.source not in urls:
            raise ContendedError(f"docs/references.bib has no address of {figure.source}")
        about = cases.study(case.slug).evidence.get(figure.id, evidence.NONE)
        found.append(_entry(case, figure, about, runs, kept, urls[figure.source]))
    return found


def tally(entries: tuple[Entry, ...]) -> dict[Verdict, int]:
    """How many rows have each verdict."""
    counted = Counter(row.verdict for entry in entries for row in entry.rows)
    return {verdict: counted[verdict] for verdict in SHOWN}


def skill(entries: tuple[Entry, ...]) -> tuple[int, int, int]:
    """Of the rows with a guess beside them: how many there are, we held, and the guess holds."""
    guesses = _guessed(entries)
    ours = sum(row.verdict == "held" for row, _, _ in guesses)
    return len(guesses), ours, sum(guess.verdict == "held" for _, _, guess in guesses)


def close(entries: tuple[Entry, ...]) -> tuple[int, int]:
    """Of the same rows: how many of our middles, and of the guess's, are near the published."""
    guesses = _guessed(entries)
    return (
        sum(ours.close for _, ours, _ in guesses),
        sum(guess.close for _, _, guess in guesses),
    )


def _guessed(entries: tuple[Entry, ...]) -> list[tuple[Row, Said, Said]]:
    judged = ("held", "consistent", "differs")
    rows = [row for entry in entries for row in entry.rows if row.verdict in judged]
    return [(row, row.ours, row.naive) for row in rows if row.ours and row.naive]


def summary(entries: tuple[Entry, ...]) -> str:
    """The tally in words, and what a guess would have got."""
    count = tally(entries)
    rows, ours, naive = skill(entries)
    middles, guessed = close(entries)
    held = [row for entry in entries for row in entry.rows if row.verdict == "held"]
    apart = sum(row.between for row in held)
    doubtful = sum(row.timed is not None and row.timed.doubtful > 0 for row in held)
    return (
        f"Of {sum(count.values())} published numbers and ratios, {count['held']} held and "
        f"{count['differs']} differ; {count['consistent']} are consistent with a prediction so "
        f"wide that it says little. {count['counted']} are counts that agree, "
        f"{count['inconsistent']} contradict their own source, and {count['cannot']} cannot be "
        f"shown here. Of the {rows} that a naive guess can be made of, held: ours {ours}, the "
        f"guess {naive}; within a quarter, by the middle of what is predicted: ours {middles}, the "
        f"guess {guessed}. {apart} of those that held lie between two groups of draws: something "
        f"is not known, is drawn one way or the other, and neither fits. {doubtful} of "
        f"those that held rest on some doubtful boots. What a mark says: {DOUBT}."
    )


def shown(value: float | str, unit: str) -> str:
    """A number, or its text, with its unit, as a cell has it; a ratio has none."""
    text = value if isinstance(value, str) else number(value, 3)
    return text if unit in ("ratio", "part") or unit.startswith("exponent") else f"{text} {unit}"


def _entry(
    case: Case, figure: Published, about: Evidence, runs: Runs, kept: Sequence[Predicted], url: str
) -> Entry:
    userspace, kernel = (tuple(map(runs.read, some)) for some in (about.userspace, about.kernel))
    readings = (*userspace, *kernel)
    timings = timed.load(case.slug, about.timed)
    own = {row.name: row for row in kept if row.figure == figure.id}
    for missing in [value.name for value in figure.values if value.name not in own]:
        own[missing] = next(cannot(figure, "nothing here is of the same kind", missing))
    # both of the figures of one case may rest on the same outcomes
    names = {*own, *(row.name for row in kept)}
    named = {each.of for each in readings if each.of} | {each.of for each in about.timed}
    if lacking := named - names:
        raise ContendedError(f"{case.slug}/{figure.id} has no value {min(lacking)!r}")
    return Entry(
        **_some(case, "slug", "chapter", "title", "notebook"),
        **_some(figure, "what", "workload", "workers", "cpus", "machine", "source"),
        **_some(about, "section", "no_userspace", "no_kernel", "note"),
        figure=figure.id,
        url=url,
        userspace=userspace,
        kernel=kernel,
        rows=tuple(_row(figure, row, readings, timings.get(row.name)) for row in own.values()),
    )


def _some(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def _row(
    figure: Published, kept: Predicted, readings: tuple[Reading, ...], timing: Timing | None
) -> Row:
    same = [reading for reading in readings if reading.of == kept.name]
    said = [_judged(each, kept) for each in same]
    sides: dict[str, Said | None] = dict.fromkeys(("timed", "simulated", "naive"))
    if kept.simulated is not None and kept.range is not None:
        sides["simulated"] = _said([kept.simulated], kept.range, kept)
        if kept.guess is not None and kept.naive is not None:
            sides["naive"] = _said([kept.guess], kept.naive, kept)
    if timing is not None:
        ends = stats.percentiles(timing.values)
        sides["timed"] = _said(timing.values, ends, kept, timing)
        if timing.guesses and sides["naive"] is None:
            guess = stats.percentiles(timing.guesses)
            sides["naive"] = _said(timing.guesses, guess, kept)
    verdict = kept.verdict
    if said:
        verdict = said[0] if len(set(said)) == 1 else "differs"
    elif sides["timed"] is not None:
        verdict = sides["timed"].verdict
    return Row(
        **_some(kept, "name", "unit", "published", "machine", "cpus"),
        timed=sides["timed"],
        simulated=sides["simulated"],
        naive=sides["naive"],
        text=_published(figure, kept),
        compared=tuple(reading.what for reading in same),
        verdict=verdict,
        between=timing is not None and between(timing.values, kept.published),
        why=_why(figure, kept, same, timing, sides),
    )


def _judged(reading: Reading, kept: Predicted) -> Verdict:
    kind: Kind = "contradicted" if kept.kind == "contradicted" else "counted"
    said = judge((reading.value, reading.value), kept.published, kept.unit, kind)
    return "consistent" if reading.given and said == "counted" else said


def _said(
    values: Sequence[float], ends: Range, kept: Predicted, timing: Timing | None = None
) -> Said:
    boots = DRAWS if timing is None else timing.seeds  # a simulation has more
    verdict = judge(ends, kept.published, kept.unit, kept.kind, boots)
    factor = gap(ends, kept.published, kept.unit)
    doubtful = timing.doubtful if timing else 0
    close = near(values, kept.published, kept.unit)
    return Said(stats.median(values), *ends, verdict, factor, doubtful, close)


def _published(figure: Published, kept: Predicted) -> str:
    """As it was published, to the last digit; a ratio was not, and is rounded."""
    value = {value.name: value for value in figure.values}.get(kept.name)
    if value is None:
        low, high = (number(end, 3) for end in kept.published)
    else:
        low, high = f"{value.low:,.10g}", f"{value.high:,.10g}"
    text = low if low == high else f"{low} to {high}"
    if value is not None and value.plus_minus is not None:
        text += f" ± {value.plus_minus:,.10g}"
    return shown(text, kept.unit)


def _many(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _why(
    figure: Published,
    kept: Predicted,
    same: list[Reading],
    timing: Timing | None,
    sides: dict[str, Said | None],
) -> str:
    """What the source says against itself, then the reason of each of those that have one."""
    names = kept.name.split("/") if kept.unit == "ratio" else [kept.name]
    values = {value.name: value for value in figure.values}
    parts = [values[name].contradicted or "" for name in names if name in values]
    if timing is not None:
        lost = f"; doubtful in {_many(timing.doubtful, 'region')} (ticks, or waits given up)"
        mark = lost * bool(timing.doubtful)
        mark += f"; {times.OUTDATED}" * timing.outdated
        boots = _many(timing.seeds, "boot") + ", each with drawn costs" * timing.drawn
        parts.append(
            f"The real kernel in virtual time on {timing.machine}, {boots}, the "
            f"{timing.clock}'s clock{mark}: {_ends(sides['timed'], kept.unit)}."
        )
        held = sides["timed"] is not None and sides["timed"].verdict == "held"
        if not held and (costs := timing.depends()) is not None:
            on = ", ".join(map(str, costs)) or "none of the costs more than chance has it"
            parts.append(f"By rank over the draws it depends on {on}.")
        differs = sides["timed"] is not None and sides["timed"].verdict == "differs"
        # What boots by older rules lack may be what those by today's have too much of.
        if differs and (one := timing.alone) and (timing.outdated or not one.outdated):
            parts.append(one.said(kept.published, lambda v: shown(v, kept.unit)))
    if kept.range is not None:
        place = _many(kept.cpus, "CPU") + (f" on {kept.machine}" if kept.machine else "")
        why = f"over the ranges of the parameters: {kept.why}"
        parts.append(f"Simulated with {place}; {_ends(sides['simulated'], kept.unit)} {why}.")
    elif not same and timing is None:
        parts.append(f"{kept.why[0].upper()}{kept.why[1:]}.")
    if same:
        read = "; ".join(f"{reading.what}, {reading.text}" for reading in same)
        agree = sum(_judged(each, kept) in ("counted", "consistent") for each in same)
        many = f"{agree} of {len(same)} agree"
        if len(same) == 1:
            many = "agrees" if agree else "does not agree"
        what = "number was put in" if same[0].given else "same quantity was counted"
        parts.append(f"The {what} here ({read}): {many}.")
    if guess := sides["naive"]:
        judged = told(guess.verdict, guess.gap)
        parts.append(f"A naive guess, {_ends(guess, kept.unit)}: {judged}.")
    return " ".join(part for part in parts if part)


def _ends(said: Said | None, unit: str) -> str:
    return shown(span(said.low, said.high), unit) if said else ""


def _urls() -> dict[str, str]:
    path = tree.home() / "docs" / "references.bib"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ContendedError(f"cannot read {path}: {error.strerror}") from error
    return dict(re.findall(r"^@\w+\{(\w+),\n(?:[^}].*\n)*?\s*url = \{(.*?)\}", text, re.M))
