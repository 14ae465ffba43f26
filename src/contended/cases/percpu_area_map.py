# SPDX-License-Identifier: MIT
"""percpu-area-map: areas in a list that each allocation and each free walks."""

from contended.cases import ONLY_STEPS, Study
from contended.cases.evidence import BEYOND, Evidence, RunProbe, lab, slope

_STEPS = "exponent of steps"
_ALLOC, _FREE = "alloc_steps", "free_steps"
_LOOKED_AT = "today's allocator: exponent of regions looked at"
STUDY = Study(
    unsimulated=ONLY_STEPS,
    evidence={
        "allocation-exponent": Evidence(
            userspace=(
                RunProbe(
                    f"before: {_STEPS}, allocating", slope("areas", "before", _ALLOC), "before"
                ),
                RunProbe(f"before: {_STEPS}, freeing", slope("areas", "before", _FREE), "before"),
                RunProbe(f"after: {_STEPS}, both", slope("areas", "after", _ALLOC, _FREE)),
            ),
            kernel=(RunProbe(_LOOKED_AT, lab("today", "slope.calls.pcpu_next_fit_region")),),
            note="Steps are counted, not timed, so the exponent does not depend on the machine. "
            "The allocator itself was replaced long ago: Linux 6.1 cannot show the old one.",
            section=BEYOND,
        ),
    },
)
