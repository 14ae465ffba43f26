# SPDX-License-Identifier: MIT
"""percpu-area-map: areas in a list that each allocation and each free walks."""

from contended.cases import ONLY_STEPS, Study
from contended.cases.evidence import Evidence, RunProbe, lab, slope
from contended.cases.host import Host, Seen, binds
from contended.measure.running import Running

_STEPS = "exponent of steps"
_ALLOC, _FREE = "alloc_steps", "free_steps"
_LOOKED_AT = "today's allocator: exponent of regions looked at"


def _structure(kernel: Running) -> Seen:
    """The bitmap allocator has other members and functions than the list of lengths had."""
    members = kernel.members("pcpu_chunk")
    if members and "bound_map" in members:
        return Seen(False, "struct pcpu_chunk has bound_map: the allocator is the bitmap one")
    if kernel.has("pcpu_next_fit_region") or kernel.has("pcpu_block_refresh_hint"):
        return Seen(False, "the bitmap allocator's functions are there")
    return Seen(None, "neither types nor symbols name the per-CPU allocator's kind")


def _control(_: Running) -> Seen:
    few, many = binds("private")
    cost = f"the next private mount: {few.text} with {few.mounts}, {many.text} with {many.mounts}"
    return Seen(None, "", cost)


_HOST = Host(
    structure=_structure,
    control=_control,
    command="sudo perf record -a -e cpu-clock:k -- sleep 10 && "
    "sudo perf report --stdio --sort symbol",
    size="grows with what is allocated, on one CPU as on many",
)
STUDY = Study(
    host=_HOST,
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
        ),
    },
)
