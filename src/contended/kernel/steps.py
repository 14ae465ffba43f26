# SPDX-License-Identifier: MIT
"""One operation of a case's workload, step by step: which contended lines it comes to, in order.

The plugin keeps some operations of each CPU whole (`csrc/qemu/trace.h`). What most of them did
alike is the operation; the others have lost a race and tried again, or met somebody's lock. The
simulator's programs are made of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from contended import machine
from contended.errors import ContendedError
from contended.kernel import c2c, qemu, source, variants
from contended.kernel.make import Progress
from contended.profile import plugin
from contended.profile.coherence import Profile
from contended.simulate.recorded import Access, Kind, Operation, Operations

OPERATIONS = 24  # that are looked at, of each CPU
VCPUS = 4


def steps(
    slug: str,
    *,
    wanted: Sequence[str] | None = None,
    run: str | None = None,
    changed: Mapping[str, str] | None = None,
    source_path: Path | None = None,
    progress: Progress | None = None,
) -> Operations:
    """Trace operations of a case's variants, before and after or those `wanted`, on four CPUs.

    The run is the first with `profile = true` unless one is named; `changed` are parameters of its
    workload. Raises UsageError for what the case lacks, NoRegion if a workload did nothing, and
    ContendedError if no two operations did the same.
    """
    case = variants.load(slug)
    chosen, how = c2c.choose_variants(case, wanted), c2c.choose_run(case, run)
    how = replace(how, args={**how.args, **(changed or {})}, watch=())
    tree = source.find(source_path)
    seen = c2c.boots(chosen, how, tree, "trace", progress, vcpus=VCPUS, trace=OPERATIONS)
    found = tuple(usual(*each) for each in seen)
    return Operations(
        case=slug,
        run=how.name,
        args=dict(how.args),
        source=tree.version,
        qemu=qemu.version(),
        vcpus=VCPUS,
        commit=machine.commit(),
        operations=found,
    )


def usual(region: plugin.Region, profile: Profile) -> Operation:
    """What most of a region's traced operations did; raises ContendedError if each did its own."""
    named = {(line.address, site.offset, site.pc): site for line, site in profile.sites()}
    kinds: tuple[Kind, ...] = get_args(Kind)

    def access(step: plugin.Step) -> Access:
        row = region.sites[step.site]
        site = named[region.lines[row.line].address, row.offset, row.pc]
        thing = str(site.thing or "?")
        return Access(step.instructions, site.symbol, kinds[step.kind], row.line, row.offset, thing)

    shared = _shared(region)
    done = [
        (
            tuple(access(s) for s in each.steps if region.sites[s.site].line in shared),
            each.instructions,
        )
        for each in region.traces
    ]
    shapes = Counter(tuple(map(_shape, accesses)) for accesses, _ in done)
    if not done or (len(done) > 1 and max(shapes.values()) == 1):
        raise ContendedError(
            f"{profile.name}: no two of {len(done)} operations took the same steps: give the "
            "workload more operations, or leave the machine alone"
        )
    shape, times = shapes.most_common(1)[0]
    same = [each for each in done if tuple(map(_shape, each[0])) == shape]
    accesses, instructions = sorted(same, key=lambda each: each[1])[len(same) // 2]
    numbers = {line: n for n, line in enumerate(dict.fromkeys(a.line for a in accesses))}
    return Operation(
        profile.variant,
        profile.label,
        instructions,
        times / len(done),
        tuple(replace(each, line=numbers[each.line]) for each in accesses),
    )


def _shared(region: plugin.Region) -> set[int]:
    """The lines that operations of several CPUs write; all CPUs do the same."""
    writers: dict[int, set[int]] = defaultdict(set)
    for trace in region.traces:
        for step in trace.steps:
            if step.kind:
                writers[region.sites[step.site].line].add(trace.cpu)
    return {line for line, cpus in writers.items() if len(cpus) > 1}


def _shape(access: Access) -> tuple[str, str, str]:
    return access.function, access.kind, access.thing
