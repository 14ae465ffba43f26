# SPDX-License-Identifier: MIT
"""The machine's own state, which may spoil a measurement: clock, neighbours, quotas, other load.

Standard library only, and no syntax newer than Python 3.8: the doctor says it, too. Each function
takes the texts or the tree that it judges; `checks` reads those of this machine.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")
SAMPLE_S = 0.1
# Shares of the allowed CPUs' time that others may have before a measurement suffers.
STOLEN, BUSY = 0.01, 0.1


@dataclass(frozen=True)
class Check:
    """One finding: nothing works if what is `required` is not `ok`, and `packages` may bring it."""

    name: str
    ok: bool
    required: bool
    detail: str
    packages: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Name and detail."""
        return f"{self.name}: {self.detail}"


class Ticks(NamedTuple):
    """Time of some CPUs since boot, in the kernel's ticks: all of it, at work, and stolen."""

    total: int
    busy: int
    stolen: int


def checks(root: Path = ROOT, cpus: list[int] | None = None) -> tuple[Check, ...]:
    """What there is to say before a measurement on these CPUs; takes a tenth of a second."""
    places = sorted(os.sched_getaffinity(0)) if cpus is None else cpus
    before = ticks(says(root / "proc/stat"), places)
    time.sleep(SAMPLE_S)
    load = (before, ticks(says(root / "proc/stat"), places))
    first = (governor(root, places), boost(root), smt(root, places), quota(root, len(places)))
    return (*first, steal(*load), others(*load))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """CPU numbers out of the kernel's list format: "0-2,5" is 0, 1, 2, 5."""
    ranges = (part.partition("-") for part in text.split(",") if part.strip())
    return tuple(n for a, _, b in ranges for n in range(int(a), int(b or a) + 1))


def _check(name: str, trouble: str, fine: str) -> Check:
    return Check(name, not trouble, False, trouble or fine)


def governor(root: Path, cpus: list[int]) -> Check:
    """A clock that follows the load is low when a measurement begins."""
    system = root / "sys/devices/system/cpu"
    found = {says(system / f"cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus} - {""}
    names = ", ".join(sorted(found))
    trouble = f"{names}: the clock follows the load (cpupower frequency-set -g performance)"
    settled = found <= {"performance"}
    return _check("governor", "" if settled else trouble, names or "none that this system sees")


def boost(root: Path) -> Check:
    """With boost one busy CPU has a higher clock than many have."""
    system = root / "sys/devices/system/cpu"
    on = says(system / "cpufreq/boost") == "1" or says(system / "intel_pstate/no_turbo") == "0"
    known = on or says(system / "cpufreq/boost") or says(system / "intel_pstate/no_turbo")
    trouble = "on: one busy CPU has a higher clock than many: compare at one number of threads"
    return _check("boost", trouble if on else "", "off" if known else "not to be seen")


def smt(root: Path, cpus: list[int]) -> Check:
    """Threads on two siblings share one core's units."""
    place = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    lists = [parse_cpu_list(says(root / place.format(cpu))) for cpu in cpus]
    groups = {frozenset(numbers) & frozenset(cpus) for numbers in lists}
    shared = sorted(sorted(group) for group in groups if len(group) > 1)
    names = "; ".join(" and ".join(map(str, group)) for group in shared[:4])
    names += f"; {len(shared)} cores in all" if len(shared) > 4 else ""
    trouble = f"CPUs {names} share a core: two threads there get less than two CPUs"
    return _check("SMT", trouble if shared else "", "no two of the allowed CPUs share a core")


def quota(root: Path, cpus: int) -> Check:
    """A cgroup's quota stops threads in the middle of a run, its own or that of one above it."""
    limits = []
    for files in _groups(root, says(root / "proc/self/cgroup")):
        texts = [says(file).split() for file in files]
        words = [word for text in texts for word in text]
        # v2: "max 100000" in one file; v1: quota and period in two, -1 for none
        if len(words) == 2 and words[0].isdigit() and int(words[1]) > 0:
            limits.append((int(words[0]) / int(words[1]), files[0]))
    if not limits:
        return _check("CPU quota", "", "none")
    lowest, file = min(limits)
    said = f"{lowest:.3g} of {cpus} CPUs ({file})"
    return _check(
        "CPU quota", f"{said}: threads are stopped in mid-run" if lowest < cpus else "", said
    )


def _groups(root: Path, text: str) -> list[tuple[Path, ...]]:
    """The quota's files of a process's cgroups and of all above them, v1 and v2."""
    base = root / "sys/fs/cgroup"
    found: list[tuple[Path, ...]] = []
    files: tuple[str, ...]
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            tops, files = [base, base / "unified"], ("cpu.max",)
        elif "cpu" in names.split(","):
            tops, files = [base / names, base / "cpu"], ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        else:
            continue
        for top in tops:
            # In a container the path may be the host's, of which only the top is there.
            parts = [part for part in path.split("/") if part not in ("", "..")]
            places = [top.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]
            found += [tuple(place / file for file in files) for place in places]
    return found


def ticks(text: str, cpus: list[int]) -> Ticks:
    """The time of these CPUs in the form of /proc/stat; zeros if it is not there."""
    wanted = {f"cpu{cpu}" for cpu in cpus}
    total = idle = stolen = 0
    for line in text.splitlines():
        name, *rest = line.split() or [""]
        if name in wanted:
            # user, nice, system, idle, iowait, irq, softirq, steal; guests are in the first two
            numbers = [*map(int, rest[:8]), *[0] * 8][:8]
            total, stolen = total + sum(numbers), stolen + numbers[7]
            idle += numbers[3] + numbers[4]
    return Ticks(total, total - idle - stolen, stolen)


def now() -> Ticks:
    """The time of the CPUs that this process may use."""
    return ticks(says(ROOT / "proc/stat"), sorted(os.sched_getaffinity(0)))


def steal(before: Ticks, after: Ticks, when: str = "just now") -> Check:
    """What the hypervisor gave to others."""
    share = _share(after.stolen - before.stolen, before, after)
    said = f"the hypervisor took {share:.0%} of the CPUs' time {when}"
    return _check("steal", said if share > STOLEN else "", said)


def others(before: Ticks, after: Ticks) -> Check:
    """What ran while we did nothing."""
    share = _share(after.busy - before.busy, before, after)
    said = f"{share:.0%} of the allowed CPUs' time"
    return _check("other load", f"{said} goes to others" if share > BUSY else "", said)


def _share(part: int, before: Ticks, after: Ticks) -> float:
    whole = after.total - before.total
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0


def says(file: Path) -> str:
    """What the kernel says in a file, without the line's end; nothing if it has no such file."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
