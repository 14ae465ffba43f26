# SPDX-License-Identifier: MIT
"""A chapter's own rows of the scoreboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contended import cases, register
from contended.scoreboard import board, comparison
from contended.simulate.predict import span

BEYOND = [slug for slug in register.slugs() if cases.study(slug).sweep is not None]


@pytest.mark.parametrize("slug", BEYOND)
def test_a_chapter_has_the_scoreboard_s_rows(slug: str, tmp_path: Path) -> None:
    """All of them, with the same four sides and the same verdict."""
    shown = {(row[0], row[1]): row[2:] for row in comparison.table(slug).rows}
    entries = [entry for entry in board.board(tmp_path) if entry.slug == slug]
    assert shown.keys() == {(entry.figure, row.name) for entry in entries for row in entry.rows}
    for entry in entries:
        for row in entry.rows:
            text, *sides, told = shown[entry.figure, row.name]
            assert (text, told) == (row.text, row.told)
            for cell, said in zip(sides, (row.timed, row.simulated, row.naive), strict=True):
                if said is None:
                    assert cell == "-"
                else:
                    assert cell.removesuffix(" !") == span(said.low, said.high)
                    assert cell.endswith(" !") == bool(said.doubtful)


@pytest.mark.parametrize("slug", [slug for slug in register.slugs() if slug not in BEYOND])
def test_a_chapter_of_counts_has_what_was_counted(slug: str, tmp_path: Path) -> None:
    shown = {(row[0], row[1]): row[2:] for row in comparison.table(slug).rows}
    entries = [entry for entry in board.board(tmp_path) if entry.slug == slug]
    assert shown.keys() == {(entry.figure, row.name) for entry in entries for row in entry.rows}
    for entry in entries:
        for row in entry.rows:
            text, model, kernel, told = shown[entry.figure, row.name]
            assert (text, told) == (row.text, row.told)
            assert row.compared, "else there is nothing to show"
            for cell, readings in ((model, entry.userspace), (kernel, entry.kernel)):
                same = [reading.text for reading in readings if reading.what in row.compared]
                assert (cell == "-") is (not same)
                assert all(reading in cell for reading in same)


def test_what_is_doubtful_is_marked_and_told() -> None:
    table = comparison.table("lockref-degrade")
    marked = {(row[0], row[1]) for row in table.rows if row[3].endswith("!")}
    path = Path(__file__).parents[2] / "results" / "lockref-degrade" / "time-stay-700.json"
    told = json.loads(path.read_text())["results"]
    lost = [r for r in told if max(r.get("escaped", 0), r.get("ticks", 0)) > 0.01]
    assert lost, "the record has nothing doubtful, so this shows nothing"
    assert ("spin-700-of-1000", "spin-700") in marked
    assert ("pause-2", "open-pause") not in marked
    assert table.notes == [board.DOUBT]
    assert comparison.table("umount-grace-period").notes == []


@pytest.mark.parametrize("slug", register.slugs())
def test_every_notebook_shows_its_own(slug: str) -> None:
    notebook = register.get(slug).notebook
    path = Path(__file__).parents[2] / "notebooks" / f"{notebook}.ipynb"
    cells = json.loads(path.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert any("comparison.table(" in text for text in code)
