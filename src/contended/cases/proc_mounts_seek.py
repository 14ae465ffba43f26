# SPDX-License-Identifier: MIT
"""proc-mounts-seek: each read of /proc/mounts walks the list from its head."""

from contended.cases import ONLY_STEPS, Study
from contended.cases.evidence import BEYOND, Evidence, LabMetric, Slope

_STEPS = "exponent of steps"
_SPENT = "after: exponent of instructions"
_BOTH = ("walk_steps", "next_steps")
_EVIDENCE = {
    "read-exponent": Evidence(
        userspace=(
            Slope(f"before: {_STEPS}", "mounts", "before", ("walk_steps",), of="before"),
            Slope(f"after: {_STEPS}", "mounts", "after", _BOTH, of="after"),
        ),
        kernel=(
            LabMetric(f"before: {_STEPS}", "before", "slope.calls.mnt_list_next", of="before"),
            LabMetric(_SPENT, "after", "slope.ns_per_op", of="after"),
        ),
        note="Steps and instructions are counted, not timed, so the exponent does not depend on "
        "the machine.",
        section=BEYOND,
    ),
}

STUDY = Study(unsimulated=ONLY_STEPS, evidence=_EVIDENCE)
