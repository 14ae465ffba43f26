# SPDX-License-Identifier: MIT
"""How a cell that failed is shown, and what is kept of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contended.book import execute
from contended.book.execute import ChapterFailure, Stop, TimeClaim, excerpt, failing_line

CELL = "\n".join(f"line_{n} = {n}" for n in range(1, 10))


def test_the_failing_line_is_marked_among_its_neighbours() -> None:
    shown = excerpt(CELL, 5)
    assert [line for line in shown if line.startswith(">")] == [">   5 | line_5 = 5"]
    assert shown[0].endswith("line_3 = 3")
    assert shown[-1].endswith("line_5 = 5"), "what did not run any more is not shown"


def test_a_statement_of_several_lines_is_shown_with_its_end() -> None:
    shown = excerpt("x = 1\nassert all(\n    y\n    for y in (0,)\n), x\nprint(x)", 2)
    assert shown == [
        "    1 | x = 1",
        ">   2 | assert all(",
        "    3 |     y",
        "    4 |     for y in (0,)",
        "    5 | ), x",
    ]
    assert excerpt("x = 1\n\n\nassert x", 4) == [">   4 | assert x"], "no blank lines first"


@pytest.mark.parametrize("line", [1, 40, 79, None])
@pytest.mark.parametrize("wide", [1, 500])
def test_it_is_a_few_short_lines_whatever_the_cell(line: int | None, wide: int) -> None:
    long = "x = [\n" + "\n".join(f"    {'1' * wide}," for _ in range(78)) + "\n]"
    shown = excerpt(long, line)
    assert 1 <= len(shown) <= 5
    assert max(map(len, shown)) <= 110


def test_without_a_cell_nothing_is_shown() -> None:
    assert excerpt("", None) == []


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        ("AssertionError\nCell In[14], line 3\n      1 a\n----> 3 b\n", 3),
        ("Cell In[14], line 3\n----> 3 f()\n\nCell In[2], line 8, in f()\n----> 8 g()", 3),
        # an exception while another one is handled, in a function of an earlier cell
        ("Cell In[2], line 8, in f()\n\nDuring handling\n\nCell In[14], line 3\n", 3),
        ("  Cell In[14], line 2\n    x = = 1\n        ^\nSyntaxError", 2),
        ("File ~/stats.py:7, in median(x)\n----> 7 x", None),
    ],
)
def test_the_failing_line_is_read_from_the_traceback(trace: str, line: int | None) -> None:
    assert failing_line(Stop(1, CELL, "", trace)) == line


@pytest.mark.parametrize("error", ["A: " + "x" * 900, "A: " + "x\n" * 90])
def test_a_failure_is_about_ten_lines(error: str) -> None:
    stop = Stop(3, CELL, error, "Cell In[3], line 9\n")
    told = ChapterFailure(
        Path("notebooks/x.ipynb"), "01 X", stop, Path("_build/failed/x.txt")
    ).text()
    assert 5 <= told.count("\n") + 1 <= 11
    assert max(map(len, told.splitlines())) <= 230
    assert "_build/failed/x.txt" in told


def outputs(*html: str) -> dict[str, Any]:
    return {
        "execution_count": 1,
        "outputs": [
            {"output_type": "display_data", "metadata": {}, "data": {"text/html": one}}
            for one in html
        ],
    }


def test_claims_about_time_are_read_from_what_a_run_displayed() -> None:
    box = (
        '<div class="admonition warning contended-claim" data-holds="false" '
        'data-expected="a &lt;b&gt; &quot;c&quot; (above 1)"><p>a &lt;b&gt; again</p></div>'
    )
    held = '<div class="contended-claim" hidden data-holds="true" data-expected="d"></div>'
    other = '<p class="no-contended-claim" data-holds="false">contended-claim</p>'
    cells = [outputs(box, other), outputs(), {"execution_count": 3, "outputs": []}, outputs(held)]
    run = execute.ChapterRun("", 0.0, 0.0, cells, {})
    assert execute.claims(run) == [TimeClaim('a <b> "c" (above 1)', False), TimeClaim("d", True)]


def test_outputs_go_to_the_cells_that_made_them() -> None:
    notebook = {
        "metadata": {"kernelspec": {"name": "python3"}, "language_info": {"name": "old"}},
        "cells": [
            {"cell_type": "code", "source": "a"},
            {"cell_type": "markdown", "source": "new prose"},
            {"cell_type": "code", "source": "b"},
            {"cell_type": "code", "source": "c", "outputs": ["stale"]},
        ],
    }
    run = execute.ChapterRun(
        "", 0.0, 0.0, [outputs("A"), outputs("B")], {"language_info": {"name": "new"}}
    )
    merged = execute.merge(notebook, run)
    assert merged["metadata"] == {
        "kernelspec": {"name": "python3"},
        "language_info": {"name": "new"},
    }
    a, prose, b, c = merged["cells"]
    assert (a["outputs"], b["outputs"]) == (outputs("A")["outputs"], outputs("B")["outputs"])
    assert "outputs" not in prose
    assert c["outputs"] == [], "the run did not come so far"
