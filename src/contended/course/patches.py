# SPDX-License-Identifier: MIT
"""Judge a kernel patch: it applies, builds without a warning, boots, and its counts are right.

A student's kernel runs in QEMU and nowhere else. But before that a compiler reads the patch, on
this machine; so make runs in a sandbox that shows it the kernel's tree and the system's headers,
lets it write to the objects, and knows nothing of the rest. The files of which programs are made
that the build itself runs cannot be changed (`patchtext.HOST_PROGRAMS`).
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from contended import tree
from contended.course import box, patchtext
from contended.course.grades import Verdict
from contended.course.lab import Lab
from contended.course.patchtext import Refused
from contended.errors import ContendedError
from contended.kernel import build, make, run, source, store, variants
from contended.kernel.build import Kernel
from contended.kernel.patchfile import Change
from contended.kernel.record import KernelRun
from contended.kernel.run import Plan
from contended.kernel.source import KernelSource
from contended.kernel.variants import Variant

SUBMISSION = "submission"
_DETAIL_CHARS = 12_000

_BUILDING = box.Limits(wall_s=900, cpu_s=600, disk=4 << 30, address_space=8 << 30, processes=256)


def judge(lab: Lab, content: bytes, *, unsafe: bool = False) -> dict[str, Verdict]:
    """A verdict on each part of a patch lab.

    Args:
        lab: The lab.
        content: The patch as it was handed in.
        unsafe: Compile without a sandbox.

    Raises:
        ContendedError: this machine lacks something: QEMU, the source, a package.
    """
    try:
        changes = patchtext.parse(content, lab.patch.allow)
    except Refused as error:
        return _all(lab, Verdict(str(error)), {})
    tree = source.find()
    with tempfile.TemporaryDirectory(prefix="contended-patch-") as scratch:
        case = _case(lab, changes, Path(scratch))
        try:
            _apply(tree, changes, case)
        except Refused as error:
            return _all(lab, Verdict(str(error)), {})
        earned = {"applies": Verdict()}
        plan = _plan(case)
        with _kernels(plan, tree, unsafe) as problem:
            if problem:
                return _all(lab, problem, earned)
            found = run.carry_out(plan, vcpus=lab.patch.vcpus, repeats=1, accel="auto")
        return _all(lab, Verdict("it was not reached"), {**earned, **_steps(found)}, found)


def _all(
    lab: Lab, problem: Verdict, steps: Mapping[str, Verdict], found: KernelRun | None = None
) -> dict[str, Verdict]:
    """Every part's verdict: the first step that is not in `steps` meets the problem."""
    verdicts = {}
    told = False
    for part in lab.parts:
        if part.step in steps:
            verdicts[part.id] = steps[part.step]
        elif part.runs and found is not None:
            verdicts[part.id] = _of_runs(found, part.runs)
        elif told:
            verdicts[part.id] = Verdict(f"it was not reached: {problem.reason}")
        else:
            verdicts[part.id] = problem
            told = True
    return verdicts


def _case(lab: Lab, changes: Sequence[Change], scratch: Path) -> variants.KernelCase:
    """The lab's kernel.toml with the patch in it, as a case."""
    place = scratch / lab.slug
    place.mkdir()
    (place / "submission.patch").write_text(patchtext.text(changes))
    # What the lab adds to a submission, from its own folder or from the repository's patches.
    given = [path for path in lab.folder.glob("*.patch") if path.name not in lab.files]
    for extra in (*given, *(tree.home() / name for name in lab.patch.extra)):
        shutil.copy(extra, place)
    shutil.copy(lab.folder / "kernel.toml", place / "variants.toml")
    return variants.read(place / "variants.toml")


def _plan(case: variants.KernelCase) -> Plan:
    """What is booted: the smoke set for the submission itself, not for it with further patches."""
    main = run.plan(case, [SUBMISSION])
    others = [name for name in case.variants if name.startswith(f"{SUBMISSION}-")]
    if not others:
        return main
    more = run.plan(case, others, smoke=False)
    wanted = {(variant.name, each.name) for variant, each in (*main.boots, *more.boots)}
    runs = {**more.case.runs, **main.case.runs}
    return Plan(
        replace(case, runs=runs, outcomes=main.case.outcomes + more.case.outcomes),
        tuple(
            (variant, each)
            for each in runs.values()
            for variant in case.variants.values()
            if (variant.name, each.name) in wanted
        ),
    )


def _apply(tree: KernelSource, changes: Sequence[Change], case: variants.KernelCase) -> None:
    """See that a patch applies, that it changes more than comments, and that the lab's fit on it.

    Raises:
        Refused: it does not.
    """
    before = {change.file: _code(tree.tree / change.file) for change in changes}
    for change in changes:
        if (tree.tree / change.file).is_symlink():
            raise Refused(f"{change.file} is a link in the kernel's tree")
    try:
        with source.patched(tree, case.variants[SUBMISSION].patches):
            after = {change.file: _code(tree.tree / change.file) for change in changes}
    except ContendedError as error:
        said = str(error).partition("submission.patch ")[2] or str(error)
        raise Refused(f"the patch {said}") from error
    if before == after:
        raise Refused("the patch changes nothing but comments and blanks")
    for name, variant in case.variants.items():
        if name.startswith(f"{SUBMISSION}-"):
            try:
                with source.patched(tree, variant.patches):
                    pass
            except ContendedError as error:
                raise Refused(
                    "the patch applies, but what the lab adds to it does not: leave the lines "
                    f"around it as they are ({str(error).partition('/')[2]})"
                ) from error


def _code(file: Path) -> str:
    return patchtext.code(file.read_text(errors="replace")) if file.exists() else ""


@contextmanager
def _kernels(plan: Plan, tree: KernelSource, unsafe: bool) -> Iterator[Verdict | None]:
    """Have the plan's kernels built; those of the submission are gone afterwards.

    Yields:
        Why one could not be built, or None if all are there.
    """
    made: list[Kernel] = []
    try:
        problem = None
        for variant, config in plan.kernels:
            there = build.find(variant, config, tree) is not None
            try:
                kernel = build.build(variant, config, tree, boxed=None if unsafe else _boxed)
            except (make.BuildError, build.LayoutError) as error:
                if not variant.name.startswith(SUBMISSION):
                    raise
                problem = _not_built(variant, config, error)
                break
            if not there and variant.name.startswith(SUBMISSION):
                made.append(kernel)
        yield problem
    finally:
        # A class of a hundred would otherwise leave a hundred kernels.
        for kernel in made:
            shutil.rmtree(kernel.image.parent, ignore_errors=True)


def _boxed(command: Sequence[str], tree: Path, objects: Path) -> list[str]:
    """A make of somebody else's C, in a sandbox."""
    before = box.prefix(readable=[tree], writable=[objects], limits=_BUILDING, drop=False)
    return [*before, "env", f"TMPDIR={box.HOME}", f"HOME={box.HOME}", *command]


def _not_built(variant: Variant, config: str, error: ContendedError) -> Verdict:
    reason = str(error).removeprefix(f"{variant}, config {config} ")
    # Where the grader's cache is, is nobody's business, and shorter names read better.
    detail = "\n".join(getattr(error, "__notes__", []))
    detail = re.sub(rf"{re.escape(str(store.cache()))}/source/\w+/tree/?", "", detail)
    detail = detail.replace(str(store.cache()), "...")
    return Verdict(f"the kernel {reason}", detail[-_DETAIL_CHARS:])


def _steps(found: KernelRun) -> dict[str, Verdict]:
    """What of the steps can be said of kernels that were built and booted."""
    lost = [boot for boot in found.boots if boot.variant.startswith(SUBMISSION) and boot.failed]
    boots = Verdict()
    if lost:
        boots = Verdict(
            f"with the workload {lost[0].workload} (config {lost[0].config}) the kernel ended in a "
            f"{lost[0].failed}",
            lost[0].excerpt[:_DETAIL_CHARS],
        )
    return {"builds": Verdict(), "boots": boots}


def _of_runs(found: KernelRun, names: Sequence[str]) -> Verdict:
    about = [
        outcome
        for outcome in found.outcomes
        if outcome.run in names and outcome.variant.startswith(SUBMISSION)
    ]
    if not about:
        raise ContendedError(f"nothing is expected of a submission in the runs {', '.join(names)}")
    lost = [outcome for outcome in about if not outcome.held]
    if not lost:
        return Verdict()
    lines = [f"in the run {o.run}: {o.condition}; seen: {o.seen}" for o in about]
    for boot in found.boots:
        if boot.run in names and boot.variant.startswith(SUBMISSION):
            failed = [check for check in boot.checks if not check.get("ok")]
            lines += [f"smoke check failed: {check!s}" for check in failed]
            if boot.excerpt:
                lines += ["", f"The kernel's own words, in the run {boot.run}:", boot.excerpt]
    said = "; ".join(f"{outcome.expected}: {outcome.reason}" for outcome in lost)
    return Verdict(f"not seen: {said}", "\n".join(lines)[:_DETAIL_CHARS])
