# SPDX-License-Identifier: MIT
"""Run a case's kernels and compare what was expected of them with what is seen.

One machine at a time: two would disturb each other's ratios. The variants take turns within each
repeat, so that whatever changes on the host meets them all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from contended import __version__, cc, machine
from contended.errors import UsageError
from contended.kernel import boot, build, c2c, kvm, outcomes, plan, qemu, source, vm
from contended.kernel.boot import GuestReport
from contended.kernel.build import Kernel
from contended.kernel.make import Progress
from contended.kernel.outcomes import Failed, Report
from contended.kernel.plan import Plan
from contended.kernel.qemu import Accel, Boot
from contended.kernel.record import BootRecord, KernelInfo, KernelRun, Provenance
from contended.kernel.variants import MAX_VCPUS, Case, Run, Variant
from contended.profile import assemble, plugin
from contended.profile.saved import Profiles

# A guest is done in seconds; this is for a host that is busy with other things.
DEADLINE_S = {"base": 180.0, "debug": 300.0, "up": 300.0}


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
    """Build what is missing, boot, and judge.

    Args:
        slug: The case.
        variants: Their names; default: all.
        vcpus: Virtual processors of the runs that leave it open.
        repeats: Boots of each variant with each run; the median is judged.
        accel: `tcg`, `kvm` or, if it works here, kvm: `auto`.
        source: The kernel's source if it is not Debian's package.
        progress: Called with what is being done, how much of it is done, and of how much.
        smoke: Whether the smoke set is run as well.
        runs: Names of the case's runs, if not all are wanted.

    Raises:
        UsageError: no such case, variant or run, or a number out of range.
        LostVm: QEMU was killed or failed; that is no outcome.
        ContendedError: no QEMU, no source, a patch that does not apply, a build that fails.
    """
    check(vcpus, repeats)
    return carry_out(
        plan.of(slug, variants, smoke=smoke, runs=runs),
        vcpus=vcpus,
        repeats=repeats,
        accel=accel,
        given=source,
        progress=progress,
    )


def check(vcpus: int, repeats: int) -> None:
    """Refuse numbers that cannot be.

    Raises:
        UsageError: they are out of range.
    """
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
    started, clock = machine.now(), time.monotonic()
    load = machine.load_1min()
    origin = source.find(given)
    kernels = {
        (variant.name, config): build.build(variant, config, origin, progress)
        for variant, config in what.kernels
    }
    records: list[BootRecord] = []
    reports: dict[tuple[str, str], list[Report]] = {}
    planned = repeats * len(what.boots)
    used, note = "", ""
    for repeat in range(repeats):
        for variant, run in what.boots:
            if progress is not None:
                progress(f"boot {variant.name}: {run.name}", len(records), planned)
            asked = _boot(what.case, variant, run, kernels[variant.name, run.config], vcpus, accel)
            began = time.monotonic()
            report, used_now, note_now = _report(asked, variant, run)
            seconds = time.monotonic() - began
            # What is forced by a single run, such as counting instructions, is not the choice.
            if not (run.icount or run.profile):
                used, note = used_now, note_now
            reports.setdefault((variant.name, run.name), []).append(report)
            records.append(_record(asked, variant, run, repeat, report, used_now, seconds))
    if progress is not None:
        progress("done", planned, planned)
    return KernelRun(
        case=what.case.slug,
        vcpus=vcpus,
        repeats=repeats,
        variants={v.name: v.summary for v, _ in what.boots},
        kernels=[
            # Not the kernel's own names: equal kernels of several cases are built once.
            KernelInfo(
                variant=name,
                config=config,
                version=kernel.version,
                build_id=kernel.build_id,
                compiler=kernel.compiler,
                patches=[patch.name for patch in what.case.variants[name].patches],
            )
            for (name, config), kernel in kernels.items()
        ],
        boots=records,
        outcomes=outcomes.judge(what.case, reports),
        provenance=Provenance(
            cpu=machine.cpu_model(),
            cpus_allowed=machine.allowed_cpus(),
            host_kernel=machine.this_machine().kernel,
            virtualized=machine.hypervisor(),
            qemu=qemu.version(),
            accel=used or "tcg",
            note=note,
            source=origin.version,
            guest_compiler=cc.compiler().version,
            contended=__version__,
            commit=machine.commit(),
            load_1min=load,
            started=started,
            seconds=time.monotonic() - clock,
        ),
    )


def _boot(case: Case, variant: Variant, run: Run, kernel: Kernel, vcpus: int, accel: Accel) -> Boot:
    args = {"run": run.workload, **{name: str(value) for name, value in run.args.items()}}
    if run.calls:
        args["calls"] = ",".join(run.calls)
    if any(o.run == run.name and o.metric == "dmesg" for o in case.outcomes):
        args["dmesg"] = "1"
    return Boot(
        kernel=kernel,
        vcpus=1 if run.config == "up" else run.vcpus or (c2c.VCPUS if run.profile else vcpus),
        args=args,
        cmdline=" ".join(filter(None, (variant.cmdline, run.cmdline))),
        accel=accel,
        icount=run.icount,
        deadline_s=DEADLINE_S[run.config],
    )


def _report(asked: Boot, variant: Variant, run: Run) -> tuple[Report, str, str]:
    """Boot; what it gave, how it ran, and why not with KVM.

    A guest in trouble is a finding, a lost machine is not. Under the profiler the vCPUs are the
    run's own.
    """
    accel, note = ("tcg", "") if run.profile else kvm.choose(asked)
    try:
        if not run.profile:
            return boot.boot(asked), accel, note
        found = tuple(c2c.profile_kernel(asked.kernel, variant, run))
        report = Profiles(case=variant.slug, run=run.name, mode="system", profiles=found)
        return report, accel, note
    except vm.GuestTrouble as trouble:
        failed = Failed(trouble.kind, str(trouble), trouble.console)
    except (assemble.NoRegion, plugin.BadReport) as nothing:
        failed = Failed("error", str(nothing), "")
    return failed, accel, note


def _record(
    asked: Boot,
    variant: Variant,
    run: Run,
    repeat: int,
    report: Report,
    accel: str,
    seconds: float,
) -> BootRecord:
    whole = report if isinstance(report, GuestReport) else None
    console = report.console if isinstance(report, GuestReport | Failed) else ""
    return BootRecord(
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
        results=[dict(result) for result in whole.results] if whole else [],
        checks=[dict(check) for check in whole.checks] if whole else [],
        failed=f"{report.kind}: {report.reason}" if isinstance(report, Failed) else "",
        splats=outcomes.splats(console),
        excerpt=outcomes.excerpt(console),
        boot_s=whole.boot_s if whole else 0.0,
        wall_s=seconds,
    )
