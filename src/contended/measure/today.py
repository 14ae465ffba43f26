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

import ctypes
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from contended import machine, stats
from contended.errors import ContendedError, UsageError
from contended.measure import TooFewCpus, results
from contended.measure.measurement import ATTEMPTS, WAIT_SHARE, provenance
from contended.measure.results import Measurement, Sample
from contended.measure.runner import RunFailed

MAX_MOUNTS = 20_000
# struct mount, its per-CPU counters, a dentry and an inode to mount on: generous.
BYTES_PER_MOUNT = 4096
DEADLINE_S = 60.0

_MS_BIND, _MS_REC, _MS_PRIVATE, _MS_SHARED = 4096, 16384, 1 << 18, 1 << 20
_MS_RDONLY = 1
_MNT_DETACH = 2
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_PR_SET_PDEATHSIG = 1
# Which directory the private tmpfs covers: the first that exists and holds nothing we run from.
_PLACES = ("/mnt", "/media", "/srv", "/var/tmp", "/tmp")
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
    _check("repeats", repeats, 1, 1000)
    _check("reads", reads, 1, 1000)
    _check("buffer", buffer, 1, 1 << 20)
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
    _check("repeats", repeats, 1, 1000)
    _check("calls", calls, 1, 1000)
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
    _check("window", window, 1, 1000)
    _check_counts(counts, window)
    _check("repeats", repeats, 1, 1000)
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
    _check("repeats", repeats, 1, 1000)
    _check("slices", slices, 1, 64)
    _check("slice_ms", slice_ms, 1, 1000)
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


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise UsageError(f"{name} is {value:g}: choose {low:g} to {high:g}")


def _check_counts(counts: Sequence[int], low: int = 1) -> None:
    high = mount_limit()
    if not counts or len(set(counts)) != len(counts):
        raise UsageError(f"counts is {list(counts)}: choose different numbers, {low} to {high}")
    for count in counts:
        _check("a count of mounts", count, low, high)


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
        [sys.executable, "-m", "contended.measure.today", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    ) as child:
        try:
            said, complaint = child.communicate(json.dumps(request), timeout=deadline_s)
        except subprocess.TimeoutExpired as slow:
            raise RunFailed(
                f"{request['what']} did not finish within {deadline_s:.3g} s: ask for less",
                late=True,
            ) from slow
        finally:
            child.kill()
    if not said:
        last = (complaint.strip().splitlines() or [f"exit status {child.returncode}"])[-1]
        raise ContendedError(f"the process that asked for {request['what']} died: {last}")
    answer: dict[str, Any] = json.loads(said)
    if "refused" in answer:
        raise NotAllowed(answer["refused"])
    samples: dict[str, Any] = answer["samples"]
    return samples


# What follows runs in the child only.


class _Refused(Exception):
    """The kernel said no; the message is for the reader."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    done = _libc().mount(
        source.encode(),
        target.encode(),
        kind.encode(),
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    if done:
        said = os.strerror(ctypes.get_errno())
        raise _Refused(
            f"mounting {kind or source} in a private namespace is refused ({said}): "
            "run as root, or allow user namespaces to mount (AppArmor, SELinux, container rules)"
        )


def _unshare(flags: int) -> None:
    if _libc().unshare(flags):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _private_namespace() -> str:
    """Enter a mount namespace of our own; returns the directory that its tmpfs covers."""
    uid, gid, user_namespace = os.geteuid(), os.getegid(), True
    try:
        _unshare(_CLONE_NEWUSER | _CLONE_NEWNS)
    except OSError as error:
        user_namespace = False
        try:
            _unshare(_CLONE_NEWNS)
        except OSError:
            raise _Refused(
                f"this kernel gives us no private mount namespace ({error.strerror}): run as root, "
                "or allow user namespaces (sysctl user.max_user_namespaces, container rules)"
            ) from error
    if user_namespace:
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        except OSError as error:
            raise _Refused(
                f"a user namespace cannot be set up here ({error.strerror}): run as root"
            ) from error
    # First of all: from here on, what we mount is nobody else's business.
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    needed = [Path(p).resolve() for p in (sys.executable, sys.prefix, __file__, *sys.path) if p]
    for place in _PLACES:
        if Path(place).is_dir() and not any(p.is_relative_to(place) for p in needed):
            break
    else:
        raise _Refused(f"none of {', '.join(_PLACES)} is free to be covered in a namespace")
    _mount("contended", place, "tmpfs", 0, "mode=755")
    os.chdir(place)
    return place


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends.

    After unshare() and not before: a change of credentials would clear it.
    """
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _touch(path: str) -> str:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    return path


def _runq_wait() -> int:
    fields = (_lines("/proc/self/schedstat") or ["0 0 0"])[0].split()
    return int(fields[1])


def _row(
    values: Sequence[float],
    *,
    repeat: int,
    counts: Mapping[str, int],
    phase: str = "run",
    threads: int = 1,
    waited: int = 0,
    skew: tuple[int, int] = (0, 0),
    latency: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The fields of a `results.Sample`."""
    return {
        "threads": threads,
        "repeat": repeat,
        "phase": phase,
        "value": stats.median(values),
        "low": min(values),
        "high": max(values),
        "pingpong_ns": None,
        "start_skew_ns": skew[0],
        "stop_skew_ns": skew[1],
        "runq_wait_ns": waited,
        "counts": dict(counts),
        "latency_ns": dict(latency or {}),
    }


def _do_mountinfo(ask: Mapping[str, Any], base: str) -> dict[str, Any]:
    files, made = {}, 0
    source = _touch(f"{base}/source")
    for count in ask["counts"]:
        # The new namespace starts with copies of the mounts made so far. The open file keeps
        # showing the namespace it was opened in, and keeps it alive.
        _unshare(_CLONE_NEWNS)
        while made < count:
            made += 1
            _mount(source, _touch(f"{base}/{made}"), "", _MS_BIND)
        files[count] = os.open("/proc/self/mountinfo", os.O_RDONLY)
    rows = []
    for repeat in range(ask["repeats"]):
        for count in sorted(files, reverse=bool(repeat % 2)):
            values, total = [], {"ops": 0, "mounts": 0, "reads": 0, "bytes": 0}
            waited = _runq_wait()
            for _ in range(ask["reads"]):
                took, found = _read_all(files[count], ask["buffer"])
                values.append(took / 1e3)
                for name, value in found.items():
                    total[name] += value
            rows.append(
                _row(
                    values,
                    repeat=repeat,
                    phase=str(count),
                    counts=total,
                    waited=_runq_wait() - waited,
                )
            )
    return {"mountinfo": rows}


def _read_all(fd: int, size: int) -> tuple[int, dict[str, int]]:
    parts = []
    os.lseek(fd, 0, os.SEEK_SET)
    begin = time.monotonic_ns()
    while part := os.read(fd, size):
        parts.append(part)
    took = time.monotonic_ns() - begin
    whole = b"".join(parts)
    counts = {"mounts": whole.count(b"\n"), "reads": len(parts) + 1, "bytes": len(whole), "ops": 1}
    return took, counts


def _do_umount(ask: Mapping[str, Any], base: str) -> dict[str, Any]:
    flags = {"umount": 0, "umount-l": _MNT_DETACH}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in flags}
    target = f"{base}/target"
    Path(target).mkdir()
    umount2 = _libc().umount2
    for repeat in range(ask["repeats"]):
        took: dict[str, list[int]] = {name: [] for name in flags}
        waited = dict.fromkeys(flags, 0)
        for _ in range(ask["calls"]):
            for name in flags if repeat % 2 == 0 else reversed(flags):
                _mount("contended", target, "tmpfs", 0)
                before = _runq_wait()
                begin = time.monotonic_ns()
                failed = umount2(target.encode(), flags[name])
                took[name].append(time.monotonic_ns() - begin)
                waited[name] += _runq_wait() - before
                if failed:
                    raise _Refused(f"{name} failed: {os.strerror(ctypes.get_errno())}")
        for name, values in took.items():
            ordered = sorted(values)
            latency = {
                f"p{p}": float(ordered[min(len(ordered) - 1, len(ordered) * p // 100)])
                for p in (50, 90, 99)
            }
            rows[name].append(
                _row(
                    [value / 1e3 for value in values],
                    repeat=repeat,
                    counts={"ops": len(values)},
                    waited=waited[name],
                    latency={**latency, "max": float(ordered[-1])},
                )
            )
    return rows


def _do_bind(ask: Mapping[str, Any], base: str) -> dict[str, Any]:
    rows: dict[str, list[dict[str, Any]]] = {"private": [], "shared": []}
    for repeat in range(ask["repeats"]):
        for kind in rows if repeat % 2 == 0 else reversed(rows):
            rows[kind] += _in_child(partial(_binds, ask, base, kind, repeat))
    return rows


def _binds(ask: Mapping[str, Any], base: str, kind: str, repeat: int) -> list[dict[str, Any]]:
    """The report's recipe, in a namespace that ends with this process."""
    _unshare(_CLONE_NEWNS)
    # A file system of its own too, so that no repeat finds the directory entries of another.
    _mount("contended", base, "tmpfs", 0, "mode=755")
    blah = f"{base}/blah"
    Path(blah).mkdir()
    _touch(f"{blah}/foo")
    _mount(blah, blah, "", _MS_BIND)
    if kind == "shared":
        _mount("none", blah, "", _MS_SHARED)
    os.chdir(blah)
    rows, made = [], 0
    for count in ask["counts"]:
        took, waited = [], 0
        while made < count:
            made += 1
            target = _touch(str(made))
            if made <= count - ask["window"]:
                _mount("foo", target, "", _MS_BIND)
                continue
            before = _runq_wait()
            begin = time.monotonic_ns()
            _mount("foo", target, "", _MS_BIND)
            took.append((time.monotonic_ns() - begin) / 1e3)
            waited += _runq_wait() - before
        rows.append(
            _row(
                took,
                repeat=repeat,
                phase=str(count),
                counts={"ops": len(took), "mounts": made},
                waited=waited,
            )
        )
    return rows


def _do_calls(ask: Mapping[str, Any], base: str) -> dict[str, Any]:
    most = max(ask["threads"])
    for i in range(most):
        Path(f"{base}/own{i}").mkdir()
        _mount("contended", f"{base}/own{i}", "tmpfs", 0)
        _touch(f"{base}/own{i}/file")
    _touch(f"{base}/same")
    if "access-overlay" in ask["kinds"]:
        for name in ("lower", "lowest", "overlay"):
            Path(f"{base}/{name}").mkdir()
        for i in range(most):
            _touch(f"{base}/lower/file{i}")
        layers = f"lowerdir={base}/lower:{base}/lowest"
        _mount("contended", f"{base}/overlay", "overlay", _MS_RDONLY, layers)
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in ask["kinds"]}
    for repeat in range(ask["repeats"]):
        for threads in ask["threads"]:
            for kind in rows if repeat % 2 == 0 else reversed(rows):
                rows[kind].append(_undisturbed(ask, base, kind, threads, repeat))
    return rows


def _undisturbed(
    ask: Mapping[str, Any], base: str, kind: str, threads: int, repeat: int
) -> dict[str, Any]:
    """A sample, or the calmest of a few if its processes had to wait for a CPU."""
    best: dict[str, Any] | None = None
    planned = ask["slices"] * ask["slice_us"] * 1000 * threads
    for _ in range(ATTEMPTS):
        row = _crew(ask, base, kind, threads, repeat)
        if best is None or row["runq_wait_ns"] < best["runq_wait_ns"]:
            best = row
        if row["runq_wait_ns"] <= WAIT_SHARE * planned:
            break
    assert best is not None
    return best


def _crew(
    ask: Mapping[str, Any], base: str, kind: str, threads: int, repeat: int
) -> dict[str, Any]:
    """One sample: processes that start together, each on its CPU."""
    arrived = mmap.mmap(-1, mmap.PAGESIZE)  # one byte of shared memory for each
    arrived.write(b"\0" * mmap.PAGESIZE)
    pipes = []
    for i in range(threads):
        operation = _operation(kind, base, i)
        pipes.append(_start(partial(_turns, ask, arrived, threads, i, operation)))
    done = [_finish(*pipe) for pipe in pipes]
    rates = [sum(one["rates"][s] for one in done) for s in range(ask["slices"])]
    starts, stops = [one["begin"] for one in done], [one["end"] for one in done]
    return _row(
        rates,
        repeat=repeat,
        threads=threads,
        counts={"ops": sum(one["ops"] for one in done)},
        waited=sum(one["waited"] for one in done),
        skew=(max(starts) - min(starts), max(stops) - min(stops)),
    )


def _operation(kind: str, base: str, i: int) -> Callable[[], object]:
    own, same, overlay = f"{base}/own{i}/file", f"{base}/same", f"{base}/overlay/file{i}"
    flags = os.O_CREAT | os.O_RDWR

    def open_and_close() -> None:
        os.close(os.open(own, flags, 0o644))

    def access() -> None:
        if not os.access(overlay, os.R_OK):
            raise _Refused(f"{overlay} cannot be read")

    operations: dict[str, Callable[[], object]] = {
        "open-creat": open_and_close,
        "stat-own": partial(os.stat, own),
        "stat-same": partial(os.stat, same),
        "access-overlay": access,
        "getppid": os.getppid,
    }
    return operations[kind]


def _turns(
    ask: Mapping[str, Any],
    arrived: mmap.mmap,
    threads: int,
    i: int,
    operation: Callable[[], object],
) -> dict[str, Any]:
    os.sched_setaffinity(0, {ask["cpus"][i]})
    for _ in range(500):  # faults in what the first calls need
        operation()
    arrived[i] = 1
    while not all(arrived[:threads]):
        pass
    waited, rates, total = _runq_wait(), [], 0
    length = ask["slice_us"] * 1000
    begin = now = time.monotonic_ns()
    for s in range(ask["slices"]):
        first, ops, until = now, 0, begin + (s + 1) * length
        while now < until or not ops:
            for _ in range(50):
                operation()
            ops += 50
            now = time.monotonic_ns()
        rates.append(ops * 1e9 / max(1, now - first))
        total += ops
    waited = _runq_wait() - waited
    return {"rates": rates, "ops": total, "begin": begin, "end": now, "waited": waited}


def _start(work: Callable[[], Any]) -> tuple[int, int]:
    """Fork; the new process does the work, writes its result into a pipe and ends."""
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _forked(work, parent, reading, writing)
    os.close(writing)
    return pid, reading


def _forked(work: Callable[[], Any], parent: int, reading: int, writing: int) -> NoReturn:
    try:
        _die_with(parent)
        os.close(reading)
        try:
            answer: dict[str, Any] = {"done": work()}
        except _Refused as refused:
            answer = {"refused": str(refused)}
        with os.fdopen(writing, "w") as out:
            json.dump(answer, out)
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
        os._exit(1)
    os._exit(0)


def _finish(pid: int, reading: int) -> Any:
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(pid, 0)
    if not text:
        raise RuntimeError("a forked process gave no answer")
    answer = json.loads(text)
    if "refused" in answer:
        raise _Refused(answer["refused"])
    return answer["done"]


def _in_child(work: Callable[[], Any]) -> Any:
    return _finish(*_start(work))


def _main(parent: int) -> int:
    request = json.load(sys.stdin)
    do = {
        "mountinfo": _do_mountinfo,
        "umount": _do_umount,
        "bind": _do_bind,
        "calls": _do_calls,
    }[request["what"]]
    try:
        base = _private_namespace()
        _die_with(parent)
        answer: dict[str, Any] = {"samples": do(request, base)}
    except _Refused as refused:
        answer = {"refused": str(refused)}
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1])))
