# SPDX-License-Identifier: MIT
"""proc-mounts-seek: each read of /proc/mounts walks the list from its head."""

import math

from contended import stats
from contended.cases import ONLY_STEPS, Study
from contended.cases.evidence import Evidence, RunProbe, lab, slope
from contended.cases.host import Host, Seen
from contended.measure import results, today
from contended.measure.running import Running

_STEPS = "exponent of steps"
_SPENT = "after: exponent of instructions"
_BOTH = ("walk_steps", "next_steps")
_FEW, _MANY = 500, 4000
# Between these powers of the number of mounts it is neither a line nor a square.
_LINE, _SQUARE = 1.3, 1.6


def _structure(kernel: Running) -> Seen:
    """Where the kernel keeps the place at which the next read goes on."""
    members, mount = kernel.members("proc_mounts"), kernel.members("mount")
    if members is None or mount is None:
        return Seen(None, "where a reader's place is kept is not known")
    for name, says in {
        "cursor": "the place is kept by a cursor in the list",
        "cached_mount": "the place is kept in the open file",
    }.items():
        if name in members:
            return Seen(False, f"struct proc_mounts has {name}: {says}")
    if "mnt_node" in mount:
        return Seen(False, "struct mount has mnt_node: a place is looked up in a tree")
    return Seen(None, "struct proc_mounts keeps no place, struct mount is in no tree")


def _control(_: Running) -> Seen:
    seen = today.mountinfo([_FEW, _MANY], repeats=5)
    rows = [seen.samples("mountinfo", phase=str(n)) for n in (_FEW, _MANY)]
    us = [stats.median([row.value for row in some]) for some in rows]
    mounts = [some[0].counts["mounts"] / some[0].counts["ops"] for some in rows]
    power = math.log(us[1] / us[0]) / math.log(mounts[1] / mounts[0])
    has = True if power > _SQUARE else False if power < _LINE else None
    cost = f"{results.number(us[1], 3)} µs to read {mounts[1]:.0f} mounts, median"
    return Seen(has, f"control: the time grows with the mounts to the power {power:.2f}", cost)


_HOST = Host(
    structure=_structure,
    control=_control,
    command="sudo bpftrace -e 'kprobe:seq_read_iter { @at[tid] = nsecs; } kretprobe:seq_read_iter "
    "/@at[tid]/ { @ns[comm] = hist(nsecs - @at[tid]); delete(@at[tid]); } "
    "interval:s:10 { clear(@at); exit(); }'",
    size="grows with the square of the mounts, on one CPU as on many",
)
STUDY = Study(
    host=_HOST,
    unsimulated=ONLY_STEPS,
    evidence={
        "read-exponent": Evidence(
            userspace=(
                RunProbe(f"before: {_STEPS}", slope("mounts", "before", "walk_steps"), of="before"),
                RunProbe(f"after: {_STEPS}", slope("mounts", "after", *_BOTH), of="after"),
            ),
            kernel=(
                RunProbe(
                    f"before: {_STEPS}", lab("before", "slope.calls.mnt_list_next"), of="before"
                ),
                RunProbe(_SPENT, lab("after", "slope.ns_per_op"), of="after"),
            ),
            note="Steps and instructions are counted, not timed, so the exponent does not depend "
            "on the machine.",
        ),
    },
)
