# SPDX-License-Identifier: MIT
"""proc-mounts-seek: each read of /proc/mounts walks the list from its head."""

from contended import stats
from contended.cases import ONLY_STEPS, Study
from contended.cases.evidence import Evidence, RunProbe, lab, slope
from contended.cases.host import Host, Seen
from contended.measure import results, today
from contended.measure.running import Running

_STEPS = "exponent of steps"
_SPENT = "after: exponent of instructions"
_BOTH = ("walk_steps", "next_steps")
_MOUNTS = 4000
# Between these a read near the file's end is neither as fast as one near its beginning nor slower.
_HEALTHY, _SICK = 1.5, 2.0


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
    """How much longer a read takes far into the file; reading all of it is what it costs."""
    us = stats.median(today.mountinfo([_MOUNTS], repeats=3).values("mountinfo", phase=str(_MOUNTS)))
    ratio = today.ends(_MOUNTS).ratio_at("last", threads=1)
    has = True if ratio.low > _SICK else False if ratio.high < _HEALTHY else None
    cost = f"{results.number(us, 3)} µs to read {_MOUNTS} mounts, median"
    return Seen(
        has,
        f"control: a read near the end of {_MOUNTS} mounts takes {results.number(ratio.median, 3)} "
        f"times as long as one near the beginning ({results.number(ratio.low, 3)} to "
        f"{results.number(ratio.high, 3)}, {ratio.pairs} pairs)",
        cost,
    )


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
