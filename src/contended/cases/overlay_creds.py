# SPDX-License-Identifier: MIT
"""overlay-creds: each system call on an overlay counts a reference on one set of credentials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from contended.cases import Study
from contended.cases.evidence import Evidence, RunProbe, lab, ratio
from contended.register import Case
from contended.simulate.curves import Series, Sweep, times
from contended.simulate.machines import Parameter
from contended.simulate.predict import Ground, Predicted, cannot
from contended.simulate.program import UNIFORM, Memory, Program
from contended.simulate.validate import Modelled
from contended.simulate.workload import MS, Scenario, Setup, Work

SLUG = "overlay-creds"


def _creds(setup: Setup, p: Program, memory: Memory) -> None:
    """Check access on an overlay: borrow the mounter's credentials, look, give them back."""
    ids = memory.word()
    usage = memory.word(1) if setup.variant == "own-line" else memory.word(1, beside=ids)
    counted = setup.variant != "after"
    p.think(setup.work["faccessat"] * 0.8, UNIFORM)
    if counted:
        p.add(usage, 1)
    p.read(ids)
    p.think(setup.work["faccessat"] * 0.2, UNIFORM)
    if counted:
        p.add(usage, -1)
    p.done()


_CALL = "faccessat(2) of one file on tmpfs by one thread: 2-CPU AMD EPYC guest, Linux 6.18; "
_CALL += "overlayfs adds to it"
CHECKS = Scenario(
    name=SLUG,
    variants={
        "before": "count a reference on the credentials' own line",
        "own-line": "count it on a line of its own",
        "after": "count nothing",
    },
    phases={"start": 0.5 * MS, "run": 2 * MS},
    works={"faccessat": Work(1000, Parameter("measured", _CALL, 500, 3000))},
    build=_creds,
)


def remote_share(counts: Mapping[str, int]) -> float:
    """The part of the transfers that came from another socket."""
    moved = sum(counts[f"transfers_{kind}"] for kind in ("core", "near", "cross", "far"))
    return counts["transfers_far"] / moved


def _predictions(case: Case) -> Iterator[Predicted]:
    here = Ground(CHECKS, "2x20-smt", 80)
    before, after = (partial(here.phase, variant, "run") for variant in ("before", "after"))
    remote, local = case.figure("remote-hitm"), case.figure("local-hitm")
    for figure in (remote, local):
        yield from cannot(
            figure, "a number of samples: it depends on how long and how often they were taken"
        )
    far, near = remote.value("before").low, local.value("before").low
    ends = (far / (far + near),) * 2
    why = "of all HITM on the line, those that came from the other socket"
    yield here.value(
        remote,
        "before, remote share",
        lambda *at: remote_share(before(*at).counts),
        why,
        published=ends,
        unit="part",
    )
    why = "the report's figures after the fix belong to an unrelated line"
    yield here.value(
        remote, _AFTER, lambda *at: float(after(*at).transfers), why, published=(0.0, 0.0)
    )


def _borrow(p: Program, memory: Memory) -> None:
    """The C model, before: take, look at the ids beside the count, drop."""
    word = memory.word(1)
    p.add(word, 1)
    p.read(memory.word(beside=word))
    p.add(word, -1)


_AFTER = "after, of the credentials' line"
_CREDS = (RunProbe("throughput, after over before, 2 threads", ratio("run", "after")),)
_BORROWED, _MOVED = (
    "hitm_per_op.field(cred.usage).role(overlay)",
    "HITM on the counter per faccessat",
)
_OVERRIDDEN = "overlay-only: override_creds per faccessat"
_HITM = (
    RunProbe(f"before: {_MOVED}", lab("before", _BORROWED)),
    RunProbe(f"after: {_MOVED}", lab("after", _BORROWED), of=_AFTER),
    RunProbe(_OVERRIDDEN, lab("overlay-only", "calls_per_op.override_creds")),
)
STUDY = Study(
    workloads=(CHECKS,),
    sweep=Sweep(
        CHECKS, "2x20-smt", tuple(map(Series, CHECKS.variants)), times(CHECKS, "faccessat")
    ),
    predictions=_predictions,
    modelled=(Modelled(SLUG, "before", "run", "overlay-creds/run", _borrow),),
    evidence={
        "remote-hitm": Evidence(
            userspace=_CREDS,
            kernel=_HITM,
            note="Samples of perf c2c depend on how long it listened; what can be compared is "
            "whether the line moves at all, and which part of the moves is remote.",
        ),
        "local-hitm": Evidence(
            userspace=_CREDS,
            kernel=_HITM,
            note="Samples of perf c2c depend on how long it listened. The lab's profiler counts "
            "every transfer, but knows one distance only: its HITM are neither local nor remote.",
        ),
    },
)
