# SPDX-License-Identifier: MIT
"""Today's kernel: live controls that mount, in a namespace of their own, and leave nothing behind.

The models show the bugs; these functions ask the kernel that runs right now whether it still has
them. Everything happens in a child process: it makes a mount namespace of its own (inside a user
namespace where that is allowed, so that it needs no root and has no power outside), cuts it off
from the machine's mounts, and works on a tmpfs that it mounts over an existing directory there.
No directory, file or mount is ever made in the machine's own tree, so nothing has to be cleaned
up, not even after SIGKILL: the namespace ends with its last process, and the child dies with us.

Python makes the system calls. What a call from Python costs on top, about a microsecond, is the
same on both sides of every comparison made here, but it is *in* the figures: quote ratios and
growth, and expect a C program to be faster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contended import child, machine
from contended.errors import ContendedError, UsageError, check_range
from contended.measure import TooFewCpus, results
from contended.measure.measurement import ATTEMPTS
from contended.measure.provenance import provenance
from contended.measure.results import Measurement, Sample
from contended.measure.runner import RunFailed

MAX_MOUNTS = 20_000
# struct mount, its per-CPU counters, a dentry and an inode to mount on: generous.
BYTES_PER_MOUNT = 4096
DEADLINE_S = 60.0

_CALLS = ("open-creat", "stat-own", "stat-same", "access-overlay", "getppid")


class NotAllowed(ContendedError):
    """The kernel, or what confines this process, does not allow a private mount namespace."""


def mountinfo(
    counts: Sequence[int] = (500, 1000, 2000, 4000),
    *,
    repeats: int = 7,
    reads: int = 3,
    buffer: int = 65536,
) -> Measurement:
    """The time to read /proc/self/mountinfo end to end against the number of mounts.

    There is one namespace for each count, and the repeats take turns among them.

    Args:
        counts: Mounts to make, each from 1 to `mount_limit()`, all different.
        repeats: How often each is measured.
        reads: How often the whole file is read in a repeat; the sample is the median.
        buffer: Bytes asked for by each read(); the kernel gives about a page at most.

    Returns:
        Microseconds for reading all of it, by variant "mountinfo" with a phase for each count
        ("500", ...). Counters: "ops" (whole reads), "mounts" (lines in the file, times ops; the
        machine's own mounts are among them), "reads" (read() calls, with the last, empty one),
        "bytes".

    Raises:
        UsageError: a value out of range; nothing was mounted.
        NotAllowed: the kernel refuses the namespace or the mounts.
    """
    _check_counts(counts)
    check_range("repeats", repeats, 1, 1000)
    check_range("reads", reads, 1, 1000)
    check_range("buffer", buffer, 1, 1 << 20)
    return _measured(
        "mountinfo",
        "read_us",
        "µs for the whole file",
        {"reads": reads, "buffer": buffer},
        {"counts": sorted(counts), "repeats": repeats},
    )


def umount_latency(*, repeats: int = 7, calls: int = 5) -> Measurement:
    """What umount and umount -l (MNT_DETACH) of an idle tmpfs cost.

    The two take turns, and the order is turned round in every other repeat.

    Args:
        repeats: How many samples of each.
        calls: System calls timed in a sample; the sample is their median.

    Returns:
        Microseconds in the system call, variants "umount" and "umount-l", with percentiles in
        `Sample.latency_ns`.

    Raises:
        UsageError: a value out of range; nothing was mounted.
        NotAllowed: the kernel refuses the namespace or the mounts.
    """
    check_range("repeats", repeats, 1, 1000)
    check_range("calls", calls, 1, 1000)
    return _measured(
        "umount", "umount_us", "µs per system call", {"calls": calls}, {"repeats": repeats}
    )


def bind_cost(
    counts: Sequence[int] = (250, 500, 1000, 2000), *, repeats: int = 3, window: int = 50
) -> Measurement:
    """What the next bind mount costs when there are that many already, shared and private.

    "shared" is the recipe of the 2014 report: a directory bound onto itself and made shared, and
    one file in it bound onto others, so that every new mount joins the peer group. "private" is
    the same without sharing.

    Args:
        counts: After how many mounts to look, each from `window` to `mount_limit()`, all
            different.
        repeats: How often the mounts are made, each time in a fresh namespace.
        window: How many of the mounts up to each count are timed; the sample is their median.

    Returns:
        Microseconds per mount(2), variants "private" and "shared", a phase for each count.
        Counters: "ops" (mounts timed) and "mounts" (made so far).

    Raises:
        UsageError: a value out of range; nothing was mounted.
        NotAllowed: the kernel refuses the namespace or the mounts.
    """
    check_range("window", window, 1, 1000)
    _check_counts(counts, window)
    check_range("repeats", repeats, 1, 1000)
    return _measured(
        "bind",
        "mount_us",
        "µs per mount",
        {"window": window},
        {"counts": sorted(counts), "repeats": repeats},
    )


def opens(
    threads: Sequence[int] = (1, 2), *, repeats: int = 7, slices: int = 3, slice_ms: float = 30.0
) -> Measurement:
    """open(O_CREAT) and close of a file that is there, each process on a tmpfs of its own.

    Paths are absolute, so all walks start at the same root. `calls` says the rest.
    """
    return calls(("open-creat",), threads, repeats=repeats, slices=slices, slice_ms=slice_ms)


def stat_files(
    threads: Sequence[int] = (1, 2), *, repeats: int = 7, slices: int = 3, slice_ms: float = 30.0
) -> Measurement:
    """Stat of a file per process ("stat-own") and of one for all ("stat-same"); see `calls`."""
    return calls(
        ("stat-own", "stat-same"), threads, repeats=repeats, slices=slices, slice_ms=slice_ms
    )


def overlay_access(
    threads: Sequence[int] = (1, 2), *, repeats: int = 7, slices: int = 3, slice_ms: float = 30.0
) -> Measurement:
    """Calls of faccessat on one overlayfs, each process its own file; see `calls`."""
    return calls(("access-overlay",), threads, repeats=repeats, slices=slices, slice_ms=slice_ms)


def calls(
    kinds: Sequence[str],
    threads: Sequence[int] = (1, 2),
    *,
    repeats: int = 7,
    slices: int = 3,
    slice_ms: float = 30.0,
) -> Measurement:
    """System calls per second from pinned *processes*, one to a CPU.

    Processes and not threads: threads share a table of open files and an interpreter lock, and
    both would be measured instead. `Sample.threads` is the number of processes.

    Args:
        kinds: Of "open-creat" (open with O_CREAT and close of a file that is there, on a tmpfs
            for each process), "stat-own" (a file on that tmpfs), "stat-same" (one file for all),
            "access-overlay" (an own file on one overlayfs) and "getppid" (nothing is shared).
        threads: How many processes, each from 1 to the number of allowed CPUs.
        repeats: Samples of each kind at each number of processes; kinds take turns.
        slices: Timed pieces of a sample; the sample is their median.
        slice_ms: Length of a slice, milliseconds.

    Returns:
        Operations per second, all processes together; a variant for each kind.

    Raises:
        UsageError: an unknown kind or a value out of range; nothing was mounted.
        TooFewCpus: more processes than CPUs.
        NotAllowed: the kernel refuses the namespace or the mounts.
    """
    if not kinds or len(set(kinds)) != len(kinds) or not set(kinds) <= set(_CALLS):
        raise UsageError(f"kinds is {list(kinds)}: choose different ones of {', '.join(_CALLS)}")
    cpus = machine.allowed_cpus()
    if not threads or len(set(threads)) != len(threads) or min(threads) < 1:
        raise UsageError(f"threads is {list(threads)}: choose different numbers from 1 up")
    if max(threads) > len(cpus):
        raise TooFewCpus(f"{max(threads)} processes need as many CPUs; this one may use {cpus}")
    check_range("repeats", repeats, 1, 1000)
    check_range("slices", slices, 1, 64)
    check_range("slice_ms", slice_ms, 1, 1000)
    planned = ATTEMPTS * len(kinds) * len(threads) * repeats * slices * slice_ms / 1e3
    return _measured(
        "calls",
        "ops_per_s",
        "operations/s",
        {"slices": slices, "slice_us": round(slice_ms * 1e3)},
        {
            "kinds": list(kinds),
            "threads": sorted(threads),
            "repeats": repeats,
            "cpus": cpus,
        },
        deadline_s=DEADLINE_S + 3 * planned,
    )


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


def _check_counts(counts: Sequence[int], low: int = 1) -> None:
    high = mount_limit()
    if not counts or len(set(counts)) != len(counts):
        raise UsageError(f"counts is {list(counts)}: choose different numbers, {low} to {high}")
    for count in counts:
        check_range("a count of mounts", count, low, high)


def _measured(
    what: str,
    metric: str,
    unit: str,
    params: Mapping[str, int],
    more: Mapping[str, Any],
    *,
    deadline_s: float = DEADLINE_S,
) -> Measurement:
    started, clock, load = machine.now(), time.monotonic(), machine.load_1min()
    answer = _ask({"what": what, **params, **more}, deadline_s)
    return results.build(
        case=f"today-{what}",
        metric=metric,
        unit=unit,
        params=dict(params),
        samples={
            variant: [Sample(**row) for row in sorted(rows, key=_place)]
            for variant, rows in answer.items()
        },
        failures=[],
        provenance=provenance(
            started,
            time.monotonic() - clock,
            load,
            scheduler="SCHED_OTHER",
            compiler="none: system calls from Python",
            compiler_flags="",
        ),
    )


def _place(row: Mapping[str, Any]) -> tuple[int, int, int]:
    return row["threads"], row["repeat"], int(row["phase"]) if row["phase"].isdigit() else 0


def _ask(request: Mapping[str, Any], deadline_s: float) -> dict[str, Any]:
    """Have a child carry out the request; it is dead when this returns, however it returns."""
    with subprocess.Popen(
        [sys.executable, "-m", "contended.measure.controls", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=child.environment(),
    ) as asked:
        try:
            said, complaint = asked.communicate(json.dumps(request), timeout=deadline_s)
        except subprocess.TimeoutExpired as slow:
            raise RunFailed(
                f"{request['what']} did not finish within {deadline_s:.3g} s: ask for less",
                late=True,
            ) from slow
        finally:
            asked.kill()
    if not said:
        last = (complaint.strip().splitlines() or [f"exit status {asked.returncode}"])[-1]
        raise ContendedError(f"the process that asked for {request['what']} died: {last}")
    answer: dict[str, Any] = json.loads(said)
    if "refused" in answer:
        raise NotAllowed(answer["refused"])
    samples: dict[str, Any] = answer["samples"]
    return samples
