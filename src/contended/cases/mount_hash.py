# SPDX-License-Identifier: MIT
"""mount-hash: a hash table of one page for any number of mounts."""

import re

from contended import stats
from contended.cases import ONLY_STEPS, Study, evidence
from contended.cases.evidence import Evidence, RunProbe, chains, lab_text
from contended.cases.host import Host, Seen
from contended.measure import results, today
from contended.measure.running import Running

_IMPLIED = "chains that a lookup's steps imply"
_REPORTED, _ENTRIES = "entries that the kernel reports", r"entries: (\d+)"
_OLD = 256  # chains, whatever the machine's memory


def _twice(read: evidence.Read) -> evidence.Read:
    """What of so much memory would be of twice as much: two chains a megabyte."""

    def seen(runs: evidence.Runs) -> evidence.Seen:
        value, text, source, live = read(runs)
        return 2 * value, f"{text}, so {results.number(2 * value, 4)}", source, live

    return seen


def _structure(kernel: Running) -> Seen:
    """What the kernel said at boot, where anybody may read it."""
    found = re.search(r"Mount-cache hash table entries: (\d+)", kernel.log)
    if found is None:
        return Seen(None, "how many chains there are is not to be seen: dmesg is closed, or over")
    return Seen(int(found[1]) <= _OLD, f"the kernel reports {found[1]} chains for mounts")


def _control(_: Running) -> Seen:
    seen = today.crossing()
    few, many = seen.phases
    pairs = [seen.values("crossing", phase=phase) for phase in (many, few)]
    ratio = stats.paired_ratio(*pairs)
    cost = (
        f"stat behind a mount: {results.number(stats.median(pairs[0]), 3)} ns with {many} mounts, "
        f"{results.number(ratio.median, 3)} times as much as with {few} "
        f"({results.number(ratio.low, 3)} to {results.number(ratio.high, 3)}, "
        f"{len(pairs[0])} pairs)"
    )
    return Seen(None, "", cost)


_HOST = Host(
    structure=_structure,
    control=_control,
    command="sudo dmesg | grep Mount-cache",
    size="grows with the mounts for each chain, on one CPU as on many",
)
STUDY = Study(
    host=_HOST,
    unsimulated=ONLY_STEPS,
    evidence={
        "hash-chains": Evidence(
            userspace=(
                RunProbe(
                    f"before: {_IMPLIED}", chains("mounts-30000", "before"), "before", given=True
                ),
                RunProbe(f"after, 2 GiB: {_IMPLIED}", chains("memory-2048", "after")),
            ),
            kernel=(
                RunProbe(
                    f"before: {_REPORTED}",
                    lab_text("before", "dmesg", _ENTRIES),
                    of="before",
                    given=True,
                ),
                RunProbe(
                    f"after, 1 GiB, and twice as much for 2: {_REPORTED}",
                    _twice(lab_text("after", "dmesg", _ENTRIES)),
                    of="after",
                ),
            ),
            note="The table's size follows from the memory, two chains for each megabyte: a guest "
            "with half the memory has half the chains. The 256 chains of before are given to the "
            "model, and to the lab's kernel as a boot parameter, so they are not counted here.",
        ),
    },
)
