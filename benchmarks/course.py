#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long grading takes: every notebook lab, a class of 30, and with --patches the kernel labs.

Prints PASS or FAIL for each limit, and exits 1 if anything fails or is graded wrongly. Leave the
machine alone.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

from contended.course import grade, lab, notebook, prove, sandbox
from contended.course.lab import Lab
from contended.course.submission import Taken

NOTEBOOK_S, PATCH_S = 30.0, 90.0
CLASS, CLASS_S = 30, 480.0


def solution(about: Lab) -> Taken:
    """The instructor's."""
    return next(taken for name, _, taken in prove.known(about) if name == "solution")


def hand_in(place: Path, about: Lab, taken: Taken) -> None:
    """Write a submission as a student would."""
    place.mkdir(parents=True)
    if about.cells:
        book = notebook.overlay(about, taken.cells)
        (place / about.notebook.name).write_text(notebook.write(book))
    for name, content in taken.files.items():
        (place / name).write_bytes(content)


def main() -> int:
    """Grade, and compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patches", action="store_true", help="time the kernel labs as well")
    args = parser.parse_args()
    sandbox.require(False)
    failed = False

    def judge(what: str, seconds: float, limit: float, right: bool) -> None:
        nonlocal failed
        good = seconds <= limit and right
        failed |= not good
        wrong = "" if right else ", graded wrongly"
        print(f"{'PASS' if good else 'FAIL'}  {what}: {seconds:.1f} s of {limit:.0f} s{wrong}")

    labs = [lab.load(lab.folder() / slug) for slug in lab.slugs()]
    solutions = {about.slug: solution(about) for about in labs}
    for about in labs:
        if about.kind == "patch" and not args.patches:
            continue
        limit = PATCH_S if about.kind == "patch" else NOTEBOOK_S
        begun = time.monotonic()
        found = grade.one(about, solutions[about.slug], student="bench", unsafe=False)
        judge(about.slug, time.monotonic() - begun, limit, found.earned == found.points)

    notebooks = [about for about in labs if about.kind != "patch"]
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for number, about in zip(range(CLASS), itertools.cycle(notebooks), strict=False):
            hand_in(place / f"student-{number:02}" / about.slug, about, solutions[about.slug])
        begun = time.monotonic()
        # Who has not handed in a lab is graded for it too, which takes no time.
        found_all = grade.run(place, place / "grades", labs=[about.slug for about in notebooks])
        seconds = time.monotonic() - begun
    full = sum(found.earned == found.points for found in found_all)
    judge(f"{CLASS} notebooks", seconds, CLASS_S, full == CLASS)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
