# SPDX-License-Identifier: MIT
"""The process that asks today's kernel: `python -m contended.measure.controls PARENT`.

It enters a mount namespace of its own, which leaves nothing behind, and carries out one request of
`contended.measure.today`, JSON as is the answer: samples by variant, or why the kernel refused.
"""

import ctypes
import json
import os
import resource
import signal
import struct
import sys
import time
from functools import partial
from itertools import pairwise
from typing import Any

from contended import child
from contended.measure.crew import calls, degrade
from contended.measure.private import (
    CLONE_NEWNS,
    MNT_DETACH,
    MS_BIND,
    MS_SHARED,
    Ask,
    Refused,
    Row,
    Rows,
    enter,
    finish,
    libc,
    make,
    mount,
    row,
    touch,
    turns,
    unshare,
    waits,
)

AT_FDCWD = -100
STATX_MNT_ID_UNIQUE = 0x4000


def _mountinfo(ask: Ask, base: str) -> Rows:
    files, made = {}, 0
    source = touch(f"{base}/source")
    for count in ask["counts"]:
        # The new namespace starts with copies of the mounts made so far. The open file keeps
        # showing the namespace it was opened in, and keeps it alive.
        unshare(CLONE_NEWNS)
        while made < count:
            made += 1
            mount(source, touch(f"{base}/{made}"), "", MS_BIND)
        files[str(count)] = os.open("/proc/self/mountinfo", os.O_RDONLY)
    rows, runq_wait = [], waits()
    for repeat in range(ask["repeats"]):
        for count in turns(files, repeat):
            values, total = [], {"ops": 0, "mounts": 0, "reads": 0, "bytes": 0}
            waited = runq_wait()
            for _ in range(ask["reads"]):
                took, parts = _read_all(files[count], ask["buffer"])
                values.append(took / 1e3)
                whole = b"".join(parts)
                found = (1, whole.count(b"\n"), len(parts) + 1, len(whole))
                total = {name: n + total[name] for name, n in zip(total, found, strict=True)}
            waited = runq_wait() - waited
            rows.append(row(values, repeat, waited, total, phase=count))
    return {"mountinfo": rows}


def _read_all(fd: int, size: int) -> tuple[int, list[bytes]]:
    parts = []
    os.lseek(fd, 0, os.SEEK_SET)
    begin = time.monotonic_ns()
    while part := os.read(fd, size):
        parts.append(part)
    return time.monotonic_ns() - begin, parts


def _ends(ask: Ask, base: str) -> Rows:
    """Single reads of the file, those of its first and of its last quarter."""
    source = touch(f"{base}/source")
    for i in range(ask["count"]):
        mount(source, touch(f"{base}/{i}"), "", MS_BIND)
    rows, runq_wait, now = Rows(first=[], last=[]), waits(), time.monotonic_ns
    fd = os.open("/proc/self/mountinfo", os.O_RDONLY)
    for repeat in range(ask["repeats"]):
        os.lseek(fd, 0, os.SEEK_SET)
        waited, times = runq_wait(), [now()]
        while os.read(fd, ask["buffer"]):
            times.append(now())
        waited = runq_wait() - waited
        took = [(end - begin) / 1e3 for begin, end in pairwise(times)]
        part = len(took) // 4
        for name, some in (("first", took[:part]), ("last", took[-part:])):
            rows[name].append(row(some, repeat, waited, {"ops": part, "reads": len(took)}))
    return rows


def _umount(ask: Ask, base: str) -> Rows:
    flags = {"umount": 0, "umount-l": MNT_DETACH}
    rows: Rows = {name: [] for name in flags}
    target = f"{base}/target"
    make(target)
    umount2, runq_wait = libc().umount2, waits()
    for repeat in range(ask["repeats"]):
        took: dict[str, list[int]] = {name: [] for name in flags}
        waited, slept = dict.fromkeys(flags, 0), dict.fromkeys(flags, 0)
        order = turns(flags, repeat)
        for _ in range(ask["calls"]):
            for name in order:
                mount("contended", target, "tmpfs", 0)
                before, switches = runq_wait(), _switches()
                begin = time.monotonic_ns()
                failed = umount2(target.encode(), flags[name])
                took[name].append(time.monotonic_ns() - begin)
                slept[name] += _switches() > switches
                waited[name] += runq_wait() - before
                if failed:
                    raise Refused(f"{name} failed: {os.strerror(ctypes.get_errno())}")
        for name, values in took.items():
            ordered, n = sorted(values), len(values)
            latency = {f"p{p}": float(ordered[min(n - 1, n * p // 100)]) for p in (50, 90, 99)}
            latency["max"] = float(ordered[-1])
            micros = [value / 1e3 for value in values]
            counts = {"ops": n, "slept": slept[name]}
            rows[name].append(row(micros, repeat, waited[name], counts, latency_ns=latency))
    return rows


def _switches() -> int:
    """How often this thread gave up its CPU of itself: it had to wait for something."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _bind(ask: Ask, base: str) -> Rows:
    rows: Rows = {"private": [], "shared": []}
    for repeat in range(ask["repeats"]):
        for kind in turns(rows, repeat):
            rows[kind] += finish(*child.fork(partial(_binds, ask, base, kind, repeat)))
    return rows


def _binds(ask: Ask, base: str, kind: str, repeat: int) -> list[Row]:
    """The report's recipe, in a namespace that ends with this process."""
    unshare(CLONE_NEWNS)
    # A file system of its own too, so that no repeat finds the directory entries of another.
    mount("contended", base, "tmpfs", 0, "mode=755")
    blah = f"{base}/blah"
    make(blah)
    touch(f"{blah}/foo")
    mount(blah, blah, "", MS_BIND)
    if kind == "shared":
        mount("none", blah, "", MS_SHARED)
    os.chdir(blah)
    rows, made, runq_wait = [], 0, waits()
    for count in ask["counts"]:
        took: list[float] = []
        waited = first = 0
        while made < count:
            made += 1
            target = touch(str(made))
            if made <= count - ask["window"]:
                mount("foo", target, "", MS_BIND)
                continue
            first = _mount_id(str(made - 1)) if not took and made > 1 else first
            before = runq_wait()
            begin = time.monotonic_ns()
            mount("foo", target, "", MS_BIND)
            took.append((time.monotonic_ns() - begin) / 1e3)
            waited += runq_wait() - before
        counts = {"ops": len(took), "mounts": made}
        if first and (last := _mount_id(target)):
            counts["allocated"] = last - first
        rows.append(row(took, repeat, waited, counts, phase=str(count)))
    return rows


def _mount_id(path: str) -> int:
    """The number that no other mount has had since boot, from Linux 6.8 on; before that 0."""
    seen = ctypes.create_string_buffer(256)
    ask = getattr(libc(), "statx", None)
    if ask is None or ask(AT_FDCWD, path.encode(), 0, STATX_MNT_ID_UNIQUE, seen):
        return 0
    mask, number = struct.unpack_from("=I140xQ", seen.raw)
    return number if mask & STATX_MNT_ID_UNIQUE else 0


def _crossing(ask: Ask, base: str) -> Rows:
    rows: Rows = {"crossing": []}
    for repeat in range(ask["repeats"]):
        for count in turns(map(str, ask["counts"]), repeat):
            rows["crossing"].append(finish(*child.fork(partial(_cross, ask, base, count, repeat))))
    return rows


def _cross(ask: Ask, base: str, count: str, repeat: int) -> Row:
    """Look up a file behind each of some mounts, among many, in a namespace that ends with us."""
    unshare(CLONE_NEWNS)
    mount("contended", base, "tmpfs", 0, "mode=755")
    make(f"{base}/source")
    touch(f"{base}/source/file")
    for i in range(int(count)):
        make(f"{base}/{i}")
        mount(f"{base}/source", f"{base}/{i}", "", MS_BIND)
    # not the newest alone: they stand first in their chains
    step = int(count) / ask["targets"]
    files = [f"{base}/{int(i * step)}/file" for i in range(ask["targets"])]
    runq_wait = waits()
    took, waited = [], runq_wait()
    for _ in range(ask["passes"]):
        begin = time.monotonic_ns()
        for file in files:
            os.stat(file)  # noqa: PTH116 (what is timed is the system call)
        took.append((time.monotonic_ns() - begin) / len(files))
    counts = {"ops": len(files) * len(took), "mounts": int(count)}
    return row(took, repeat, runq_wait() - waited, counts, phase=count)


def _main(parent: int) -> int:
    request = json.load(sys.stdin)
    do = {
        "mountinfo": _mountinfo,
        "ends": _ends,
        "umount": _umount,
        "bind": _bind,
        "crossing": _crossing,
    }
    do |= {"calls": calls, "degrade": degrade}
    try:
        base = enter()
        # After unshare() and not before: a change of credentials would clear it.
        child.die_with_parent(signal.SIGKILL, parent)
        answer: dict[str, Any] = {"samples": do[request["what"]](request, base)}
    except Refused as refused:
        answer = {"refused": str(refused)}
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1])))
