# SPDX-License-Identifier: MIT
"""What the kernel test robot saw of a loop that was dropped, and what was timed beside it.

Of the case `lockref-degrade`. The robot ran three workloads on kernels without the loop and with
it.
"""

from __future__ import annotations

from collections.abc import Iterator

from contended.cases import timed
from contended.cases.evidence import Evidence
from contended.register import Case
from contended.simulate.predict import Predicted, cannot

CPUS = 64
LOOP = "spin-100", "before"  # the kernels with linux-next's loop, and without
STAYED = "spin-100-stay", "before"  # in the phases of time-handle-stay, the first calm


def predictions(case: Case) -> Iterator[Predicted]:
    """The rows that no simulator speaks to: all but those of `handle`, whose steps are recorded."""
    why = "mixed with sleeping locks, which have no place here"
    yield from cannot(case.figure("robot-regressions"), why)
    why = "its directories are listed under locks that have no place here"
    names = "before", "after", "after/before"
    yield from cannot(case.figure("robot-getdent"), why, *names)
    why = "what was sampled is of all lines that move, and its directories' are not simulated"
    yield from cannot(case.figure("robot-getdent-hitm"), why)


def evidence() -> dict[str, Evidence]:
    """What was timed beside each, by the figure's id."""
    return {
        "robot-regressions": _of(
            (timed.change("unixbench", *LOOP, CPUS, file="time-scripts"),),
            "shell1's scripts were booted once with each kernel, at the machine's middle costs, as "
            "that takes minutes; of the lines that they wait for most, which have an eighth of "
            "their waits, none is a dentry's.",
        ),
        "robot-handle": _of(
            timed.compared(*LOOP, CPUS, file="time-handle-foreseen-drawn"),
            "In the report's call graph two thirds of the time without looks is the inode hash's "
            "lock, under ilookup5_nowait(); lockrefs are under a third. The simulation has both, "
            "and has waiting hurt. The kernel in virtual time is one whose thousand ticks a "
            "second take time, as the robot's do: there looks cost a fifth or more in six of ten "
            "draws. That it would be this kernel was decided when three boots of it had been seen. "
            "By the foresight of before looks cost as much with a hundred ticks that take no time, "
            "and with a third of the operations they helped in most draws.",
        ),
        "robot-handle-hitm": _of(
            tuple(
                timed.all_remote(of, variant, CPUS, label="calm", file="time-handle-stay")
                for of, variant in zip(("after", "before"), STAYED, strict=True)
            ),
            "By counts and not by samples, while nobody lists: HITM by stores are among them, "
            "which perf c2c does not sample. With looks the boots are not in the robot's state.",
        ),
        "robot-getdent": _of(
            timed.compared(*LOOP, CPUS, file="time-getdent"),
            "The kernel got a distribution's protocols because the report's processes wait for the "
            "lock of proc's entries, and ours did not; nobody had seen its rate. Looking at a held "
            "lock changes nothing here, as dentries have 1 to 2 % of the waits; what made it hurt "
            "on the robot's machine is not known.",
        ),
        "robot-getdent-hitm": _of(
            tuple(
                timed.all_remote(of, variant, CPUS, file="time-getdent")
                for of, variant in zip(("after", "before"), LOOP, strict=True)
            ),
            "By counts and not by samples: HITM by stores are among them, which perf c2c does not "
            "sample. With looks the boots are not in the robot's state.",
        ),
    }


def _of(seen: tuple[timed.Time, ...], note: str) -> Evidence:
    return Evidence(
        no_userspace="The robot's workloads are whole system calls, which no model of one word is.",
        no_kernel="A change in throughput needs a clock, and the lab's machine has none to trust.",
        timed=seen,
        note=note,
    )
