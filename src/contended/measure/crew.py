# SPDX-License-Identifier: MIT
"""Processes that make system calls together, each on its CPU, in a namespace of their own."""

import mmap
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

from contended import child
from contended.measure.measurement import ATTEMPTS, WAIT_SHARE
from contended.measure.private import (
    MS_RDONLY,
    Ask,
    Refused,
    Row,
    Rows,
    finish,
    make,
    mount,
    row,
    touch,
    turns,
    waits,
)

Work = Callable[[Callable[[], None]], object]
LISTED = 32  # what lies beside the file in the directory that is listed


def calls(ask: Ask, base: str) -> Rows:
    """The samples of `today.calls`, by kind."""
    most, kinds = max(ask["threads"]), set(ask["kinds"])
    for i in range(most):
        _own(base, i)
        make(f"{base}/dir{i}")
    touch(f"{base}/same")
    touch(f"{base}/dir0/file")
    # an overlay for all, and one for each
    overlays = [""] if "access-overlay" in kinds else []
    overlays += [str(i) for i in range(most) if "access-own-overlay" in kinds]
    for name in overlays:
        lower, lowest, over = (f"{base}/{what}{name}" for what in ("lower", "lowest", "overlay"))
        make(lower, lowest, over)
        for i in range(most):
            touch(f"{lower}/file{i}")
        mount("contended", over, "overlay", MS_RDONLY, f"lowerdir={lower}:{lowest}")
    if kinds & {"open-one-root", "open-own-root"}:
        # Directories to be roots, with the same path below each of them.
        for root in range(most):
            place = f"{base}/root{root}"
            make(place)
            mount("contended", place, "tmpfs", 0, "mode=755")
            for i in range(most) if root == 0 else [root]:
                _own(f"{place}{base}", i)
    rows: Rows = {kind: [] for kind in ask["kinds"]}
    for repeat, threads in product(range(ask["repeats"]), ask["threads"]):
        planned = ask["slices"] * ask["slice_us"] * 1000 * threads
        for kind in turns(rows, repeat):
            taken: list[Row] = []  # a sample, or a few if its processes had to wait for a CPU
            while len(taken) < ATTEMPTS:
                done = _together(ask, base, kind, threads)
                taken.append(_row(done[:1] if kind.startswith("walk") else done, repeat, threads))
                if taken[-1]["runq_wait_ns"] <= WAIT_SHARE * planned:
                    break
            rows[kind].append(min(taken, key=lambda row: int(row["runq_wait_ns"])))
    return rows


def degrade(ask: Ask, base: str) -> Rows:
    """The samples of `today.degrade`: before, while and after a directory is listed."""
    make(f"{base}/listed")
    for name in ("same", *map(str, range(LISTED))):
        touch(f"{base}/listed/{name}")
    phases: Rows = {"calm": [], "listed": [], "after": []}
    (threads,), third = ask["threads"], ask["slices"] // 3
    for repeat in range(ask["repeats"]):
        done = _together(ask, base, "stat-listed", threads, [partial(_list, ask, base)])
        for part, rows in enumerate(phases.values()):
            few = slice(third * part, third * (part + 1))
            rows.append(_row(done, repeat, threads, few))
    return phases


def _own(base: str, i: int) -> None:
    """A file on a tmpfs of its own."""
    make(f"{base}/own{i}")
    mount("contended", f"{base}/own{i}", "tmpfs", 0)
    touch(f"{base}/own{i}/file")


def _together(ask: Ask, base: str, kind: str, threads: int, more: Sequence[Work] = ()) -> list[Row]:
    """What processes did that start together, each on its CPU; `more` start with them."""
    arrived = mmap.mmap(-1, mmap.PAGESIZE)  # one byte of shared memory for each
    arrived.write(b"\0" * mmap.PAGESIZE)
    everybody = range(threads + len(more))

    def gate(i: int) -> None:
        arrived[i] = 1
        while not all(arrived[: len(everybody)]):
            pass

    works: list[Work] = [partial(_work, ask, base, kind, i) for i in range(threads)]
    forks = [child.fork(partial(work, partial(gate, i))) for i, work in enumerate([*works, *more])]
    return [finish(*fork) for fork in forks][:threads]


def _row(done: Sequence[Row], repeat: int, threads: int, slices: slice = slice(None)) -> Row:
    """A sample of what processes did, in some slices; of a walker and holders the walker's."""
    rates = [sum(each) for each in zip(*(one["rates"][slices] for one in done), strict=True)]
    starts, stops = ([one[name] for one in done] for name in ("begin", "end"))
    ops, waited = (sum(one[name] for one in done) for name in ("ops", "waited"))
    skew = {"start_skew_ns": max(starts) - min(starts), "stop_skew_ns": max(stops) - min(stops)}
    return row(rates, repeat, waited, {"ops": ops}, threads=threads, **skew)


def _operation(kind: str, base: str, i: int) -> Callable[[], object]:
    """What process `i` does; it may have changed its root before."""
    own, overlay = f"{base}/own{i}/file", f"{base}/overlay{i if 'own' in kind else ''}/file{i}"
    flags = os.O_CREAT | os.O_RDWR
    if kind.startswith("walk"):
        # The first walks through a directory; the others only hold it, or one of their own.
        held = f"{base}/dir{0 if kind == 'walk-held' else i}"
        walk = partial(os.stat, f"{base}/dir0/file")
        return walk if i == 0 else lambda: os.close(os.open(held, os.O_PATH))
    if kind.endswith("root"):
        os.chroot(f"{base}/root{i if kind == 'open-own-root' else 0}")

    def access() -> None:
        if not os.access(overlay, os.R_OK):
            raise Refused(f"{overlay} cannot be read")

    def create() -> None:
        os.close(os.open(own, flags, 0o644))

    operations: dict[str, Callable[[], object]] = {
        "open-creat": create,
        "open-one-root": create,
        "open-own-root": create,
        "stat-own": partial(os.stat, own),
        "stat-same": partial(os.stat, f"{base}/same"),
        "stat-listed": partial(os.stat, f"{base}/listed/same"),
        "access-overlay": access,
        "access-own-overlay": access,
        "getppid": os.getppid,
    }
    return operations[kind]


def _list(ask: Ask, base: str, gate: Callable[[], None]) -> None:
    """List the directory, but only in the second third of the time."""
    third = ask["slices"] // 3 * ask["slice_us"] / 1e6
    gate()
    begin = time.monotonic()
    time.sleep(third)
    while time.monotonic() < begin + 2 * third:
        os.listdir(f"{base}/listed")  # noqa: PTH208 (reads it whole)


def _work(ask: Ask, base: str, kind: str, i: int, gate: Callable[[], None]) -> Row:
    runq_wait = waits()
    operation = _operation(kind, base, i)
    os.sched_setaffinity(0, {ask["cpus"][i]})
    for _ in range(500):  # faults in what the first calls need
        operation()
    gate()
    waited, rates, total = runq_wait(), [], 0
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
    waited = runq_wait() - waited
    return {"rates": rates, "ops": total, "begin": begin, "end": now, "waited": waited}
