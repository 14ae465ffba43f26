# SPDX-License-Identifier: MIT
"""Boot a case's kernels under the profiler, and say which lines they fight for.

While a guest waits at the end of its workload, its memory is asked what the contended lines are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from contended import child
from contended.errors import UsageError
from contended.kernel import boot, build, qemu, source, store, variants, vm
from contended.kernel.make import Progress
from contended.kernel.source import KernelSource
from contended.kernel.variants import GuestRun, KernelCase, Variant
from contended.profile import assemble, plugin
from contended.profile import query as metrics
from contended.profile.assemble import NoRegion
from contended.profile.coherence import Origin, Profile
from contended.profile.dwarf import Image
from contended.profile.lines import Resolver
from contended.profile.memory import Monitor
from contended.profile.moved import key
from contended.profile.saved import Profiles

VCPUS = 4
DEADLINE_S = 240.0
TICK = "asm_sysvec_apic_timer_interrupt"
FAIR_SERVER = 6, 12  #: From this release on a CPU's ordinary processes have a deadline server.
CMDLINE = "slab_nomerge"  # caches of one size keep their own names
LATE = 20  #: How many times slower timers are, for each vCPU, while a machine's time is kept.
FEW = 16  #: vCPUs, or fewer, whose timers are as late as of so many.
TIMED = "max_loop=0"  # each loop device that is there from the start waits for grace periods


def profile(
    slug: str,
    wanted: Sequence[str] | None = None,
    *,
    run: str | None = None,
    settings: Mapping[str, str] | None = None,
    vcpus: int = 0,
    quantum: int = 0,
    source_path: Path | None = None,
    progress: Progress | None = None,
) -> Profiles:
    """Profile variants of a case: before and after, or all if it lacks these, or those `wanted`.

    The run is the first with `profile = true` unless one is named; `settings` are parameters of its
    workload, over its own. `vcpus` and `quantum`, the instructions that a CPU may be ahead of the
    slowest, are the run's own, or 4 and 2000, where they are 0. Raises UsageError for what the case
    lacks, NoRegion if a workload did nothing in its measured region.
    """
    case = variants.load(slug)
    chosen = choose_variants(case, wanted)
    how = choose_run(case, run)
    how = replace(how, args={**how.args, **(settings or {})})
    tree = source.find(source_path)
    seen = boots(chosen, how, tree, "profile", progress, vcpus=vcpus, quantum=quantum)
    return Profiles(
        case=slug, run=how.name, mode="system", profiles=tuple(profile for _, profile in seen)
    )


def boots(
    chosen: Sequence[Variant],
    run: GuestRun,
    tree: KernelSource,
    doing: str,
    progress: Progress | None = None,
    **how: Any,
) -> Iterator[tuple[plugin.Region, Profile]]:
    """Each variant's regions, its kernel built if need be; `how` is as `profile_kernel` takes it.

    `doing` is what progress says of it.
    """
    for at, variant in enumerate(chosen):
        kernel = build.build(variant, run.config, tree, progress)
        if progress:
            progress(f"{doing} {variant.name}", at, len(chosen))
        yield from profile_kernel(kernel, variant, run, **how)


def profile_kernel(
    kernel: build.Kernel,
    variant: Variant,
    run: GuestRun,
    *,
    vcpus: int = 0,
    quantum: int = 0,
    time: str = "",
    lines: int = 0,
    trace: int = 0,
    guest: bool = False,
    deadline_s: float = DEADLINE_S,
) -> list[tuple[plugin.Region, Profile]]:
    """Boot one kernel under the profiler: what was counted for each result of the workload.

    `time` has the plugin keep a machine's time, see `contended.kernel.clock`; with it, `lines` are
    those that are named, the ones waited for longest, and with `guest` the guest's timers are of
    that time, too. Of each CPU so many operations are kept step by step, `trace`.
    """
    if vcpus > run.workers:
        raise UsageError(f"{vcpus} vCPUs: a kernel of {run.config} has at most {run.workers}")
    emulator = plugin.find("system")
    library = plugin.build(emulator)
    vcpus = vcpus or run.vcpus or VCPUS
    quantum = quantum or run.quantum or plugin.QUANTUM
    with Image(kernel.vmlinux) as image, child.scratch() as work:
        watched = watched_addresses(image, run.watch)
        out = work / "profile.json"
        tick = image.symbol(TICK).address if time and not guest else 0
        served = bool(time) and not guest and key(kernel.version) >= FAIR_SERVER
        # One more for the kernel's chores: its timer ticks come as the host's clock says, and would
        # make the worker on that CPU slower, and the counts vary with the host's load.
        spare = vcpus > 1 and not guest
        option = partial(plugin.option, quantum=quantum, watch=sorted(watched), trace=trace)
        description = qemu.Boot(
            kernel=kernel,
            vcpus=vcpus + spare,
            args={
                **run.told(),
                **({"spare": "1"} if spare else {}),
                **({"fifo": "1"} if served else {}),
            },
            cmdline=" ".join(filter(None, (CMDLINE, time and TIMED, variant.cmdline, run.cmdline))),
            # A tickless CPU's system calls take hundreds of instructions more than another's, to
            # tell RCU of each, and it hands its callbacks to another; and the deadline servers'
            # timers would all be in one CPU's queue.
            tickless=not time and not trace,
            accel="tcg",
            deadline_s=deadline_s,
            guest_clock=guest,
            plugin=option(
                library,
                out,
                time=time,
                tick=tick,
                late=max(1, LATE * max(vcpus, FEW)),
                guest=guest,
            ),
            preload=preloaded(library, needed=guest) if time else None,
            hold=True,
        )
        provenance = Origin(
            qemu=f"QEMU {emulator.version}",
            kernel=f"Linux {kernel.version}",
            build_id=image.build_id,
            vcpus=vcpus,
            quantum=quantum,
            line=plugin.LINE,
            workload=" ".join([run.workload, *(f"{k}={v}" for k, v in run.args.items())]),
        )

        def once(description: qemu.Boot) -> tuple[list[tuple[plugin.Region, Profile]], str]:
            out.unlink(missing_ok=True)  # of a boot before
            results: list[dict[str, Any]] = []
            found: list[tuple[plugin.Region, Profile]] | None = None
            with vm.VirtualMachine(description) as machine:
                for line in machine.lines():
                    if line["type"] == "hello":
                        assemble.check_build(image.build_id, str(line.get("build_id", "")))
                    elif line["type"] == "error":
                        what = line.get("what", "?")
                        raise vm.GuestError(f"the guest says: {what}", machine.console)
                    elif line["type"] == "result":
                        results.append(line)
                    elif line["type"] == "hold":
                        resolver = Resolver(
                            image, Monitor(machine.qmp), description.vcpus, kernel.version
                        )
                        resolver.check()
                        found = name_regions(
                            out, results, image, resolver, variant.name, provenance, watched, lines
                        )
                        machine.send(b"\n")
            if found is None:
                raise NoRegion(
                    f"{variant.name}: the guest ended before it could be looked at: no table"
                )
            return found, machine.console

        return boot.with_timers(description, once)


def preloaded(library: Path, *, needed: bool) -> Path | None:
    """The plugin as what QEMU loads before all others: None if LD_PRELOAD takes it for several.

    Then there are only more ticks; but where it is needed, that is a UsageError.
    """
    if not re.search(r"[ :]", str(library)):
        return library
    if needed:
        raise UsageError(
            f"LD_PRELOAD takes {library} for several files: let the cache (XDG_CACHE_HOME) be "
            "where no name has a blank or a colon"
        )
    return None


def name_regions(
    out: Path,
    results: Sequence[Mapping[str, Any]],
    image: Image,
    resolver: Resolver | None,
    variant: str,
    provenance: Origin,
    watched: Mapping[int, str],
    lines: int = 0,
) -> list[tuple[plugin.Region, Profile]]:
    """A profiler's regions and their profiles; raises NoRegion unless each result has one."""
    labels = [str(result.get("label", "")) for result in results]
    if not out.exists():
        raise NoRegion(f"{variant}: the workload never finished a measured region: no table")
    report = plugin.load(out)
    if len(report.regions) != len(results):
        raise NoRegion(
            f"{variant}: {len(report.regions)} measured regions for {len(results)} results of "
            f"the workload {provenance.workload!r}: no telling which is which"
        )
    regions = [region.slowest(lines) if lines else region for region in report.regions]
    named = [
        assemble.assemble(
            region,
            variant=variant,
            # As in the lab's metrics: with the size where there are several of a label.
            label=f"{label}@{result.get('size')}" if labels.count(label) > 1 else label,
            size=int(result.get("size") or 0),
            provenance=provenance,
            frames=partial(assemble.frames, image, cache=store.cache() / "symbols"),
            resolve=resolver.at if resolver else None,
            watched=watched,
        )
        for region, result, label in zip(regions, results, labels, strict=True)
    ]
    return list(zip(regions, named, strict=True))


def watched_addresses(image: Image, wanted: Sequence[str]) -> dict[int, str]:
    """The addresses of functions ("f"), calls in them ("f>g"), slow paths ("slow(lockref)")."""
    found: dict[int, str] = {}
    for text in wanted:
        pairs = [text.partition(">")[::2]]
        if text.startswith("slow(") and text.endswith(")"):
            if text[5:-1] not in metrics.SLOW:
                raise UsageError(f"no slow path {text!r}; there are: {', '.join(metrics.SLOW)}")
            pairs = [pair for pair in metrics.watch(text[5:-1]) if image.has(pair[0])]
        for function, callee in pairs:
            if not callee:
                found[image.symbol(function).address] = function
                continue
            calls = image.calls(function, callee)
            if not calls:
                what = f"{function} does not call {callee} in this kernel"
                raise UsageError(f"watch {text!r}: {what}")
            found |= dict.fromkeys(calls, f"{function}>{callee}")
    return found


def choose_variants(case: KernelCase, wanted: Sequence[str] | None) -> list[Variant]:
    """The variants of these names, or before and after, or all; raises UsageError as `pick`."""
    usual = [name for name in ("before", "after") if name in case.variants]
    return case.pick(wanted or usual or case.variants)


def choose_run(case: KernelCase, name: str | None = None) -> GuestRun:
    """The run of that name, or the first to be profiled, or the first that can be.

    Raises UsageError for one whose kernels do not say where their structs lie.
    """
    if name is not None:
        run = case.pick_runs([name])[0]
        if run.config not in variants.WITH_DWARF:
            raise UsageError(
                f"{case.slug}'s run {name!r} is of kernels of config {run.config!r}, which have no "
                "debug information: name another run"
            )
        return run
    runs = [run for run in case.runs.values() if not run.icount]
    if not runs:
        raise UsageError(f"{case.slug} has no run that can be profiled")
    return next((run for run in runs if run.profile), runs[0])
