# SPDX-License-Identifier: MIT
"""proc-mounts-seek: each read of /proc/mounts walks the list from its head."""

from contended.cases import Study
from contended.cases.evidence import BEYOND, Evidence, Lab, Slope

_EVIDENCE = {
    "read-exponent": Evidence(
        userspace=(
            Slope("before: exponent of steps", "mounts", "before", ("walk_steps",), of="before"),
            Slope(
                "after: exponent of steps",
                "mounts",
                "after",
                ("walk_steps", "next_steps"),
                of="after",
            ),
        ),
        kernel=(
            Lab("before: exponent of steps", "before", "slope.calls.mnt_list_next", of="before"),
            Lab("after: exponent of instructions", "after", "slope.ns_per_op", of="after"),
        ),
        note="Steps and instructions are counted, not timed, so the exponent does not depend on "
        "the machine.",
        section=BEYOND,
    ),
}

STUDY = Study(
    unsimulated="the cost is in the algorithm's steps, which the model counts; no line is fought "
    "over",
    evidence=_EVIDENCE,
)
