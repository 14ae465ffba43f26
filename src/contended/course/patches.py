# SPDX-License-Identifier: MIT
"""Judge a kernel patch: it applies, builds without a warning, boots, and its counts are right.

patch(1) takes ed scripts, follows hints about names, and makes links; so a unified diff of C files
in allowed folders is read, and our own text of its hunks applied. Its kernel runs in QEMU only, and
make in a sandbox; nothing that the build itself runs can be changed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from contended import child
from contended.course import sandbox
from contended.course.boxes import Limits
from contended.course.grades import Verdict
from contended.course.lab import Lab
from contended.errors import ContendedError
from contended.kernel import build, make, patchfile, run, source, store, variants
from contended.kernel.patchfile import Change
from contended.kernel.record import KernelRun, OutcomeRecord
from contended.kernel.run import Plan
from contended.kernel.source import KernelSource

HOST_PROGRAMS = {
    *("fs/unicode/mkutf8data.c", "include/linux/crc32poly.h", "include/linux/license.h"),
    *("include/linux/mod_devicetable.h", "lib/crc32defs.h", "lib/gen_crc32table.c"),
    *("lib/gen_crc64table.c", "lib/raid6/mktables.c"),
}
"""What programs are made of that a build of Linux 6.1 runs on the machine that builds it."""

_NEVER = re.compile(
    r"(?m)^(GIT binary patch|Binary files .* differ|rename (from|to) |copy (from|to) "
    r"|similarity index |new file mode (?!100644)|deleted file mode )"
)

_FORBIDDEN = re.compile(
    r"\b(saved_command_line|boot_command_line|suppress_printk|console_(silent|loglevel|printk)"
    r"|debug_locks(_silent)?|kallsyms_lookup_name)\b"
)
"""What no fix needs: how a kernel was started, what it may print, and names of others."""

DRAWN = "DRAWN"  # in what a lab adds: a word that nobody can know when a patch is written

SUBMISSION = "submission"
_DETAIL_CHARS = 12_000
_SIZES = {"disk": 4 << 30, "address_space": 8 << 30, "processes": 256}
# For each process of the build: the slowest, which links, takes ten seconds.
_BUILDING = Limits(wall_s=900, cpu_s=120, **_SIZES)


class PatchRefused(ContendedError):
    """A patch that is not taken; the message says why to its author, `detail` at length."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


def parse(content: bytes, allow: Sequence[str]) -> tuple[Change, ...]:
    """Read a patch strictly: it may change C files in the folders `allow`, no others."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PatchRefused(f"the patch is not in UTF-8 (byte {error.start})") from error
    if "\r\n" in text:
        remedy = "save it with `git diff > fix.patch`, or repair it with dos2unix"
        raise PatchRefused(f"the patch has Windows line ends (CRLF), the kernel has not: {remedy}")
    if match := _NEVER.search(text):
        what = match[0].strip()
        raise PatchRefused(f"the patch may only change lines of text files, not: {what}")
    try:
        found = patchfile.changes(text)
    except patchfile.BadPatch as error:
        raise PatchRefused(str(error)) from None
    names = [change.file for change in found]
    for change in found:
        old, new = change.old, change.new
        if not new:
            raise PatchRefused(f"the patch may not remove a file: {old}")
        if old not in ("", new):
            raise PatchRefused(f"the patch may not rename {old} to {new}")
        if not new.startswith(tuple(allow)) or not new.endswith((".c", ".h")):
            where = ", ".join(allow)
            raise PatchRefused(f"the patch may only change .c and .h files in {where}: not {new}")
        if new in HOST_PROGRAMS:
            what = "is part of a program that builds the kernel: it may not be changed"
            raise PatchRefused(f"{new} {what}")
        added = (line for hunk in change.hunks for line in hunk.lines if line.startswith("+"))
        if odd := next(filter(None, map(_FORBIDDEN.search, added)), None):
            what = "a fix does the same for everybody, and lets the kernel say what it has to"
            raise PatchRefused(f"{new} may not use {odd[0]}: {what}")
        if names.count(new) > 1:
            what = "is in the patch twice: hand in one diff against Linux 6.1"
            raise PatchRefused(f"{new} {what}")
    return found


def text(changes: Sequence[Change]) -> str:
    """The same changes as a patch of our own."""
    lines = ["Subject: submission", "", "---"]
    for change in changes:
        lines.append(f"diff --git a/{change.file} b/{change.file}")
        if not change.old:
            lines.append("new file mode 100644")
        lines += [f"--- a/{change.old}" if change.old else "--- /dev/null", f"+++ b/{change.file}"]
        lines += [line for hunk in change.hunks for line in (hunk.head, *hunk.lines)]
    return "\n".join(lines) + "\n"


def code(source: str) -> str:
    """C without its comments and blanks: what is left if only they differ is the same."""
    parts = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    bare = re.sub(parts, lambda m: " " if m[0].startswith("/") else m[0], source, flags=re.S)
    return " ".join(bare.split())


def judge(lab: Lab, content: bytes, *, unsafe: bool = False) -> dict[str, Verdict]:
    """A verdict on each part of a patch lab for a patch as it was handed in."""
    found, steps = None, {}
    problem = Verdict("it was not reached")
    try:
        changes = parse(content, lab.patch.allow)
        tree = source.find()
        with child.scratch() as scratch:
            case = _case(lab, changes, scratch)
            _apply(tree, changes, case)
            steps["applies"] = Verdict()
            booted = _plan(case)
            with _kernels(booted, tree, unsafe):
                found = run.carry_out(booted, vcpus=2, repeats=1, accel="auto")
            steps |= {"builds": Verdict(), "boots": _boots(found)}
    except PatchRefused as error:
        problem = Verdict(str(error), error.detail)
    verdicts = {}
    for part in lab.parts:
        if part.step in steps:
            verdicts[part.id] = steps[part.step]
        elif part.runs and found is not None:
            verdicts[part.id] = _of_runs(found, part.runs, lab.labels)
        else:
            # The first step that was lost meets the problem.
            verdicts[part.id] = problem
            if not problem.reason.startswith("it was not reached"):
                problem = Verdict(f"it was not reached: {problem.reason}")
    return verdicts


def _case(lab: Lab, changes: Sequence[Change], scratch: Path) -> variants.KernelCase:
    place = scratch / lab.slug
    place.mkdir()
    (place / "submission.patch").write_text(text(changes))
    # What the lab adds to a submission, which can neither name nor say what is in there.
    word = f"d{secrets.token_hex(4)}"
    names = {path.name: path.name for path in lab.folder.glob("*.patch")}
    for name, copy in {**names, "kernel.toml": "variants.toml"}.items():
        if name not in lab.files:
            (place / copy).write_text((lab.folder / name).read_text().replace(DRAWN, word))
    return variants.read(place / "variants.toml")


def _further(case: variants.KernelCase) -> list[str]:
    return [name for name in case.variants if name.startswith(f"{SUBMISSION}-")]


def _plan(case: variants.KernelCase) -> Plan:
    """What is booted: the smoke set for the submission itself, not for it with further patches."""
    main = run.plan(case, [SUBMISSION])
    if not (others := _further(case)):
        return main
    more = run.plan(case, others, smoke=False)
    wanted = {(variant.name, each.name) for variant, each in (*main.boots, *more.boots)}
    runs = {**more.case.runs, **main.case.runs}
    boots = tuple(
        (variant, each)
        for each in runs.values()
        for variant in case.variants.values()
        if (variant.name, each.name) in wanted
    )
    outcomes = main.case.outcomes + more.case.outcomes
    return Plan(replace(case, runs=runs, outcomes=outcomes), boots)


def _apply(tree: KernelSource, changes: Sequence[Change], case: variants.KernelCase) -> None:

    def bare() -> list[str]:
        files = (tree.tree / change.file for change in changes)
        return [code(file.read_text(errors="replace")) if file.exists() else "" for file in files]

    before = bare()
    for change in changes:
        if (tree.tree / change.file).is_symlink():
            raise PatchRefused(f"{change.file} is a link in the kernel's tree")
    own = [p for p in case.variants[SUBMISSION].patches if p.name == f"{SUBMISSION}.patch"]
    try:
        with source.patched(tree, own):
            after = bare()
    except ContendedError as error:
        said = str(error).partition("submission.patch ")[2] or str(error)
        raise PatchRefused(f"the patch {said}") from error
    if before == after:
        raise PatchRefused("the patch changes nothing but comments and blanks")
    for name in (SUBMISSION, *_further(case)):
        try:
            with source.patched(tree, case.variants[name].patches):
                pass
        except ContendedError as error:
            why = "the patch applies, but what the lab adds to it does not: leave the lines around"
            where = str(error).partition("/")[2]
            raise PatchRefused(f"{why} it as they are ({where})") from error


@contextmanager
def _kernels(booted: Plan, tree: KernelSource, unsafe: bool) -> Iterator[None]:
    """Have the plan's kernels built; those of the submission are gone afterwards."""
    made: list[Path] = []
    try:
        for variant, config in booted.kernels:
            there = build.find(variant, config, tree) is not None
            own = variant.name.startswith(SUBMISSION)
            try:
                kernel = build.build(variant, config, tree, boxed=None if unsafe else _boxed())
            except (make.BuildError, build.LayoutError) as error:
                if not own:
                    raise
                reason = str(error).removeprefix(f"{variant}, config {config} ")
                # Where the grader's cache is, is nobody's business, and shorter names read better.
                cache, detail = str(store.cache()), "\n".join(getattr(error, "__notes__", []))
                detail = re.sub(rf"{re.escape(cache)}/source/\w+/tree/?", "", detail)
                detail = detail.replace(cache, "...")[-_DETAIL_CHARS:]
                raise PatchRefused(f"the kernel {reason}", detail) from error
            if own and not there:
                made.append(kernel.image.parent)
        yield
    finally:
        # A class of a hundred would otherwise leave a hundred kernels.
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)


def _boxed() -> make.Boxed:
    def command(command: Sequence[str], tree: Path, objects: Path) -> list[str]:
        return [*sandbox.builder(_BUILDING, tree, objects), *command]

    # What linking takes, and a compiler on each processor.
    memory = (4 + len(os.sched_getaffinity(0))) << 30
    return make.Boxed(command, _BUILDING.wall_s, memory)


def _boots(found: KernelRun) -> Verdict:
    own = [boot for boot in found.boots if boot.variant.startswith(SUBMISSION)]
    alive = {(boot.variant, boot.config) for boot in own if not boot.failed}
    for boot in own:
        # What one workload makes panic costs the part that it belongs to.
        if boot.failed and (boot.variant, boot.config) not in alive:
            where = f"with the workload {boot.workload} (config {boot.config})"
            why = f"{where} the kernel ended in a {boot.failed}"
            return Verdict(why, boot.excerpt[:_DETAIL_CHARS])
    return Verdict()


def _of_runs(found: KernelRun, names: Sequence[str], labels: Collection[str] = ()) -> Verdict:
    def is_meant(each: OutcomeRecord) -> bool:
        label = f"{each.run}/{each.metric.partition('/')[0]}"
        name = label if label in labels else each.run
        return name in names and each.variant.startswith(SUBMISSION)

    about = list(filter(is_meant, found.outcomes))
    boots = {(outcome.variant, outcome.run) for outcome in about}
    if not about:
        raise ContendedError(f"nothing is expected of a submission in the runs {', '.join(names)}")
    lost = [outcome for outcome in about if not outcome.held]
    if not lost:
        return Verdict()
    lines = [f"in the run {o.run}: {o.condition}; seen: {o.seen}" for o in about]
    for boot in (each for each in found.boots if (each.variant, each.run) in boots):
        failed = [check for check in boot.checks if not check.get("ok")]
        lines += [f"smoke check failed: {check!s}" for check in failed]
        if boot.excerpt:
            lines += ["", f"The kernel's own words, in the run {boot.run}:", boot.excerpt]
    said = "; ".join(f"{outcome.expected}: {outcome.reason}" for outcome in lost)
    return Verdict(f"not seen: {said}", "\n".join(lines)[:_DETAIL_CHARS])
