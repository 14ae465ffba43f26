# SPDX-License-Identifier: MIT
"""Boot a case's kernels under the profiler, and say which lines they fight for.

For each variant: build the kernel, boot it with the plugin, let the guest run its workload, and,
while it waits at the end, ask its memory what the contended lines are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from contended import tree
from contended.errors import UsageError
from contended.kernel import build, qemu, source, variants, vm
from contended.kernel.make import Progress
from contended.kernel.variants import Case, Run, Variant
from contended.profile import assemble, plugin
from contended.profile import query as metrics
from contended.profile.assemble import NoRegion
from contended.profile.coherence import Origin, Profile
from contended.profile.dwarf import Image
from contended.profile.lines import Monitor, Resolver
from contended.profile.saved import Profiles

VCPUS = 4
DEADLINE_S = 240.0
# Caches of one size keep their own names.
CMDLINE = "slab_nomerge"


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
    """Profile variants of a case.

    Args:
        slug: The case.
        wanted: Names of variants; default: "before" and "after", or all if it lacks these.
        run: Which of its runs; default: the first with `profile = true`, else the first.
        settings: Parameters of the workload, over the run's own.
        vcpus: 0: the run's own number, or 4.
        quantum: Instructions that a CPU may be ahead of the slowest; 0: the run's own, or 2000.
        source_path: The kernel's source if it is not Debian's package.
        progress: Called with what is being done, how much of it is done, and of how much.

    Raises:
        UsageError: no such case, variant or run.
        NoRegion: a workload did nothing in its measured region.
        plugin.BadReport: it ended before it was measured.
        plugin.NoPlugins: there is no QEMU that takes plugins.
        WrongKernel: a vmlinux is not of the kernel that was booted.
        ContendedError: no QEMU, no source, a build that fails, a guest that panics.
    """
    case = variants.load(slug)
    chosen = choose_variants(case, wanted)
    how = choose_run(case, run)
    how = replace(how, args={**how.args, **(settings or {})})
    tree = source.find(source_path)
    found: list[Profile] = []
    for number, variant in enumerate(chosen):
        kernel = build.build(variant, how.config, tree, progress)
        if progress:
            progress(f"profile {variant.name}", number, len(chosen))
        found += profile_kernel(kernel, variant, how, vcpus=vcpus, quantum=quantum)
    return Profiles(case=slug, run=how.name, mode="system", profiles=tuple(found))


def profile_kernel(
    kernel: build.Kernel, variant: Variant, run: Run, *, vcpus: int = 0, quantum: int = 0
) -> list[Profile]:
    """Boot one kernel under the profiler; a profile for each result of the workload.

    Raises:
        ContendedError: as in `profile`.
    """
    if vcpus >= plugin.MAX_VCPUS:
        raise UsageError(f"{vcpus} vCPUs: the profiler knows at most {plugin.MAX_VCPUS - 1}")
    emulator = plugin.find("system")
    library = plugin.build(emulator)
    vcpus = vcpus or run.vcpus or VCPUS
    quantum = quantum or run.quantum or plugin.QUANTUM
    with Image(kernel.vmlinux) as image, tempfile.TemporaryDirectory(prefix="contended-") as work:
        watched = watched_addresses(image, run.watch)
        out = Path(work) / "profile.json"
        machine = qemu.Boot(
            kernel=kernel,
            # One more for the kernel's chores: its timer ticks come as the host's clock says, and
            # would make the worker on that CPU slower, and the counts vary with the host's load.
            vcpus=vcpus + 1 if vcpus > 1 else 1,
            args={
                "run": run.workload,
                **{k: str(v) for k, v in run.args.items()},
                **({"spare": "1"} if vcpus > 1 else {}),
            },
            cmdline=" ".join(filter(None, (CMDLINE, variant.cmdline, run.cmdline))),
            accel="tcg",
            deadline_s=DEADLINE_S,
            plugin=plugin.option(library, out, quantum=quantum, watch=sorted(watched)),
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
        return _listen(machine, image, out, variant.name, provenance, watched)


def _listen(
    description: qemu.Boot,
    image: Image,
    out: Path,
    variant: str,
    provenance: Origin,
    watched: Mapping[int, str],
) -> list[Profile]:
    results: list[dict[str, Any]] = []
    found: list[Profile] | None = None
    with vm.Machine(description) as machine:
        for line in machine.lines():
            if line["type"] == "hello":
                assemble.check_build(image.build_id, str(line.get("build_id", "")))
            elif line["type"] == "error":
                raise vm.GuestError(f"the guest says: {line.get('what', '?')}", machine.console)
            elif line["type"] == "result":
                results.append(line)
            elif line["type"] == "hold":
                resolver = Resolver(image, Monitor(machine.qmp), description.vcpus)
                found = name_regions(out, results, image, resolver, variant, provenance, watched)
                machine.send(b"\n")
    if found is None:
        raise NoRegion(f"{variant}: the guest ended before it could be looked at: no table")
    return found


def name_regions(
    out: Path,
    results: Sequence[Mapping[str, Any]],
    image: Image,
    resolver: Resolver | None,
    variant: str,
    provenance: Origin,
    watched: Mapping[int, str],
) -> list[Profile]:
    """The regions of a profiler's output as profiles, one for each of the guest's results.

    Raises:
        NoRegion: there are none, or not as many as there are results.
        plugin.BadReport: the output is damaged or another version's.
    """
    if not out.exists():
        raise NoRegion(f"{variant}: the workload never finished a measured region: no table")
    report = plugin.load(out)
    if len(report.regions) != len(results):
        raise NoRegion(
            f"{variant}: {len(report.regions)} measured regions for {len(results)} results of "
            f"the workload {provenance.workload!r}: no telling which is which"
        )
    return [
        assemble.assemble(
            region,
            variant=variant,
            label=_label(result, results),
            size=int(result.get("size") or 0),
            provenance=provenance,
            frames=partial(assemble.frames, image, cache=tree.cache_dir() / "kernel" / "symbols"),
            resolve=resolver.at if resolver else None,
            watched=watched,
        )
        for region, result in zip(report.regions, results, strict=True)
    ]


def _label(result: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """As in the lab's metrics: the label, with the size where there are several of it."""
    label, size = str(result.get("label", "")), result.get("size")
    same = [r for r in results if str(r.get("label", "")) == label]
    return f"{label}@{size}" if len(same) > 1 else label


def watched_addresses(image: Image, wanted: Sequence[str]) -> dict[int, str]:
    """The addresses of functions ("f"), calls in them ("f>g") and slow paths ("slow(lockref)").

    A slow path's functions that the kernel does not have are left out.

    Raises:
        UsageError: a function that it does not have, or a call that a function does not make.
    """
    found: dict[int, str] = {}
    for text in wanted:
        if text.startswith("slow(") and text.endswith(")"):
            if text[5:-1] not in metrics.SLOW:
                raise UsageError(f"no slow path {text!r}; there are: {', '.join(metrics.SLOW)}")
            for function, callee in metrics.watch(text[5:-1]):
                if image.has(function):
                    found |= _addresses(image, function, callee, text)
        else:
            function, _, callee = text.partition(">")
            found |= _addresses(image, function, callee, text)
    return found


def _addresses(image: Image, function: str, callee: str, text: str) -> dict[int, str]:
    if not callee:
        return {image.symbol(function).address: function}
    calls = image.calls(function, callee)
    if not calls:
        raise UsageError(f"watch {text!r}: {function} does not call {callee} in this kernel")
    return dict.fromkeys(calls, f"{function}>{callee}")


def choose_variants(case: Case, wanted: Sequence[str] | None) -> list[Variant]:
    """The variants of these names, or before and after, or all.

    Raises:
        UsageError: there is none of that name.
    """
    usual = [name for name in ("before", "after") if name in case.variants]
    return case.pick(wanted or usual or case.variants)


def choose_run(case: Case, name: str | None = None) -> Run:
    """The run of that name, or the first to be profiled, or the first that can be.

    Raises:
        UsageError: there is none.
    """
    if name is not None:
        return case.pick_runs([name])[0]
    runs = [run for run in case.runs.values() if not run.icount]
    meant = [run for run in runs if run.profile]
    if runs:
        return (meant or runs)[0]
    raise UsageError(f"{case.slug} has no run that can be profiled")
