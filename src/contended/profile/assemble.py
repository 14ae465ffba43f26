# SPDX-License-Identifier: MIT
"""Profiles of what the plugin counted: with names to its addresses, and what lies there."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType

from contended.errors import ContendedError
from contended.profile import plugin
from contended.profile.coherence import CacheLine, Counts, Origin, Profile, Side, Site, Thing
from contended.profile.dwarf import Image
from contended.profile.entries import Frame
from contended.records import write_whole

# Asking the waiting guest what a line is, or the debug information where an instruction comes from,
# takes milliseconds. Thousands of lines are touched once or twice, as when processes start and end:
# these many of the worst are looked up, of the others' instructions only the function's name is.
RESOLVED_LINES = 400
RESOLVED_PCS = 400
_SCHEMA = 3  # of kept frames: raised whenever `Frame` or the way they are found changes

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
    region: plugin.Region,
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
    has the names of watched addresses. The waits and escapes of the provenance are filled in here.
    Raises NoRegion if the region was not finished, or no operation was done in it.
    """
    if not region.complete:
        raise NoRegion(f"{variant}: the workload ended within its measured region: no table")
    if not region.ops:
        raise NoRegion(f"{variant}: no operation was marked in the measured region: no table")
    by_line: dict[int, list[plugin.SiteRow]] = defaultdict(list)
    hitm: Counter[int] = Counter()
    taken: Counter[int] = Counter()
    for site in region.sites:
        by_line[site.line].append(site)
        hitm[site.pc] += site.hitm
        taken[site.pc] += site.invalidations
    known = frames(sorted(hitm, key=lambda pc: (-hitm[pc], -taken[pc], pc)))
    rows = enumerate(region.lines)
    lines: list[CacheLine] = []
    for index, line in sorted(rows, key=lambda row: (*_rank(row[1]), row[1].address)):
        ask = resolve if len(lines) < RESOLVED_LINES else None
        sites = []
        for site in sorted(by_line[index], key=lambda s: (*_rank(s), s.offset, s.pc)):
            at = site.offset
            thing = ask(line.address + at, line.vaddr + at) if ask else None
            frames_there = known.get(site.pc, ())
            sites.append(Site(at, site.pc, site.kernel, _counts(site), frames_there, thing))
        lines.append(CacheLine(line.address, line.vaddr, _counts(line), tuple(sites)))
    # several addresses, such as all calls from f to g, may share a name
    calls = dict.fromkeys(watched.values(), 0)
    for row in region.pcs:
        if row.pc in watched:
            calls[watched[row.pc]] += row.executions
    waits, escapes = (sum(getattr(c, n) for c in region.cpus) for n in ("waits", "escapes"))
    provenance = replace(provenance, waits=waits, escapes=escapes)
    sides = _side(region, "kernel"), _side(region, "user")
    return Profile(variant, label, size, region.ops, *sides, tuple(lines), calls, provenance)


def _side(region: plugin.Region, side: str) -> Side:
    instructions, *counts = (
        sum(getattr(getattr(cpu, name), side) for cpu in region.cpus)
        for name in ("instructions", *_EVENTS)
    )
    return Side(instructions, Counts(*counts))


def _rank(counts: Counts) -> tuple[int, int]:
    """Sorts the worst first."""
    return -counts.hitm, -counts.invalidations


def _counts(row: Counts) -> Counts:
    """The counts alone of a row that has more to it."""
    return Counts(*(getattr(row, name) for name in _EVENTS))


def frames(
    image: Image, pcs: Sequence[int], cache: Path | None = None
) -> dict[int, tuple[Frame, ...]]:
    """The frames of addresses, of which those that come first matter most.

    They are kept by build id in the folder `cache`, if there is one. A folder that cannot be
    written, or a damaged file in it, only costs time.
    """
    file = cache / f"{image.build_id}.json" if cache else None
    known = _remembered(file) if file else {}
    wanted = sorted(set(pcs[:RESOLVED_PCS]))
    fresh = {pc: image.frames(pc) for pc in wanted if pc not in known}
    known |= fresh
    if file and fresh:
        rows = {
            f"{pc:x}": [[f.function, f.file, f.line] for f in frames]
            for pc, frames in sorted(known.items())
        }
        with suppress(OSError, ContendedError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps({"schema": _SCHEMA, "frames": rows}))
    names = {pc: (Frame(image.name_at(pc), "", 0),) for pc in pcs[RESOLVED_PCS:]}
    return names | {pc: known[pc] for pc in wanted}


def _remembered(file: Path) -> dict[int, tuple[Frame, ...]]:
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        data = json.loads(file.read_bytes())
        if data["schema"] == _SCHEMA:
            return {
                int(pc, 16): tuple(Frame(str(a), str(b), int(c)) for a, b, c in frames)
                for pc, frames in data["frames"].items()
            }
    return {}
