# SPDX-License-Identifier: MIT
"""Small labs of every kind, in a repository of their own, and submissions to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NOTEBOOK_TOML = """\
title = "Sums"
kind = "notebook"
minutes = 5
objectives = ["add"]
cells = ["total", "twice"]

[[parts]]
id = "test-total"
title = "Adds a list"
points = 3
rubric = "The sum of every list."
hint = "Start at 0."

[[parts]]
id = "test-twice"
title = "Doubles a number"
points = 2
rubric = "Twice the number."
"""

C_TOML = """\
title = "Counting"
kind = "c"
minutes = 5
objectives = ["count"]
files = ["count.c"]

[c]
exports = ["count"]
imports = ["tick"]

[[parts]]
id = "test-count"
title = "Ticks n times"
points = 4
rubric = "n ticks and no more."
"""

SETUP = "import json\n\nFACTOR = 2"
TOTAL = """\
def total(numbers):
    ### BEGIN SOLUTION
    return sum(n for n in numbers)
    ### END SOLUTION"""
TWICE = """\
def twice(number):
    ### BEGIN SOLUTION
    return FACTOR * int(number)
    ### END SOLUTION"""
TEST_TOTAL = """\
assert course.call("total", [1, 2]) == 3, "the total of 1 and 2 is 3"
### BEGIN HIDDEN TESTS
secret_answer = json.loads(course.private("secret.json").read_text())
seen = course.call("total", secret_answer)
assert seen == sum(secret_answer), f"a longer list came to {seen}"
### END HIDDEN TESTS"""
TEST_TWICE = """\
with course.session() as student:
    assert student.call("twice", 4) == 8, "twice 4 is 8"
    ### BEGIN HIDDEN TESTS
    assert student.call("twice", 5) == 10, "a number was not doubled"
    ### END HIDDEN TESTS"""

COUNT_C = """\
/* SPDX-License-Identifier: MIT */
#include "tick.h"

void count(int n)
{
/* BEGIN SOLUTION */
	for (int step_number = 0; step_number < n; step_number++)
		tick();
/* END SOLUTION */
/* BEGIN STUB
	(void)n;
END STUB */
}
"""
TICK_H = "/* SPDX-License-Identifier: MIT */\nvoid tick(void);\nvoid count(int n);\n"
MAIN_C = """\
/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include "tick.h"

static long ticks;

void tick(void) { ticks++; }

int main(int argc, char **argv)
{
	count(argc > 1 ? atoi(argv[1]) : 1);
	printf("{\\"ticks\\": %ld}\\n", ticks);
	return 0;
}
"""
TEST_COUNT = """\
program = course.compile("count.c", "main.c")
assert program.run(3).json()["ticks"] == 3, "3 ticks were asked for"
### BEGIN HIDDEN TESTS
hidden_count = program.run(1000).json()["ticks"]
assert hidden_count == 1000, f"{hidden_count} ticks for a larger number"
### END HIDDEN TESTS"""


def cell(
    source: str, name: str = "", *, points: int = 0, student: bool = False, **more: Any
) -> Any:
    about: dict[str, Any] = {}
    if name:
        about["nbgrader"] = {
            "schema_version": 3,
            "grade_id": name,
            "grade": points > 0,
            "solution": student,
            "locked": not student,
            "task": False,
            **({"points": points} if points else {"cell_type": "code"}),
        }
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": (name or "other").replace("_", "-"),
        "metadata": {**about, **more},
        "outputs": [],
        "source": source,
    }


def book(*cells: Any) -> str:
    content = {
        "cells": list(cells),
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1)


def notebook_lab(place: Path) -> Path:
    folder = place / "sums"
    (folder / "private").mkdir(parents=True)
    (folder / "lab.toml").write_text(NOTEBOOK_TOML)
    (folder / "private" / "secret.json").write_text("[10, 20, 30]")
    text = book(
        cell("from contended import course", "imports", tags=["setup"]),
        cell(SETUP, "given", tags=["setup"]),
        cell(TOTAL, "total", student=True),
        cell(TEST_TOTAL, "test-total", points=3),
        cell("raise RuntimeError('never executed in grading')"),
        cell(TWICE, "twice", student=True),
        cell(TEST_TWICE, "test-twice", points=2),
    )
    (folder / "sums.ipynb").write_text(text)
    wrong = folder / "wrong" / "forgets-the-last"
    (wrong / "cells").mkdir(parents=True)
    (wrong / "cells" / "total.py").write_text("def total(numbers):\n    return sum(numbers[:2])\n")
    (wrong / "expected.toml").write_text(
        'summary = "adds two numbers at most"\n[points]\ntest-total = 0\ntest-twice = 2\n'
    )
    return folder


def c_lab(place: Path) -> Path:
    folder = place / "counting"
    folder.mkdir(parents=True)
    (folder / "lab.toml").write_text(C_TOML)
    (folder / "count.c").write_text(COUNT_C)
    (folder / "tick.h").write_text(TICK_H)
    (folder / "main.c").write_text(MAIN_C)
    text = book(
        cell("from contended import course", "imports", tags=["setup"]),
        cell(TEST_COUNT, "test-count", points=4),
    )
    (folder / "counting.ipynb").write_text(text)
    return folder


PATCH_TOML = """\
title = "A patch"
kind = "patch"
minutes = 5
objectives = ["patch"]
files = ["fix.patch"]

[patch]
allow = ["fs/"]

[[parts]]
id = "applies"
title = "Applies"
points = 1
rubric = "It applies."
step = "applies"

[[parts]]
id = "builds"
title = "Builds"
points = 1
rubric = "It builds."
step = "builds"

[[parts]]
id = "boots"
title = "Boots"
points = 1
rubric = "It boots."
step = "boots"

[[parts]]
id = "gain"
title = "Takes one reference"
points = 3
rubric = "One reference for each open."
runs = ["opens"]
needs = ["boots"]
"""
KERNEL_TOML = """\
[variants.before]
summary = "Linux as it is"
patches = []

[variants.submission]
summary = "the submission"
patches = ["submission.patch"]

[runs.opens]
workload = "open-creat"
args = { ops = 100 }
calls = ["__legitimize_path"]

[[outcomes]]
variant = "submission"
run = "opens"
expected = "every open takes one reference"
metric = "calls_per_op.__legitimize_path"
at_least = 0.9
at_most = 1.1
"""


def patch_lab(place: Path) -> Path:
    folder = place / "patching"
    folder.mkdir(parents=True)
    (folder / "lab.toml").write_text(PATCH_TOML)
    (folder / "kernel.toml").write_text(KERNEL_TOML)
    (folder / "fix.patch").write_text("Put the output of git diff here.\n")
    (folder / "patching.ipynb").write_text(book())
    return folder


def home(place: Path, root: Path) -> Path:
    """A repository with small labs, and the real one's C and patches."""
    place.mkdir()
    for name in ("csrc", "patches", "src"):
        (place / name).symlink_to(root / name)
    notebook_lab(place / "labs")
    c_lab(place / "labs")
    patch_lab(place / "labs")
    return place


def submit(place: Path, student: str, lab: str, files: Mapping[str, str | bytes]) -> Path:
    folder = place / student / lab
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(data)
    return folder


def sums(total: str = TOTAL, twice: str = TWICE, *more: Any) -> str:
    """A student's notebook of the lab of sums."""
    return book(cell(total, "total", student=True), cell(twice, "twice", student=True), *more)


RIGHT_TOTAL = "def total(numbers):\n    return sum(numbers)\n"
RIGHT_TWICE = "def twice(number):\n    return 2 * number\n"
