# SPDX-License-Identifier: MIT
"""mount-propagation: copies of a mount that are made only to be thrown away."""

from contended.cases import Study
from contended.cases.evidence import Count, Evidence, Lab

_EVIDENCE = {
    "discarded-mounts": Evidence(
        userspace=(
            Count(
                "before: copies wasted, 4000 binds",
                "binds-4000",
                "before",
                "wasted",
                of="before",
            ),
            Count("after: copies wasted, 4000 binds", "binds-4000", "after", "wasted"),
        ),
        kernel=(
            Lab("before: mounts freed again, 1000 binds", "before", "1000/calls.cleanup_mnt"),
            Lab("after: mounts freed again, 1000 binds", "after", "1000/calls.cleanup_mnt"),
        ),
        note="Model and kernel agree to the last mount on N(N - 1)/2 for N binds, which is not "
        "what the letter says of 4000; the chapter works out what may have been meant.",
        section="where-the-two-million-comes-from",
    ),
}

STUDY = Study(
    unsimulated="the cost is in the algorithm's steps, which the model counts; no line is fought "
    "over",
    evidence=_EVIDENCE,
)
