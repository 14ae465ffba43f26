# SPDX-License-Identifier: MIT
"""Run a case's kernels and compare what was expected of them with what is seen.

One machine at a time: two would disturb each other's ratios. The variants take turns within each
repeat, so that whatever changes on the host meets them all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contended import __version__, cc, machine, records
from contended.errors import UsageError
from contended.kernel import boot as boots
from contended.kernel import build, c2c, outcomes, source, variants
from contended.kernel.boot import Accel, Boot, GuestReport
from contended.kernel.build import Kernel, Progress
from contended.kernel.outcomes import Failed, Judged, Profiled
from contended.kernel.variants import Case, Outcome, Run, Variant
from contended.profile import coherence, plugin
from contended.records import Record

SCHEMA = 1
# A guest is done in seconds; this is for a host that is busy with other things.
DEADLINE_S = {"base": 180.0, "debug": 300.0, "up": 300.0}

# Nothing of it is counted or timed: whatever else is asked for, it has processors to race on.
SMOKE = Run("smoke", "smoke", {}, vcpus=4)
SMOKE_DEBUG = replace(SMOKE, name="smoke-debug", config="debug")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where, when and with what the machines ran."""

    cpu: str
    cpus_allowed: list[int]
    host_kernel: str
    virtualized: str | None
    qemu: str
    accel: str
    note: str
    source: str
    guest_compiler: str
    contended: str
    commit: str | None
    load_1min: float
    started: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelInfo:
    """A kernel that was booted."""

    variant: str
    config: str
    version: str
    build_id: str
    compiler: str
    patches: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BootRecord:
    """One boot and all that its guest sent.

    Attributes:
        results: The guest's result lines as they came.
        checks: Its smoke checks as they came.
        failed: Why there is no whole report: panic, hang or error, and what; or empty.
        splats: The first lines of the kernel's complaints.
        excerpt: The console from the first complaint on, bounded; empty without one.
        boot_s: From QEMU's start to the guest's first line, seconds.
        wall_s: To its end, seconds.
    """

    variant: str
    run: str
    config: str
    workload: str
    args: dict[str, str]
    cmdline: str
    vcpus: int
    icount: bool
    repeat: int
    accel: str
    build_id: str
    results: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    failed: str
    splats: list[str]
    excerpt: str
    boot_s: float
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRecord:
    """What was expected of a variant, what was seen, and whether it held.

    Attributes:
        seen: The median over the repeats, or the line of a text that was looked for.
        low: The lowest of the repeats; None for a text.
        high: The highest.
        reason: Why it did not hold; empty if it did.
        timed: Whether a busy host can spoil it.
    """

    variant: str
    run: str
    expected: str
    condition: str
    metric: str
    seen: float | str | None
    low: float | None
    high: float | None
    held: bool
    reason: str
    timed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun(Record):
    """A case's kernels, run and judged.

    Attributes:
        case: The slug.
        vcpus: As asked for; runs may fix their own number.
        repeats: Boots of each variant and run.
        variants: Each variant's summary, by name.
        kernels: What was booted.
        boots: In the order they were made.
        outcomes: In the file's order, then the smoke set's.
        provenance: Where and how.
        recorded: True for a reference run that was loaded.
    """

    case: str
    vcpus: int
    repeats: int
    variants: dict[str, str]
    kernels: list[KernelInfo]
    boots: list[BootRecord]
    outcomes: list[OutcomeRecord]
    provenance: Provenance
    schema: int = SCHEMA
    recorded: bool = field(default=False)

    @property
    def held(self) -> bool:
        """Whether all outcomes held; nothing expected is nothing held."""
        return bool(self.outcomes) and all(outcome.held for outcome in self.outcomes)

    @property
    def misses(self) -> list[str]:
        """A line for each outcome that did not hold."""
        return [
            f"variant {o.variant}, run {o.run}: {o.expected}: {o.reason}"
            for o in self.outcomes
            if not o.held
        ]

    @property
    def first_miss(self) -> str:
        """The first outcome that did not hold, in one line; empty if all held."""
        if not self.outcomes:
            return "nothing is expected of these variants"
        return next(iter(self.misses), "")

    def of(self, variant: str, run: str) -> list[BootRecord]:
        """A variant's boots with a run, one for each repeat."""
        return [boot for boot in self.boots if (boot.variant, boot.run) == (variant, run)]

    def results(self, variant: str, run: str, label: str | None = None) -> list[dict[str, Any]]:
        """The guest's result lines of `of`, optionally those with one label only."""
        return [
            result
            for boot in self.of(variant, run)
            for result in boot.results
            if label in (None, result.get("label", ""))
        ]

    def seen(self, variant: str, metric: str, run: str | None = None) -> float:
        """What an outcome saw, as a number: the median over the repeats.

        Raises:
            UsageError: no outcome looks at that metric of that variant, or it saw no number.
        """
        for outcome in self.outcomes:
            if (outcome.variant, outcome.metric) == (variant, metric) and run in (
                None,
                outcome.run,
            ):
                if isinstance(outcome.seen, str) or outcome.seen is None:
                    break
                return outcome.seen
        metrics = ", ".join(sorted({o.metric for o in self.outcomes if o.variant == variant}))
        raise UsageError(f"no number {metric!r} of {self.case}/{variant}; there are: {metrics}")

    def __repr__(self) -> str:
        held = sum(outcome.held for outcome in self.outcomes)
        return f"<{self.case} on {self.vcpus} vCPUs: {held} of {len(self.outcomes)} outcomes held>"

    def _repr_html_(self) -> str:
        from contended.kernel import table

        return table.html(self)


def load(path: Path) -> KernelRun:
    """Read a saved run; `recorded` is set.

    Raises:
        ContendedError: the file is missing, is not JSON, or does not fit the schema.
    """
    return replace(records.load(KernelRun, path, "outcomes", SCHEMA, "run it again"), recorded=True)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which variants are booted with which runs, and what is expected of that."""

    case: Case
    boots: tuple[tuple[Variant, Run], ...]

    @property
    def kernels(self) -> list[tuple[Variant, str]]:
        """The kernels that it takes, as pairs of a variant and a configuration."""
        return list({(v.name, r.config): (v, r.config) for v, r in self.boots}.values())


def plan(
    slug: str,
    wanted: Sequence[str] | None = None,
    *,
    smoke: bool = True,
    runs: Sequence[str] | None = None,
) -> Plan:
    """What it takes to judge a case's variants, or what some of its runs show of them.

    A variant that another one is compared with is booted too. The smoke set is added for every
    variant, and once more with the debugging options for right fixes, unless the case's file has
    its own expectation of that workload with that configuration.

    Raises:
        UsageError: no such case, variant or run.
    """
    return plan_case(variants.load(slug), wanted, smoke=smoke, runs=runs)


def plan_case(
    case: Case,
    wanted: Sequence[str] | None = None,
    *,
    smoke: bool = True,
    runs: Sequence[str] | None = None,
) -> Plan:
    """`plan` of a case that was read already."""
    asked = list(case.runs) if runs is None else list(runs)
    for name in asked:
        if name not in case.runs:
            there = ", ".join(case.runs)
            raise UsageError(f"{case.slug} has no run {name!r}; there are: {there}")
    chosen = list(case.variants) if wanted is None else list(dict.fromkeys(wanted))
    for name in chosen:
        if name not in case.variants:
            there = ", ".join(case.variants)
            raise UsageError(f"{case.slug} has no variant {name!r}; there are: {there}")
    all_runs = dict(case.runs)
    expected = [o for o in case.outcomes if o.variant in chosen and o.run in asked]
    if smoke:
        for added, what in _smoke(case, chosen):
            all_runs.setdefault(added.name, added)
            expected.append(what)
    needed: dict[tuple[str, str], None] = {}
    for outcome in expected:
        needed[outcome.variant, outcome.run] = None
        if outcome.relative_to is not None:
            needed[outcome.relative_to, outcome.run] = None
    # Run by run, so that the variants of a run are booted next to each other.
    pairs = tuple(
        (variant, run)
        for run in all_runs.values()
        for variant in case.variants.values()
        if (variant.name, run.name) in needed
    )
    return Plan(replace(case, runs=all_runs, outcomes=tuple(expected)), pairs)


def _smoke(case: Case, chosen: Sequence[str]) -> Iterator[tuple[Run, Outcome]]:
    own = {
        (outcome.variant, case.runs[outcome.run].config)
        for outcome in case.outcomes
        if case.runs[outcome.run].workload == "smoke"
    }
    for name in chosen:
        if (name, "base") not in own:
            yield SMOKE, _expect(name, SMOKE, "the VFS smoke set passes", "smoke.failed")
        if case.variants[name].right and (name, "debug") not in own:
            passes = "the VFS smoke set passes with the debugging options"
            yield SMOKE_DEBUG, _expect(name, SMOKE_DEBUG, passes, "smoke.failed")
            silent = "and the kernel reports nothing with them"
            yield SMOKE_DEBUG, _expect(name, SMOKE_DEBUG, silent, "splats")


def _expect(variant: str, run: Run, expected: str, metric: str) -> Outcome:
    return Outcome(variant, run.name, expected, metric, equals=0.0)


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
        boot.LostVm: QEMU was killed or failed; that is no outcome.
        ContendedError: no QEMU, no source, a patch that does not apply, a build that fails.
    """
    check(vcpus, repeats)
    return carry_out(
        plan(slug, variants, smoke=smoke, runs=runs),
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
    if not 1 <= vcpus <= variants.MAX_VCPUS:
        raise UsageError(f"{vcpus} vCPUs: give 1 to {variants.MAX_VCPUS}")
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
    boots.find_qemu()  # before minutes of building
    started, clock = machine.now(), time.monotonic()
    load = machine.load_1min()
    kernels, version = _kernels(what, given, progress)
    records: list[BootRecord] = []
    reports: dict[tuple[str, str], list[GuestReport | Failed | Profiled]] = {}
    planned = repeats * len(what.boots)
    used, note = "", ""
    for repeat in range(repeats):
        for variant, run in what.boots:
            if progress is not None:
                progress(f"boot {variant.name}: {run.name}", len(records), planned)
            asked = _boot(what.case, variant, run, kernels[variant.name, run.config], vcpus, accel)
            report: GuestReport | Failed | Profiled
            if run.profile:
                report, used_now, note_now, seconds = _profile(asked, variant, run)
            else:
                report, used_now, note_now, seconds = _report(asked)
            # What is forced by a single run, such as counting instructions, is not the choice.
            if not (run.icount or run.profile):
                used, note = used_now, note_now
            reports.setdefault((variant.name, run.name), []).append(report)
            records.append(_record(asked, variant, run, repeat, report, used_now, seconds))
    if progress is not None:
        progress("done", planned, planned)
    judged = outcomes.judge(what.case, reports)
    return KernelRun(
        case=what.case.slug,
        vcpus=vcpus,
        repeats=repeats,
        variants={v.name: v.summary for v, _ in what.boots},
        kernels=[
            _info(what.case.variants[name], config, kernel)
            for (name, config), kernel in kernels.items()
        ],
        boots=records,
        outcomes=[_outcome(each) for each in judged],
        provenance=Provenance(
            cpu=machine.cpu_model(),
            cpus_allowed=machine.allowed_cpus(),
            host_kernel=machine.this_machine().kernel,
            virtualized=machine.hypervisor(),
            qemu=boots.qemu_version(),
            accel=used or "tcg",
            note=note,
            source=version,
            guest_compiler=_guest_compiler(),
            contended=__version__,
            commit=machine.commit(),
            load_1min=load,
            started=started,
            seconds=time.monotonic() - clock,
        ),
    )


def _kernels(
    what: Plan, given: Path | None, progress: Progress | None
) -> tuple[dict[tuple[str, str], Kernel], str]:
    origin = source.find(given)
    built = {}
    for variant, config in what.kernels:
        built[variant.name, config] = build.build(variant, config, origin, progress)
    return built, origin.version


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


def _report(asked: Boot) -> tuple[GuestReport | Failed, str, str, float]:
    """Boot; a guest in trouble is a finding, a lost machine is not."""
    from contended.kernel import kvm

    accel, note = kvm.choose(asked)
    start = time.monotonic()
    kinds = {boots.GuestPanic: "panic", boots.GuestHang: "hang", boots.GuestError: "error"}
    try:
        report: GuestReport | Failed = boots.boot(asked)
    except boots.GuestTrouble as trouble:
        report = Failed(kinds.get(type(trouble), "error"), str(trouble), trouble.console)
    return report, accel, note, time.monotonic() - start


def _profile(asked: Boot, variant: Variant, run: Run) -> tuple[Failed | Profiled, str, str, float]:
    """The same, under the coherence profiler; its vCPUs are the run's own."""
    start = time.monotonic()
    kinds = {boots.GuestPanic: "panic", boots.GuestHang: "hang", boots.GuestError: "error"}
    try:
        found = c2c.profile_kernel(asked.kernel, variant, run)
    except boots.GuestTrouble as trouble:
        kind = kinds.get(type(trouble), "error")
        return Failed(kind, str(trouble), trouble.console), "tcg", "", time.monotonic() - start
    except (coherence.NoRegion, plugin.BadReport) as nothing:
        return Failed("error", str(nothing), ""), "tcg", "", time.monotonic() - start
    profiles = coherence.Profiles(
        case=variant.slug, run=run.name, mode="system", profiles=tuple(found)
    )
    return Profiled(profiles), "tcg", "", time.monotonic() - start


def _record(
    asked: Boot,
    variant: Variant,
    run: Run,
    repeat: int,
    report: GuestReport | Failed | Profiled,
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


def _info(variant: Variant, config: str, kernel: Kernel) -> KernelInfo:
    # Not the kernel's own names: equal kernels of several cases are built once.
    return KernelInfo(
        variant=variant.name,
        config=config,
        version=kernel.version,
        build_id=kernel.build_id,
        compiler=kernel.compiler,
        patches=[patch.name for patch in variant.patches],
    )


def _outcome(judged: Judged) -> OutcomeRecord:
    low, high = judged.spread or (None, None)
    about = judged.outcome
    return OutcomeRecord(
        variant=about.variant,
        run=about.run,
        expected=about.expected,
        condition=outcomes.condition(about),
        metric=about.metric,
        seen=judged.seen,
        low=low,
        high=high,
        held=judged.held,
        reason=judged.reason,
        timed=about.timed,
    )


def _guest_compiler() -> str:

    return cc.compiler().version
