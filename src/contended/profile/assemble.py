# SPDX-License-Identifier: MIT
"""Profiles of what the plugin counted: with names to its addresses, and what lies there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace

from contended.errors import ContendedError
from contended.profile import output
from contended.profile.coherence import Counts, Line, Mode, Profile, Provenance, Site
from contended.profile.thing import Thing
from contended.profile.units import Frame

# Asking the waiting guest what a line is, or the debug information where an instruction comes from,
# takes milliseconds. Thousands of lines are touched once or twice, as when processes start and end:
# these many of the worst are looked up, of the others' instructions only the function's name is.
RESOLVED_LINES = 400
RESOLVED_PCS = 400

_Frames = Callable[[Iterable[int]], Mapping[int, tuple[Frame, ...]]]
_EVENTS = fields(Counts)


class NoRegion(ContendedError):
    """The workload never reached its measured region, or did nothing in it."""


class WrongKernel(ContendedError):
    """The debug information is of another build than what ran."""


def check_build(build_id: str, booted: str) -> None:
    """Make sure that the debug information is of what ran.

    Args:
        build_id: Of the file with the debug information.
        booted: What the guest said of itself.

    Raises:
        WrongKernel: it is not.
    """
    if not booted:
        raise WrongKernel("the guest did not say which kernel it runs: no table is better than one")
    if build_id.lower() != booted.lower():
        raise WrongKernel(
            f"the guest runs build {booted[:12]}, the vmlinux is build {build_id[:12]}: "
            "names would be wrong; build the kernel again"
        )


def totals(cpus: Sequence[output.Cpu], kernel: bool) -> Mode:
    """What user or kernel code did on all CPUs."""
    side = "kernel" if kernel else "user"
    return Mode(
        instructions=sum(getattr(cpu.instructions, side) for cpu in cpus),
        counts=Counts(
            **{f.name: sum(getattr(getattr(cpu, f.name), side) for cpu in cpus) for f in _EVENTS}
        ),
    )


def assemble(
    region: output.Region,
    *,
    variant: str,
    label: str,
    size: int,
    provenance: Provenance,
    frames: _Frames,
    names: _Frames,
    resolve: Callable[[int, int], Thing] | None,
    watched: Mapping[int, str] | None = None,
) -> Profile:
    """Give names to what the plugin counted in a region.

    Args:
        region: One of the plugin's regions.
        variant: The variant's name.
        label: Which of the run's results it is.
        size: The result's size.
        provenance: How it came to be; `waits` and `escapes` are filled in here.
        frames: Symbolizes addresses, with inlined functions and lines.
        names: Symbolizes addresses quickly, by the function's name alone.
        resolve: Says what is at an address of the line table, given that and a virtual address;
            None if nobody can be asked.
        watched: The names of watched addresses.

    Raises:
        NoRegion: the region was not finished, or no operation was done in it.
    """
    if not region.complete:
        raise NoRegion(f"{variant}: the workload ended within its measured region: no table")
    if not region.ops:
        raise NoRegion(f"{variant}: no operation was marked in the measured region: no table")
    weight: dict[int, tuple[int, int]] = {}
    by_line: dict[int, list[output.Site]] = {}
    for site in region.sites:
        by_line.setdefault(site.line, []).append(site)
        hitm, more = weight.get(site.pc, (0, 0))
        weight[site.pc] = hitm + _counts(site).hitm, more + site.invalidations
    worst = sorted(weight, key=lambda pc: (weight[pc], -pc), reverse=True)
    known = {**frames(worst[:RESOLVED_PCS]), **names(worst[RESOLVED_PCS:])}
    rows = sorted(
        enumerate(region.lines),
        key=lambda row: (-_counts(row[1]).hitm, -row[1].invalidations, row[1].address),
    )
    lines = []
    for rank, (index, row) in enumerate(rows):
        ask = resolve if rank < RESOLVED_LINES else None
        sites = [_site(site, row, known, ask) for site in by_line.get(index, [])]
        sites.sort(key=lambda s: (-s.counts.hitm, -s.counts.invalidations, s.offset, s.pc))
        lines.append(Line(row.address, row.vaddr, _counts(row), tuple(sites)))
    return Profile(
        variant=variant,
        label=label,
        size=size,
        ops=region.ops,
        kernel=totals(region.cpus, True),
        user=totals(region.cpus, False),
        lines=tuple(lines),
        calls=_calls(region, watched or {}),
        provenance=replace(
            provenance,
            waits=sum(cpu.waits for cpu in region.cpus),
            escapes=sum(cpu.escapes for cpu in region.cpus),
        ),
    )


def _calls(region: output.Region, watched: Mapping[int, str]) -> dict[str, int]:
    """Executions by name: several addresses, such as all calls from f to g, may share one."""
    found = dict.fromkeys(watched.values(), 0)
    for row in region.pcs:
        if row.pc in watched:
            found[watched[row.pc]] += row.executions
    return found


def _site(
    site: output.Site,
    line: output.Line,
    known: Mapping[int, tuple[Frame, ...]],
    resolve: Callable[[int, int], Thing] | None,
) -> Site:
    thing = resolve(line.address + site.offset, line.vaddr + site.offset) if resolve else None
    frames = known.get(site.pc, ())
    return Site(site.offset, site.pc, site.kernel, _counts(site), frames, thing)


def _counts(row: output.Line | output.Site) -> Counts:
    return Counts(**{f.name: getattr(row, f.name) for f in _EVENTS})
