# SPDX-License-Identifier: MIT
"""Which releases of Linux have which of the bugs, as their unpatched kernels show it.

What is counted, and where a count has the bug or does not, stands in `patches/history.toml`; what
became of the fix stands in the register. The two are set side by side, and may disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from contended import records, register
from contended.errors import ContendedError, UsageError, pick
from contended.kernel import build, qemu, releases, run, source, store, variants
from contended.kernel.make import Progress
from contended.kernel.releases import Release
from contended.kernel.variants import Expectation, GuestRun, KernelCase, Variant
from contended.measure.results import number
from contended.profile.dwarf import Image
from contended.profile.moved import Gone, called, key
from contended.records import Record
from contended.show.table import columns

SCHEMA = 1
VCPUS = 4  #: Of the machines, where a run leaves it open.
Verdict = Literal["has it", "does not", "changed"]
_CALLS = re.compile(r"(calls(?:_per_op)?\.)(\w+)")
_NAMES = re.compile(r"(symbol|inline|field|line)\(([\w.]+)\)")


@dataclass(frozen=True, slots=True)
class Count:
    """What is counted in a run, in the words of 6.1, and what it says of the bug, if anything."""

    run: str
    metric: str
    what: str
    present: float | None = None  #: At least this where the bug is.
    absent: float | None = None  #: At most this where it is not.


@dataclass(frozen=True, slots=True)
class Watched:
    """What is counted of a case, and the verdicts on releases that were looked at."""

    counts: tuple[Count, ...]
    seen: dict[str, Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A count on a release; None, with the reason, where it has no such function."""

    run: str
    metric: str
    what: str
    value: float | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSeen:
    """A case on a release's unpatched kernel."""

    case: str
    release: str
    version: str
    build_id: str
    counts: list[Seen]
    splats: list[str]
    verdict: Verdict
    registered: Verdict  #: What the register leads to expect.
    commit: str  #: That ended the bug by then, as the register has it; or empty.
    #: Of a bug that is there, why each patched variant's patches do not apply; empty where they do.
    patches: dict[str, str] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether the kernel does what the register says."""
        return self.verdict == self.registered


@dataclass(frozen=True, slots=True, kw_only=True)
class History(Record):
    """Cases on releases, in this order."""

    seen: list[ReleaseSeen]
    qemu: str
    schema: int = SCHEMA

    def __str__(self) -> str:
        """A line for each count of each release, and for each disagreement."""
        rows = [["case", "release", "verdict", "register", "count"]]
        for one in self.seen:
            ended = f"{one.registered}{f', {one.commit}' if one.commit else ''}"
            head = [one.case, one.version, one.verdict, ended]
            for count in one.counts:
                told = count.why if count.value is None else number(count.value)
                rows.append([*head, f"{told}  {count.what}"])
                head = [""] * len(head)
        parts = [columns(rows)]
        for one in self.seen:
            where = f"{one.case} on Linux {one.version}"
            if not one.agrees:
                said = f"the register says {one.registered!r} and the kernel {one.verdict!r}"
                parts.append(f"DISAGREES {where}: {said}")
            parts += [f"SPLAT {where}: {line}" for line in one.splats]
        return "\n\n".join(parts)


def load(path: Path) -> History:
    """Read a saved history; raises ContendedError if it is none."""
    return records.load(History, path, "history", SCHEMA, "run it again")


def watched() -> dict[str, Watched]:
    """What is counted of each case; a mistake in the file is a UsageError."""
    file = variants.folder() / "history.toml"
    found = {
        slug: records.made(Watched, content, f"{file}: {slug}")
        for slug, content in records.toml(file).items()
    }
    for slug, case in found.items():
        known = variants.load(slug)
        for count in case.counts:
            known.pick_runs([count.run])
            if (count.present is None) != (count.absent is None):
                raise UsageError(f"{file}: {slug}: {count.metric} has one of present and absent")
        if not any(count.present is not None for count in case.counts):
            raise UsageError(f"{file}: {slug} has no count that decides")
        for name in case.seen:
            releases.get(name)
    return found


def unpatched(slug: str) -> Variant:
    """A case's variant that is Linux as it is, without what 6.1's structs look like."""
    for variant in variants.load(slug).variants.values():
        if not variant.patches and not variant.cmdline:
            return replace(variant, layout={})
    raise UsageError(f"{slug} has no variant without patches")


def runs_of(case: KernelCase, counts: Sequence[Count], version: str) -> list[GuestRun]:
    """The runs that a version of Linux takes, each counting the calls that are asked for."""
    found = []
    for one in case.pick_runs(count.run for count in counts):
        calls: set[str] = set()
        for count in (count for count in counts if count.run == one.name):
            for _, function in _CALLS.findall(count.metric):
                try:
                    calls.add(called(function, version))
                except Gone:
                    continue
        if calls or one.profile or one.icount:
            found.append(replace(one, calls=tuple(sorted(calls))))
    return found


def verdict(counts: Sequence[Count], values: Sequence[float | None]) -> Verdict:
    """What those counts say that decide; "changed" if they are neither one nor the other."""
    each = [
        (value >= count.present, value <= count.absent)
        for count, value in zip(counts, values, strict=True)
        if value is not None and count.present is not None and count.absent is not None
    ]
    if not each:
        raise ContendedError(f"nothing that decides can be counted: {counts[0].metric}")
    if all(present for present, _ in each):
        return "has it"
    return "does not" if all(absent for _, absent in each) else "changed"


def registered(slug: str, release: str) -> tuple[Verdict, str]:
    """What the register leads to expect of a release, and the commit that ended the bug by then."""
    for step in register.get(slug).outcome.steps:
        if step.ends and key(step.version or "") <= key(release):
            return "does not", step.commit or ""
    return "has it", ""


def built(release: Release) -> bool:
    """Whether the release's source is here and its unpatched kernel is built."""
    try:
        origin = source.find(release=release)
    except source.NoSource:
        return False
    plain = Variant("history", "unpatched", "Linux as it is")
    return build.find(plain, "base", origin) is not None


def history(
    slugs: Sequence[str] = (),
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> History:
    """Count on the named releases, which are got and built if need be, or on those that are built.

    Raises UsageError for a case or a release that is not known, Gone (an error, and no count) for
    what a metric names and a kernel has not, and ContendedError if a guest fails.
    """
    every = watched()
    cases = {slug: pick(every, slug, "nothing is counted of a case") for slug in slugs or every}
    chosen = [releases.get(name) for name in names or ()]
    chosen = chosen or [release for release in releases.ALL if built(release)]
    if not chosen:
        raise ContendedError("no kernel is built: name releases, as in --releases 6.12")
    tell = progress or (lambda *_: None)
    seen = []
    for release in chosen:
        origin = source.obtain(None, lambda what: tell(what, 0, 0), release)
        seen += [measure(slug, case, release, origin, progress) for slug, case in cases.items()]
    order = list(cases)
    seen.sort(key=lambda one: order.index(one.case))
    return History(seen=seen, qemu=qemu.version())


def measure(
    slug: str,
    watch: Watched,
    release: Release,
    origin: source.KernelSource,
    progress: Progress | None = None,
) -> ReleaseSeen:
    """Count what there is of a case on one release's kernel."""
    case, variant, version = variants.load(slug), unpatched(slug), origin.version
    wanted, why = {}, {}
    for number_, count in enumerate(watch.counts):
        try:
            translated = _CALLS.sub(lambda m: m[1] + called(m[2], version), count.metric)
        except Gone as gone:
            why[number_] = str(gone)
            continue
        wanted[number_] = Expectation(variant.name, count.run, count.what, translated, at_least=0.0)
    runs = runs_of(case, watch.counts, version)
    _check_names(build.build(variant, "base", origin, progress).vmlinux, version, wanted.values())
    short = KernelCase(
        slug, {variant.name: variant}, {r.name: r for r in runs}, tuple(wanted.values())
    )
    plan = run.Plan(short, tuple((variant, one) for one in runs))
    done = run.carry_out(
        plan, vcpus=VCPUS, repeats=1, accel="tcg", given=origin.given, progress=progress
    )
    values: dict[int, float] = {}
    for number_, outcome in zip(wanted, done.outcomes, strict=True):
        if not isinstance(outcome.seen, float | int):
            raise ContendedError(f"{slug} on Linux {version}: {outcome.metric}: {outcome.reason}")
        values[number_] = float(outcome.seen)
    counts = [
        Seen(run=c.run, metric=c.metric, what=c.what, value=values.get(n), why=why.get(n, ""))
        for n, c in enumerate(watch.counts)
    ]
    judged = verdict(watch.counts, [seen.value for seen in counts])
    expected, commit = registered(slug, release.name)
    return ReleaseSeen(
        case=slug,
        release=release.name,
        version=version,
        build_id=done.kernels[0].build_id,
        counts=counts,
        splats=[line for boot in done.boots for line in boot.splats],
        verdict=judged,
        registered=expected,
        commit=commit,
        patches=fits(case, origin) if judged == "has it" else {},
    )


def fits(case: KernelCase, origin: source.KernelSource) -> dict[str, str]:
    """Of each patched variant why its patches, as they are, do not apply; empty where they do."""
    found = {}
    for name, variant in case.variants.items():
        if not variant.patches:
            continue
        try:
            with source.patched(origin, variant.patches):
                found[name] = ""
        except store.ToolError as error:
            found[name] = str(error).partition("; ")[0]
    return found


def _check_names(vmlinux: Path, version: str, wanted: Iterable[Expectation]) -> None:
    """Raise Gone unless a kernel has what the metrics' filters name: it would count as nothing."""
    with Image(vmlinux) as image:
        for kind, name in {found for each in wanted for found in _NAMES.findall(each.metric)}:
            try:
                if kind in ("symbol", "inline"):
                    image.symbol(name)
                else:
                    struct, _, member = name.partition(".")
                    image.type(struct, "d_alloc").field(member)
            except UsageError as error:
                raise Gone(f"Linux {version}: {error}") from error
