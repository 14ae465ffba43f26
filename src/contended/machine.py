# SPDX-License-Identifier: MIT
"""The machine that a number belongs to, read from the kernel and never guessed."""

import ctypes
import os
import platform
import re
import struct
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from contended.state import parse_cpu_list, says

CPU_DIR = Path("/sys/devices/system/cpu")
_GIVES = {
    "two CPUs or more": "contention: without it only counts and single-threaded costs can be shown",
    "SCHED_FIFO": "runs that no other task interrupts, so a smaller spread",
    "hardware counters": "cache misses and HITM from the processor itself (perf c2c)",
    "mount namespaces": "mounting without root and without touching the machine's own mounts",
    "KVM": "virtual machines at full speed; without it QEMU translates, which counts but is slow",
}


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache as a CPU sees it; sizes in bytes, `shared_by` are CPU numbers."""

    level: int
    kind: str
    size: int
    line: int
    shared_by: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cpu:
    """One CPU's place: which core, package and memory node it belongs to; -1 is unknown."""

    number: int
    core: int
    package: int
    node: int
    siblings: tuple[int, ...]
    caches: tuple[Cache, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """What the kernel says of this machine; `cpus` are those that this process may use."""

    model: str
    cpus: tuple[Cpu, ...]
    kernel: str
    governor: str | None
    virtualized: str | None


@dataclass(frozen=True, slots=True)
class Probe:
    """Something that a machine may or may not allow: whether it does, and what it is good for."""

    name: str
    there: bool
    detail: str
    gives: str


def allowed_cpus() -> list[int]:
    """The CPUs that this process may run on, ascending: a container's set may have gaps."""
    return sorted(os.sched_getaffinity(0))


def this_machine() -> Machine:
    """Read the machine's description now."""
    cpus = tuple(map(_cpu, allowed_cpus()))
    return Machine(cpu_model(), cpus, platform.release(), governor(), hypervisor())


def cpu_model() -> str:
    """The CPU's model name as the kernel prints it, or its architecture."""
    found = re.search(r"^(?:model name|Model)\s*:(.*)", says(Path("/proc/cpuinfo")), re.M)
    return found[1].strip() if found else platform.machine()


def governor() -> str | None:
    """The first CPU's frequency governor; None where the kernel does not control it."""
    return says(CPU_DIR / f"cpu{allowed_cpus()[0]}" / "cpufreq" / "scaling_governor") or None


def hypervisor() -> str | None:
    """The hypervisor's name as far as the guest can tell; None on bare metal."""
    if not re.search(r"^flags.*\bhypervisor\b", says(Path("/proc/cpuinfo")), re.M):
        return None
    name = says(Path("/sys/hypervisor/type")) or says(Path("/sys/class/dmi/id/sys_vendor"))
    return name or "a hypervisor"


def probes() -> tuple[Probe, ...]:
    """Try, harmlessly and in child processes, what later chapters would like to use."""
    cpus, counters = len(allowed_cpus()), hardware_counters()
    fifo = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    real_time = _said(sys.executable, "-c", fifo) is not None
    namespaces = _said("unshare", "--user", "--map-root-user", "--mount", "true") is not None
    kvm = os.access("/dev/kvm", os.R_OK | os.W_OK)
    works = {True: "works", False: "is refused"}
    tried = {
        "two CPUs or more": (cpus > 1, f"{cpus} allowed"),
        "SCHED_FIFO": (real_time, "real-time priority, tried in a child process"),
        "hardware counters": (counters, f"perf_event_open for CPU cycles {works[counters]}"),
        "mount namespaces": (namespaces, f"unshare --user --mount {works[namespaces]}"),
        "KVM": (kvm, "/dev/kvm can be opened" if kvm else "no /dev/kvm"),
    }
    return tuple(Probe(name, *seen, _GIVES[name]) for name, seen in tried.items())


def hardware_counters() -> bool:
    """Does perf_event_open(2) give us a cycle counter? `perf` itself may not be installed."""
    number = {"x86_64": 298, "aarch64": 241}.get(platform.machine())
    if number is None:
        return False
    # struct perf_event_attr: type PERF_TYPE_HARDWARE (0), size, config PERF_COUNT_HW_CPU_CYCLES
    # (0), and in the flags word exclude_kernel and exclude_hv, which the unprivileged must set.
    attr = struct.pack("=IIQQQQQ16x", 0, 64, 0, 0, 0, 0, 1 << 5 | 1 << 6)
    fd = ctypes.CDLL(None, use_errno=True).syscall(number, attr, 0, -1, -1, 0)
    if fd >= 0:
        os.close(fd)
    return bool(fd >= 0)


def _said(*command: str) -> str | None:
    """What a command prints; None if it fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def commit() -> str | None:
    """The repository's commit, with "+" for uncommitted changes; None outside a clone."""
    git = ("git", "-C", str(Path(__file__).resolve().parent))
    head = _said(*git, "rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    return head + ("+" if _said(*git, "status", "--porcelain", "--untracked-files=no") else "")


def load_1min() -> float:
    """The load average of the last minute: above 0 before a measurement means company."""
    return os.getloadavg()[0]


def now() -> str:
    """The time in UTC as ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _cpu(number: int) -> Cpu:
    place = CPU_DIR / f"cpu{number}"
    names = ("core_id", "physical_package_id")
    core, package = (_int(place / "topology" / name) for name in names)
    nodes = sorted(place.glob("node[0-9]*"))
    node = int(nodes[0].name.removeprefix("node")) if nodes else -1
    siblings = parse_cpu_list(says(place / "topology" / "thread_siblings_list")) or (number,)
    caches = tuple(map(_cache, sorted(place.glob("cache/index[0-9]*"))))
    return Cpu(number, core, package, node, siblings, caches)


def _cache(index: Path) -> Cache:
    level, line = _int(index / "level"), _int(index / "coherency_line_size")
    kind, size = says(index / "type") or "unknown", says(index / "size")
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1:], 1)
    shared_by = parse_cpu_list(says(index / "shared_cpu_list"))
    return Cache(level, kind, int(size.rstrip("KMG") or 0) * unit, line, shared_by)


def _int(file: Path) -> int:
    text = says(file)
    return int(text) if text.lstrip("-").isdigit() else -1
