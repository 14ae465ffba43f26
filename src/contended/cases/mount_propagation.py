# SPDX-License-Identifier: MIT
"""mount-propagation: copies of a mount that are made only to be thrown away."""

from contended.cases import ONLY_STEPS, Study
from contended.cases.evidence import Evidence, RunProbe, count, lab
from contended.cases.host import Host, Seen, Traced, binds
from contended.measure import today
from contended.measure.running import Running

_WASTED, _FREED = "copies wasted, 4000 binds", "mounts freed again, 1000 binds"
# Sick if the next bind costs more than so many binds for each thousand peers; well below a tenth.
_BINDS_PER_THOUSAND = 50


def _control(_: Running) -> Seen:
    """How many mounts the kernel makes for one, or what that costs beside a private one."""
    private, shared = binds("private")[-1], binds("shared")[-1]
    cost = f"the next of {shared.mounts} binds: {shared.text} shared, {private.text} private"
    if shared.allocated:
        each = f"control: {shared.allocated:.2f} mounts are made for each that stays"
        few, many = shared.allocated < 2, shared.allocated > shared.mounts / 4
        return Seen(many if few or many else None, each, cost)
    times = shared.us / private.us
    sick = _BINDS_PER_THOUSAND * shared.mounts / 1000
    has = True if times > sick else False if times < sick / 10 else None
    return Seen(has, f"control: a shared bind costs {times:.1f} private ones", cost)


_HOST = Host(
    control=_control,
    traced=Traced(
        calls="clone_mnt",
        per="path_mount",
        operation=lambda _: today.bind_cost([250], repeats=1),
        sick=50,
        healthy=2,
    ),
    command="sudo bpftrace -e 'kprobe:path_mount, kprobe:clone_mnt { @[func] = count(); } "
    "interval:s:10 { exit(); }'",
    size="grows with the square of the mounts in a peer group, on one CPU as on many",
)
STUDY = Study(
    host=_HOST,
    unsimulated=ONLY_STEPS,
    evidence={
        "discarded-mounts": Evidence(
            userspace=(
                RunProbe(
                    f"before: {_WASTED}", count("binds-4000", "before", "wasted"), of="before"
                ),
                RunProbe(f"after: {_WASTED}", count("binds-4000", "after", "wasted")),
            ),
            kernel=(
                RunProbe(f"before: {_FREED}", lab("before", "1000/calls.cleanup_mnt")),
                RunProbe(f"after: {_FREED}", lab("after", "1000/calls.cleanup_mnt")),
            ),
            note="Model and kernel agree to the last mount on N(N - 1)/2 for N binds, which is not "
            "what the letter says of 4000; the chapter works out what may have been meant.",
            section="where-the-two-million-comes-from",
        ),
    },
)
