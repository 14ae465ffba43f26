# SPDX-License-Identifier: MIT
"""Tests that nobody wrote for the patches, on kernels with and without: what differs is a finding.

The smoke set with all its processors, random operations (`contended.kernel.fuzz`), the kernel's own
tests (`contended.kernel.selftests`) and, if asked, stress-ng's (`contended.kernel.stressors`); on
kernels with KASAN as well, and on kernels with KCSAN for data races (`contended.kernel.races`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from contended import records
from contended.errors import UsageError
from contended.kernel import (
    boot,
    build,
    fuzz,
    guest,
    outcomes,
    qemu,
    races,
    run,
    selftests,
    source,
    stressors,
    variants,
)
from contended.kernel.build import Kernel
from contended.kernel.fuzz import Difference, Heard
from contended.kernel.make import Progress
from contended.kernel.record import KernelInfo, KernelProvenance
from contended.kernel.selftests import Ran
from contended.kernel.variants import Config, GuestRun, Variant
from contended.kernel.vm import GuestTrouble
from contended.records import Record
from contended.show.table import columns

SCHEMA = 1
REFERENCE = "stack/before"
DEFAULT = (REFERENCE, "stack/after")
CONFIGS: tuple[Config, ...] = ("base", "users", "selftests", "debug", "kasan", "kcsan")
_PLACE = re.compile(r"\+0x[0-9a-f]+/0x[0-9a-f]+")
_SHOWN = 12
LOG = "kernel-log-silent"  #: A check of the smoke set.


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """What one kernel showed."""

    variant: str
    config: str
    build_id: str
    smoke_checks: int
    #: Names of the smoke set's checks, and how a boot went wrong if one did.
    smoke_failed: list[str]
    worlds: int  #: Of the fuzzer, that it got through.
    done: dict[str, int]  #: Random operations that succeeded, by family.
    reports: list[str]  #: The kernel's complaints but races, each once, without addresses.
    ended: str  #: How the fuzzer's boot went wrong; empty if it did not.
    selftests: int = 0  #: Results of the kernel's own tests.
    selftests_not_ok: list[str] = field(default_factory=list)  #: Those that are not, and how.
    stressors: int = 0  #: Of stress-ng; 0 if they were not asked for.
    stressors_not_ok: list[str] = field(default_factory=list)
    races: list[str] = field(default_factory=list)  #: With KCSAN; Linux has some of its own.


@dataclass(slots=True)
class Loaded:
    """What boots of the smoke set and other loads gave."""

    checks: int = 0
    failed: dict[str, None] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """In what a kernel differs from the reference of its configuration."""

    variant: str
    config: str
    kind: str  #: smoke, report, race, selftest, stressor or fuzz.
    what: str
    difference: Difference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun(Record):
    """All kernels, each compared with the first of its configuration."""

    seed: int
    ops: int
    repeats: int  #: Boots of the smoke set.
    tested: list[Tested]
    findings: list[Finding]
    kernels: list[KernelInfo]
    provenance: KernelProvenance
    schema: int = SCHEMA

    def __str__(self) -> str:
        """A line for each kernel, and the findings."""
        head = ["kernel", "config", "smoke set", "random operations", "kernel's tests", "stress-ng"]
        rows = [[*head, "reports", "races"]]
        for one in self.tested:
            passed = max(0, one.smoke_checks - len(one.smoke_failed))  # or the boot failed
            done = f"{one.worlds * fuzz.WORLD}, {sum(one.done.values())} succeeded"
            smoke = f"{passed} of {one.smoke_checks}"
            own = f"{one.selftests - len(one.selftests_not_ok)} of {one.selftests}"
            beaten = f"{one.stressors - len(one.stressors_not_ok)} of {one.stressors}"
            complaints = [str(len(one.reports)), str(len(one.races))]
            rows.append([one.variant, one.config, smoke, done, own, beaten, *complaints])
        parts = [columns(rows)]
        for found in self.findings:
            parts.append(f"FINDING {found.variant} ({found.config}), {found.kind}: {found.what}")
            if (d := found.difference) and d.shortest:
                parts += [f"  {line}" for line in d.shortest[:_SHOWN]]
        parts.append(f"seed {self.seed}: {len(self.findings) or 'no'} findings")
        return "\n".join(parts)


def load(path: Path) -> SuiteRun:
    """Read a saved run; raises ContendedError if it is none."""
    return records.load(SuiteRun, path, "suite", SCHEMA, "run it again")


def suite(
    names: Sequence[str] = DEFAULT,
    configs: Sequence[str] = ("base",),
    *,
    seed: int = 1,
    ops: int = fuzz.OPS,
    repeats: int = 1,
    stress: bool = False,
    given: Path | None = None,
    progress: Progress | None = None,
) -> SuiteRun:
    """Build what is missing, and test it; the first of the `names` is the reference.

    They are `SLUG/VARIANT`, or files of patches. `stress` is to have stress-ng's file-system
    stressors, for minutes a kernel. Raises UsageError for what there is not, and
    LostVm, which is no finding, if QEMU was killed.
    """
    chosen = check(names, configs, seed, ops, repeats)
    qemu.find()
    guest.find_busybox()
    if stress:
        stressors.find()
    tell = progress or (lambda *_: None)
    begun = run.provenance()
    origin = source.find(given)
    kernels = {(str(v), c): build.build(v, c, origin, progress) for c in configs for v in chosen}
    tested, findings = list[Tested](), list[Finding]()
    for config in configs:
        first: tuple[Tested, fuzz.Hear, Heard] | None = None
        for variant in chosen:
            kernel = kernels[str(variant), config]
            tell(f"{variant} ({config})", len(tested), len(kernels))
            hear = fuzz.hearing(kernel, seed, variant.cmdline, 4 * run.DEADLINE_S[config])
            heard = hear(0, ops // fuzz.WORLD, None)
            own = selftests.ran(kernel, origin, variant.cmdline)
            beaten = stressors.ran(kernel, variant.cmdline) if stress else Ran({}, "")
            loads = loads_of(config, repeats)
            one = _tested(variant, config, kernel, loads, heard, own, beaten)
            tested.append(one)
            if first is None:
                first = one, hear, heard
                findings += _alone(one)
                continue
            findings += compared(first[0], one)
            if config == races.CONFIG:
                touched = races.changed(variant, origin.tree)
                new = [race for race in one.races if race not in first[0].races]
                stock = kernels[str(chosen[0]), config]
                say = partial(tell, f"{chosen[0]} again, for a race", len(tested), len(kernels))
                again = partial(_again, stock, chosen[0].cmdline, loads, say)
                new = races.unseen(races.of_files(new, touched), again)
                findings += [_finding(one, "race", race) for race in new]
            if difference := fuzz.compare(seed, first[1], hear, first[2], heard):
                findings.append(_finding(one, "fuzz", said(difference), difference))
    return SuiteRun(
        seed=seed,
        ops=ops,
        repeats=repeats,
        tested=tested,
        findings=findings,
        kernels=[
            KernelInfo(
                str(v), c, k.version, k.build_id, k.compiler, [patch.name for patch in v.patches]
            )
            for c in configs
            for v in chosen
            for k in (kernels[str(v), c],)
        ],
        provenance=begun(origin, "tcg", ""),
    )


def check(
    names: Sequence[str], configs: Sequence[str], seed: int, ops: int, repeats: int
) -> list[Variant]:
    """The variants of these names; raises UsageError for what cannot be."""
    fuzz.check(seed, ops)
    run.check(1, repeats)
    if unknown := [config for config in configs if config not in CONFIGS]:
        raise UsageError(f"no configuration {unknown[0]!r} here; there are: {', '.join(CONFIGS)}")
    # How structs lie was seen when the case's own kernels were built, with debug information.
    found = [replace(_named(name), layout={}) for name in dict.fromkeys(names)]
    if len(found) < 2:
        raise UsageError(f"{names[0]} alone is compared with nothing: name two variants or more")
    return found


def _named(name: str) -> Variant:
    """A variant, or Linux with a patch that is in no case's file."""
    if not name.endswith(".patch"):
        return variants.pick(name)
    file = Path(name)
    if not file.is_file():
        raise UsageError(f"there is no {name}")
    return Variant(str(file.parent), file.name, "a patch of somebody's", (file.resolve(),))


def reports(console: str) -> list[str]:
    """The kernel's complaints, each once, without the addresses that differ from boot to boot."""
    found = (_PLACE.sub("", line) for line in outcomes.splats(console))
    return list(dict.fromkeys(found))


def said(difference: Difference) -> str:
    """A difference in one line."""
    if difference.operation is None:
        return f"seed {difference.seed}: {difference.what}"
    where = f"seed {difference.seed}, operation {difference.operation}: {difference.what}"
    return f"{where} is {difference.reference!r} on the reference and {difference.seen!r} here"


def loads_of(config: str, repeats: int) -> tuple[GuestRun, ...]:
    """What is booted: the smoke set; for races also what has several processors at work."""
    if config == races.CONFIG:
        return races.LOADS * max(repeats, races.TIMES)
    return (run.SMOKE,) * repeats


def loaded(kernel: Kernel, cmdline: str, loads: Sequence[GuestRun]) -> Loaded:
    """Boot a kernel with each load; one that hangs or panics is among what failed."""
    found = Loaded()
    for load in loads:
        asked = run.emulated(kernel, load, cmdline)
        try:
            report = boot.boot(replace(asked, deadline_s=2 * asked.deadline_s))
            console = report.console
            found.checks = max(found.checks, len(report.checks))
            found.failed |= {str(one["name"]): None for one in report.checks if not one["ok"]}
            if kernel.config == races.CONFIG:  # what the log says is in the reports, or a race
                found.failed.pop(LOG, None)
        except GuestTrouble as trouble:
            console = trouble.console
            found.failed[f"{load.name}: {trouble.kind}: {trouble}"] = None
        found.complaints += reports(console)
    return found


def _again(
    kernel: Kernel, cmdline: str, loads: Sequence[GuestRun], say: Callable[[], None]
) -> list[str]:
    say()
    return loaded(kernel, cmdline, loads).complaints


def _tested(
    variant: Variant,
    config: str,
    kernel: Kernel,
    loads: Sequence[GuestRun],
    heard: Heard,
    own: Ran,
    beaten: Ran,
) -> Tested:
    booted = loaded(kernel, variant.cmdline, loads)
    complaints = reports(heard.console + own.console + beaten.console) + booted.complaints
    others, data_races = races.split(dict.fromkeys(complaints))
    return Tested(
        variant=str(variant),
        config=config,
        build_id=kernel.build_id,
        smoke_checks=booted.checks,
        smoke_failed=list(booted.failed),
        worlds=len(heard.worlds),
        done=dict(heard.done),
        reports=others,
        races=data_races,
        ended=heard.ended,
        selftests=len(own.results),
        selftests_not_ok=own.not_ok,
        stressors=len(beaten.results),
        stressors_not_ok=beaten.not_ok,
    )


def _finding(one: Tested, kind: str, what: str, difference: Difference | None = None) -> Finding:
    return Finding(
        variant=one.variant, config=one.config, kind=kind, what=what, difference=difference
    )


def _alone(one: Tested) -> list[Finding]:
    """What is wrong with a reference by itself."""
    found = [_finding(one, "smoke", name) for name in one.smoke_failed]
    found += [_finding(one, "report", line) for line in one.reports]
    return found + ([_finding(one, "fuzz", one.ended)] if one.ended else [])


def compared(reference: Tested, one: Tested) -> list[Finding]:
    """In what a kernel differs from the reference, but for random operations."""
    found = [
        _finding(one, "smoke", name)
        for name in one.smoke_failed
        if name not in reference.smoke_failed
    ]
    more = [line for line in one.reports if line not in reference.reports]
    found += [_finding(one, "report", line) for line in more]
    beaten = sorted({*one.stressors_not_ok} ^ {*reference.stressors_not_ok})
    found += [_finding(one, "stressor", line) for line in beaten]
    own = sorted({*one.selftests_not_ok} ^ {*reference.selftests_not_ok})
    found += [_finding(one, "selftest", line) for line in own]
    if one.selftests != reference.selftests and not own:
        what = f"{one.selftests} results instead of {reference.selftests}"
        found.append(_finding(one, "selftest", what))
    return found
