# SPDX-License-Identifier: MIT
"""What the plugin (`csrc/qemu/coherence.c`) wrote about a run: read, and checked to add up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from contended import records
from contended.errors import ContendedError
from contended.profile.coherence import Count, Counts

ABI = 1

Mode = Literal["system", "user"]


class BadReport(ContendedError):
    """The plugin's report is missing, damaged, or another version's."""


@dataclass(frozen=True, slots=True)
class Split:
    """A count of what user code and what kernel code did."""

    user: Count
    kernel: Count

    @property
    def total(self) -> int:
        """Both together."""
        return self.user + self.kernel


@dataclass(frozen=True, slots=True)
class CpuRow:
    """What one vCPU (in user mode: one thread) did in the region."""

    ops: Count  # that it marked as done
    instructions: Split  # each iteration of a string instruction is one
    loads: Split  # from memory, not from devices
    stores: Split  # an atomic read-modify-write is one
    hitm_loads: Split
    hitm_stores: Split
    invalidations: Split
    waits: Count  # for the slower ones
    escapes: Count  # from waiting, because nobody made progress


@dataclass(frozen=True, slots=True)
class LineRow(Counts):
    """A cache line that moved between caches, with all accesses to it in the region."""

    address: Count  # of its first byte: physical in system mode, virtual in user mode
    vaddr: Count  # a virtual address that it was seen at, the kernel's if there was one


@dataclass(frozen=True, slots=True)
class SiteRow(Counts):
    """One instruction at one offset of a line, where something happened to it.

    Its loads and stores are those to which something happened, and, once the line has seen 32
    events, all others; so they are at least the events, and on a contended line nearly all.
    """

    line: Count  # index into the region's lines
    offset: Count  # bytes from the line's first byte to the first byte accessed
    pc: Count
    kernel: bool


@dataclass(frozen=True, slots=True)
class Watched:
    """How often the instruction at an address was executed in the region."""

    pc: Count
    executions: Count


@dataclass(frozen=True, slots=True)
class Directory:
    """What the counting cost."""

    lines: Count  # touched
    line_bytes: Count  # for their states
    site_bytes: Count  # for what instructions did to shared lines
    fixed_bytes: Count  # address space of the table that finds a line


@dataclass(frozen=True, slots=True)
class Region:
    """One marked region; it is not `complete` if QEMU ended before the region did."""

    complete: bool
    cpus: tuple[CpuRow, ...]
    lines: tuple[LineRow, ...]
    sites: tuple[SiteRow, ...]
    directory: Directory
    pcs: tuple[Watched, ...]

    @property
    def ops(self) -> int:
        """Operations that all vCPUs have marked as done."""
        return sum(cpu.ops for cpu in self.cpus)

    @property
    def hitm(self) -> int:
        """Loads and stores that found their line modified in another cache."""
        return sum(cpu.hitm_loads.total + cpu.hitm_stores.total for cpu in self.cpus)


@dataclass(frozen=True, slots=True)
class PluginReport:
    """What the plugin wrote."""

    abi: Count  # the version of this format
    plugin_api: Count  # of QEMU's interface, which the plugin was compiled for
    target: str  # the architecture that was emulated
    mode: Mode
    vcpus: Count  # or the most threads that there were at a time
    line: Count  # bytes
    quantum: Count  # instructions that a vCPU may be ahead; 0: any number
    regions: tuple[Region, ...]  # in the order in which they ended


def load(path: Path) -> PluginReport:
    """Read and check the plugin's report, which must have a region, and all complete.

    Raises BadReport if it is missing (QEMU was killed, or never loaded the plugin), damaged,
    another version's, or of nothing measured; the message says which.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadReport(
            f"the profiler has left no report ({error.strerror}): QEMU was killed or did not start"
        ) from error
    report = parse(text)
    if not report.regions:
        raise BadReport(
            "the run has 0 marked regions instead of 1: "
            "the workload ended before it began to measure"
        )
    for number, region in enumerate(report.regions, 1):
        if not region.complete:
            raise BadReport(
                f"region {number} was not finished: the workload ended while it measured"
            )
    return report


def parse(text: bytes) -> PluginReport:
    """Make a report of its JSON; raises BadReport if that is damaged or another version's."""
    try:
        found = json.loads(text)
        abi = found.get("abi") if isinstance(found, dict) else None
        if abi != ABI:
            raise BadReport(f"the profiler's report is of version {abi}, not {ABI}: build it again")
        adapter = records.adapter(PluginReport)
        report: PluginReport = adapter.validate_json(text, strict=True, extra="forbid")
        for region in report.regions:
            _check(region)
    except ValueError as error:
        why = records.mistake(error) if isinstance(error, ValidationError) else error
        raise BadReport(f"the profiler's report is damaged: {why}") from error
    return report


def _check(region: Region) -> None:
    for name in ("hitm_loads", "hitm_stores", "invalidations"):
        total = sum(getattr(cpu, name).total for cpu in region.cpus)
        lines = sum(getattr(line, name) for line in region.lines)
        sites = sum(getattr(site, name) for site in region.sites)
        if not total == lines == sites:
            raise ValueError(f"{name}: {total} of all vCPUs, {lines} of lines, {sites} of sites")
    if any(site.line >= len(region.lines) for site in region.sites):
        raise ValueError("a site is of no line")
