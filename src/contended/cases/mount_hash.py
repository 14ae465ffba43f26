# SPDX-License-Identifier: MIT
"""mount-hash: a hash table of one page for any number of mounts."""

from contended.cases import Study
from contended.cases.evidence import BEYOND, Chains, Evidence, Lab

_EVIDENCE = {
    "hash-chains": Evidence(
        userspace=(
            Chains(
                "before: chains that a lookup's steps imply",
                "mounts-30000",
                "before",
                of="before",
            ),
            Chains(
                "after, 2 GiB: chains that a lookup's steps imply",
                "memory-2048",
                "after",
                of="after",
            ),
        ),
        kernel=(
            Lab(
                "before: entries that the kernel reports",
                "before",
                "dmesg",
                pattern=r"entries: (\d+)",
                of="before",
            ),
            Lab(
                "after, 1 GiB: entries that the kernel reports",
                "after",
                "dmesg",
                pattern=r"entries: (\d+)",
            ),
        ),
        note="The table's size follows from the memory, two chains for each megabyte: a guest with "
        "half the memory has half the chains.",
        section=BEYOND,
    ),
}

STUDY = Study(
    unsimulated="the cost is in the algorithm's steps, which the model counts; no line is fought "
    "over",
    evidence=_EVIDENCE,
)
