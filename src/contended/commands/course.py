# SPDX-License-Identifier: MIT
"""`contended course`: release the labs, check one's own work, grade a class, prove the labs."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from contended.commands import commandline
from contended.course import grade, lab, prove, release, sandbox
from contended.errors import UsageError
from contended.show.table import columns


def fill(parser: argparse.ArgumentParser) -> None:
    """Give the command's parser its sub-commands."""
    commands = parser.add_subparsers(required=True, metavar="WHAT")

    releasing = commands.add_parser("release", help="write students' copies of the labs, and zips")
    releasing.add_argument("out", type=Path, metavar="OUT", help="a folder, made if need be")
    releasing.add_argument("--lab", type=commandline.names, metavar="A,B", help="default: all")
    releasing.add_argument(
        "--nbgrader",
        action="store_true",
        help="make OUT a course folder for nbgrader, instructor's notebooks included",
    )
    releasing.set_defaults(command=_release)

    trying = commands.add_parser("check", help="run a lab's visible tests on your saved work")
    trying.add_argument(
        "lab", nargs="?", default=".", metavar="LAB", help="the lab's folder; default: this one"
    )
    trying.set_defaults(command=_check)

    grading = commands.add_parser(
        "grade",
        help="grade a folder of submissions",
        description="Grade SUBMISSIONS/STUDENT/LAB/. What was graded before and has not changed "
        "is not graded again.",
    )
    grading.add_argument("submissions", type=Path, metavar="SUBMISSIONS")
    grading.add_argument("--out", type=Path, required=True, metavar="GRADES", help="a folder")
    grading.add_argument("--lab", type=commandline.names, metavar="A,B", help="default: all there")
    grading.add_argument(
        "--jobs",
        type=commandline.positive,
        default=0,
        metavar="N",
        help="notebooks at once; default: one for each CPU",
    )
    grading.add_argument("--dask", metavar="ADDRESS", help="on a Dask cluster's workers instead")
    _unsafe(grading)
    grading.set_defaults(command=_grade)

    proving = commands.add_parser(
        "prove",
        help="grade a lab's solution, stub and wrong solutions",
        description="Show that the instructor's solution gets all points, the released stub none, "
        "and each wrong solution exactly those that it should.",
    )
    proving.add_argument("lab", nargs="*", metavar="LAB", help="default: all")
    _unsafe(proving)
    proving.set_defaults(command=_prove)


def _unsafe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--unsafe",
        action="store_true",
        help="run submissions without a sandbox, with your own rights",
    )


def _release(args: argparse.Namespace) -> int:
    for path in release.run(args.out, args.lab, nbgrader=args.nbgrader):
        sys.stdout.write(f"{path}\n")
    return 0


def _check(args: argparse.Namespace) -> int:
    found = prove.check(args.lab)
    if found is None:
        raise UsageError("this is being graded: there is nothing to check")
    sys.stdout.write(repr(found) + "\n")
    return 0 if found.passed else 1


def _grade(args: argparse.Namespace) -> int:
    if args.unsafe:
        sys.stderr.write("contended: --unsafe: submissions run with your own rights\n")
    try:
        with commandline.lines() as progress:
            found = grade.run(
                args.submissions,
                args.out,
                labs=args.lab,
                jobs=args.jobs,
                dask=args.dask,
                unsafe=args.unsafe,
                progress=progress,
            )
    except KeyboardInterrupt:
        sys.stderr.write("contended: interrupted; the grades so far are kept: run it again\n")
        return 128 + signal.SIGINT
    rows = [["student", "lab", "earned", "points"]]
    rows += [[g.student, g.lab, "?" if g.failed else str(g.earned), str(g.points)] for g in found]
    sys.stdout.write(columns(rows) + "\n")
    failed = [g for g in found if g.failed]
    for each in failed:
        sys.stderr.write(f"contended: {each.student}, {each.lab}: not graded: {each.failed}\n")
    return 1 if failed else 0


def _prove(args: argparse.Namespace) -> int:
    sandbox.require(args.unsafe)
    misses = []
    rows = [["lab", "submission", "earned", "points", "seconds"]]
    chosen = [lab.find(name.rstrip("/")) for name in args.lab or lab.slugs()]
    with commandline.lines() as progress:
        for about in chosen:
            for proof in prove.prove(about, unsafe=args.unsafe):
                progress(f"{about.slug}: {proof.name}", len(rows) - 1, 0)
                got = proof.grade
                seconds = f"{got.seconds:.1f}"
                rows.append([about.slug, proof.name, str(got.earned), str(got.points), seconds])
                misses += [f"{about.slug}, {miss}" for miss in proof.misses]
    sys.stdout.write(columns(rows) + "\n")
    for miss in misses:
        sys.stderr.write(f"contended: {miss}\n")
    return 1 if misses else 0
