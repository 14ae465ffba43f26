#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long the book takes to build, and what an edit makes it build again.

Works on a copy of the tree in a scratch folder, with a cache of its own: cold (which creates the
environment and installs the packages), unchanged, after an edit in one chapter, after an edit in
one model. Exits 1 if a limit is missed or the wrong chapters ran. Takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLD_S = 600.0  # the chapters measure for more than half of it
UNCHANGED_S = 15.0
MODEL = "csrc/models/lockref_degrade.c"
EDITED = "02-lockref-degrade"


@dataclass(frozen=True)
class Build:
    """One `make book`: how long it took, in seconds, and the chapters that were executed."""

    seconds: float
    executed: frozenset[str]


def copy_tree(where: Path) -> Path:
    """What git would commit now, without what it ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    tree = where / "tree"
    for name in filter(None, map(os.fsdecode, listed)):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    return tree


def make_book(tree: Path, make_args: Sequence[str]) -> Build:
    """Build, timed; stops everything with the build's output if it fails."""
    env = {**os.environ, "CONTENDED_CACHE": str(tree.parent / "cache")}
    env.pop("CONTENDED_HOME", None)
    started = time.monotonic()
    done = subprocess.run(
        ["make", *make_args],
        cwd=tree,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    if done.returncode:
        sys.exit(f"the book does not build:\n{done.stdout[-4000:]}")
    return Build(seconds, executed(done.stdout, tree))


def executed(said: str, tree: Path) -> frozenset[str]:
    """The chapters that a build says it ran: it tells titles, which begin with their numbers."""
    numbers = re.findall(r"^\[ *\d+/\d+\] (\d+) .* \.\.\. ran \d", said, re.M)
    return frozenset(p.stem for p in (tree / "notebooks").glob("*.ipynb") if p.stem[:2] in numbers)


def edit_chapter(file: Path) -> None:
    """A comment in the first code cell: a change of what would be executed."""
    notebook = json.loads(file.read_text(encoding="utf-8"))
    cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    cell["source"] = [*cell["source"], "\n# edited"]
    file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def users_of(tree: Path, slug: str) -> frozenset[str]:
    """The chapters whose code cells name the model."""
    chapters = set()
    for file in (tree / "notebooks").glob("*.ipynb"):
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        if slug in code or slug.replace("-", "_") in code:
            chapters.add(file.stem)
    return frozenset(chapters)


def verdict(good: bool, text: str) -> bool:
    """Print a line and hand on whether it was good."""
    print(f"{'PASS' if good else 'FAIL'}  {text}", flush=True)
    return good


def main() -> int:
    """Build four times; 0 if every build was as fast and as small as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="build with this Python's packages, without the cold build's installation",
    )
    python = parser.parse_args().python
    make_args = ["html", f"PY={python}"] if python else ["book"]
    good = True
    with tempfile.TemporaryDirectory(prefix="contended-book-") as scratch:
        tree = copy_tree(Path(scratch))
        chapters = frozenset(p.stem for p in (tree / "notebooks").glob("*.ipynb"))

        cold = make_book(tree, make_args)
        good &= verdict(
            cold.seconds <= COLD_S and cold.executed == chapters,
            f"cold: {cold.seconds:.1f} s, limit {COLD_S:.0f} s; "
            f"{len(cold.executed)} of {len(chapters)} chapters ran",
        )
        warm = make_book(tree, make_args)
        good &= verdict(
            warm.seconds <= UNCHANGED_S and not warm.executed,
            f"unchanged: {warm.seconds:.1f} s, limit {UNCHANGED_S:.0f} s; "
            f"ran: {', '.join(sorted(warm.executed)) or 'none'}",
        )
        edit_chapter(tree / "notebooks" / f"{EDITED}.ipynb")
        chapter = make_book(tree, make_args)
        good &= verdict(
            chapter.executed == {EDITED},
            f"one chapter edited: {chapter.seconds:.1f} s; "
            f"ran: {', '.join(sorted(chapter.executed)) or 'none'}",
        )
        with (tree / MODEL).open("a", encoding="utf-8") as file:
            file.write("\n/* edited */\n")
        users = users_of(tree, Path(MODEL).stem.replace("_", "-"))
        model = make_book(tree, make_args)
        good &= verdict(
            bool(users) and model.executed == users,
            f"one model edited: {model.seconds:.1f} s; "
            f"ran: {', '.join(sorted(model.executed)) or 'none'}; use it: "
            f"{', '.join(sorted(users)) or 'none'}",
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
