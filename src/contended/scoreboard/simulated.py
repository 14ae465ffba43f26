# SPDX-License-Identifier: MIT
"""What was simulated of each published number, as kept in `results/<slug>/predictions.json`.

To simulate it takes seconds and the simulator's packages, and gives the same digits everywhere; so
the rows are kept, and a test holds them and `contended.cases` together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contended import cases, records
from contended.errors import ContendedError
from contended.records import Record
from contended.show import lesson
from contended.simulate.predict import Predicted

COMMAND = "contended scoreboard --simulate"


@dataclass(frozen=True, slots=True)
class Kept(Record):
    """The rows of a case."""

    case: str
    rows: tuple[Predicted, ...]


def load(slug: str) -> tuple[Predicted, ...]:
    """A case's rows as they were recorded; what cannot be simulated needs no record."""
    path = lesson.reference(f"{slug}/predictions")
    if cases.study(slug).predictions is None and not path.exists():
        return cases.prediction(slug).rows
    try:
        text = path.read_bytes()
        kept: Kept = records.adapter(Kept).validate_json(text, strict=True, extra="forbid")
    except OSError as error:
        raise ContendedError(f"cannot read {path}: {error.strerror}: run {COMMAND}") from error
    except ValueError as error:
        raise ContendedError(f"{path} is no record of predictions: run {COMMAND}") from error
    return kept.rows


def record(slugs: Iterable[str]) -> None:
    """Simulate cases and keep the rows."""
    for slug in slugs:
        path = lesson.reference(f"{slug}/predictions")
        path.parent.mkdir(parents=True, exist_ok=True)
        Kept(slug, cases.prediction(slug).rows).save(path)
