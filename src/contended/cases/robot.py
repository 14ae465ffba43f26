# SPDX-License-Identifier: MIT
"""What the kernel test robot saw of a loop that was dropped, and what was timed beside it.

Of the case `lockref-degrade`. The robot ran three workloads on kernels without the loop and with
it; linux-next's form of the idea is the lab's kernel spin-100.
"""

from __future__ import annotations

from collections.abc import Iterator

from contended.cases import timed
from contended.cases.evidence import Evidence
from contended.register import Case
from contended.simulate.predict import Predicted, cannot

CPUS = 64
KERNELS = {"before": "before", "after": "spin-100"}
FILES = {"shell1": "time-scripts", "getdent": "time-getdent", "handle": "time-robot"}
_WHOLE_CALLS = "The robot's workloads are whole system calls, which no model of one word is."
_NO_CLOCK = "A change in throughput needs a clock, and the lab's machine has none to trust."
NO_SOCKETS = "The lab's machine has no sockets: its profiler tells no near line from a far one."


def predictions(case: Case) -> Iterator[Predicted]:
    """The rows that no simulator speaks to: all but those of `handle`."""
    why = "mixed with sleeping locks, which have no place here"
    yield from cannot(case.figure("robot-regressions"), why)
    listings = case.figure("robot-getdent")
    why = "its directories are listed under locks that have no place here"
    yield from cannot(listings, why, "before", "after", "after/before")
    why = "the robot's perf saw whole programs, and the simulator has one call"
    yield from cannot(case.figure("robot-hitm"), why)


def rates(cpus: int, file: str) -> tuple[timed.Time, ...]:
    """On kernels that do in an open what a distribution's does: before, after, and the quotient."""
    return (
        *(timed.rate(of, variant, cpus, file=file) for of, variant in KERNELS.items()),
        timed.ratio("after/before", "spin-100", "before", cpus, file=file),
    )


def evidence() -> dict[str, Evidence]:
    """What was timed beside each, by the figure's id."""
    return {
        "robot-regressions": Evidence(
            no_userspace=_WHOLE_CALLS,
            no_kernel=_NO_CLOCK,
            timed=(timed.change("unixbench", "spin-100", "before", CPUS, file=FILES["shell1"]),),
            note="shell1's scripts were booted once with each kernel, at the machine's middle "
            "costs, as that takes minutes; none of the lines that they wait for most is a "
            "dentry's.",
        ),
        "robot-handle": Evidence(
            no_userspace=_WHOLE_CALLS,
            no_kernel=_NO_CLOCK,
            timed=rates(CPUS, FILES["handle"]),
            note="In the report's call graph two thirds of the time is the inode hash's lock, "
            "under ilookup5_nowait(); lockrefs are under a third. The simulation has both, and has "
            "waiting hurt. The kernel in virtual time has it in some draws of what the machine "
            "costs, and in others waiting helps.",
        ),
        "robot-getdent": Evidence(
            no_userspace=_WHOLE_CALLS,
            no_kernel=_NO_CLOCK,
            timed=rates(CPUS, FILES["getdent"]),
            note="In virtual time the processes wait for what the report's do, the lock of proc's "
            "entries and sysfs's semaphore, but hardly meet at a dentry, so looking at a held lock "
            "changes nothing. If all begin at one place they meet, and looks do not hurt either: "
            "what made them hurt on the robot's machine is not known.",
        ),
        "robot-hitm": Evidence(
            no_userspace="It needs two sockets, and a processor that counts.",
            no_kernel=NO_SOCKETS,
            timed=tuple(
                timed.remote(f"{what}-{of}", variant, CPUS, file=file)
                for what, file in FILES.items()
                for of, variant in KERNELS.items()
            ),
            note="Of all HITM while a workload runs. Most of the spread is who is next when the "
            "CPUs of two sockets want a line: where a socket sends one request at a time, a line "
            "crosses less often.",
        ),
    }
