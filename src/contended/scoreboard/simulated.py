# SPDX-License-Identifier: MIT
"""What was simulated of each published number, as kept in `results/<slug>/predictions.json`.

To simulate it takes seconds and the simulator's packages, and gives the same digits everywhere; so
the rows are kept, and a test holds them and `contended.simulate.predict` together.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from contended import register
from contended.errors import ContendedError
from contended.records import write_whole
from contended.show import lesson
from contended.simulate import predict
from contended.simulate.predict import Predicted

COMMAND = "contended scoreboard --simulate"
"""Makes the records anew."""


def load(slug: str) -> tuple[Predicted, ...]:
    """A case's rows as they were recorded.

    Raises:
        ContendedError: there is no record, or it is damaged or of another version.
    """
    path = lesson.reference(f"{slug}/predictions")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return tuple(
            Predicted(**{**row, "published": tuple(row["published"])}) for row in found["rows"]
        )
    except OSError as error:
        raise ContendedError(f"cannot read {path}: {error.strerror}: run {COMMAND}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ContendedError(f"{path} is no record of predictions: run {COMMAND}") from error


def record() -> None:
    """Simulate every case and keep the rows."""
    for case in register.all():
        rows = [asdict(row) for row in predict.prediction(case.slug).rows]
        content: dict[str, Any] = {"case": case.slug, "rows": rows}
        path = lesson.reference(f"{case.slug}/predictions")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(content, indent=2) + "\n")
