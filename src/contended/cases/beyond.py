# SPDX-License-Identifier: MIT
"""What chapters show of machines that the reader does not have: curves, a slider, comparisons.

The long sweeps are recorded, each by the one command that `command` names.
"""

from __future__ import annotations

from functools import cache

from contended import cases, register
from contended.errors import ContendedError, UsageError
from contended.measure.results import number
from contended.show import lesson
from contended.show.table import Table
from contended.simulate.curves import Curve, Slider, Sweep
from contended.simulate.predict import Range


def sweeps() -> dict[str, Sweep]:
    """What the chapters' figures are made of, by slug."""
    known = {slug: cases.study(slug).sweep for slug in register.slugs()}
    return {slug: sweep for slug, sweep in known.items() if sweep is not None}


def sweep(slug: str) -> Sweep:
    """What a chapter's figure is made of; raises UsageError if nothing of it is simulated."""
    known = sweeps()
    if slug not in known:
        raise UsageError(f"{slug!r} has no simulated curve; choose one of: {', '.join(known)}")
    return known[slug]


def command(slug: str) -> str:
    """The one command that makes the record of a chapter's sweep."""
    return sweep(slug).command(f"results/{slug}/simulate.parquet")


@cache
def load(slug: str) -> Curve:
    """The recorded sweep of a chapter; raises ContendedError if the record is missing."""
    import pandas as pd  # slow to import

    chosen = sweep(slug)
    path = lesson.reference(f"{slug}/simulate").with_suffix(".parquet")
    try:
        return Curve(chosen, pd.read_parquet(path))
    except FileNotFoundError:
        raise ContendedError(f"results/{slug}/{path.name} is missing: {command(slug)}") from None
    except ImportError as error:
        raise ContendedError("reading Parquet needs pyarrow: pip install pyarrow") from error


def slider(slug: str, title: str) -> Slider:
    """The chapter's figure, live: choose the machine and the work, and it is simulated anew."""
    return Slider(sweep(slug), title)


def comparison(slug: str) -> Table:
    """Each published number beside the simulated one, with the range of the parameters."""

    def shown(ends: Range, unit: str) -> str:
        low, high = (number(end, 3) for end in ends)
        text = low if ends[0] == ends[1] else f"{low} to {high}"
        return text if unit in ("ratio", "part") else f"{text} {unit}"

    rows = []
    for row in cases.prediction(slug).rows:
        simulated = over = "-"
        if row.simulated is not None and row.low is not None and row.high is not None:
            simulated = shown((row.simulated, row.simulated), row.unit)
            over = shown((row.low, row.high), row.unit)
        published = shown(row.published, row.unit)
        rows.append((row.figure, row.name, published, simulated, over, row.verdict))
    head = ("figure", "value", "published", "simulated", "over the ranges", "verdict")
    return Table("Published and simulated; nothing is fitted to the published numbers", head, rows)
