# SPDX-License-Identifier: MIT
"""The solutions that change a model's C: each is applied and measured, and says what it claims."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from support import Starved, patient, two_cpus
from test_notebooks import NOTEBOOKS, load

from contended.show import claims, lesson


def _calls_edited(cell: dict[str, Any]) -> bool:
    return cell["cell_type"] == "code" and "edited(" in "".join(cell["source"])


def _solutions() -> list[Any]:
    """Of each cell that changes the C: its chapter, and its source with that of its claim."""
    found = []
    for path in NOTEBOOKS:
        cells = load(path)["cells"]
        for at, cell in enumerate(cells):
            if _calls_edited(cell):
                sources = ["".join(cell["source"])]
                for later in cells[at + 1 :]:
                    if later["cell_type"] != "code" or _calls_edited(later):
                        break
                    sources.append("".join(later["source"]))
                found.append(pytest.param(path, sources, id=f"{path.stem}-{cell['id']}"))
    return found


def _definitions(path: Path, sources: list[str]) -> dict[str, Any]:
    """What a chapter imports, its constants, and the functions that the sources call."""
    kept: list[ast.stmt] = []
    functions: dict[str, ast.stmt] = {}
    for cell in load(path)["cells"]:
        if cell["cell_type"] == "code" and not _calls_edited(cell):
            for node in ast.parse("".join(cell["source"])).body:
                constant = isinstance(node, ast.Assign) and all(
                    isinstance(n, ast.Constant | ast.List | ast.Tuple | ast.Load | ast.UnaryOp)
                    for n in ast.walk(node.value)
                )
                if constant or isinstance(node, ast.Import | ast.ImportFrom):
                    kept.append(node)
                elif isinstance(node, ast.FunctionDef):
                    functions[node.name] = node
    used: list[ast.AST] = [ast.parse("\n".join(sources))]
    while used:
        called = {n.id for n in ast.walk(used.pop()) if isinstance(n, ast.Name)} & set(functions)
        more = [functions.pop(name) for name in sorted(called)]
        kept += more
        used += more
    names: dict[str, Any] = {}
    exec(compile(ast.Module(kept, []), str(path), "exec"), names)
    return names


SOLUTIONS = _solutions()


def test_each_exercise_that_says_change_the_c_has_one() -> None:
    """Between its solution's heading and the next one of any kind."""
    lacking, asked = [], 0
    for path in NOTEBOOKS:
        exercise = ""
        for cell in load(path)["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown" and (
                found := re.search(r"^#{2,5} (.+)$", source, re.M)
            ):
                if found[1] == "Solution":
                    continue
                if exercise:
                    lacking.append(f"{path.stem}: {exercise}")
                says = re.search(r"[Cc]hange\s+the\s+C\b", source)
                asked, exercise = asked + bool(says), found[1] if says else ""
            elif _calls_edited(cell):
                exercise = ""
        lacking += [f"{path.stem}: {exercise}"] if exercise else []
    assert lacking == []
    assert asked >= 9
    assert len(SOLUTIONS) >= 16


@two_cpus
@patient
@pytest.mark.parametrize(("path", "sources"), SOLUTIONS)
def test_it_is_applied_and_measured(
    path: Path, sources: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured here and now; what rests on counts must hold, and each has such a claim."""
    for name in (claims.RECORD, lesson.RECORDED):
        monkeypatch.delenv(name, raising=False)
    shown: list[Any] = []
    monkeypatch.setattr(claims, "display", shown.append)
    assert "holds=" in "".join(sources), "a claim on counts is wanted"
    names = _definitions(path, sources)
    for source in sources:
        exec(compile(source, str(path), "exec"), names)
    for one in shown:
        if isinstance(one, claims.Claim) and one.expected.startswith("the measurement comes to"):
            raise Starved(f"too busy a machine for {path.stem}: {one.seen}")
    assert any(isinstance(one, (claims.Sentence, claims.Claim)) for one in shown)
