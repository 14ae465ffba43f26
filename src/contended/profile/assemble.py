# SPDX-License-Identifier: MIT
"""Profiles of what the plugin counted: with names to its addresses, and what lies there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType

from contended.errors import ContendedError
from contended.profile import output
from contended.profile.coherence import CacheLine, Counts, Origin, Profile, Side, Site, Thing
from contended.profile.units import Frame

# Asking the waiting guest what a line is takes milliseconds, and thousands are touched once or
# twice, as when processes start and end: these many of the worst are looked up.
RESOLVED_LINES = 400

_EVENTS = [field.name for field in fields(Counts)]


class NoRegion(ContendedError):
    """The workload never reached its measured region, or did nothing in it."""


class WrongKernel(ContendedError):
    """The debug information is of another build than what ran."""


def check_build(build_id: str, booted: str) -> None:
    """Raise WrongKernel if the debug information is not of what the guest says it has booted."""
    if not booted:
        raise WrongKernel("the guest did not say which kernel it runs: no table is better than one")
    if build_id.lower() != booted.lower():
        raise WrongKernel(
            f"the guest runs build {booted[:12]}, the vmlinux is build {build_id[:12]}: "
            "names would be wrong; build the kernel again"
        )


def assemble(
    region: output.Region,
    *,
    variant: str,
    label: str,
    size: int = 0,
    provenance: Origin,
    frames: Callable[[Sequence[int]], Mapping[int, tuple[Frame, ...]]],
    resolve: Callable[[int, int], Thing] | None,
    watched: Mapping[int, str] = MappingProxyType({}),
) -> Profile:
    """Give names to what the plugin counted in a region, which is one of a run's results.

    `frames` symbolizes addresses, given the worst first; `resolve` says what is at an address of
    the line table, given that and a virtual address, and is None if nobody can be asked; `watched`
    has the names of watched addresses. `waits` and `escapes` of the provenance are filled in here.
    Raises NoRegion if the region was not finished, or no operation was done in it.
    """
    if not region.complete:
        raise NoRegion(f"{variant}: the workload ended within its measured region: no table")
    if not region.ops:
        raise NoRegion(f"{variant}: no operation was marked in the measured region: no table")
    weight: dict[int, tuple[int, int]] = {}
    by_line: dict[int, list[output.SiteRow]] = {}
    for site in region.sites:
        by_line.setdefault(site.line, []).append(site)
        hitm, more = weight.get(site.pc, (0, 0))
        weight[site.pc] = hitm + site.hitm, more + site.invalidations
    known = frames(sorted(weight, key=lambda pc: (weight[pc], -pc), reverse=True))
    rows = sorted(
        enumerate(region.lines),
        key=lambda row: (-row[1].hitm, -row[1].invalidations, row[1].address),
    )
    lines = []
    for rank, (index, line) in enumerate(rows):
        ask = resolve if rank < RESOLVED_LINES else None
        sites = [
            Site(
                *(site.offset, site.pc, site.kernel, _counts(site), known.get(site.pc, ())),
                thing=ask(line.address + site.offset, line.vaddr + site.offset) if ask else None,
            )
            for site in by_line.get(index, [])
        ]
        sites.sort(key=lambda s: (-s.counts.hitm, -s.counts.invalidations, s.offset, s.pc))
        lines.append(CacheLine(line.address, line.vaddr, _counts(line), tuple(sites)))
    # several addresses, such as all calls from f to g, may share a name
    calls = dict.fromkeys(watched.values(), 0)
    for row in region.pcs:
        if row.pc in watched:
            calls[watched[row.pc]] += row.executions
    return Profile(
        variant=variant,
        label=label,
        size=size,
        ops=region.ops,
        kernel=_side(region, "kernel"),
        user=_side(region, "user"),
        lines=tuple(lines),
        calls=calls,
        provenance=replace(
            provenance,
            waits=sum(cpu.waits for cpu in region.cpus),
            escapes=sum(cpu.escapes for cpu in region.cpus),
        ),
    )


def _side(region: output.Region, side: str) -> Side:
    instructions, *counts = (
        sum(getattr(getattr(cpu, name), side) for cpu in region.cpus)
        for name in ("instructions", *_EVENTS)
    )
    return Side(instructions, Counts(*counts))


def _counts(row: Counts) -> Counts:
    """The counts alone of a row that has more to it."""
    return Counts(*(getattr(row, name) for name in _EVENTS))
