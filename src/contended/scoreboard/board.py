# SPDX-License-Identifier: MIT
"""The scoreboard: each published number, what speaks to it here, and whether it held.

A number has the verdict of what can be compared with it: its simulation at the published size, and
readings of the same quantity in the same unit. "held" if all of them agree with it, "differs" if
one does not, "cannot" if there is none: readings then show the mechanism at this machine's size.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contended import cases, register, tree
from contended.cases import evidence
from contended.cases.evidence import Evidence, Reading, Runs
from contended.errors import ContendedError
from contended.measure.results import number
from contended.register import Case, Published, Value
from contended.scoreboard import simulated
from contended.show import lesson
from contended.simulate.predict import Predicted, Range, Verdict

SHOWN: dict[Verdict, str] = {"held": "held", "differs": "differs", "cannot": "cannot be shown here"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published number, or a ratio of two, called "a/b", with what `Predicted` has of it.

    `text` is how it was published; `compared` are readings of the same quantity, by their `what`.
    """

    name: str
    unit: str
    published: Range
    text: str
    simulated: float | None
    low: float | None
    high: float | None
    machine: str
    cpus: int
    compared: tuple[str, ...]
    verdict: Verdict
    why: str


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
    urls = _urls()
    found = []
    for case in register.all():
        runs, kept = Runs(case.slug, folder), simulated.load(case.slug)
        for figure in case.published:
            if figure.source not in urls:
                raise ContendedError(f"docs/references.bib has no address of {figure.source}")
            about = cases.study(case.slug).evidence.get(figure.id, evidence.NONE)
            found.append(_entry(case, figure, about, runs, kept, urls[figure.source]))
    return tuple(found)


def tally(entries: tuple[Entry, ...]) -> dict[Verdict, int]:
    """How many rows have each verdict."""
    counted = Counter(row.verdict for entry in entries for row in entry.rows)
    return {verdict: counted[verdict] for verdict in SHOWN}


def summary(entries: tuple[Entry, ...]) -> str:
    """The tally in a sentence."""
    held, differs, cannot = tally(entries).values()
    verdicts = f"{held} held, {differs} differ, and {cannot} cannot be shown here"
    return f"Of {held + differs + cannot} published numbers and ratios, {verdicts}."


def near(value: float, published: Range, unit: str) -> bool:
    """Whether a reading of the same quantity agrees with what was published.

    An exponent does within 0.15, anything else within a tenth: it was counted, not simulated.
    """
    low, high = published
    if unit.startswith("exponent"):
        return low - 0.15 <= value <= high + 0.15
    return low / 1.1 <= value <= high * 1.1


def shown(value: float | str, unit: str) -> str:
    """A number, or its text, with its unit, as a cell has it; a ratio has none."""
    text = value if isinstance(value, str) else number(value, 3)
    return text if unit in ("ratio", "part") or unit.startswith("exponent") else f"{text} {unit}"


def _entry(
    case: Case, figure: Published, about: Evidence, runs: Runs, kept: Sequence[Predicted], url: str
) -> Entry:
    userspace, kernel = (tuple(map(runs.read, some)) for some in (about.userspace, about.kernel))
    readings = (*userspace, *kernel)
    own = {row.name: row for row in kept if row.figure == figure.id}
    for value in figure.values:
        own.setdefault(value.name, _not_simulated(figure, value))
    # both of the figures of one case may rest on the same outcomes
    names = {*own, *(row.name for row in kept)}
    if lacking := {reading.of for reading in readings if reading.of} - names:
        raise ContendedError(f"{case.slug}/{figure.id} has no value {min(lacking)!r}")
    return Entry(
        **_some(case, "slug", "chapter", "title", "notebook"),
        **_some(figure, "what", "workload", "workers", "cpus", "source"),
        **_some(about, "section", "no_userspace", "no_kernel", "note"),
        figure=figure.id,
        url=url,
        userspace=userspace,
        kernel=kernel,
        rows=tuple(_row(figure, row, readings) for row in own.values()),
    )


def _not_simulated(figure: Published, value: Value) -> Predicted:
    known: dict[str, Any] = {"name": value.name, "unit": figure.unit, "machine": "", "cpus": 0}
    known |= dict.fromkeys(("simulated", "low", "high"))
    known |= {"verdict": "cannot", "why": "nothing here is of the same kind"}
    return Predicted(figure=figure.id, published=(value.low, value.high), **known)


def _some(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def _row(figure: Published, kept: Predicted, readings: tuple[Reading, ...]) -> Row:
    same = [reading for reading in readings if reading.of == kept.name]
    said = [near(reading.value, kept.published, kept.unit) for reading in same]
    agree = sum(said)
    if kept.simulated is not None:
        said.append(kept.verdict == "held")
    return Row(
        **_some(kept, "name", "unit", "published", "simulated", "low", "high", "machine", "cpus"),
        text=_published(figure, kept),
        compared=tuple(reading.what for reading in same),
        verdict="cannot" if not said else "held" if all(said) else "differs",
        why=_why(kept, same, agree),
    )


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


def _why(kept: Predicted, same: list[Reading], agree: int) -> str:
    """The simulation's reason, or which readings were compared and how many of them agree."""
    parts = []
    if kept.low is not None and kept.high is not None:
        ends = f"{number(kept.low, 3)} to {shown(kept.high, kept.unit)}"
        place = f"{kept.cpus} CPUs" + (f" on {kept.machine}" if kept.machine else "")
        why = f"over the ranges of the parameters: {kept.why}"
        parts.append(f"Simulated with {place}; {ends} {why}.")
    if same:
        told = "; ".join(f"{reading.what}, {reading.text}" for reading in same)
        many = f"{agree} of {len(same)} agree"
        if len(same) == 1:
            many = "agrees" if agree else "does not agree"
        parts.append(f"The same quantity was counted here ({told}): {many}.")
    return " ".join(parts) or f"{kept.why[0].upper()}{kept.why[1:]}."


def _urls() -> dict[str, str]:
    path = tree.home() / "docs" / "references.bib"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ContendedError(f"cannot read {path}: {error.strerror}") from error
    return dict(re.findall(r"^@\w+\{(\w+),\n(?:[^}].*\n)*?\s*url = \{(.*?)\}", text, re.M))
