# SPDX-License-Identifier: MIT
"""mount-propagation: copies of a mount that are made only to be thrown away."""

from contended.cases import ONLY_STEPS, Study
from contended.cases.evidence import Evidence, RunProbe, count, lab

_WASTED, _FREED = "copies wasted, 4000 binds", "mounts freed again, 1000 binds"
STUDY = Study(
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
