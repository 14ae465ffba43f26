# SPDX-License-Identifier: MIT
"""The process that asks today's kernel: `python -m contended.measure.controls PARENT`.

It enters a namespace of its own and carries out one request, JSON on its standard input; the answer
is JSON as well: samples by variant, or why the kernel refused. `contended.measure.today` holds the
other end.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from contended import stats
from contended.measure import namespace
from contended.measure.measurement import ATTEMPTS, WAIT_SHARE


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
    source = namespace.touch(f"{base}/source")
    for count in ask["counts"]:
        # The new namespace starts with copies of the mounts made so far. The open file keeps
        # showing the namespace it was opened in, and keeps it alive.
        namespace.unshare(namespace.CLONE_NEWNS)
        while made < count:
            made += 1
            namespace.mount(source, namespace.touch(f"{base}/{made}"), "", namespace.MS_BIND)
        files[count] = os.open("/proc/self/mountinfo", os.O_RDONLY)
    rows = []
    for repeat in range(ask["repeats"]):
        for count in sorted(files, reverse=bool(repeat % 2)):
            values, total = [], {"ops": 0, "mounts": 0, "reads": 0, "bytes": 0}
            waited = namespace.runq_wait()
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
                    waited=namespace.runq_wait() - waited,
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
    flags = {"umount": 0, "umount-l": namespace.MNT_DETACH}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in flags}
    target = f"{base}/target"
    Path(target).mkdir()
    umount2 = namespace.libc().umount2
    for repeat in range(ask["repeats"]):
        took: dict[str, list[int]] = {name: [] for name in flags}
        waited = dict.fromkeys(flags, 0)
        for _ in range(ask["calls"]):
            for name in flags if repeat % 2 == 0 else reversed(flags):
                namespace.mount("contended", target, "tmpfs", 0)
                before = namespace.runq_wait()
                begin = time.monotonic_ns()
                failed = umount2(target.encode(), flags[name])
                took[name].append(time.monotonic_ns() - begin)
                waited[name] += namespace.runq_wait() - before
                if failed:
                    raise namespace.Refused(f"{name} failed: {os.strerror(ctypes.get_errno())}")
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
            rows[kind] += namespace.in_child(partial(_binds, ask, base, kind, repeat))
    return rows


def _binds(ask: Mapping[str, Any], base: str, kind: str, repeat: int) -> list[dict[str, Any]]:
    """The report's recipe, in a namespace that ends with this process."""
    namespace.unshare(namespace.CLONE_NEWNS)
    # A file system of its own too, so that no repeat finds the directory entries of another.
    namespace.mount("contended", base, "tmpfs", 0, "mode=755")
    blah = f"{base}/blah"
    Path(blah).mkdir()
    namespace.touch(f"{blah}/foo")
    namespace.mount(blah, blah, "", namespace.MS_BIND)
    if kind == "shared":
        namespace.mount("none", blah, "", namespace.MS_SHARED)
    os.chdir(blah)
    rows, made = [], 0
    for count in ask["counts"]:
        took, waited = [], 0
        while made < count:
            made += 1
            target = namespace.touch(str(made))
            if made <= count - ask["window"]:
                namespace.mount("foo", target, "", namespace.MS_BIND)
                continue
            before = namespace.runq_wait()
            begin = time.monotonic_ns()
            namespace.mount("foo", target, "", namespace.MS_BIND)
            took.append((time.monotonic_ns() - begin) / 1e3)
            waited += namespace.runq_wait() - before
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
        namespace.mount("contended", f"{base}/own{i}", "tmpfs", 0)
        namespace.touch(f"{base}/own{i}/file")
    namespace.touch(f"{base}/same")
    if "access-overlay" in ask["kinds"]:
        for name in ("lower", "lowest", "overlay"):
            Path(f"{base}/{name}").mkdir()
        for i in range(most):
            namespace.touch(f"{base}/lower/file{i}")
        layers = f"lowerdir={base}/lower:{base}/lowest"
        namespace.mount("contended", f"{base}/overlay", "overlay", namespace.MS_RDONLY, layers)
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
        pipes.append(namespace.start(partial(_turns, ask, arrived, threads, i, operation)))
    done = [namespace.finish(*pipe) for pipe in pipes]
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
            raise namespace.Refused(f"{overlay} cannot be read")

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
    waited, rates, total = namespace.runq_wait(), [], 0
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
    waited = namespace.runq_wait() - waited
    return {"rates": rates, "ops": total, "begin": begin, "end": now, "waited": waited}


def _main(parent: int) -> int:
    request = json.load(sys.stdin)
    do = {
        "mountinfo": _do_mountinfo,
        "umount": _do_umount,
        "bind": _do_bind,
        "calls": _do_calls,
    }[request["what"]]
    try:
        base = namespace.private()
        namespace.die_with(parent)
        answer: dict[str, Any] = {"samples": do(request, base)}
    except namespace.Refused as refused:
        answer = {"refused": str(refused)}
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1])))
