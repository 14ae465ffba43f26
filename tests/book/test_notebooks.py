# SPDX-License-Identifier: MIT
"""The chapters as they are in git: no outputs, the skeleton, plain Markdown, folded solutions."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
LABS = sorted((Path(__file__).parents[2] / "labs").glob("*/*.ipynb"))
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
    """Too few exercises, or one without a solution of its own that JupyterLab opens collapsed."""
    faults, solved, exercise, inside = [], 0, "", False
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "markdown":
            continue
        if source.strip() == "#### Solution":
            if not exercise:
                faults.append("a solution without an exercise")
            if cell["metadata"].get("jp-MarkdownHeadingCollapsed") is not True:
                faults.append(f"solution not collapsed: {exercise}")
            solved, exercise = solved + 1, ""
            continue
        for level, text in headings({"cells": [{"cell_type": "markdown", "source": source}]}):
            if exercise and level < 4:
                faults.append(f"exercise without a solution: {exercise}")
            if text == "Solution":
                faults.append("a solution's heading needs a cell of its own")
            inside = text == "Exercises" if level == 2 else inside
            exercise = text if inside and level == 3 else ""
    if exercise:
        faults.append(f"exercise without a solution: {exercise}")
    if solved < 3:
        faults.append(f"{solved} exercises with a solution, at least three are wanted")
    return faults


SPECIAL = {
    "a role": r"\{[\w:.-]+\}\0",
    "a directive": r"^ *(?:`{3,}|~{3,}|:{3,})\s*\{",
    "a fence with options": r"^ *(?:`{3,}|~{3,})[ \t]*\w+[ \t]+\S",
    "a colon fence": r"^ *:{3,}",
    "a definition list": r"^: ",
    "a target": r"^\([\w-]+\)=",
    "a comment": r"^% ",
    "a substitution": r"\{\{",
    "a footnote": r"\[\^",
    "an attribute": r"\]\([^)]*\)\{",
    "a dollar block with a label": r"\$\$ *\(\w",
}
"""What Sphinx reads and JupyterLab, GitHub and editors show as it stands."""


def special_markup(text: str) -> list[str]:
    """What is in Markdown that is not CommonMark, a table or a formula."""
    bare = re.sub(r"(?<!`)`[^`\n]+`(?!`)", "\0", text)  # a role is what stands before code
    return [name for name, pattern in SPECIAL.items() if re.search(pattern, bare, re.M)]


def visible(notebook: Notebook) -> list[int]:
    """The lengths, in lines, of the code cells that JupyterLab shows open."""
    return [
        len("".join(cell["source"]).splitlines())
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
        and not cell["metadata"].get("jupyter", {}).get("source_hidden")
    ]


def calls(notebook: Notebook, name: str) -> list[ast.Call]:
    """The calls of a function by its bare name in all code cells."""
    return [
        node
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
        for node in ast.walk(ast.parse("".join(cell["source"])))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name
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
    kinds = {keyword.arg for call in calls(notebook, "claim") for keyword in call.keywords}
    assert "holds" in kinds, "nothing in it is claimed that must hold"


@pytest.mark.parametrize("path", [*NOTEBOOKS, *LABS], ids=lambda path: path.stem)
def test_plain_markdown(path: Path) -> None:
    assert special_markup(text_of(load(path), "markdown")) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_open_is_what_readers_are_to_read(path: Path) -> None:
    notebook = load(path)
    lengths = visible(notebook)
    assert sum(lengths) < 100
    assert max(lengths) <= 15
    for cell in notebook["cells"]:
        tags = set(cell["metadata"].get("tags", []))
        hidden = bool(cell["metadata"].get("jupyter", {}).get("source_hidden"))
        assert hidden == bool(tags & {"remove-cell", "remove-input", "hide-input"}), cell["id"]
        if "claim(" in "".join(cell["source"]) and cell["cell_type"] == "code":
            assert "remove-input" in tags, f"{cell['id']}: a claim is read, not its code"
        if hidden:
            assert not re.search(r"^\s*assert\b", "".join(cell["source"]), re.M), (
                f"{cell['id']}: say what holds with claim(..., holds=...)"
            )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_are_known(path: Path) -> None:
    """Sources are in the bibliography, terms in the glossary."""
    root = path.parents[1]
    bib = (root / "docs" / "references.bib").read_text(encoding="utf-8")
    known = {unquote(url) for url in re.findall(r"^ *url = \{(.*)\},?$", bib, re.M)}
    known |= {f"https://doi.org/{doi}" for doi in re.findall(r"^ *doi = \{(.*)\},?$", bib, re.M)}
    glossary = (root / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = {
        re.sub(r"[^\w -]", "", term.strip().lower()).replace(" ", "-")
        for term in re.findall(r"^## (.+)$", glossary, re.M)
    }
    notebook = load(path)
    text = text_of(notebook, "markdown") + text_of(notebook, "code")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert not [link for link in links if "://" in link and unquote(link) not in known]
    asked = [link.partition("#")[2] for link in links if link.startswith("../docs/glossary.md#")]
    assert not set(asked) - terms


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

    three = [text for i in range(3) for text in (f"### Why {i}?\n\nSo?", "#### Solution", "So.")]
    good = markdown("## Exercises", *three)
    for cell in good["cells"][2::3]:
        cell["metadata"] = {"jp-MarkdownHeadingCollapsed": True}
    assert exercise_faults(good) == []
    assert (
        exercise_faults({"cells": good["cells"][:-2]})[0] == "exercise without a solution: Why 2?"
    )
    assert exercise_faults({"cells": good["cells"][:1] + good["cells"][2:]}) != []
    assert len(exercise_faults(markdown("## Exercises", *three))) == 3
    assert exercise_faults({"cells": good["cells"][:7]}) == [
        "2 exercises with a solution, at least three are wanted"
    ]
    assert exercise_faults(markdown("## Exercises\n### Why?\n#### Solution\nSo.")) != []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("see {term}`dentry`", "a role"),
        ("is {glue:text}`x` times", "a role"),
        ("```{note}\nx\n```", "a directive"),
        (":::{note}\nx\n:::", "a directive"),
        ("```python title=x\n1\n```", "a fence with options"),
        (":::\nx\n:::", "a colon fence"),
        ("Time\n: an hour", "a definition list"),
        ("(here)=\n# Here", "a target"),
        ("% SPDX", "a comment"),
        ("it is {{ number }}", "a substitution"),
        ("so[^1]", "a footnote"),
        ("[x](y){.class}", "an attribute"),
    ],
)
def test_special_markup_is_found(text: str, name: str) -> None:
    assert name in special_markup(text)


def test_plain_markup_is_not_special() -> None:
    plain = "# A\n\n| a |\n| - |\n| `{x}`|\n\n```c\nf(x);\n```\n\n$a_{b}$: [x](y), `{A} -> {B}`: so"
    assert special_markup(plain) == []


def test_open_cells_are_counted() -> None:
    cells = [
        {"cell_type": "code", "metadata": {}, "source": ["a = 1\n", "b = 2"]},
        {"cell_type": "code", "metadata": {"jupyter": {"source_hidden": True}}, "source": "c = 3"},
    ]
    assert visible({"cells": cells}) == [2]
