# SPDX-License-Identifier: MIT
"""What a chapter shows of the kernel lab: the outcomes, and what cache lines did.

Outcomes are live where the kernels are built. Profiles are always the recorded ones: to make one
takes minutes, and a machine that does nothing else.
"""

from __future__ import annotations

import os
import shutil
from functools import partial

from contended.errors import ContendedError
from contended.kernel import build, qemu, record, run, variants
from contended.kernel.outcomes import STALL
from contended.kernel.qemu import LostVm
from contended.kernel.record import BootRecord, KernelRun, OutcomeRecord
from contended.measure.results import number
from contended.profile import saved
from contended.profile.saved import Profiles
from contended.show import claims, lesson
from contended.show.claims import Claim
from contended.show.lesson import Note

VCPUS, REFERENCE_VCPUS = 2, 4  #: Of the machines of a chapter's live run and of a reference run.


def missing(slug: str) -> str:
    """Why a chapter cannot run the case's kernels now, in a few words; empty if it can."""
    if shutil.which(qemu.QEMU) is None:
        return "QEMU is not installed"
    try:
        wanted = run.plan(slug, smoke=False, runs=_live(slug)).kernels
        kernels = [build.find(variant, config) for variant, config in wanted]
    except ContendedError as error:
        return str(error)
    unbuilt = sum(kernel is None for kernel in kernels)
    return f"{unbuilt} of its {len(kernels)} kernels are not built" if unbuilt else ""


def outcomes(slug: str) -> KernelRun:
    """The case's variants on a real kernel: what was expected, what was seen, and did it hold.

    Runs them now if QEMU is there and the kernels are built; otherwise, and where a busy host kept
    a guest from its end, the reference run is shown, below a box that says why.

    With `CONTENDED_RECORD=1` in the environment everything is run, on a larger machine, and becomes
    the reference run; with `CONTENDED_RECORDED=1` nothing is booted.

    An outcome that rests on time, and does not hold in a live run, is named in a box. Raises
    ContendedError if another one does not hold, or any in what was to become the reference run.
    """
    if lesson.from_records():
        return recorded(slug)
    if why := missing(slug):
        text = (
            f"{why[0].upper()}{why[1:]}. What follows is the reference run "
            f"results/{slug}/kernel.json. To run it here: contended kernel run {slug} (builds what "
            "is missing in some minutes; see The kernel lab)."
        )
        claims.display(Note("Not booted on this machine", text))
        return recorded(slug)
    if os.environ.get(claims.RECORD) == "1":
        done = run.run(slug, vcpus=REFERENCE_VCPUS)
        if not done.held:
            raise ContendedError(f"{slug}: {done.first_miss}")
        done.save(lesson.reference(f"{slug}/kernel"))
        return done
    try:
        done = run.run(slug, vcpus=VCPUS, smoke=False, runs=_live(slug))
    except LostVm as lost:
        return _instead(slug, str(lost))
    # Some wrong fixes are expected to fail: a boot is looked into only where an outcome missed.
    suspects = [] if done.held else done.boots
    if starved := "; ".join(filter(None, map(_starved, suspects))):
        return _instead(slug, starved)
    claims.remember(done, partial(recorded, slug))
    for each in done.outcomes:
        if each.timed:
            claims.show(_claim(each, slug))
    missed = [each for each in done.outcomes if not each.held]
    broken = [miss for miss, each in zip(done.misses, missed, strict=True) if not each.timed]
    broken = broken or [f"{b.variant}, run {b.run}: {b.failed}" for b in suspects if b.failed]
    if broken:
        raise ContendedError(
            f"{slug}: {'; '.join(broken)}. No busy host explains that; see more with: "
            f"contended kernel run {slug} --repeats 3"
        )
    return done


def _live(slug: str) -> list[str]:
    # What the profiler sees has a section of its own, and takes longer than all the rest. A case of
    # which nothing else is seen runs under it here too: a table of no runs would hold of anything.
    runs = variants.load(slug).runs.values()
    return [one.name for one in runs if not one.profile] or [one.name for one in runs]


def _starved(boot: BootRecord) -> str:
    """What shows that a guest did not get its host's processors; empty if nothing does."""
    sign = next((line for line in boot.splats if STALL.search(line)), "")
    if boot.failed.startswith("hang"):
        sign = "not done at the deadline"
    return f"{boot.variant}, run {boot.run}: {sign}" if sign else ""


def _instead(slug: str, why: str) -> KernelRun:
    """The reference run in place of one that the host did not let finish, below a claim's box."""
    expected = f"the kernels of {slug} come to their end within their deadlines"
    seen = f"{why}; what follows is the reference run results/{slug}/kernel.json"
    claims.show(Claim(expected=expected, holds=False, seen=seen, advice=claims.WITH_KERNELS))
    return recorded(slug)


def _claim(seen: OutcomeRecord, slug: str) -> Claim:
    key = (seen.variant, seen.run, seen.metric)
    known = [] if seen.held else recorded(slug).outcomes
    kept = next((o.seen for o in known if (o.variant, o.run, o.metric) == key), None)
    return Claim(
        expected=f"{seen.variant}: {seen.expected} ({seen.condition})",
        holds=seen.held,
        seen=seen.reason or str(seen.seen),
        recorded=number(kept) if isinstance(kept, float) else "",
        advice=f"{claims.WITH_KERNELS} With the spread: contended kernel run {slug} --repeats 5.",
    )


def recorded(slug: str) -> KernelRun:
    """The reference run, made on another occasion; its provenance says where and with what."""
    return record.load(lesson.reference(f"{slug}/kernel"))


def profiles(slug: str, name: str = "") -> Profiles:
    """The recorded profiles of a case, before and after, of `results/<slug>/c2c[-<name>].json`."""
    return saved.load(lesson.reference(f"{slug}/c2c" + (f"-{name}" if name else "")))
