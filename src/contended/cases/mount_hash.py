# SPDX-License-Identifier: MIT
"""mount-hash: a hash table of one page for any number of mounts."""

from contended.cases import ONLY_STEPS, Study
from contended.cases.evidence import BEYOND, Chains, Evidence, LabMetric

_IMPLIED = "chains that a lookup's steps imply"
_REPORTED, _ENTRIES = "entries that the kernel reports", r"entries: (\d+)"
_EVIDENCE = {
    "hash-chains": Evidence(
        userspace=(
            Chains(f"before: {_IMPLIED}", "mounts-30000", "before", of="before"),
            Chains(f"after, 2 GiB: {_IMPLIED}", "memory-2048", "after", of="after"),
        ),
        kernel=(
            LabMetric(f"before: {_REPORTED}", "before", "dmesg", pattern=_ENTRIES, of="before"),
            LabMetric(f"after, 1 GiB: {_REPORTED}", "after", "dmesg", pattern=_ENTRIES),
        ),
        note="The table's size follows from the memory, two chains for each megabyte: a guest with "
        "half the memory has half the chains.",
        section=BEYOND,
    ),
}

STUDY = Study(unsimulated=ONLY_STEPS, evidence=_EVIDENCE)
