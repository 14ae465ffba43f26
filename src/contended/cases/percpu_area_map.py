# SPDX-License-Identifier: MIT
"""percpu-area-map: areas in a list that each allocation and each free walks."""

from contended.cases import Study
from contended.cases.evidence import BEYOND, Evidence, Lab, Slope

_EVIDENCE = {
    "allocation-exponent": Evidence(
        userspace=(
            Slope(
                "before: exponent of steps, allocating",
                "areas",
                "before",
                ("alloc_steps",),
                of="before",
            ),
            Slope(
                "before: exponent of steps, freeing",
                "areas",
                "before",
                ("free_steps",),
                of="before",
            ),
            Slope(
                "after: exponent of steps, both",
                "areas",
                "after",
                ("alloc_steps", "free_steps"),
            ),
        ),
        kernel=(
            Lab(
                "today's allocator: exponent of regions looked at",
                "today",
                "slope.calls.pcpu_next_fit_region",
            ),
        ),
        note="Steps are counted, not timed, so the exponent does not depend on the machine. The "
        "allocator itself was replaced long ago: Linux 6.1 cannot show the old one.",
        section=BEYOND,
    ),
}

STUDY = Study(
    unsimulated="the cost is in the algorithm's steps, which the model counts; no line is fought "
    "over",
    evidence=_EVIDENCE,
)
