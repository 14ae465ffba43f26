# SPDX-License-Identifier: MIT
"""How long a case's workload waits in the guest's own time, by the kernel's configuration.

QEMU counts instructions for time (`-icount`), and an idle guest's clock jumps to its next timer. So
sleep, ticks and grace periods are in one time with the work, whatever the host does meanwhile. The
machine has one processor: with more, no lab kernel gets to its second one in that mode of QEMU 7.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from contended import machine, records, stats
from contended.errors import UsageError, check_range
from contended.kernel import boot, build, c2c, make, qemu, run, source, variants
from contended.kernel.make import Progress
from contended.kernel.variants import GuestRun, KernelCase, Variant
from contended.measure.results import number
from contended.profile import moved
from contended.records import Record
from contended.show import lesson
from contended.show.table import Table, columns

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """The waits of one kind in one boot, nanoseconds."""

    variant: str
    run: str
    config: str
    hz: int
    label: str  # which of the workload's results this is
    seed: int  # the boot's number; chance in it is the guest's own
    mean_ns: int
    p50_ns: int
    max_ns: int
    ops: int
    build_id: str
    machine: str = "one CPU"
    cpus: int = 1
    clock: Literal["guest"] = "guest"  # what keeps time
    escaped: float = 0.0  # nothing is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits(Record):
    """What `waits` found, by run, variant, kind and boot; and with what."""

    case: str
    source: str  # the version of Linux
    qemu: str
    cpu: str
    commit: str | None
    results: tuple[Waited, ...]
    schema: int = SCHEMA

    def ms(self, run: str, variant: str, label: str) -> list[float]:
        """The mean waits of a run's boots, milliseconds."""
        wanted = run, variant, label
        same = [each for each in self.results if (each.run, each.variant, each.label) == wanted]
        return [each.mean_ns / 1e6 for each in same]

    def table(self, caption: str, kinds: Sequence[tuple[str, str, str]]) -> Table:
        """A row for each run, and a column for each kind: its head, a variant and a label."""
        rows = []
        for name in dict.fromkeys(each.run for each in self.results):
            cells = []
            for _, variant, label in kinds:
                ms = self.ms(name, variant, label)
                ends = sorted({number(min(ms), 3), number(max(ms), 3)}, key=float) if ms else ["-"]
                cells.append(" to ".join(ends))
            rows.append((name, *cells))
        return Table(caption, ("run", *(f"{head}, ms" for head, _, _ in kinds)), rows)

    def __str__(self) -> str:
        rows = [["run", "HZ", "variant", "", "mean wait", "of boots"]]
        for (name, hz, variant, label), group in groupby(self.results, _of):
            ms = [each.mean_ns / 1e6 for each in group]
            ends = f"{number(min(ms), 3)} to {number(max(ms), 3)} ms"
            rows.append([name, f"{hz}", variant, label, f"{number(stats.median(ms), 3)} ms", ends])
        return f"{self.case}, in guest time on one CPU\n{columns(rows)}"


def recorded(slug: str, name: str = "waits") -> Waits:
    """A case's record of that name; raises ContendedError if it is missing or damaged."""
    path = lesson.reference(f"{slug}/{name}")
    remedy = f"run contended kernel waits {slug} --json results/{slug}/{name}.json"
    return records.load(Waits, path, "waits", SCHEMA, remedy, strict=False)


def _of(found: Waited) -> tuple[str, int, str, str]:
    return found.run, found.hz, found.variant, found.label


def counting(case: KernelCase, version: str) -> list[str]:
    """The runs of a case that count instructions, and that a version of Linux can have."""
    return [
        run.name
        for run in case.runs.values()
        if run.icount and moved.key(variants.SINCE.get(run.config, "")) <= moved.key(version)
    ]


def waits(
    slug: str,
    *,
    wanted: Sequence[str] | None = None,
    runs: Sequence[str] | None = None,
    boots: int = 1,
    source_path: Path | None = None,
    progress: Progress | None = None,
) -> Waits:
    """Boot variants of a case (before and after, or all) with its runs that count instructions.

    Raises UsageError for what the case lacks, and for a run that counts no instructions or whose
    workload times no waits.
    """
    case = variants.load(slug)
    tree = source.find(source_path)
    check_range("--boots", boots, 1, 100)
    chosen, asked = (
        c2c.choose_variants(case, wanted),
        case.pick_runs(runs or counting(case, tree.version)),
    )
    if not asked:
        raise UsageError(f"{slug} has no run with icount = true")
    for each in asked:
        if not each.icount:
            raise UsageError(f"{slug}'s run {each.name!r} is without icount = true: no guest time")
    found: list[Waited] = []
    for how in asked:
        for variant in chosen:
            kernel = build.build(variant, how.config, tree, progress)
            for seed in range(1, boots + 1):
                if progress:
                    progress(f"{how.name} of {variant.name}", seed - 1, boots)
                found += _waited(kernel, variant, how, seed)
    order = [(how.name, variant.name) for how in asked for variant in chosen]
    found.sort(key=lambda w: (order.index((w.run, w.variant)), w.label, w.seed))
    return Waits(
        case=slug,
        source=tree.version,
        qemu=qemu.version(),
        cpu=machine.cpu_model(),
        commit=machine.commit(),
        results=tuple(found),
    )


def _waited(kernel: build.Kernel, variant: Variant, how: GuestRun, seed: int) -> list[Waited]:
    report = boot.boot(
        qemu.Boot(
            kernel=kernel,
            vcpus=how.vcpus,
            args=how.told(),
            cmdline=" ".join(filter(None, (variant.cmdline, how.cmdline))),
            accel="tcg",
            icount=True,
            deadline_s=run.DEADLINE_S[how.config],
        )
    )
    if any("latency_ns" not in result for result in report.results):
        raise UsageError(
            f"{variant.slug}'s run {how.name!r}: workload {how.workload} times no wait"
        )
    return [
        Waited(
            variant=variant.name,
            run=how.name,
            config=how.config,
            hz=make.hz(how.config, kernel.version),
            label=result["label"],
            seed=seed,
            mean_ns=result["latency_ns"]["mean"],
            p50_ns=result["latency_ns"]["p50"],
            max_ns=result["latency_ns"]["max"],
            ops=result["ops"],
            build_id=kernel.build_id,
        )
        for result in report.results
    ]
