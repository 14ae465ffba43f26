# SPDX-License-Identifier: MIT
"""What was simulated of each published number, as kept in `results/<slug>/predictions.json`.

To simulate it takes seconds and the simulator's packages, and gives the same digits everywhere; so
the rows are kept, and a test holds them and `contended.simulate.predict` together.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from contended import cases, lesson
from contended.errors import ContendedError
from contended.results import write_whole

COMMAND = "contended scoreboard --simulate"
"""Makes the records anew."""

Verdict = Literal["held", "differs", "cannot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A row of `contended.simulate.predict.Prediction`; see there."""

    figure: str
    name: str
    unit: str
    published: tuple[float, float]
    simulated: float | None
    low: float | None
    high: float | None
    machine: str
    cpus: int
    verdict: Verdict
    why: str


def load(slug: str) -> tuple[Simulated, ...]:
    """A case's rows as they were recorded.

    Raises:
        ContendedError: there is no record, or it is damaged or of another version.
    """
    path = lesson.reference(f"{slug}/predictions")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return tuple(
            Simulated(**{**row, "published": tuple(row["published"])}) for row in found["rows"]
        )
    except OSError as error:
        raise ContendedError(f"cannot read {path}: {error.strerror}: run {COMMAND}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ContendedError(f"{path} is no record of predictions: run {COMMAND}") from error


def fresh(slug: str) -> tuple[Simulated, ...]:
    """The same rows, simulated now; takes seconds."""
    from contended.simulate import predict

    return tuple(Simulated(**asdict(row)) for row in predict.prediction(slug).rows)


def record() -> None:
    """Simulate every case and keep the rows."""
    for case in cases.all():
        content: dict[str, Any] = {"case": case.slug, "rows": [asdict(r) for r in fresh(case.slug)]}
        path = lesson.reference(f"{case.slug}/predictions")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(content, indent=2) + "\n")
