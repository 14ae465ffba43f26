# SPDX-License-Identifier: MIT
"""What a chapter showed when it last ran, kept in `_build/chapters` until it has to run again.

One JSON file a chapter, replaced in one step: a build that is interrupted, or finds the disk full,
leaves the whole old file or the whole new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

CLAIM = "contended-claim"
"""The class of the element that `contended.show.claims` displays for each claim about time."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of a chapter left.

    Attributes:
        digest: Of what it rested on.
        ended: When, in seconds since the epoch.
        seconds: How long it took.
        cells: Of each code cell, in order: `execution_count` and `outputs`.
        metadata: What the run added to the notebook's own: the language, the widgets' state.
    """

    digest: str
    ended: float
    seconds: float
    cells: list[dict[str, Any]]
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TimeClaim:
    """A claim about time that a chapter made: what was expected, and whether it held."""

    expected: str
    holds: bool


def load(path: Path) -> Run | None:
    """A kept run, or None if there is none, or none that can be read."""
    try:
        return Run(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def save(path: Path, run: Run) -> None:
    """Keep a run.

    Raises:
        OSError: It cannot be written; what was kept before still is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(asdict(run), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def prune(folder: Path, names: Iterable[str]) -> None:
    """Remove what is kept of chapters that are no more; `names` are those that are."""
    known = {f"{name}.json" for name in names}
    for path in folder.glob("*"):
        if path.name not in known:
            path.unlink()


def merge(notebook: dict[str, Any], run: Run) -> dict[str, Any]:
    """The notebook as it is now with the outputs of its last run.

    Cells that the run did not reach have none.
    """
    left = iter(run.cells)
    cells = [
        {**cell, **next(left, {"execution_count": None, "outputs": []})}
        if cell["cell_type"] == "code"
        else cell
        for cell in notebook["cells"]
    ]
    return {**notebook, "cells": cells, "metadata": {**notebook["metadata"], **run.metadata}}


class _Claims(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[TimeClaim] = []

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if CLAIM in values.get("class", "").split():
            holds = values.get("data-holds") == "true"
            self.found.append(TimeClaim(values.get("data-expected", ""), holds))


def claims(run: Run) -> list[TimeClaim]:
    """The claims about time that a run made, in their order."""
    parser = _Claims()
    for cell in run.cells:
        for output in cell["outputs"]:
            html = "".join(output.get("data", {}).get("text/html", ""))
            if CLAIM in html:
                parser.feed(html)
    parser.close()
    return parser.found
