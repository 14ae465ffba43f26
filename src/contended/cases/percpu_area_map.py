# SPDX-License-Identifier: MIT
"""percpu-area-map: areas in a list that each allocation and each free walks."""

from contended.cases import ONLY_STEPS, Study
from contended.cases.evidence import BEYOND, Evidence, LabMetric, Slope

_EXPONENT = "exponent of steps"
_LOOKED_AT = "today's allocator: exponent of regions looked at"
_ALLOC, _FREE = "alloc_steps", "free_steps"
_EVIDENCE = {
    "allocation-exponent": Evidence(
        userspace=(
            Slope(f"before: {_EXPONENT}, allocating", "areas", "before", (_ALLOC,), of="before"),
            Slope(f"before: {_EXPONENT}, freeing", "areas", "before", (_FREE,), of="before"),
            Slope(f"after: {_EXPONENT}, both", "areas", "after", (_ALLOC, _FREE)),
        ),
        kernel=(LabMetric(_LOOKED_AT, "today", "slope.calls.pcpu_next_fit_region"),),
        note="Steps are counted, not timed, so the exponent does not depend on the machine. The "
        "allocator itself was replaced long ago: Linux 6.1 cannot show the old one.",
        section=BEYOND,
    ),
}

STUDY = Study(unsimulated=ONLY_STEPS, evidence=_EVIDENCE)
