# SPDX-License-Identifier: MIT
"""dentry-false-sharing: a name that is compared on the line of a reference count."""

from __future__ import annotations

from collections.abc import Iterator

from contended import register
from contended.cases import Study
from contended.cases.evidence import Evidence, RunProbe, hitm, ratio
from contended.register import Case
from contended.simulate.chart import marks
from contended.simulate.curves import Series, Sweep, times
from contended.simulate.locks import Lock, Lockref
from contended.simulate.predict import Ground, Predicted
from contended.simulate.program import UNIFORM, Memory, Program
from contended.simulate.validate import Modelled
from contended.simulate.workload import MS, STAT, Scenario, Setup

SLUG, FIGURE = "dentry-false-sharing", "stat-same-file"

# Where a stat's work lies, in parts, by the order of the kernel's code; the parts are assumed.
_TO_GET = 0.1  # from comparing the name to taking the reference: mounts, flags, permissions
_BETWEEN = 0.2  # from get to put: filling in the attributes


def _lookup(setup: Setup, p: Program, memory: Memory) -> None:
    """Stat one file, whose name is or is not on the line of the reference count."""
    count = memory.word(1 << 32)
    name = memory.word(beside=count) if setup.variant == "before" else memory.word()
    ref = Lockref(Lock(setup.lock, memory, count))
    work = setup.work["stat"]
    p.think(work * (1 - _TO_GET - _BETWEEN), UNIFORM)
    p.read(name)
    p.think(work * _TO_GET, UNIFORM)
    ref.change(p, 1)
    p.think(work * _BETWEEN, UNIFORM)
    ref.change(p, -1)
    p.done()


LOOKUPS = Scenario(
    name=SLUG,
    variants={
        "before": "the name is compared on the reference count's line",
        "after": "the reference count has a line of its own",
    },
    phases={"start": 0.5 * MS, "run": 2 * MS},
    counters={"fast": 0, "slow": 1, "retried": 2},
    works={"stat": STAT},
    build=_lookup,
)


def _predictions(case: Case) -> Iterator[Predicted]:
    figure = case.figure(FIGURE)
    here = Ground(LOOKUPS, "1x24", figure.workers or 20)
    before, after = here.rate("before"), here.rate("after")
    why = "the machine of the report is not known"
    yield here.value(figure, "before", before, why)
    yield here.value(figure, "after", after, why)
    why = "what moving the count is worth"
    yield here.ratio(figure, "after", "before", (after, before), why)


def _mixed(p: Program, memory: Memory) -> None:
    """The C model, mixed: look the name up, get, put."""
    word = memory.word(1 << 32)
    ref = Lockref(Lock("queued", memory, word))
    p.read(memory.word(beside=word))
    ref.change(p, 1)
    ref.change(p, -1)


_GAIN = "throughput, after over before,"
_NAME, _MOVED = "__d_lookup_rcu", "HITM in __d_lookup_rcu per stat"
_MARKS = marks(register.get(SLUG).figure(FIGURE), "before", "after")
STUDY = Study(
    workloads=(LOOKUPS,),
    sweep=Sweep(
        LOOKUPS, "1x24", tuple(map(Series, LOOKUPS.variants)), times(LOOKUPS, "stat"), _MARKS
    ),
    predictions=_predictions,
    modelled=(Modelled(SLUG, "before", "run", "dentry-false-sharing/mixed", _mixed),),
    evidence={
        FIGURE: Evidence(
            userspace=(
                RunProbe(f"{_GAIN} a reader beside a reference taker", ratio("separate", "after")),
                RunProbe(f"{_GAIN} readers only (the control)", ratio("readers", "after")),
            ),
            kernel=(
                RunProbe(f"before: {_MOVED}", hitm("c2c", "before", _NAME)),
                RunProbe(f"after: {_MOVED}", hitm("c2c", "after", _NAME)),
            ),
            note="The model shows the whole effect by separating the roles; in a real stat each "
            "CPU does both, so less is gained. The profile counts what is saved: a transfer in "
            "each stat.",
        ),
    },
)
