# SPDX-License-Identifier: MIT
"""proc-mounts-seek: each read of /proc/mounts walks the list from its head."""

from contended.cases import ONLY_STEPS, Study
from contended.cases.evidence import BEYOND, Evidence, RunProbe, lab, slope

_STEPS = "exponent of steps"
_SPENT = "after: exponent of instructions"
_BOTH = ("walk_steps", "next_steps")
STUDY = Study(
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
            section=BEYOND,
        ),
    },
)
