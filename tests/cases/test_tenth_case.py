# SPDX-License-Identifier: MIT
"""A tenth case and a seventh lab are files that are added: nothing that is there is edited.

But for the register, whose entry makes a case a case.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SLUG, NAME, CHAPTER = "toy-counter", "toy_counter", "12-toy-counter"
ENTRY = """
[[case]]
slug = "toy-counter"
title = "A counter that everybody adds to"
chapter = 12
bug = "All CPUs add to one counter."
seed = "viro2014mounts"

[[case.published]]
id = "additions"
what = "additions to one counter"
unit = "operations/s"
workload = "add"
workers = 8
source = "viro2014mounts"
values = [{ name = "before", value = 1e7 }, { name = "after", value = 2e8 }]

[case.outcome]
status = "merged"
summary = "Merged."
sources = ["viro2014mounts"]
steps = [{ what = "count for each CPU", version = "6.1" }]
"""
STUDY = """
from contended import register
from contended.cases import Study
from contended.cases.evidence import Evidence
from contended.simulate.chart import marks
from contended.simulate.curves import Series, Sweep, times
from contended.simulate.predict import Ground
from contended.simulate.workload import MS, STAT, Scenario

def build(setup, p, memory):
    word = memory.word() if setup.variant == "before" else memory.own()[0]
    p.think(setup.work["stat"])
    p.add(word, 1)
    p.done()

ADD = Scenario(
    name="toy-counter",
    variants={"before": "one counter", "after": "one for each CPU"},
    phases={"run": 0.1 * MS},
    works={"stat": STAT},
    build=build,
)

def predictions(case):
    figure = case.figure("additions")
    here = Ground(ADD, "1x24", figure.workers)
    for name in ("before", "after"):
        yield here.value(figure, name, here.rate(name), "a toy")

STUDY = Study(
    workloads=(ADD,),
    sweep=Sweep(
        workload=ADD,
        machine="1x24",
        lines=(Series("before"), Series("after")),
        knob=times(ADD, "stat"),
        marks=marks(register.get("toy-counter").figure("additions"), "before"),
    ),
    predictions=predictions,
    evidence={"additions": Evidence(no_userspace="A toy.", no_kernel="A toy.", note="A toy.")},
)
"""
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    "cells": [
        {
            "cell_type": "code",
            "id": "12-001",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": "from contended.cases import beyond\nbeyond.slider('toy-counter', 'Toy')",
        }
    ],
}


@pytest.fixture(scope="module")
def grown(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with one more of each."""
    home = tmp_path_factory.mktemp("grown")
    shutil.copy(root / "constraints.txt", home)
    for name in ("src", "csrc", "docs", "labs", "notebooks", "patches", "results"):
        skip = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")
        shutil.copytree(root / name, home / name, ignore=skip)
    with (home / "src" / "contended" / "register.toml").open("a") as register:
        register.write(ENTRY)
    (home / "src" / "contended" / "cases" / f"{NAME}.py").write_text(STUDY)
    (home / "notebooks" / f"{CHAPTER}.ipynb").write_text(json.dumps(NOTEBOOK))
    models = home / "csrc" / "models"
    shutil.copy(models / "overlay_creds.c", models / f"{NAME}.c")
    shutil.copytree(home / "patches" / "proc-mounts-seek", home / "patches" / SLUG)
    lab = home / "labs" / "toy-lab"
    shutil.copytree(home / "labs" / "measuring", lab)
    (lab / "measuring.ipynb").rename(lab / "toy-lab.ipynb")
    return home


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A Python that knows the grown tree and no other."""
    environment = {**os.environ, "CONTENDED_HOME": str(home), "PYTHONPATH": str(home / "src")}
    return subprocess.run(
        [sys.executable, *words],
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )


def contended(home: Path, *words: str) -> str:
    """What the command prints, wherever it prints it."""
    done = run(home, "-m", "contended.cli", *words)
    return done.stdout + done.stderr


def told(home: Path, code: str) -> Any:
    """The JSON that some code prints."""
    done = run(home, "-c", code)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_commands_know_it(grown: Path) -> None:
    assert f"12       {SLUG}" in contended(grown, "cases")
    assert SLUG in contended(grown, "measure", "nope")
    assert SLUG in contended(grown, "kernel", "run", "nope")
    assert SLUG in contended(grown, "simulate", "nope")
    run_on = ("--cpus", "1,4", "--json", "-")
    rows = json.loads(run(grown, "-m", "contended.cli", "simulate", SLUG, *run_on).stdout)
    assert {(row["variant"], row["cpus"]) for row in rows} == {
        (variant, cpus) for variant in ("before", "after") for cpus in (1, 4)
    }


BOARD = """
import json
from contended.scoreboard import board, simulated
if RECORD:
    simulated.record(["toy-counter"])
(entry,) = [each for each in board.board() if each.slug == "toy-counter"]
print(json.dumps([[entry.note, *((row.verdict, row.why) for row in entry.rows)]]))
"""


def test_the_scoreboard_and_the_curve_know_it(grown: Path) -> None:
    ((note, before, after),) = told(grown, BOARD.replace("RECORD", "True"))
    assert note == "A toy."
    assert "Simulated with 8 CPUs on 1x24" in before[1]
    assert {before[0], after[0]} <= {"held", "consistent", "differs"}
    (grown / "results" / SLUG / "predictions.json").unlink()
    command = told(
        grown,
        "import json; from contended.cases.beyond import command, slider; "
        f"print(json.dumps([command({SLUG!r}), slider({SLUG!r}, 'Toy').figure().alt]))",
    )
    assert command[0].startswith(f"contended simulate {SLUG} --machine 1x24")
    assert "published, before" in command[1]


def test_the_book_s_digest_knows_it(grown: Path) -> None:
    code = (
        "import json; from contended import tree; from contended.book import digest; "
        f"nb = digest.read((tree.home() / 'notebooks' / '{CHAPTER}.ipynb').read_text()); "
        "print(json.dumps([str(p.relative_to(tree.home())) "
        "for p in digest.dependencies(tree.home(), nb)]))"
    )
    assert {
        f"src/contended/cases/{NAME}.py",
        f"csrc/models/{NAME}.c",
        f"patches/{SLUG}/variants.toml",
    } <= set(told(grown, code))


def test_a_case_of_which_nothing_is_known_says_so(grown: Path, tmp_path: Path) -> None:
    """It is not said to be one without a contended line: nobody has looked."""
    home = tmp_path / "bare"
    shutil.copytree(grown, home)
    (home / "src" / "contended" / "cases" / f"{NAME}.py").unlink()
    assert f"12       {SLUG}" in contended(home, "cases")
    assert f"'{SLUG}' cannot be simulated; choose one of" in contended(home, "simulate", SLUG)
    ((note, *rows),) = told(home, BOARD.replace("RECORD", "False"))
    assert note == "Nothing here speaks to this figure yet."
    assert rows == [["cannot", "Nobody has simulated this case yet."]] * 2


def test_the_course_lists_and_checks_a_seventh_lab(grown: Path, tmp_path: Path) -> None:
    assert "toy-lab" in contended(grown, "course", "release", str(tmp_path / "x"), "--lab", "nope")
    done = run(
        grown, "-m", "contended.cli", "course", "release", str(tmp_path / "out"), "--lab", "toy-lab"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "release" / "toy-lab" / "toy-lab.ipynb").is_file()
    (grown / "labs" / "toy-lab" / "lab.toml").write_text("title = 3\n")
    refused = contended(grown, "course", "release", str(tmp_path / "no"), "--lab", "toy-lab")
    assert "toy-lab" in refused
    assert refused.startswith("contended: ")
