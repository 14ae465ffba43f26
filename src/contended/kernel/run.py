# SPDX-License-Identifier: MIT
"""Plan which of a case's kernels are booted, and how; do it; compare what is seen with outcomes.

One machine at a time: two would disturb each other's ratios. The variants take turns within each
repeat, so that whatever changes on the host meets them all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from contended import __version__, cc, machine
from contended.errors import UsageError
from contended.kernel import boot, build, c2c, outcomes, qemu, source, vm
from contended.kernel.boot import GuestReport
from contended.kernel.build import Kernel
from contended.kernel.make import Progress
from contended.kernel.outcomes import Failed, Report
from contended.kernel.qemu import Accel, Boot
from contended.kernel.record import BootRecord, KernelInfo, KernelProvenance, KernelRun
from contended.kernel.source import KernelSource
from contended.kernel.variants import (
    CONFIGS,
    MAX_VCPUS,
    Expectation,
    GuestRun,
    KernelCase,
    Variant,
    load,
)
from contended.profile import assemble, plugin
from contended.profile.saved import Profiles

# A guest is done in seconds; this is for a host that is busy with other things.
DEADLINE_S = {
    **dict.fromkeys(CONFIGS, 300.0),
    **dict.fromkeys(("base", "users"), 180.0),
    **dict.fromkeys(("kasan", "kcsan"), 900.0),
}
# Nothing of it is counted or timed: whatever else is asked for, it has processors to race on.
SMOKE = GuestRun("smoke", "smoke", {}, vcpus=4)
SMOKE_DEBUG = replace(SMOKE, name="smoke-debug", config="debug")


@dataclass(frozen=True, slots=True)
class Plan:
    """Which variants are booted with which runs, and what is expected of that."""

    case: KernelCase
    boots: tuple[tuple[Variant, GuestRun], ...]

    @property
    def kernels(self) -> list[tuple[Variant, str]]:
        """The kernels that it takes, as pairs of a variant and a configuration."""
        return list({(v.name, r.config): (v, r.config) for v, r in self.boots}.values())


def plan(
    case: str | KernelCase,
    wanted: Sequence[str] | None = None,
    *,
    smoke: bool = True,
    runs: Sequence[str] | None = None,
) -> Plan:
    """What it takes to judge a case's variants, or what some of its runs show of them.

    A variant that another one is compared with is booted too. The smoke set is added for every
    variant, and once more with the debugging options for right fixes, unless the case's file has
    its own expectation of that workload with that configuration.
    """
    case = load(case) if isinstance(case, str) else case
    asked = [run.name for run in case.pick_runs(case.runs if runs is None else runs)]
    chosen = [one.name for one in case.pick(case.variants if wanted is None else wanted)]
    expected = [o for o in case.outcomes if o.variant in chosen and o.run in asked]
    if smoke:
        expected += _smoke(case, chosen)
    all_runs = dict(case.runs)
    for added in (SMOKE, SMOKE_DEBUG):
        all_runs.setdefault(added.name, added)
    needed = {(name, o.run) for o in expected for name in (o.variant, o.relative_to)}
    # Run by run, so that the variants of a run are booted next to each other.
    pairs = tuple(
        (variant, run)
        for run in all_runs.values()
        for variant in case.variants.values()
        if (variant.name, run.name) in needed
    )
    return Plan(replace(case, runs=all_runs, outcomes=tuple(expected)), pairs)


def _smoke(case: KernelCase, chosen: Sequence[str]) -> list[Expectation]:
    runs = {name: run for name, run in case.runs.items() if run.workload == "smoke"}
    own = {(o.variant, runs[o.run].config) for o in case.outcomes if o.run in runs}
    return [
        Expectation(name, run.name, expected, metric, equals=0.0)
        for name in chosen
        for run, expected, metric in (
            (SMOKE, "the VFS smoke set passes", "smoke.failed"),
            (SMOKE_DEBUG, "the VFS smoke set passes with the debugging options", "smoke.failed"),
            (SMOKE_DEBUG, "and the kernel reports nothing with them", "splats"),
        )
        # a case may name one of these two itself, with another configuration
        if (name, case.runs.get(run.name, run).config) not in own
        and (run is SMOKE or case.variants[name].right)
    ]


def run(
    slug: str,
    variants: Sequence[str] | None = None,
    vcpus: int = 2,
    repeats: int = 1,
    accel: Accel = "auto",
    source: Path | None = None,
    progress: Progress | None = None,
    smoke: bool = True,
    runs: Sequence[str] | None = None,
) -> KernelRun:
    """Build what is missing, boot, and judge; by default all variants and runs, and the smoke set.

    `vcpus` is for runs that leave it open; of `repeats` the median is judged. Raises UsageError for
    what the case lacks and numbers out of range, LostVm, which is no outcome, if QEMU was killed.
    """
    check(vcpus, repeats)
    what = plan(slug, variants, smoke=smoke, runs=runs)
    return carry_out(
        what, vcpus=vcpus, repeats=repeats, accel=accel, given=source, progress=progress
    )


def check(vcpus: int, repeats: int) -> None:
    """Refuse numbers that cannot be, by a UsageError."""
    if not 1 <= vcpus <= MAX_VCPUS:
        raise UsageError(f"{vcpus} vCPUs: give 1 to {MAX_VCPUS}")
    if repeats < 1:
        raise UsageError(f"{repeats} repeats: give at least 1")


def carry_out(
    what: Plan,
    *,
    vcpus: int,
    repeats: int,
    accel: Accel,
    given: Path | None = None,
    progress: Progress | None = None,
) -> KernelRun:
    """Carry out a plan; see `run`."""
    qemu.find()  # before minutes of building
    begun = provenance()
    origin = source.find(given)
    kernels = {(v.name, c): build.build(v, c, origin, progress) for v, c in what.kernels}
    records: list[BootRecord] = []
    reports: dict[tuple[str, str], list[Report]] = defaultdict(list)
    planned = repeats * len(what.boots)
    used, note = "tcg", ""
    for repeat in range(repeats):
        for variant, run in what.boots:
            if progress:
                progress(f"boot {variant.name}: {run.name}", len(records), planned)
            kernel = kernels[variant.name, run.config]
            booted = _boot(what.case, variant, run, kernel, vcpus, accel)
            report, record, why = _turn(booted, variant, run, repeat)
            # What is forced by a single run, such as counting instructions, is not the choice.
            if not (run.icount or run.profile):
                used, note = record.accel, why
            reports[variant.name, run.name].append(report)
            records.append(record)
    if progress:
        progress("done", planned, planned)
    return KernelRun(
        case=what.case.slug,
        vcpus=vcpus,
        repeats=repeats,
        variants={v.name: v.summary for v, _ in what.boots},
        kernels=[
            # Not the kernel's own names: equal kernels of several cases are built once.
            KernelInfo(name, config, kernel.version, kernel.build_id, kernel.compiler, patches)
            for (name, config), kernel in kernels.items()
            for patches in ([patch.name for patch in what.case.variants[name].patches],)
        ],
        boots=records,
        outcomes=outcomes.judge(what.case, reports),
        provenance=begun(origin, used, note),
    )


def provenance() -> Callable[[KernelSource, str, str], KernelProvenance]:
    """To be called before anything is done; what it gives, with what was used, when all is."""
    started, clock, load = machine.now(), time.monotonic(), machine.load_1min()

    def ended(origin: KernelSource, accel: str, note: str) -> KernelProvenance:
        return KernelProvenance(
            cpu=machine.cpu_model(),
            cpus_allowed=machine.allowed_cpus(),
            host_kernel=machine.this_machine().kernel,
            virtualized=machine.hypervisor(),
            qemu=qemu.version(),
            accel=accel,
            note=note,
            source=origin.version,
            guest_compiler=cc.compiler().version,
            contended=__version__,
            commit=machine.commit(),
            load_1min=load,
            started=started,
            seconds=time.monotonic() - clock,
        )

    return ended


def emulated(kernel: Kernel, run: GuestRun, cmdline: str = "") -> Boot:
    """The boot of a run on an emulated machine; `cmdline` is the variant's."""
    return Boot(
        kernel=kernel,
        vcpus=run.vcpus,
        args=run.told(),
        cmdline=" ".join(filter(None, (cmdline, run.cmdline))),
        accel="tcg",
        icount=run.icount,
        deadline_s=DEADLINE_S[kernel.config],
    )


def _boot(
    case: KernelCase, variant: Variant, run: GuestRun, kernel: Kernel, vcpus: int, accel: Accel
) -> Boot:
    plain = emulated(kernel, run, variant.cmdline)
    args = dict(plain.args)
    if run.calls:
        args["calls"] = ",".join(run.calls)
    if any(o.run == run.name and o.metric == "dmesg" for o in case.outcomes):
        args["dmesg"] = "1"
    vcpus = 1 if run.config == "up" else run.vcpus or (c2c.VCPUS if run.profile else vcpus)
    return replace(plain, args=args, vcpus=vcpus, accel=accel)


def _turn(
    asked: Boot, variant: Variant, run: GuestRun, repeat: int
) -> tuple[Report, BootRecord, str]:
    """Boot; what it gave (trouble in the guest is a finding), and a note on why not with KVM."""
    began = time.monotonic()
    accel, note = ("tcg", "") if run.profile else boot.choose(asked)
    report: Report
    try:
        if run.profile:
            found = tuple(p for _, p in c2c.profile_kernel(asked.kernel, variant, run))
            report = Profiles(case=variant.slug, run=run.name, mode="system", profiles=found)
        else:
            report = boot.boot(asked)
    except vm.GuestTrouble as trouble:
        report = Failed(trouble.kind, str(trouble), trouble.console)
    except (assemble.NoRegion, plugin.BadReport) as nothing:
        report = Failed("error", str(nothing), "")
    whole = report if isinstance(report, GuestReport) else None
    console = "" if isinstance(report, Profiles) else report.console
    record = BootRecord(
        variant=variant.name,
        run=run.name,
        config=run.config,
        workload=run.workload,
        args=dict(asked.args),
        cmdline=asked.cmdline,
        vcpus=asked.vcpus,
        icount=run.icount,
        repeat=repeat,
        accel=accel,
        build_id=asked.kernel.build_id,
        results=whole.results if whole else [],
        checks=whole.checks if whole else [],
        failed=f"{report.kind}: {report.reason}" if isinstance(report, Failed) else "",
        splats=outcomes.splats(console),
        excerpt=outcomes.excerpt(console),
        boot_s=whole.boot_s if whole else 0.0,
        wall_s=time.monotonic() - began,
    )
    return report, record, note
