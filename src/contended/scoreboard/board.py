# SPDX-License-Identifier: MIT
"""The scoreboard: each published number, what speaks to it here, and whether it held.

A number has the verdict of what can be compared with it: its simulation at the published size, and
readings of the same quantity in the same unit. "held" if all of them agree with it, "differs" if
one does not, "cannot" if there is none: then the readings beside it show the mechanism, at this
machine's size, and not the number.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from contended import cases, register, tree
from contended.cases import evidence
from contended.cases.evidence import Evidence, Reading, Runs
from contended.errors import ContendedError
from contended.measure.results import number
from contended.scoreboard import simulated
from contended.show import lesson
from contended.simulate.predict import Predicted, Verdict

NEAR_EXPONENT = 0.15
NEAR_NUMBER = 1.1
SHOWN: dict[Verdict, str] = {
    "held": "held",
    "differs": "differs",
    "cannot": "cannot be shown here",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published number, or a ratio of two.

    Attributes:
        name: The value's name in its figure, "a/b" for a ratio, or in words.
        unit: Of all numbers here.
        published: Lowest and highest, with the spread that the source states.
        text: As it was published.
        simulated: At the published size; None if a simulation cannot say.
        low: Lowest simulated over the ranges of the parameters.
        high: Highest.
        machine: Name of the simulated machine.
        cpus: How many of its CPUs ran; 0 if none did.
        compared: Which readings are of the same quantity, by their `what`.
        verdict: See the module.
        why: The reason of the verdict, in a sentence or two.
    """

    name: str
    unit: str
    published: tuple[float, float]
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
    """A published figure.

    Attributes:
        slug: The case.
        chapter: Its number.
        title: The chapter's title.
        notebook: The chapter's file name without its suffix.
        section: Id of the section that discusses the figure.
        figure: The figure's id.
        what: What was measured.
        workload: What ran.
        workers: As published; None where the source does not say.
        cpus: Likewise.
        source: The citation's key.
        url: Where it was published.
        userspace: Readings of the C model; if empty, `no_userspace` says why.
        kernel: Readings of the kernel lab; if empty, `no_kernel` says why.
        note: What to keep in mind when comparing.
        rows: A row for each value, and for ratios that were simulated.
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

    Args:
        fresh: The folder of what was measured when the book was built; default: what the
            environment names, or the book's own.

    Raises:
        ContendedError: a record is missing or damaged, or a figure's source has no address.
    """
    folder = fresh or Path(os.environ.get(lesson.FRESH) or tree.home() / "_build" / "runs")
    urls = _urls()
    found = []
    for case in register.all():
        runs = Runs(case.slug, folder)
        kept = simulated.load(case.slug)
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
    counted = tally(entries)
    rows = sum(counted.values())
    return (
        f"Of {rows} published numbers and ratios, {counted['held']} held, {counted['differs']} "
        f"differ, and {counted['cannot']} cannot be shown here."
    )


def near(value: float, published: tuple[float, float], unit: str) -> bool:
    """Whether a reading of the same quantity agrees with what was published.

    An exponent does within 0.15, anything else within a tenth: it was counted, not simulated.
    """
    low, high = published
    if unit.startswith("exponent"):
        return low - NEAR_EXPONENT <= value <= high + NEAR_EXPONENT
    return low / NEAR_NUMBER <= value <= high * NEAR_NUMBER


def shown(value: float, unit: str) -> str:
    """A number with its unit, as a cell has it; a ratio has none."""
    return _with_unit(number(value, 3), unit)


def _with_unit(text: str, unit: str) -> str:
    return text if unit in ("ratio", "part") or unit.startswith("exponent") else f"{text} {unit}"


def _entry(
    case: register.Case,
    figure: register.Published,
    about: Evidence,
    runs: Runs,
    kept: tuple[Predicted, ...],
    url: str,
) -> Entry:
    userspace = tuple(runs.read(probe) for probe in about.userspace)
    kernel = tuple(runs.read(probe) for probe in about.kernel)
    own = {row.name: row for row in kept if row.figure == figure.id}
    names = list(dict.fromkeys([*own, *(value.name for value in figure.values)]))
    lacking = {reading.of for reading in (*userspace, *kernel) if reading.of} - set(names)
    # both of the figures of one case may rest on the same outcomes
    everywhere = {row.name for row in kept}
    if lacking - everywhere:
        raise ContendedError(f"{case.slug}/{figure.id} has no value {min(lacking)!r}")
    return Entry(
        slug=case.slug,
        chapter=case.chapter,
        title=case.title,
        notebook=case.notebook,
        section=about.section,
        figure=figure.id,
        what=figure.what,
        workload=figure.workload,
        workers=figure.workers,
        cpus=figure.cpus,
        source=figure.source,
        url=url,
        userspace=userspace,
        kernel=kernel,
        no_userspace=about.no_userspace,
        no_kernel=about.no_kernel,
        note=about.note,
        rows=tuple(_row(figure, name, own.get(name), (*userspace, *kernel)) for name in names),
    )


def _row(
    figure: register.Published, name: str, kept: Predicted | None, readings: tuple[Reading, ...]
) -> Row:
    value = next((value for value in figure.values if value.name == name), None)
    if kept is not None:
        published, unit = kept.published, kept.unit
    else:
        assert value is not None
        published, unit = (value.low, value.high), figure.unit
    same = tuple(reading for reading in readings if reading.of == name)
    said = [] if kept is None or kept.simulated is None else [kept.verdict == "held"]
    said += [near(reading.value, published, unit) for reading in same]
    verdict: Verdict = "cannot" if not said else "held" if all(said) else "differs"
    return Row(
        name=name,
        unit=unit,
        published=published,
        text=_published(value, published, unit),
        simulated=kept.simulated if kept else None,
        low=kept.low if kept else None,
        high=kept.high if kept else None,
        machine=kept.machine if kept else "",
        cpus=kept.cpus if kept else 0,
        compared=tuple(reading.what for reading in same),
        verdict=verdict,
        why=_why(kept, same, published, unit),
    )


def _published(value: register.Value | None, ends: tuple[float, float], unit: str) -> str:
    """As it was published, to the last digit; a ratio was not, and is rounded."""
    if value is None:
        low, high = (number(end, 3) for end in ends)
        text = low if low == high else f"{low} to {high}"
    else:
        text = f"{value.low:,.10g}"
        if value.high != value.low:
            text += f" to {value.high:,.10g}"
        if value.plus_minus is not None:
            text += f" ± {value.plus_minus:,.10g}"
    return _with_unit(text, unit)


def _why(
    kept: Predicted | None,
    same: tuple[Reading, ...],
    published: tuple[float, float],
    unit: str,
) -> str:
    """The simulation's reason, or which readings were compared and how they came out."""
    parts = []
    if kept is not None and kept.simulated is not None and kept.low is not None:
        assert kept.high is not None
        ends = f"{number(kept.low, 3)} to {shown(kept.high, unit)}"
        place = f" on {kept.machine}" if kept.machine else ""
        parts.append(
            f"Simulated with {kept.cpus} CPUs{place}; {ends} over the ranges of the "
            f"parameters: {kept.why}."
        )
    if same:
        agree = [reading for reading in same if near(reading.value, published, unit)]
        told = "; ".join(f"{r.what}, {r.text}" for r in same)
        many = "agrees" if len(same) == 1 else f"{len(agree)} of {len(same)} agree"
        if len(same) == 1 and not agree:
            many = "does not agree"
        parts.append(f"The same quantity was counted here ({told}): {many}.")
    if not parts:
        why = kept.why if kept is not None else "nothing here is of the same kind"
        parts.append(f"{why[0].upper()}{why[1:]}.")
    return " ".join(parts)


def _urls() -> dict[str, str]:
    """The addresses of all citations."""
    path = tree.home() / "docs" / "references.bib"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ContendedError(f"cannot read {path}: {error.strerror}") from error
    found = {}
    for key, entry in re.findall(r"^@\w+\{(\w+),\n(.*?)^\}", text, re.M | re.S):
        if url := re.search(r"^\s*url = \{(.*?)\}", entry, re.M):
            found[key] = url[1]
    return found
