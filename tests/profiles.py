# SPDX-License-Identifier: MIT
"""Made-up reports of the profiler, and what is on their lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from contended.profile import assemble, plugin
from contended.profile.coherence import Origin, Profile, Thing
from contended.profile.entries import Frame
from contended.profile.saved import Profiles

GET, PUT, LOOKUP, USER, ENTRY, SLOW = 0x1000, 0x1100, 0x2000, 0x3000, 0x4000, 0x4010
ROOT, FILE, LOCK = 0x10040, 0x20040, 0x30000

FRAMES: Mapping[int, tuple[Frame, ...]] = {
    GET: (
        Frame("atomic_inc", "include/linux/atomic.h", 12),
        Frame("lockref_get", "lib/lockref.c", 40),
        Frame("path_get", "fs/namei.c", 560),
    ),
    PUT: (Frame("path_put", "fs/namei.c", 580),),
    LOOKUP: (Frame("lookup", "fs/dcache.c", 2300),),
    USER: (Frame("main", "test.c", 3),),
}

PROVENANCE = Origin(
    qemu="QEMU 7.2.22",
    kernel="Linux 6.1.192",
    build_id="0123456789abcdef0123",
    vcpus=2,
    quantum=2000,
    line=64,
    workload="open-creat ops=50",
)


def resolve(address: int, virtual: int) -> Thing:
    offset = address & 63
    if address & ~63 == ROOT:
        field = "d_lockref" if offset == 24 else "d_iname[8]"
        return Thing("slab", "dentry", "dentry", 64 + offset, field, 1, '"/" of rootfs', "root")
    if address & ~63 == FILE:
        return Thing("slab", "dentry", "dentry", 64 + offset, "d_lockref.count", 2, '"f" of tmpfs')
    return Thing("variable", "mount_lock", "", 0, "", LOCK)


def cpu(ops: int, hitm_loads: int, hitm_stores: int, invalidations: int, user: int) -> Any:
    def split(kernel: int, user: int = 0) -> dict[str, int]:
        return {"user": user, "kernel": kernel}

    return {
        "ops": ops,
        "instructions": split(ops * 100, ops * 10),
        "loads": split(ops * 30, ops),
        "stores": split(ops * 20, ops),
        "hitm_loads": split(hitm_loads, user),
        "hitm_stores": split(hitm_stores),
        "invalidations": split(invalidations),
        "waits": 100,
        "escapes": 0,
    }


def line(address: int, loads: int, stores: int, *events: int) -> Any:
    names = ("hitm_loads", "hitm_stores", "invalidations")
    counts = dict(zip(names, events, strict=True))
    return {"address": address, "vaddr": address, "loads": loads, "stores": stores, **counts}


def site(index: int, offset: int, pc: int, *events: int) -> Any:
    names = ("hitm_loads", "hitm_stores", "invalidations")
    counts = dict(zip(names, events, strict=True))
    kernel = pc != USER
    return {
        "line": index,
        "offset": offset,
        "pc": pc,
        "kernel": kernel,
        "loads": sum(events),
        "stores": sum(events),
        **counts,
    }


def region(scale: int = 1) -> Any:
    """100 operations: HITMs on the root dentry 90 + 10, on a file's 30, on a lock 5 by a user."""
    return {
        "complete": True,
        "cpus": [
            cpu(50, 60 * scale, 10 * scale, 20 * scale, 5),
            cpu(50, 55 * scale, 5 * scale, 0, 0),
        ],
        # not in the order of the table
        "lines": [
            line(LOCK, 10, 0, 5, 0, 0),
            line(FILE, 60, 60, 30 * scale, 0, 0),
            line(ROOT, 200, 200, 85 * scale, 15 * scale, 20 * scale),
        ],
        "sites": [
            site(0, 0, USER, 5, 0, 0),
            site(1, 24, PUT, 30 * scale, 0, 0),
            site(2, 24, GET, 60 * scale, 0, 20 * scale),
            site(2, 24, PUT, 0, 15 * scale, 0),
            site(2, 0, LOOKUP, 25 * scale, 0, 0),
        ],
        "directory": {"lines": 3, "line_bytes": 100, "site_bytes": 100, "fixed_bytes": 100},
        "pcs": [{"pc": ENTRY, "executions": 200}, {"pc": SLOW, "executions": 30}],
    }


def report(*regions: Any) -> Any:
    return {
        "abi": 1,
        "plugin_api": 1,
        "target": "x86_64",
        "mode": "system",
        "vcpus": 2,
        "line": 64,
        "quantum": 2000,
        "regions": list(regions),
    }


def profile(
    variant: str = "before", label: str = "", size: int = 0, raw: Any = None, **changes: Any
) -> Profile:
    parsed = plugin.parse(json.dumps(report(raw or region())).encode())
    made = assemble.assemble(
        parsed.regions[0],
        variant=variant,
        label=label,
        size=size,
        provenance=PROVENANCE,
        frames=lambda pcs: {pc: FRAMES[pc] for pc in pcs},
        resolve=resolve,
        watched={ENTRY: "lockref_get", SLOW: "lockref_get>_raw_spin_lock"},
    )
    return replace(made, **changes)


def nothing() -> Any:
    """A region in which no line was shared."""
    raw = region()
    raw["cpus"] = [cpu(50, 0, 0, 0, 0), cpu(50, 0, 0, 0, 0)]
    return {**raw, "lines": [], "sites": []}


def profiles() -> Profiles:
    return Profiles(
        case="open-creat-unlazy",
        run="c2c",
        mode="system",
        profiles=(profile(), profile("after", raw=nothing())),
    )
