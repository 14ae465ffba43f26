# SPDX-License-Identifier: MIT
"""The process that asks today's kernel: `python -m contended.measure.controls PARENT`.

It enters a mount namespace of its own, which leaves nothing behind, and carries out one request of
`contended.measure.today`, JSON as is the answer: samples by variant, or why the kernel refused.
"""

import ctypes
import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from contended import child, stats
from contended.errors import ContendedError
from contended.measure.measurement import ATTEMPTS, WAIT_SHARE

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Ask = Mapping[str, Any]

MS_RDONLY, MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 1, 1 << 12, 1 << 14, 1 << 18, 1 << 20
MNT_DETACH = 2
CLONE_NEWNS, CLONE_NEWUSER = 1 << 17, 1 << 28
# Which directory the private tmpfs covers: the first that exists and holds nothing we run from.
_PLACES = ("/mnt", "/media", "/srv", "/var/tmp", "/tmp")


class Refused(ContendedError):
    """The kernel said no; the message is for the reader."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    what = (source.encode(), target.encode(), kind.encode())
    if _libc().mount(*what, ctypes.c_ulong(flags), data.encode() or None):
        said = os.strerror(ctypes.get_errno())
        raise Refused(
            f"mounting {kind or source} in a private namespace is refused ({said}): "
            "run as root, or allow user namespaces to mount (AppArmor, SELinux, container rules)"
        )


def _unshare(flags: int) -> None:
    if _libc().unshare(flags):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _private() -> str:
    """Enter a mount namespace of our own; returns the directory that its tmpfs covers."""
    maps = {"setgroups": "deny", "uid_map": f"0 {os.geteuid()} 1", "gid_map": f"0 {os.getegid()} 1"}
    try:
        _unshare(CLONE_NEWUSER | CLONE_NEWNS)
    except OSError as error:
        maps = {}
        try:
            _unshare(CLONE_NEWNS)
        except OSError:
            raise Refused(
                f"this kernel gives us no private mount namespace ({error.strerror}): run as root, "
                "or allow user namespaces (sysctl user.max_user_namespaces, container rules)"
            ) from error
    try:
        for name, text in maps.items():
            Path("/proc/self", name).write_text(text)
    except OSError as error:
        message = f"a user namespace cannot be set up here ({error.strerror}): run as root"
        raise Refused(message) from error
    # First of all: from here on, what we mount is nobody else's business.
    _mount("none", "/", "", MS_REC | MS_PRIVATE)
    needed = [Path(p).resolve() for p in (sys.executable, sys.prefix, __file__, *sys.path) if p]
    for place in _PLACES:
        if Path(place).is_dir() and not any(p.is_relative_to(place) for p in needed):
            _mount("contended", place, "tmpfs", 0, "mode=755")
            os.chdir(place)
            return place
    raise Refused(f"none of {', '.join(_PLACES)} is free to be covered in a namespace")


def _touch(path: str) -> str:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
    return path


def _runq_wait() -> int:
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1])
    except OSError:
        return 0  # the kernel keeps no such account


def _row(
    values: Sequence[float], repeat: int, waited: int, counts: Mapping[str, int], **more: Any
) -> Row:
    """The fields of a `results.Sample`."""
    span = {"value": stats.median(values), "low": min(values), "high": max(values)}
    usual = {"threads": 1, "phase": "run", "pingpong_ns": None, "start_skew_ns": 0}
    own = {"stop_skew_ns": 0, "repeat": repeat, "runq_wait_ns": waited, "counts": counts}
    return {**usual, **span, **own, **more}


def _turns(names: Iterable[str], repeat: int) -> list[str]:
    return list(names)[:: -1 if repeat % 2 else 1]


def _mountinfo(ask: Ask, base: str) -> Rows:
    files, made = {}, 0
    source = _touch(f"{base}/source")
    for count in ask["counts"]:
        # The new namespace starts with copies of the mounts made so far. The open file keeps
        # showing the namespace it was opened in, and keeps it alive.
        _unshare(CLONE_NEWNS)
        while made < count:
            made += 1
            _mount(source, _touch(f"{base}/{made}"), "", MS_BIND)
        files[str(count)] = os.open("/proc/self/mountinfo", os.O_RDONLY)
    rows = []
    for repeat in range(ask["repeats"]):
        for count in _turns(files, repeat):
            values, total = [], {"ops": 0, "mounts": 0, "reads": 0, "bytes": 0}
            waited = _runq_wait()
            for _ in range(ask["reads"]):
                took, parts = _read_all(files[count], ask["buffer"])
                values.append(took / 1e3)
                whole = b"".join(parts)
                found = (1, whole.count(b"\n"), len(parts) + 1, len(whole))
                total = {name: n + total[name] for name, n in zip(total, found, strict=True)}
            waited = _runq_wait() - waited
            rows.append(_row(values, repeat, waited, total, phase=count))
    return {"mountinfo": rows}


def _read_all(fd: int, size: int) -> tuple[int, list[bytes]]:
    parts = []
    os.lseek(fd, 0, os.SEEK_SET)
    begin = time.monotonic_ns()
    while part := os.read(fd, size):
        parts.append(part)
    return time.monotonic_ns() - begin, parts


def _umount(ask: Ask, base: str) -> Rows:
    flags = {"umount": 0, "umount-l": MNT_DETACH}
    rows: Rows = {name: [] for name in flags}
    target = f"{base}/target"
    Path(target).mkdir()
    umount2 = _libc().umount2
    for repeat in range(ask["repeats"]):
        took: dict[str, list[int]] = {name: [] for name in flags}
        waited = dict.fromkeys(flags, 0)
        order = _turns(flags, repeat)
        for _ in range(ask["calls"]):
            for name in order:
                _mount("contended", target, "tmpfs", 0)
                before = _runq_wait()
                begin = time.monotonic_ns()
                failed = umount2(target.encode(), flags[name])
                took[name].append(time.monotonic_ns() - begin)
                waited[name] += _runq_wait() - before
                if failed:
                    raise Refused(f"{name} failed: {os.strerror(ctypes.get_errno())}")
        for name, values in took.items():
            ordered, n = sorted(values), len(values)
            latency = {f"p{p}": float(ordered[min(n - 1, n * p // 100)]) for p in (50, 90, 99)}
            latency["max"] = float(ordered[-1])
            micros = [value / 1e3 for value in values]
            rows[name].append(_row(micros, repeat, waited[name], {"ops": n}, latency_ns=latency))
    return rows


def _bind(ask: Ask, base: str) -> Rows:
    rows: Rows = {"private": [], "shared": []}
    for repeat in range(ask["repeats"]):
        for kind in _turns(rows, repeat):
            rows[kind] += _finish(*child.fork(partial(_binds, ask, base, kind, repeat)))
    return rows


def _binds(ask: Ask, base: str, kind: str, repeat: int) -> list[Row]:
    """The report's recipe, in a namespace that ends with this process."""
    _unshare(CLONE_NEWNS)
    # A file system of its own too, so that no repeat finds the directory entries of another.
    _mount("contended", base, "tmpfs", 0, "mode=755")
    blah = f"{base}/blah"
    Path(blah).mkdir()
    _touch(f"{blah}/foo")
    _mount(blah, blah, "", MS_BIND)
    if kind == "shared":
        _mount("none", blah, "", MS_SHARED)
    os.chdir(blah)
    rows, made = [], 0
    for count in ask["counts"]:
        took, waited = [], 0
        while made < count:
            made += 1
            target = _touch(str(made))
            if made <= count - ask["window"]:
                _mount("foo", target, "", MS_BIND)
                continue
            before = _runq_wait()
            begin = time.monotonic_ns()
            _mount("foo", target, "", MS_BIND)
            took.append((time.monotonic_ns() - begin) / 1e3)
            waited += _runq_wait() - before
        counts = {"ops": len(took), "mounts": made}
        rows.append(_row(took, repeat, waited, counts, phase=str(count)))
    return rows


def _calls(ask: Ask, base: str) -> Rows:
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
        _mount("contended", f"{base}/overlay", "overlay", MS_RDONLY, layers)
    rows: Rows = {kind: [] for kind in ask["kinds"]}
    for repeat, threads in product(range(ask["repeats"]), ask["threads"]):
        planned = ask["slices"] * ask["slice_us"] * 1000 * threads
        for kind in _turns(rows, repeat):
            taken: list[Row] = []  # a sample, or a few if its processes had to wait for a CPU
            while len(taken) < ATTEMPTS:
                taken.append(_crew(ask, base, kind, threads, repeat))
                if taken[-1]["runq_wait_ns"] <= WAIT_SHARE * planned:
                    break
            rows[kind].append(min(taken, key=lambda row: int(row["runq_wait_ns"])))
    return rows


def _crew(ask: Ask, base: str, kind: str, threads: int, repeat: int) -> Row:
    """One sample: processes that start together, each on its CPU."""
    arrived = mmap.mmap(-1, mmap.PAGESIZE)  # one byte of shared memory for each
    arrived.write(b"\0" * mmap.PAGESIZE)
    works = [partial(_work, ask, base, kind, arrived, threads, i) for i in range(threads)]
    forks = [child.fork(work) for work in works]
    done = [_finish(*fork) for fork in forks]
    rates = [sum(one["rates"][s] for one in done) for s in range(ask["slices"])]
    starts, stops = ([one[name] for one in done] for name in ("begin", "end"))
    ops, waited = (sum(one[name] for one in done) for name in ("ops", "waited"))
    skew = {"start_skew_ns": max(starts) - min(starts), "stop_skew_ns": max(stops) - min(stops)}
    return _row(rates, repeat, waited, {"ops": ops}, threads=threads, **skew)


def _operation(kind: str, base: str, i: int) -> Callable[[], object]:
    own, same, overlay = f"{base}/own{i}/file", f"{base}/same", f"{base}/overlay/file{i}"
    flags = os.O_CREAT | os.O_RDWR

    def access() -> None:
        if not os.access(overlay, os.R_OK):
            raise Refused(f"{overlay} cannot be read")

    operations: dict[str, Callable[[], object]] = {
        "open-creat": lambda: os.close(os.open(own, flags, 0o644)),
        "stat-own": partial(os.stat, own),
        "stat-same": partial(os.stat, same),
        "access-overlay": access,
        "getppid": os.getppid,
    }
    return operations[kind]


def _work(ask: Ask, base: str, kind: str, arrived: mmap.mmap, threads: int, i: int) -> Row:
    operation = _operation(kind, base, i)
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


def _finish(pid: int, reading: int) -> Any:
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(pid, 0)
    if not text:
        raise RuntimeError("a forked process gave no answer")
    answer = json.loads(text)
    if "failed" in answer:
        raise Refused(answer["failed"])
    return answer["done"]


def _main(parent: int) -> int:
    request = json.load(sys.stdin)
    do = {"mountinfo": _mountinfo, "umount": _umount, "bind": _bind, "calls": _calls}
    try:
        base = _private()
        # After _unshare() and not before: a change of credentials would clear it.
        child.die_with_parent(signal.SIGKILL, parent)
        answer: dict[str, Any] = {"samples": do[request["what"]](request, base)}
    except Refused as refused:
        answer = {"refused": str(refused)}
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1])))
