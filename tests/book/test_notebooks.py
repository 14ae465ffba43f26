# SPDX-License-Identifier: MIT
"""The chapters as they are in git: no outputs, the skeleton, plain Markdown, folded solutions."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
LABS = sorted((Path(__file__).parents[2] / "labs").glob("*/*.ipynb"))
CASES = [path for path in NOTEBOOKS if re.match(r"0[2-9]-|10-", path.name)]

# A case's core, its sections in their order, and what follows it; the quadratic cases are not about
# caches, and before these come whatever the core had no room for.
SKELETON = {
    "At a glance": True,
    "Predict": True,
    "The report": True,
    "The mechanism": True,
    "Reproduce it here": True,
    "The patch": True,
    "On a real kernel": True,
    "What to remember": True,
    "Exercises": True,
    "Further in": True,
}
FURTHER = {
    "Inside the cache": False,
    "Beyond this machine": True,
    "What reviewers said": True,
    "More exercises": True,
    "Further reading": True,
}
CORE_WORDS = 2000

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


def in_order(kind: str, names: list[str], wanted: dict[str, bool]) -> list[str]:
    """What is missing, twice or at the wrong place among the sections of a kind."""
    faults = [f"missing {kind}: {n}" for n, needed in wanted.items() if needed and n not in names]
    if names != sorted(names, key=list(wanted).index) or len(names) != len(set(names)):
        faults.append(f"{kind}s out of order or twice: {names}")
    return faults


def skeleton_faults(notebook: Notebook) -> list[str]:
    """What is wrong with a case's chapter; empty if it follows the skeleton."""
    levels = headings(notebook)
    sections = [text for level, text in levels if level == 2]
    faults = [f"unknown section: {name}" for name in sections if name not in SKELETON]
    faults += in_order("section", [name for name in sections if name in SKELETON], SKELETON)
    below = levels[levels.index((2, "Further in")) :] if (2, "Further in") in levels else []
    parts = [text for level, text in below if level == 3]
    first = next((at for at, name in enumerate(parts) if name in FURTHER), len(parts))
    faults += [f"not before {parts[first]}: {n}" for n in parts[first:] if n not in FURTHER]
    faults += in_order("part", [name for name in parts[first:] if name in FURTHER], FURTHER)
    if [level for level, _ in levels].count(1) != 1:
        faults.append("not exactly one title")
    folded = [c for c in notebook["cells"] if "".join(c["source"]).strip() == "## Further in"]
    if [c["metadata"].get("jp-MarkdownHeadingCollapsed") for c in folded] != [True]:
        faults.append("Further in: one cell with this heading alone, collapsed")
    return faults


def core_words(notebook: Notebook) -> int:
    """What there is to read above "Further in": Markdown without code, and what claims say."""
    count = 0
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if text.strip() == "## Further in":
            break
        if cell["cell_type"] == "code":
            said = (call.args[0] for call in calls({"cells": [cell]}, "claim"))
            text = " ".join(ast.literal_eval(each) for each in said)
        text = re.sub(r"^(`{3,}).*?^\1\s*$", "", text, flags=re.M | re.S)
        text = re.sub(r"\]\([^)]*\)", "]", text)
        count += len([word for word in text.split() if re.search(r"\w", word)])
    return count


def exercise_faults(notebook: Notebook, core: range = range(2, 3)) -> list[str]:
    """Too few or too many exercises, or one without a solution that JupyterLab opens collapsed."""
    faults, exercise, inside = [], "", ""
    solved = dict.fromkeys(("Exercises", "More exercises"), 0)
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "markdown":
            continue
        if re.fullmatch(r"#{4,5} Solution", source.strip()):
            if not exercise:
                faults.append("a solution without an exercise")
            else:
                solved[inside] += 1
            if cell["metadata"].get("jp-MarkdownHeadingCollapsed") is not True:
                faults.append(f"solution not collapsed: {exercise}")
            exercise = ""
            continue
        for level, text in headings({"cells": [{"cell_type": "markdown", "source": source}]}):
            if text == "Solution":
                faults.append("a solution's heading needs a cell of its own")
                continue
            depth = 4 if inside == "More exercises" else 3
            if exercise and level <= depth:
                faults.append(f"exercise without a solution: {exercise}")
            if level < depth or text in solved:
                inside, exercise = text if text in solved else "", ""
            elif level == depth:
                exercise = text if inside else ""
    if exercise:
        faults.append(f"exercise without a solution: {exercise}")
    if solved["Exercises"] not in core:
        faults.append(f"{solved['Exercises']} exercises in the core")
    if sum(solved.values()) < 3:
        faults.append(f"{sum(solved.values())} exercises with a solution, three are wanted")
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


def test_jupyterlab_keeps_no_second_copy() -> None:
    """It would refuse each chapter that `git pull` makes newer than the copy."""
    text = Path(__file__).parents[2] / "jupytext.toml"
    assert "formats" not in tomllib.loads(text.read_text())


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
    assert core_words(notebook) <= CORE_WORDS
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


def shown_too_soon(notebook: Notebook) -> list[str]:
    """Guesses whose answer is in the question's own section: a page cannot cover it."""
    found, asked = [], set[str]()
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            asked -= asked if headings({"cells": [cell]}) else set()
            continue
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            match node:
                case ast.Assign([ast.Name(name)], ast.Call(ast.Name("predict"))):
                    asked.add(name)
                case ast.Call(ast.Attribute(ast.Name(name), "reveal")) if name in asked:
                    found.append(name)
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_answer_has_a_section_of_its_own(path: Path) -> None:
    notebook = load(path)
    assert shown_too_soon(notebook) == []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = ""
    asked = calls(notebook, "predict")
    assert len(shown_too_soon(notebook)) == len(asked), "it sees what it is to see"


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
    whole = markdown(
        "# Title",
        *(f"## {name}" for name in SKELETON),
        *(f"### {name}\ntext" for name in ("More to measure", *FURTHER)),
    )
    whole["cells"][len(SKELETON)]["metadata"] = {"jp-MarkdownHeadingCollapsed": True}
    assert skeleton_faults(whole) == []
    for at in range(1, len(whole["cells"])):
        less = {"cells": whole["cells"][:at] + whole["cells"][at + 1 :]}
        optional = "More to measure", "Inside the cache"
        expected = not any(name in whole["cells"][at]["source"] for name in optional)
        assert bool(skeleton_faults(less)) == expected, whole["cells"][at]
        if at > 1 and "More to" not in whole["cells"][at]["source"]:
            swapped = [*less["cells"][: at - 1], whole["cells"][at], *less["cells"][at - 1 :]]
            assert skeleton_faults({"cells": swapped}) != []
    assert skeleton_faults({"cells": whole["cells"][1:]}) == ["not exactly one title"]
    assert "unknown section: More" in skeleton_faults(markdown("# T", "## More"))
    assert skeleton_faults(markdown("```python\n# comment\n```", "# T")) == skeleton_faults(
        markdown("# T")
    )
    whole["cells"][len(SKELETON)]["metadata"] = {}
    assert skeleton_faults(whole) == ["Further in: one cell with this heading alone, collapsed"]

    two = [t for i in range(2) for t in (f"### Why {i}?\n\nSo?", "#### Solution", "So.")]
    more = ["### More exercises\n\nAs above.\n\n#### Why 2?", "##### Solution", "So."]
    good = markdown("## Exercises", *two, "## Further in", *more, "### Further reading")
    for cell in good["cells"]:
        if "# Solution" in cell["source"]:
            cell["metadata"] = {"jp-MarkdownHeadingCollapsed": True}
    assert exercise_faults(good) == []
    for at, name in ((2, "Why 0?"), (5, "Why 1?"), (9, "Why 2?")):
        less = {"cells": good["cells"][:at] + good["cells"][at + 1 :]}
        assert f"exercise without a solution: {name}" in exercise_faults(less)
    assert "a solution without an exercise" in exercise_faults(
        {"cells": good["cells"][:1] + good["cells"][2:]}
    )
    assert len(exercise_faults(markdown("## Exercises", *two, *more))) == 3
    assert exercise_faults({"cells": good["cells"][:4]}) == [
        "1 exercises in the core",
        "1 exercises with a solution, three are wanted",
    ]
    assert exercise_faults(markdown("## Exercises\n### Why?\n#### Solution\nSo.")) != []


def test_words_of_the_core_are_counted() -> None:
    chapter = markdown(
        "# A title\n\n```c\nnot code;\n```\n[a link](to/where.md) -- so", "## Further in"
    )
    said = 'x = 1\nclaim("**{n}** of " "ten", n=x, holds=len("not this"))'
    chapter["cells"].insert(1, {"cell_type": "code", "metadata": {}, "source": said})
    chapter["cells"] += markdown("and much more")["cells"]
    assert core_words(chapter) == 2 + 3 + 3


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
