# SPDX-License-Identifier: MIT
"""`contended course`: release the labs, check one's own work, grade a class, prove the labs."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path

from contended.commands import commandline
from contended.commands.commandline import complain, mention, names, options, positive, say
from contended.course import exports, grade, gradescope, lab, prove, quizzes, release, sandbox
from contended.errors import UsageError
from contended.show.table import columns


def fill(parser: argparse.ArgumentParser) -> None:
    """Give the command's parser its sub-commands."""
    command = commandline.subcommands(parser, "WHAT")
    add = command("release", _release, "write students' copies of the labs, and zips")
    add("out", type=Path, metavar="OUT", help="a folder, made if need be")
    add("--lab", type=names, metavar="A,B", help="default: all")
    course = "make OUT a course folder for nbgrader, instructor's notebooks included"
    add("--nbgrader", action="store_true", help=course)
    add = command("quiz", _quiz, "write the quiz questions as GIFT and as Moodle XML")
    add("out", type=Path, metavar="OUT", help="a folder, made if need be")
    add = command("check", _check, "run a lab's visible tests on your saved work")
    add("lab", nargs="?", default=".", metavar="LAB", help="the lab's folder; default: this one")
    github = "say what is lost as annotations of a GitHub Actions run"
    add("--github", action="store_true", help=github)
    about = """Grade SUBMISSIONS/STUDENT/LAB/. What was graded before and has not changed is not
        graded again."""
    add = command("grade", _grade, "grade a folder of submissions", about)
    add("submissions", type=Path, metavar="SUBMISSIONS")
    add("--out", type=Path, required=True, metavar="GRADES", help="a folder")
    add("--lab", type=names, metavar="A,B", dest="labs", help="default: all there")
    jobs = "notebooks at once; default: one for each CPU"
    add("--jobs", type=positive, default=0, metavar="N", help=jobs)
    add("--dask", metavar="ADDRESS", help="on a Dask cluster's workers instead")
    unsafe = "run submissions without a sandbox, with your own rights"
    add("--unsafe", action="store_true", help=unsafe)
    mode = (
        "bubblewrap, or landlock where that may make no namespaces; default: the first that works"
    )
    add("--sandbox", choices=sandbox.MODES, help=mode)
    about = """Write the grades of GRADES, which `contended course grade` made, in the forms of
        other places. What could not be graded is left out."""
    add = command("export", _export, "write grades for Gradescope, an LMS, nbgrader, GitHub", about)
    add("grades", type=Path, metavar="GRADES")
    add("out", type=Path, metavar="OUT", help="a folder, made if need be")
    forms = "of gradescope, canvas, moodle, nbgrader, github; default: all"
    add("--to", type=names, metavar="A,B", dest="forms", help=forms)
    about = """Write a zip to upload to Gradescope, for a lab whose submissions are notebooks or C:
        it grades without network and without KVM."""
    add = command("autograder", _autograder, "write a lab's Gradescope autograder", about)
    add("lab", metavar="LAB")
    add("out", type=Path, metavar="OUT.zip")
    about = """Show that the instructor's solution gets all points, the released stub none, and
        each wrong solution exactly those that it should."""
    add = command("prove", _prove, "grade a lab's solution, stub and wrong solutions", about)
    add("lab", nargs="*", metavar="LAB", help="default: all")
    add("--unsafe", action="store_true", help=unsafe)
    add("--sandbox", choices=sandbox.MODES, help=mode)


def _release(args: argparse.Namespace) -> None:
    for path in release.run(args.out, args.lab, nbgrader=args.nbgrader):
        say(str(path))


def _quiz(args: argparse.Namespace) -> None:
    for path in quizzes.export(args.out):
        say(str(path))


def _check(args: argparse.Namespace) -> int:
    found = prove.check(args.lab)
    if found is None:
        raise UsageError("this is being graded: there is nothing to check")
    say(repr(found))
    if args.github and found.grade:
        place = (Path(args.lab) / found.file).as_posix()
        say("\n".join(exports.commands(found.grade, place)))
    return 0 if found.passed else 1


def _export(args: argparse.Namespace) -> None:
    for path in exports.export(args.grades, args.out, args.forms):
        say(str(path))
    if args.forms is None and "nbgrader" not in exports.installed():
        mention(exports.NO_NBGRADER)


def _autograder(args: argparse.Namespace) -> None:
    say(str(gradescope.pack(lab.find(args.lab.rstrip("/")), args.out)))


def _grade(args: argparse.Namespace) -> int:
    _choose(args.sandbox)
    if args.unsafe:
        complain("--unsafe: submissions run with your own rights")
    chosen = options(args, "labs", "jobs", "dask", "unsafe")
    try:
        with commandline.lines() as progress:
            found = grade.run(args.submissions, args.out, progress=progress, **chosen)
    except KeyboardInterrupt:
        complain("interrupted; the grades so far are kept: run it again")
        return 128 + signal.SIGINT
    rows = [["student", "lab", "earned", "points"]]
    rows += [[g.student, g.lab, "?" if g.failed else str(g.earned), str(g.points)] for g in found]
    say(columns(rows))
    failed = [g for g in found if g.failed]
    for each in failed:
        complain(f"{each.student}, {each.lab}: not graded: {each.failed}")
    return 1 if failed else 0


def _choose(mode: str | None) -> None:
    """Have this and what it starts use a mode of the sandbox."""
    if mode:
        os.environ[sandbox.CHOICE] = mode


def _prove(args: argparse.Namespace) -> int:
    _choose(args.sandbox)
    sandbox.require(args.unsafe)
    misses = []
    rows = [["lab", "submission", "earned", "points", "seconds"]]
    with commandline.lines() as progress:
        for about in [lab.find(name.rstrip("/")) for name in args.lab or lab.slugs()]:
            for proof in prove.prove(about, unsafe=args.unsafe):
                progress(f"{about.slug}: {proof.name}", len(rows) - 1, 0)
                got = proof.grade
                numbers = (str(got.earned), str(got.points), f"{got.seconds:.1f}")
                rows.append([about.slug, proof.name, *numbers])
                misses += [f"{about.slug}, {miss}" for miss in proof.misses]
    say(columns(rows))
    for miss in misses:
        complain(miss)
    return 1 if misses else 0
