# SPDX-License-Identifier: MIT
"""mount-hash: a hash table of one page for any number of mounts."""

from contended.cases import ONLY_STEPS, Study
from contended.cases.evidence import BEYOND, Evidence, RunProbe, chains, lab_text

_IMPLIED = "chains that a lookup's steps imply"
_REPORTED, _ENTRIES = "entries that the kernel reports", r"entries: (\d+)"
STUDY = Study(
    unsimulated=ONLY_STEPS,
    evidence={
        "hash-chains": Evidence(
            userspace=(
                RunProbe(f"before: {_IMPLIED}", chains("mounts-30000", "before"), of="before"),
                RunProbe(f"after, 2 GiB: {_IMPLIED}", chains("memory-2048", "after"), of="after"),
            ),
            kernel=(
                RunProbe(
                    f"before: {_REPORTED}", lab_text("before", "dmesg", _ENTRIES), of="before"
                ),
                RunProbe(f"after, 1 GiB: {_REPORTED}", lab_text("after", "dmesg", _ENTRIES)),
            ),
            note="The table's size follows from the memory, two chains for each megabyte: a guest "
            "with half the memory has half the chains.",
            section=BEYOND,
        ),
    },
)
