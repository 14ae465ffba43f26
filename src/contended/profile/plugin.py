# SPDX-License-Identifier: MIT
"""The QEMU plugin that counts: is there a QEMU for it, compile it, ask for it, read its report.

`csrc/qemu/coherence.c` is compiled for the version of the plugin interface that the QEMU at hand
speaks, and kept under a digest of all that went into it. The caller starts QEMU with the value that
`option` makes, and reads what the plugin wrote with `load`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from contended import cc, records, tree
from contended.errors import ContendedError, UsageError
from contended.profile.coherence import Count, Counts

ABI = 1  # of the report
Mode = Literal["system", "user"]

#: Versions of QEMU's plugin interface that csrc/qemu/plugin_api.h knows.
KNOWN_APIS = range(1, 7)
#: Instructions that one vCPU may be ahead of the others, where nothing else is asked for.
QUANTUM = 2000
LINE = 64
FLAGS = (
    *("-shared", "-fPIC", "-O2", "-std=c11", "-D_GNU_SOURCE", "-pthread"),
    *("-fvisibility=hidden", "-Wall", "-Wextra"),
)
PROBE_S = 20
MAX_WATCHES = 64


class NoPlugins(ContendedError):
    """There is no QEMU, or none that takes this plugin."""


class Qemu(NamedTuple):
    """A QEMU that can load plugins, up to version `api` of their interface."""

    path: Path
    version: str
    api: int


def sources() -> Path:
    """The folder of the plugin's C."""
    return tree.home() / "csrc" / "qemu"


@cache
def find(mode: Mode = "system") -> Qemu:
    """The QEMU on this machine, asked whether it takes plugins, and of which version.

    Raises NoPlugins if it is not installed, was built without plugins, or speaks a version of the
    plugin interface that is not known here.
    """
    system = "qemu-system-x86_64", "qemu-system-x86"
    program, package = system if mode == "system" else ("qemu-x86_64", "qemu-user")
    path = shutil.which(program)
    if path is None:
        raise NoPlugins(f"{program} is not installed: apt-get install {package}")
    return ask(Path(path), mode)


def ask(path: Path, mode: Mode) -> Qemu:
    """Ask a given QEMU, as `find` does."""
    version = re.search(r"version (\d[\w.]*)", _said(str(path), "--version"))
    if not version:
        raise NoPlugins(f"{path} does not say which version it is: is it QEMU?")
    qemu = f"{path.name} {version[1]}"
    # A plugin that asks for too new an interface is refused with the number of the newest.
    value = _escape(_compiled("probe"))
    rest = ["-M", "none", "-display", "none"] if mode == "system" else ["/bin/true"]
    said = _said(str(path), "-plugin", value, *rest)
    newest = re.search(r"supports only up to version (\d+)", said)
    if not newest:
        if mode == "user" and cc.is_static(path.read_bytes()):
            raise NoPlugins(
                f"{qemu} loads no plugins since it is linked statically, as Debian's is from 13 "
                "on: profile the kernel (contended c2c without --user), or build QEMU's user mode "
                "with --enable-plugins"
            )
        reason = (said.strip().splitlines() or ["it says nothing"])[-1]
        raise NoPlugins(
            f"{qemu} loads no plugins ({reason}): use Debian's, or build QEMU with --enable-plugins"
        )
    api = int(newest[1])
    if api not in KNOWN_APIS:
        raise NoPlugins(
            f"{qemu} has version {api} of the plugin interface; "
            f"csrc/qemu/plugin_api.h knows {KNOWN_APIS[0]} to {KNOWN_APIS[-1]}"
        )
    return Qemu(path, version[1], api)


def build(qemu: Qemu) -> Path:
    """The plugin for this QEMU, compiled unless it is in the cache."""
    return _compiled("coherence", f"-DCT_QEMU_API={qemu.api}")


def option(
    library: Path,
    out: Path,
    *,
    quantum: int = QUANTUM,
    watch: Sequence[int] = (),
    time: str = "",
    tick: int = 0,
    late: int = 1,
    guest: bool = False,
    trace: int = 0,
) -> str:
    """The value of QEMU's `-plugin` option, for a report that goes to `out`.

    A vCPU may be `quantum` instructions, or with `time` picoseconds, ahead of the slowest, 10 to
    10^9, or 0: any number; `watch` has the addresses of instructions whose executions are counted.
    Else it is a UsageError.

    With a machine's `time`, `tick` is where the timer's interrupt is entered, and timers are `late`
    times slower (of a QEMU that loaded the library first: `csrc/qemu/late.h`), or with `guest` the
    guest's timers and its counter are of that time. Of each vCPU so many operations are kept step
    by step, `trace`.
    """
    if quantum and not 10 <= quantum <= 10**9:
        raise UsageError(f"a quantum of {quantum}: give 10 to 1000000000, or 0 (off)")
    if len(watch) > MAX_WATCHES:
        raise UsageError(f"{len(watch)} watched addresses: at most {MAX_WATCHES}")
    parts = [_escape(library), f"out={_escape(out)}", f"quantum={quantum}", f"line={LINE}"]
    if time:
        parts += [f"time={time}", f"tick={tick:#x}", "clock=guest" if guest else f"late={late}"]
    if trace:
        parts.append(f"trace={trace}")
    if watch:
        parts.append("watch=" + "+".join(f"{pc:#x}" for pc in watch))
    return ",".join(parts)


def _escape(path: Path) -> str:
    # QEMU's options end at a comma, and two commas are one
    return str(path).replace(",", ",,")


def run(command: Sequence[str], deadline_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, without input; it is killed at the deadline."""
    no_input = subprocess.DEVNULL
    return subprocess.run(
        command, capture_output=True, errors="replace", stdin=no_input, timeout=deadline_s
    )


def _said(*command: str) -> str:
    try:
        done = run(command, PROBE_S)
    except subprocess.TimeoutExpired as error:
        raise NoPlugins(f"{command[0]} does not answer within {PROBE_S} s") from error
    except OSError as error:
        raise NoPlugins(f"{command[0]} cannot be run: {error.strerror}") from error
    return done.stdout + done.stderr


def _compiled(name: str, *flags: str) -> Path:
    """Compile a C file of `csrc/qemu` into the cache."""
    return cc.compiled(
        "kernel/plugin",
        f"{name}.so",
        [sources() / f"{name}.c"],
        (*FLAGS, *flags),
        headers=sources().glob("*.h"),
        what=f"csrc/qemu/{name}.c",
    )


# The report


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
class Clock:
    """A vCPU's time, in picoseconds from the region's begin, and what lines took of it."""

    done: tuple[Count, ...]  # when each of its operations was
    far: Count  # of its HITM, those from another socket
    stalled: Count  # until lines had come
    queued: Count  # of that, until they began to move
    transfers: Count  # lines that came, or whose copies elsewhere went
    fills: Count  # copies of shared lines
    late: Count  # lines not foreseen, after the first operation: accessed before they had come
    misled: Count  # lines waited for in error, which cost nothing
    ticks: Count  # instructions of timer ticks, after the first, which took none of its time


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
    clock: Clock | None = None  # where time is kept


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
    stalled: Count = 0  # picoseconds that it waited for the line, where time is kept
    far: Count = 0  # of its HITM, those from another socket, where time is kept


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


class Step(NamedTuple):
    """An access of one operation: `instructions` after it began, by one of the region's sites."""

    instructions: int
    site: int  # index into the region's sites
    kind: Literal[0, 1, 2]  # a load, a store, or an atomic read-modify-write


@dataclass(frozen=True, slots=True)
class Trace:
    """One operation, step by step, as far as its accesses are of sites."""

    cpu: Count
    instructions: Count  # in all
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """One marked region; it is not `complete` if QEMU ended before the region did."""

    complete: bool
    cpus: tuple[CpuRow, ...]
    lines: tuple[LineRow, ...]
    sites: tuple[SiteRow, ...]
    directory: Directory
    pcs: tuple[Watched, ...]
    traces: tuple[Trace, ...] = ()  # where they were asked for

    @property
    def ops(self) -> int:
        """Operations that all vCPUs have marked as done."""
        return sum(cpu.ops for cpu in self.cpus)

    @property
    def hitm(self) -> int:
        """Loads and stores that found their line modified in another cache."""
        return sum(cpu.hitm_loads.total + cpu.hitm_stores.total for cpu in self.cpus)

    def slowest(self, lines: int) -> Region:
        """With only so many of its lines, those that were waited for longest, and their sites."""
        waited = Counter[int]()
        for site in self.sites:
            waited[site.line] += site.stalled
        at = {line: number for number, (line, _) in enumerate(waited.most_common(lines))}
        sites = (replace(s, line=at[s.line]) for s in self.sites if s.line in at)
        lines_ = tuple(self.lines[line] for line in at)
        return replace(self, lines=lines_, sites=tuple(sites), traces=())


@dataclass(frozen=True, slots=True)
class PluginReport:
    """What the plugin wrote."""

    abi: Count  # the version of this format
    plugin_api: Count  # of QEMU's interface, which the plugin was compiled for
    target: str  # the architecture that was emulated
    mode: Mode
    vcpus: Count  # or the most threads that there were at a time
    line: Count  # bytes
    quantum: Count  # instructions, or picoseconds, that a vCPU may be ahead; 0: any number
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
    steps = (step for trace in region.traces for step in trace.steps)
    if not all(0 <= step.site < len(region.sites) and step.instructions >= 0 for step in steps):
        raise ValueError("a step is of no site")
