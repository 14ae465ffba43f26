# SPDX-License-Identifier: MIT
"""How long a case's workload waits in the guest's own time, by the kernel's configuration.

With one processor QEMU counts instructions for time (`-icount`), and an idle guest's clock jumps to
its next timer. With several, no lab kernel gets to its second one in that mode of QEMU 7.2: the
plugin keeps their time, as for `contended.kernel.clock`, and QEMU's timers and the guest's counter
follow it (`csrc/qemu/late.h`, `idle.h`). Either way sleep, ticks and grace periods are in one time
with the work, and the host makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from pathlib import Path
from typing import Any, Literal

from contended import child, records, stats
from contended import machine as host
from contended.errors import UsageError, check_range
from contended.kernel import (
    boot,
    build,
    c2c,
    clock,
    make,
    prices,
    qemu,
    run,
    source,
    times,
    variants,
)
from contended.kernel.make import Progress
from contended.kernel.variants import GuestRun, KernelCase, Variant
from contended.measure.results import number
from contended.profile import plugin
from contended.records import Record
from contended.show import lesson
from contended.show.table import Table, columns
from contended.simulate import machines
from contended.simulate.machines import MachineModel

SCHEMA = 1
#: The records of a case, and what `contended kernel waits` is told to make each anew.
RECORDS = {
    "waits": "--runs hz-100,hz-100-expedited,hz-250,hz-250-expedited,hz-1000,hz-1000-expedited,"
    "preempt,preempt-expedited --variants before,queue-rcu-work --boots 10",
    "waits-several": "--runs hz-100,hz-250,hz-1000,preempt --variants before,queue-rcu-work "
    "--cpus 2,4,16,64 --boots 3",
    "waits-look": "--runs hz-1000,look-1,look-9,busy --variants before --cpus 4 --boots 10",
    "waits-beside": "--runs hz-100,busy-100,others-100,both-100 --variants before --cpus 4 "
    "--boots 5",
    "waits-row": "--runs row-100,row-250,row-1000 --variants before --cpus 1,4 --boots 10",
    "waits-row-preempt": "--runs row-preempt,row-preempt-expedited --variants before --cpus 1,4 "
    "--boots 10",
    "waits-row-510": "--runs row-preempt,row-preempt-expedited --variants before --cpus 1,4 "
    "--boots 10 --source TARBALL-OF-5.10",
    "waits-row-saving": "--runs row-preempt,row-saving,row-preempt-1000,row-saving-1000 "
    "--variants before --cpus 1,4 --boots 10 --source TARBALL-OF-5.10",
    "waits-row-loops": "--runs loops,loops-saving,loops-1000,loops-saving-1000 "
    "--variants before --cpus 1 --boots 10 --source TARBALL-OF-5.10",
    "waits-command": "--runs command-100 --variants before,queue-rcu-work --cpus 4,8 --boots 10",
    "waits-command-rt": "--runs command-rt-100,command-rt-250,command-rt --variants before "
    "--cpus 4,8,16 --boots 10 --source TARBALL-OF-6.12",
    "waits-command-many": "--runs command-rt-100 --variants before --cpus 32,64 --boots 3 "
    "--source TARBALL-OF-6.12",
    "waits-rt": "--runs rt,rt-nocbs --variants before --cpus 1,4,16 --boots 10 "
    "--source TARBALL-OF-6.12",
}


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
    escaped: float = 0.0  # waits for lines that were given up, of those of the boot


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

    def ms(self, run: str, variant: str, label: str, cpus: int = 0) -> list[float]:
        """The mean waits of a run's boots, milliseconds; with so many CPUs if a number is given."""
        wanted = run, variant, label
        same = [each for each in self.results if (each.run, each.variant, each.label) == wanted]
        return [each.mean_ns / 1e6 for each in same if cpus in (0, each.cpus)]

    def table(self, caption: str, kinds: Sequence[tuple[str, str, str]]) -> Table:
        """A row for each run and number of CPUs, and a column for each kind.

        A kind is its head, a variant and a label. If all had as many CPUs, that is not told.
        """
        rows = []
        several = len({each.cpus for each in self.results}) > 1
        for name, cpus in dict.fromkeys((each.run, each.cpus) for each in self.results):
            cells = [f"{cpus}"] if several else []
            for _, variant, label in kinds:
                ms = self.ms(name, variant, label, cpus)
                ends = sorted({number(min(ms), 3), number(max(ms), 3)}, key=float) if ms else ["-"]
                cells.append(" to ".join(ends))
            rows.append((name, *cells))
        heads = [*(["CPUs"] if several else []), *(f"{head}, ms" for head, _, _ in kinds)]
        return Table(caption, ("run", *heads), rows)

    def __str__(self) -> str:
        rows = [["run", "HZ", "CPUs", "variant", "", "mean wait", "of boots"]]
        for (name, hz, cpus, variant, label), group in groupby(self.results, _of):
            seen = list(group)
            ms = [each.mean_ns / 1e6 for each in seen]
            mark = " !" if any(each.escaped > times.DOUBT for each in seen) else ""
            ends = f"{number(min(ms), 3)} to {number(max(ms), 3)} ms{mark}"
            middle = f"{number(stats.median(ms), 3)} ms"
            rows.append([name, f"{hz}", f"{cpus}", variant, label, middle, ends])
        head = f"{self.case}, in guest time\n"
        if any(each.escaped > times.DOUBT for each in self.results):
            head += f"! more than {times.DOUBT:.0%} of the waits for lines were given up\n"
        return head + columns(rows)


def recorded(slug: str, name: str = "waits") -> Waits:
    """A case's record of that name; raises ContendedError if it is missing or damaged."""
    path = lesson.reference(f"{slug}/{name}")
    told = " ".join(filter(None, (slug, RECORDS[name])))
    remedy = f"run contended kernel waits {told} --json results/{slug}/{name}.json"
    return records.load(Waits, path, "waits", SCHEMA, remedy, strict=False)


def _of(found: Waited) -> tuple[str, int, int, str, str]:
    return found.run, found.hz, found.cpus, found.variant, found.label


def counting(case: KernelCase, version: str) -> list[str]:
    """The runs of a case that count instructions, and that a version of Linux can have."""
    return [run.name for run in case.runs.values() if run.icount and make.has(version, run.config)]


def waits(
    slug: str,
    *,
    wanted: Sequence[str] | None = None,
    runs: Sequence[str] | None = None,
    boots: int = 1,
    cpus: Sequence[int] = (1,),
    machine: str = clock.MACHINE,
    source_path: Path | None = None,
    progress: Progress | None = None,
) -> Waits:
    """Boot variants of a case (before and after, or all) with its runs that count instructions.

    With several `cpus` they are the first of that machine, none of them kept apart from the others,
    and the process sleeps for what passes before each wait. Raises UsageError for what the case
    lacks, for more CPUs than the machine has, and for a run that counts no instructions or whose
    workload times no waits.
    """
    case = variants.load(slug)
    box = machines.get(machine)
    check_range("--boots", boots, 1, 100)
    for n in cpus:
        check_range("--cpus", n, 1, min(box.cpus, variants.MAX_VCPUS - 1))
    chosen, named = c2c.choose_variants(case, wanted), case.pick_runs(runs or ())
    for each in named:
        if not each.icount:
            raise UsageError(f"{slug}'s run {each.name!r} is without icount = true: no guest time")
    if alone := [each.name for each in named if each.config == "up" and max(cpus) > 1]:
        raise UsageError(f"{slug}'s run {alone[0]!r} is of a kernel for one CPU")
    if not any(each.icount for each in case.runs.values()):
        raise UsageError(f"{slug} has no run with icount = true")
    tree = source.find(source_path)
    asked = named or case.pick_runs(counting(case, tree.version))
    found: list[Waited] = []
    for how in asked:
        for variant in chosen:
            kernel = build.build(variant, how.config, tree, progress)
            for n, seed in product(sorted(set(cpus)), range(1, boots + 1)):
                if progress:
                    progress(f"{how.name} of {variant.name}, {n} CPUs", seed - 1, boots)
                found += waited(kernel, variant, how, seed, n, box)
    order = [(how.name, variant.name) for how in asked for variant in chosen]
    found.sort(key=lambda w: (order.index((w.run, w.variant)), w.cpus, w.label, w.seed))
    return Waits(
        case=slug,
        source=tree.version,
        qemu=qemu.version(),
        cpu=host.cpu_model(),
        commit=host.commit(),
        results=tuple(found),
    )


def waited(
    kernel: build.Kernel,
    variant: Variant,
    how: GuestRun,
    seed: int,
    cpus: int = 1,
    box: MachineModel | None = None,
) -> list[Waited]:
    """The waits of one boot: of one CPU, or of several of a machine."""
    asked, place = run.emulated(kernel, how, variant.cmdline), dict[str, Any]()
    if cpus == 1 or not box:
        report = boot.boot(asked)
    else:
        with child.scratch() as work:
            out = work / "profile.json"
            report = boot.boot(of_several(asked, cpus, box, seed, out))
            rows = [cpu for region in plugin.load(out).regions for cpu in region.cpus]
        moves = sum(row.clock.transfers + row.clock.fills for row in rows if row.clock)
        escaped = sum(row.escapes for row in rows) / max(moves, 1)
        place = {"machine": box.name, "cpus": cpus, "escaped": escaped}
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
            **place,
        )
        for result in report.results
    ]


def of_several(asked: qemu.Boot, cpus: int, box: MachineModel, seed: int, out: Path) -> qemu.Boot:
    """The same boot on several CPUs, whose time the plugin keeps."""
    library = plugin.build(plugin.find("system"))
    time = prices.settings(box, seed, first=0)
    quantum = round(1000 * clock.WINDOW_NS)
    return replace(
        asked,
        vcpus=cpus,
        # Who looks at his clock until it is time is much slower than who sleeps.
        args={**asked.args, **({"asleep": "1"} if "apart" in asked.args else {})},
        icount=False,
        guest_clock=True,
        plugin=plugin.option(library, out, quantum=quantum, time=time, guest=True),
        preload=c2c.preloaded(library, needed=True),
        deadline_s=clock.DEADLINE_S,
    )
