# SPDX-License-Identifier: MIT
"""The QEMU plugin that counts: is there a QEMU for it, compile it, ask for it, read its report.

`csrc/qemu/coherence.c` is compiled when it is used, for the version of the plugin interface that
the QEMU at hand speaks, and kept in the cache under a digest of all that went into it. The caller
starts QEMU (a kernel: `boot`; a program: `qemu-x86_64`) with the value that `option` makes, and
reads what the plugin wrote with `load`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

from contended import tree
from contended.cc import compiler
from contended.errors import ContendedError, UsageError
from contended.kernel import guest

ABI = 1
#: Versions of QEMU's plugin interface that csrc/qemu/plugin_api.h knows.
KNOWN_APIS = range(1, 7)
MAX_VCPUS = 128
#: Instructions that one vCPU may be ahead of the others, where nothing else is asked for.
QUANTUM = 2000
LINE = 64
FLAGS = (
    *("-shared", "-fPIC", "-O2", "-std=c11", "-D_GNU_SOURCE", "-pthread"),
    *("-fvisibility=hidden", "-Wall", "-Wextra"),
)
PROBE_S = 20
MAX_WATCHES = 64

Mode = Literal["system", "user"]
PROGRAMS: Mapping[Mode, tuple[str, str]] = {
    "system": ("qemu-system-x86_64", "qemu-system-x86"),
    "user": ("qemu-x86_64", "qemu-user"),
}


class NoPlugins(ContendedError):
    """There is no QEMU, or none that takes this plugin."""


class BadReport(ContendedError):
    """The plugin's report is missing, damaged, or another version's."""


@dataclass(frozen=True, slots=True)
class Qemu:
    """A QEMU that can load plugins.

    Attributes:
        path: The program.
        mode: Whether it runs kernels ("system") or programs ("user").
        version: As it says, e.g. "7.2.22".
        api: The newest version of the plugin interface that it speaks.
    """

    path: Path
    mode: Mode
    version: str
    api: int


@dataclass(frozen=True, slots=True)
class Split:
    """A count of what user code and what kernel code did."""

    user: int
    kernel: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.user + self.kernel


@dataclass(frozen=True, slots=True)
class Cpu:
    """What one vCPU (in user mode: one thread) did in the region.

    Attributes:
        ops: Operations that it marked as done.
        instructions: Executed; each iteration of a string instruction is one.
        loads: Loads from memory, not from devices.
        stores: Stores; an atomic read-modify-write is one store.
        hitm_loads: Loads that found the line modified in another cache.
        hitm_stores: Stores that did.
        invalidations: Stores that took unmodified copies away from other caches.
        waits: How often it waited for the slower ones.
        escapes: How often it went on because nobody made progress.
    """

    ops: int
    instructions: Split
    loads: Split
    stores: Split
    hitm_loads: Split
    hitm_stores: Split
    invalidations: Split
    waits: int
    escapes: int


@dataclass(frozen=True, slots=True)
class Line:
    """A cache line that moved between caches, with all accesses to it in the region.

    Attributes:
        address: Of its first byte: physical in system mode, virtual in user mode.
        vaddr: A virtual address that it was seen at, the kernel's if there was one.
    """

    address: int
    vaddr: int
    loads: int
    stores: int
    hitm_loads: int
    hitm_stores: int
    invalidations: int


@dataclass(frozen=True, slots=True)
class Site:
    """One instruction at one offset of a line, where something happened to it.

    Its loads and stores are those to which something happened, and, once the line has seen 32
    events, all others; so they are at least the events, and on a contended line nearly all.

    Attributes:
        line: Index into the region's lines.
        offset: Bytes from the line's first byte to the first byte accessed.
        pc: The instruction's virtual address.
        kernel: Whether that is in the kernel's half.
    """

    line: int
    offset: int
    pc: int
    kernel: bool
    loads: int
    stores: int
    hitm_loads: int
    hitm_stores: int
    invalidations: int


@dataclass(frozen=True, slots=True)
class Watched:
    """How often the instruction at an address was executed in the region."""

    pc: int
    executions: int


@dataclass(frozen=True, slots=True)
class Directory:
    """What the counting cost.

    Attributes:
        lines: Lines touched.
        line_bytes: Memory for their states.
        site_bytes: Memory for what instructions did to shared lines.
        fixed_bytes: Address space of the table that finds a line.
    """

    lines: int
    line_bytes: int
    site_bytes: int
    fixed_bytes: int


@dataclass(frozen=True, slots=True)
class Region:
    """One marked region; it is not `complete` if QEMU ended before the region did."""

    complete: bool
    cpus: tuple[Cpu, ...]
    lines: tuple[Line, ...]
    sites: tuple[Site, ...]
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
class Report:
    """What the plugin wrote.

    Attributes:
        api: The version of QEMU's plugin interface that the plugin was compiled for.
        mode: "system" or "user".
        vcpus: vCPUs, or the most threads that there were at a time.
        line: Bytes of a cache line.
        quantum: Instructions that a vCPU may be ahead; 0: any number.
        regions: In the order in which they ended.
        raw: The same as the JSON has it.
    """

    api: int
    mode: Mode
    vcpus: int
    line: int
    quantum: int
    regions: tuple[Region, ...]
    raw: Mapping[str, Any]


def sources() -> Path:
    """The folder of the plugin's C."""
    return tree.home() / "csrc" / "qemu"


@cache
def find(mode: Mode = "system") -> Qemu:
    """The QEMU on this machine, asked whether it takes plugins, and of which version.

    Raises:
        NoPlugins: it is not installed, was built without plugins, or speaks a version of the
            plugin interface that is not known here.
    """
    program, package = PROGRAMS[mode]
    path = shutil.which(program)
    if path is None:
        raise NoPlugins(f"{program} is not installed: apt-get install {package}")
    return ask(Path(path), mode)


def ask(path: Path, mode: Mode) -> Qemu:
    """Ask a given QEMU.

    Raises:
        NoPlugins: as for `find`.
    """
    said = _run([str(path), "--version"])
    version = re.search(r"version (\d[\w.]*)", said)
    if not version:
        raise NoPlugins(f"{path} does not say which version it is: is it QEMU?")
    # A plugin that asks for too new an interface is refused with the number of the newest.
    value = _escape(_compiled("probe.c", ()))
    rest = ["-M", "none", "-display", "none"] if mode == "system" else ["/bin/true"]
    said = _run([str(path), "-plugin", value, *rest])
    newest = re.search(r"supports only up to version (\d+)", said)
    if not newest:
        reason = (said.strip().splitlines() or ["it says nothing"])[-1]
        if mode == "user" and guest.is_static(path.read_bytes()):
            raise NoPlugins(
                f"{path.name} {version[1]} loads no plugins since it is linked statically, as "
                "Debian's is from 13 on: profile the kernel (contended c2c without --user), or "
                "build QEMU's user mode with --enable-plugins"
            )
        raise NoPlugins(
            f"{path.name} {version[1]} loads no plugins ({reason}): "
            "use Debian's, or build QEMU with --enable-plugins"
        )
    api = int(newest[1])
    if api not in KNOWN_APIS:
        raise NoPlugins(
            f"{path.name} {version[1]} has version {api} of the plugin interface; "
            f"csrc/qemu/plugin_api.h knows {KNOWN_APIS[0]} to {KNOWN_APIS[-1]}"
        )
    return Qemu(path, mode, version[1], api)


def build(qemu: Qemu) -> Path:
    """The plugin for this QEMU, compiled unless it is in the cache.

    Raises:
        ContendedError: no compiler, or an error in the C; its output is attached as a note.
    """
    return _compiled("coherence.c", (f"-DCT_QEMU_API={qemu.api}",))


def option(
    library: Path,
    out: Path,
    *,
    quantum: int = QUANTUM,
    line: int = LINE,
    watch: Sequence[int] = (),
    whole: bool = False,
) -> str:
    """The value of QEMU's `-plugin` option.

    Args:
        library: The plugin, from `build`.
        out: The file that the report goes to; a relative path is QEMU's to resolve.
        quantum: Instructions that a vCPU may be ahead of the slowest, 10 to 10^9; 0: any number.
        line: Bytes of a cache line, a power of two from 16 to 4096.
        watch: Addresses of instructions whose executions are counted.
        whole: Count the whole program instead of the marked region.

    Raises:
        UsageError: a value is out of range.
    """
    if quantum and not 10 <= quantum <= 10**9:
        raise UsageError(f"a quantum of {quantum} instructions: give 10 to 1000000000, or 0 (off)")
    if not 16 <= line <= 4096 or line & (line - 1):
        raise UsageError(f"lines of {line} bytes: give a power of two from 16 to 4096")
    if len(watch) > MAX_WATCHES:
        raise UsageError(f"{len(watch)} watched addresses: at most {MAX_WATCHES}")
    parts = [_escape(library), f"out={_escape(out)}", f"quantum={quantum}", f"line={line}"]
    if watch:
        parts.append("watch=" + "+".join(f"{pc:#x}" for pc in watch))
    if whole:
        parts.append("region=all")
    return ",".join(parts)


def load(path: Path, *, regions: int = 1) -> Report:
    """Read and check the plugin's report.

    Args:
        path: The file that `out` named.
        regions: How many regions there must be at least, all of them complete.

    Raises:
        BadReport: there is no report (QEMU was killed, or never loaded the plugin), it is damaged
            or another version's, or it lacks a region; the message says which.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise BadReport(
            f"the profiler has left no report ({error.strerror}): QEMU was killed or did not start"
        ) from error
    try:
        report = parse(json.loads(text))
    except ValueError as error:
        raise BadReport(f"the profiler's report is damaged: {error}") from error
    if len(report.regions) < regions:
        raise BadReport(
            f"the run has {len(report.regions)} marked regions instead of {regions}: "
            "the workload ended before it began to measure"
        )
    for number, region in enumerate(report.regions, 1):
        if regions and not region.complete:
            raise BadReport(
                f"region {number} was not finished: the workload ended while it measured"
            )
    return report


def parse(raw: Any) -> Report:
    """Make a report of its JSON.

    Raises:
        BadReport: it is another version's.
        ValueError: something is missing, unknown or of another type, or does not add up.
    """
    if not isinstance(raw, dict) or raw.get("abi") != ABI:
        found = raw.get("abi") if isinstance(raw, dict) else None
        raise BadReport(f"the profiler's report is of version {found}, not {ABI}: build it again")
    if raw.get("mode") not in PROGRAMS:
        raise ValueError(f"mode is {raw.get('mode')!r}")
    known = {"abi", "plugin_api", "target", "mode", "vcpus", "line", "quantum", "regions"}
    _only(raw, known, "the report")
    mode: Mode = raw["mode"]
    return Report(
        api=_count(raw["plugin_api"], "plugin_api"),
        mode=mode,
        vcpus=_count(raw["vcpus"], "vcpus"),
        line=_count(raw["line"], "line"),
        quantum=_count(raw["quantum"], "quantum"),
        regions=tuple(_region(r) for r in _list(raw["regions"], "regions")),
        raw=raw,
    )


def _region(raw: Any) -> Region:
    _only(raw, {f.name for f in fields(Region)}, "a region")
    if not isinstance(raw["complete"], bool):
        raise ValueError("complete is neither true nor false")
    region = Region(
        complete=raw["complete"],
        cpus=tuple(_record(Cpu, r) for r in _list(raw["cpus"], "cpus")),
        lines=tuple(_record(Line, r) for r in _list(raw["lines"], "lines")),
        sites=tuple(_record(Site, r) for r in _list(raw["sites"], "sites")),
        directory=_record(Directory, raw["directory"]),
        pcs=tuple(_record(Watched, r) for r in _list(raw["pcs"], "pcs")),
    )
    for name in ("hitm_loads", "hitm_stores", "invalidations"):
        total = sum(getattr(cpu, name).total for cpu in region.cpus)
        lines = sum(getattr(line, name) for line in region.lines)
        sites = sum(getattr(site, name) for site in region.sites)
        if not total == lines == sites:
            raise ValueError(f"{name}: {total} of all vCPUs, {lines} of lines, {sites} of sites")
    if any(site.line >= len(region.lines) for site in region.sites):
        raise ValueError("a site is of no line")
    return region


def _record(kind: type[Any], raw: Any) -> Any:
    names = [f.name for f in fields(kind)]
    _only(raw, set(names), f"a {kind.__name__.lower()}")
    values: dict[str, Any] = {}
    for f in fields(kind):
        value = raw[f.name]
        if f.type == "Split":
            values[f.name] = _record(Split, value)
        elif f.type == "bool":
            if not isinstance(value, bool):
                raise ValueError(f"{f.name} is {value!r}")
            values[f.name] = value
        else:
            values[f.name] = _count(value, f.name)
    return kind(**values)


def _only(raw: Any, names: set[str], what: str) -> None:
    if not isinstance(raw, dict):
        raise ValueError(f"{what} is no object")
    if raw.keys() != names:
        odd = ", ".join(sorted(raw.keys() ^ names))
        raise ValueError(f"{what} lacks, or has too many: {odd}")


def _list(raw: Any, name: str) -> list[Any]:
    if not isinstance(raw, list):
        raise ValueError(f"{name} is no list")
    return raw


def _count(raw: Any, name: str) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or raw < 0:
        raise ValueError(f"{name} is {raw!r}")
    return raw


def _escape(path: Path) -> str:
    # QEMU's options end at a comma, and two commas are one
    return str(path).replace(",", ",,")


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PROBE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoPlugins(f"{command[0]} does not answer within {PROBE_S} s") from error
    except OSError as error:
        raise NoPlugins(f"{command[0]} cannot be run: {error.strerror}") from error
    return done.stdout


def _compiled(name: str, extra: tuple[str, ...]) -> Path:
    """Compile a C file of `csrc/qemu` into the cache."""
    cc = compiler()
    flags = (*FLAGS, *extra)
    digest = hashlib.sha256(repr((cc, flags, name)).encode())
    try:
        for part in sorted((*sources().glob("*.h"), sources() / name)):
            digest.update(part.name.encode() + b"\0" + part.read_bytes() + b"\0")
    except OSError as error:
        raise ContendedError(f"cannot read {error.filename}: {error.strerror}") from error
    library = tree.cache_dir() / "kernel" / "plugin" / digest.hexdigest()[:32] / f"{name[:-2]}.so"
    if library.exists():
        return library
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        work = tempfile.TemporaryDirectory(dir=library.parent)
    except OSError as error:
        raise ContendedError(
            f"cannot write the compiled plugin to {tree.cache_dir()} ({error.strerror}): "
            "set CONTENDED_CACHE to a folder that you can write"
        ) from error
    with work:
        made = Path(work.name) / library.name
        command = [cc.command, *cc.arguments, *flags, "-o", str(made), str(sources() / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.splitlines()
            line = next((x for x in lines if "error:" in x), "the compiler failed")
            failure = ContendedError(f"csrc/qemu/{name} does not compile: {line.strip()}")
            failure.add_note(done.stderr.rstrip())
            raise failure
        made.replace(library)
    return library
