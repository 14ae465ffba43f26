# SPDX-License-Identifier: MIT
"""Today's kernel: live controls that mount, in a namespace of their own, and leave nothing behind.

The models show the bugs; these functions ask the kernel that runs right now whether it still has
them: in a child process, in a mount namespace of its own (in a user namespace where that is
allowed, so that it needs no root and has no power outside), on a tmpfs there. Nothing has to be
cleaned up, not even after SIGKILL: the namespace ends with its last process, the child with us.

Python makes the system calls. What that costs on top, about a microsecond, is the same on both
sides of every comparison, but it is *in* the figures: quote ratios and growth.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from contended import child, machine
from contended.errors import ContendedError, UsageError, check_range
from contended.measure import TooFewCpus, results
from contended.measure.measurement import ATTEMPTS
from contended.measure.results import Measurement, Sample
from contended.measure.runner import RunFailed

MAX_MOUNTS = 20_000
# struct mount, its per-CPU counters, a dentry and an inode to mount on: generous.
BYTES_PER_MOUNT = 4096
DEADLINE_S = 60.0
# The most that each of these may take, for callers with less time; `RunFailed` if it is not enough.
LIMIT_S: ContextVar[float] = ContextVar("LIMIT_S", default=math.inf)
Request = Mapping[str, Any]
_OVERLAYS, _ROOTS = ("access-overlay", "access-own-overlay"), ("open-one-root", "open-own-root")
_WALKS = ("walk-beside", "walk-held")
_CALLS = ("open-creat", "stat-own", "stat-same", "getppid", *_OVERLAYS, *_ROOTS, *_WALKS)


class NotAllowed(ContendedError):
    """The kernel, or what confines this process, does not allow a private mount namespace."""


def mountinfo(
    counts: Sequence[int] = (500, 1000, 2000, 4000),
    *,
    repeats: int = 7,
    reads: int = 3,
    buffer: int = 65536,
) -> Measurement:
    """The microseconds to read /proc/self/mountinfo end to end against the number of mounts.

    There is a namespace and a phase ("500") for each count, from 1 to `mount_limit()`, and the
    repeats take turns among them. A sample is the median of `reads` of the whole file, by calls
    that ask for `buffer` bytes; the kernel gives about a page at most. Counters: "ops" (whole
    reads), "mounts" (lines in the file, times ops; the machine's own mounts are among them),
    "reads" (read() calls, with the last, empty one), "bytes".

    Raises UsageError before anything is mounted, NotAllowed if the kernel refuses; so do the rest.
    """
    counts = _checked(counts)
    check_range("reads", reads, 1, 1000)
    check_range("buffer", buffer, 1, 1 << 20)
    params, more = {"reads": reads, "buffer": buffer}, {"counts": counts, "repeats": repeats}
    return _measured("mountinfo", "read_us", "µs for the whole file", params, more)


def ends(count: int = 4000, *, repeats: int = 7, buffer: int = 128) -> Measurement:
    """The microseconds of one read of /proc/self/mountinfo, near its beginning and near its end.

    There are `count` mounts, and reads ask for `buffer` bytes, about a mount each. A sample of
    "first" is the median of the reads in the file's first quarter, one of "last" of those in its
    last, of one pass. Counters: "ops" (the reads in the quarter) and "reads" (all of the pass).
    """
    _checked([count])
    check_range("buffer", buffer, 1, 1024)
    more = {"count": count, "repeats": repeats}
    return _measured("ends", "read_us", "µs per read", {"buffer": buffer}, more)


def umount_latency(*, repeats: int = 7, calls: int = 5) -> Measurement:
    """What umount and umount -l (MNT_DETACH) of an idle tmpfs cost.

    The two ("umount" and "umount-l") take turns, in turned order in every other repeat. A sample is
    the median of `calls` system calls in microseconds, with percentiles in `Sample.latency_ns`.
    Counters: "ops", and "slept", those in which the caller gave up its CPU to wait.
    """
    check_range("calls", calls, 1, 1000)
    params, more = {"calls": calls}, {"repeats": repeats}
    return _measured("umount", "umount_us", "µs per system call", params, more)


def bind_cost(
    counts: Sequence[int] = (250, 500, 1000, 2000), *, repeats: int = 3, window: int = 50
) -> Measurement:
    """What the next bind mount costs when there are that many already, shared and private.

    "shared" is the recipe of the 2014 report: a directory bound onto itself and made shared, and
    one file in it bound onto others, so that every new mount joins the peer group. "private" is
    the same without sharing. Each repeat has a fresh namespace, each count, up to `mount_limit()`,
    a phase: the median, in microseconds per mount(2), of the last `window` mounts up to it.
    Counters: "ops" (mounts timed), "mounts" (made so far), and from Linux 6.8 on "allocated": how
    many the kernel made for those timed, with all that it threw away and all that others made.
    """
    check_range("window", window, 1, 1000)
    counts = _checked(counts, window)
    params, more = {"window": window}, {"counts": counts, "repeats": repeats}
    return _measured("bind", "mount_us", "µs per mount", params, more)


def crossing(
    counts: Sequence[int] = (250, 4000), *, repeats: int = 7, targets: int = 64, passes: int = 20
) -> Measurement:
    """The nanoseconds of stat(2) of a file behind a mount, against the number of mounts.

    Each repeat has a fresh namespace for each count, a phase. A sample is the median of `passes`
    over files behind `targets` of the mounts, which is at most the lowest count. Counters: "ops"
    (files looked up) and "mounts".
    """
    check_range("targets", targets, 1, 1000)
    check_range("passes", passes, 1, 1000)
    counts = _checked(counts, targets)
    params = {"targets": targets, "passes": passes}
    more = {"counts": counts, "repeats": repeats}
    return _measured("crossing", "stat_ns", "ns per stat", params, more)


def degrade(*, repeats: int = 5, slices: int = 3, slice_ms: float = 30.0) -> Measurement:
    """Stat of one file by all CPUs, before, while and after one more process lists its directory.

    The three ("calm", "listed", "after") are parts of one run, of so many slices each, in which the
    processes never pause. `Sample.threads` is the number of processes that stat: one on each CPU.
    """
    if len(cpus := machine.allowed_cpus()) < 2:
        raise TooFewCpus(f"two processes need as many CPUs; this one may use {cpus}")
    check_range("slices", slices, 1, 64)
    check_range("slice_ms", slice_ms, 1, 1000)
    params = {"slices": 3 * slices, "slice_us": round(slice_ms * 1e3)}
    more = {"threads": [len(cpus)], "cpus": cpus, "repeats": repeats}
    planned_s = repeats * 3 * slices * slice_ms / 1e3
    return _measured("degrade", "ops_per_s", "operations/s", params, more, planned_s)


def calls(
    kinds: Sequence[str],
    threads: Sequence[int] = (1, 2),
    *,
    repeats: int = 7,
    slices: int = 3,
    slice_ms: float = 30.0,
) -> Measurement:
    """System calls per second from pinned *processes*, one to a CPU, all together.

    Processes and not threads: threads share a table of open files and an interpreter lock, and
    both would be measured instead. `Sample.threads` is the number of processes; TooFewCpus is
    raised if they are more than the CPUs. A sample is the median of the slices. The kinds take
    turns: "open-creat" (open with O_CREAT and close of a file that is there, on a tmpfs for each
    process), "open-one-root" and "open-own-root" (the same with one root directory for all, and
    with one for each), "stat-own" (a file on that tmpfs), "stat-same" (one file for all),
    "access-overlay" (an own file on one overlayfs), "access-own-overlay" (on an own one),
    "walk-held" and "walk-beside" (only the first process counts, which walks through a directory
    while the others take references on it, or each on one of its own) and "getppid" (nothing is
    shared).
    """
    if not kinds or len(set(kinds)) != len(kinds) or not set(kinds) <= set(_CALLS):
        raise UsageError(f"kinds is {list(kinds)}: choose different ones of {', '.join(_CALLS)}")
    cpus = machine.allowed_cpus()
    if not threads or len(set(threads)) != len(threads) or min(threads) < 1:
        raise UsageError(f"threads is {list(threads)}: choose different numbers from 1 up")
    if max(threads) > len(cpus):
        raise TooFewCpus(f"{max(threads)} processes need as many CPUs; this one may use {cpus}")
    check_range("slices", slices, 1, 64)
    check_range("slice_ms", slice_ms, 1, 1000)
    params = {"slices": slices, "slice_us": round(slice_ms * 1e3)}
    more = {"kinds": list(kinds), "threads": sorted(threads), "cpus": cpus, "repeats": repeats}
    planned_s = ATTEMPTS * len(kinds) * len(threads) * repeats * slices * slice_ms / 1e3
    return _measured("calls", "ops_per_s", "operations/s", params, more, planned_s)


opens = partial(calls, ("open-creat",))  # absolute paths: all walks start at the same root
stat_files = partial(calls, ("stat-own", "stat-same"))
overlay_access = partial(calls, ("access-overlay",))
overlays, roots, walks = (
    partial(calls, kinds) for kinds in (_OVERLAYS[::-1], _ROOTS[::-1], _WALKS)
)


def refusal() -> str:
    """Why none of these can be had here; empty if they can."""
    try:
        umount_latency(repeats=1, calls=1)
    except NotAllowed as refused:
        return str(refused)
    return ""


def mount_limit() -> int:
    """How many mounts one of these measurements may make on this machine: memory and sysctl."""
    limit = MAX_MOUNTS
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            limit = min(limit, int(line.split()[1]) * 1024 // 4 // BYTES_PER_MOUNT)
    for line in _lines("/proc/sys/fs/mount-max"):
        limit = min(limit, int(line) - len(_lines("/proc/self/mountinfo")) - 8)
    return limit


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []


def _checked(counts: Sequence[int], low: int = 1) -> list[int]:
    high = mount_limit()
    if not counts or len(set(counts)) != len(counts):
        raise UsageError(f"counts is {list(counts)}: choose different numbers, {low} to {high}")
    for count in counts:
        check_range("a count of mounts", count, low, high)
    return sorted(counts)


def _measured(
    what: str, metric: str, unit: str, params: Request, more: Request, planned_s: float = 0
) -> Measurement:
    check_range("repeats", more["repeats"], 1, 1000)
    ended = results.begin("none: system calls from Python", "")
    deadline_s = min(DEADLINE_S + 3 * planned_s, LIMIT_S.get())
    answer = _ask({"what": what, **params, **more}, deadline_s)
    samples = {
        variant: sorted((Sample(**row) for row in rows), key=_place)
        for variant, rows in answer.items()
    }
    about: dict[str, Any] = {"case": f"today-{what}", "metric": metric, "unit": unit}
    about |= {"params": params, "failures": [], "provenance": ended(["SCHED_OTHER"])}
    return results.build(samples=samples, **about)


def _place(sample: Sample) -> tuple[int, int, int, str]:
    return sample.threads, sample.repeat, len(sample.phase), sample.phase  # "500" before "1000"


def _ask(request: Request, deadline_s: float) -> dict[str, Any]:
    """Have a child carry out the request; it is dead when this returns, however it returns."""
    what = request["what"]
    try:
        asked = subprocess.run(
            [sys.executable, "-m", "contended.measure.controls", str(os.getpid())],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            start_new_session=True,
            env=child.environment(),
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired as slow:
        late = f"{what} did not finish within {deadline_s:.3g} s: ask for less"
        raise RunFailed(late, late=True) from slow
    if not asked.stdout:
        last = (asked.stderr.strip().splitlines() or [f"exit status {asked.returncode}"])[-1]
        raise ContendedError(f"the process that asked for {what} died: {last}")
    answer: dict[str, Any] = json.loads(asked.stdout)
    if "refused" in answer:
        raise NotAllowed(answer["refused"])
    samples: dict[str, Any] = answer["samples"]
    return samples
