# SPDX-License-Identifier: MIT
"""The chapters as they are in git: no outputs, the agreed skeleton, exercises with solutions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
CASES = [path for path in NOTEBOOKS if re.match(r"0[2-9]-|10-", path.name)]

# A chapter's sections, in their order; the quadratic cases are not about caches.
SKELETON = {
    "At a glance": True,
    "Predict": True,
    "The report": True,
    "The mechanism": True,
    "Reproduce it here": True,
    "Inside the cache": False,
    "The patch": True,
    "On a real kernel": True,
    "Beyond this machine": True,
    "What reviewers said": True,
    "What to remember": True,
    "Exercises": True,
    "Further reading": True,
}

Notebook = dict[str, Any]


def load(path: Path) -> Notebook:
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def text_of(notebook: Notebook, cell_type: str) -> str:
    cells = ("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == cell_type)
    return "\n\n".join(cells)


def headings(notebook: Notebook) -> list[tuple[int, str]]:
    """Level and text of each heading, without those inside fenced blocks."""
    prose = re.sub(
        r"^(`{3,}|:{3,}).*?^\1\s*$", "", text_of(notebook, "markdown"), flags=re.M | re.S
    )
    return [(len(marks), text) for marks, text in re.findall(r"^(#+) +(.+?)\s*$", prose, re.M)]


def skeleton_faults(notebook: Notebook) -> list[str]:
    """What is wrong with a case's chapter; empty if it follows the skeleton."""
    levels = headings(notebook)
    sections = [text for level, text in levels if level == 2]
    faults = [f"unknown section: {name}" for name in sections if name not in SKELETON]
    faults += [
        f"missing section: {name}"
        for name, needed in SKELETON.items()
        if needed and name not in sections
    ]
    known = [name for name in sections if name in SKELETON]
    if known != sorted(known, key=list(SKELETON).index) or len(known) != len(set(known)):
        faults.append(f"sections out of order or twice: {known}")
    if [level for level, _ in levels].count(1) != 1:
        faults.append("not exactly one title")
    return faults


def exercise_faults(notebook: Notebook) -> list[str]:
    """Too few exercises, or one whose solution is missing or not folded."""
    prose = text_of(notebook, "markdown")
    blocks = re.findall(
        r"^(?:`{3,}|:{3,})\{((?:exercise|solution)(?:-start)?)\} *(\S*).*\n((?::\S+:.*\n)*)",
        prose,
        re.M,
    )
    labels = [
        found[1]
        for kind, _, options in blocks
        if kind.startswith("exercise") and (found := re.search(r":label: *(\S+)", options))
    ]
    solved = {label: options for kind, label, options in blocks if kind.startswith("solution")}
    faults = [f"exercise without a solution: {label}" for label in labels if label not in solved]
    faults += [
        f"solution not folded: {label}" for label, o in solved.items() if "dropdown" not in o
    ]
    if len(labels) < 3:
        faults.append(f"{len(labels)} exercises with a label, at least three are wanted")
    return faults


def hidden_assertions(notebook: Notebook) -> list[str]:
    """The source of each code cell that readers do not see and that asserts something."""
    return [
        "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
        and {"remove-cell", "hide-cell", "remove-input", "hide-input"}
        & set(cell["metadata"].get("tags", []))
        and re.search(r"^\s*assert\b", "".join(cell["source"]), re.M)
    ]


def test_there_are_chapters() -> None:
    assert CASES, "no case has a chapter"
    assert len(NOTEBOOKS) > len(CASES), "the introductory chapters are missing"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_clean_in_git(path: Path) -> None:
    notebook = load(path)
    assert notebook["nbformat"] == 4
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell.get("id") for cell in notebook["cells"]]
    assert all(ids), "each cell needs an id"
    assert len(ids) == len(set(ids)), "cell ids must differ"
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            remedy = f"run: jupyter nbconvert --clear-output --inplace notebooks/{path.name}"
            assert cell["outputs"] == [], remedy
            assert cell["execution_count"] is None, remedy


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case_follows_the_skeleton(path: Path) -> None:
    notebook = load(path)
    assert skeleton_faults(notebook) == []
    assert exercise_faults(notebook) == []
    assert hidden_assertions(notebook), "no hidden cell asserts what the prose claims"


def markdown(*cells: str) -> Notebook:
    return {"cells": [{"cell_type": "markdown", "metadata": {}, "source": s} for s in cells]}


def test_faults_are_found() -> None:
    """The checks above see what they are meant to see."""
    whole = markdown("# Title", *(f"## {name}\ntext" for name in SKELETON))
    assert skeleton_faults(whole) == []
    assert skeleton_faults(markdown("# Title", *(f"## {n}" for n in reversed(SKELETON)))) != []
    assert skeleton_faults(markdown("# Title", *(f"## {n}" for n in list(SKELETON)[1:]))) != []
    assert skeleton_faults(markdown(*(f"## {n}" for n in SKELETON))) == ["not exactly one title"]
    assert "unknown section: More" in skeleton_faults(markdown("# T", "## More"))
    assert skeleton_faults(markdown("```python\n# comment\n```", "# T")) == skeleton_faults(
        markdown("# T")
    )

    exercise = "```{exercise}\n:label: ex-%d\nWhy?\n```"
    solution = "```{solution} ex-%d\n:class: dropdown\nSo.\n```"
    three = [text % i for i in range(3) for text in (exercise, solution)]
    assert exercise_faults(markdown(*three)) == []
    assert exercise_faults(markdown(*three[:-1])) == ["exercise without a solution: ex-2"]
    assert exercise_faults(markdown(*three[2:])) != []
    unfolded = [cell.replace(":class: dropdown\n", "") for cell in three]
    assert len(exercise_faults(markdown(*unfolded))) == 3

    cell = {"cell_type": "code", "metadata": {"tags": ["remove-cell"]}, "source": "assert 1"}
    assert hidden_assertions({"cells": [cell]})
    assert not hidden_assertions({"cells": [{**cell, "metadata": {}}]})
    assert not hidden_assertions({"cells": [{**cell, "source": "# no assert"}]})
