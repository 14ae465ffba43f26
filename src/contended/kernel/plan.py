# SPDX-License-Identifier: MIT
"""Which kernels a case's outcomes need, and which of them is booted with which run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from contended.kernel import variants
from contended.kernel.variants import Expectation, GuestRun, KernelCase, Variant

# Nothing of it is counted or timed: whatever else is asked for, it has processors to race on.
SMOKE = GuestRun("smoke", "smoke", {}, vcpus=4)
SMOKE_DEBUG = replace(SMOKE, name="smoke-debug", config="debug")


@dataclass(frozen=True, slots=True)
class Plan:
    """Which variants are booted with which runs, and what is expected of that."""

    case: KernelCase
    boots: tuple[tuple[Variant, GuestRun], ...]

    @property
    def kernels(self) -> list[tuple[Variant, str]]:
        """The kernels that it takes, as pairs of a variant and a configuration."""
        return list({(v.name, r.config): (v, r.config) for v, r in self.boots}.values())


def of(
    case: str | KernelCase,
    wanted: Sequence[str] | None = None,
    *,
    smoke: bool = True,
    runs: Sequence[str] | None = None,
) -> Plan:
    """What it takes to judge a case's variants, or what some of its runs show of them.

    A variant that another one is compared with is booted too. The smoke set is added for every
    variant, and once more with the debugging options for right fixes, unless the case's file has
    its own expectation of that workload with that configuration.
    """
    case = variants.load(case) if isinstance(case, str) else case
    asked = [run.name for run in case.pick_runs(case.runs if runs is None else runs)]
    chosen = [one.name for one in case.pick(case.variants if wanted is None else wanted)]
    expected = [o for o in case.outcomes if o.variant in chosen and o.run in asked]
    if smoke:
        expected += _smoke(case, chosen)
    all_runs = dict(case.runs)
    for added in (SMOKE, SMOKE_DEBUG):
        all_runs.setdefault(added.name, added)
    needed = {(name, o.run) for o in expected for name in (o.variant, o.relative_to)}
    # Run by run, so that the variants of a run are booted next to each other.
    pairs = tuple(
        (variant, run)
        for run in all_runs.values()
        for variant in case.variants.values()
        if (variant.name, run.name) in needed
    )
    return Plan(replace(case, runs=all_runs, outcomes=tuple(expected)), pairs)


def _smoke(case: KernelCase, chosen: Sequence[str]) -> Iterator[Expectation]:
    own = {
        (outcome.variant, case.runs[outcome.run].config)
        for outcome in case.outcomes
        if case.runs[outcome.run].workload == "smoke"
    }
    passes = "the VFS smoke set passes"
    for name in chosen:
        if (name, "base") not in own:
            yield Expectation(name, SMOKE.name, passes, "smoke.failed", equals=0.0)
        if case.variants[name].right and (name, "debug") not in own:
            for expected, metric in (
                (f"{passes} with the debugging options", "smoke.failed"),
                ("and the kernel reports nothing with them", "splats"),
            ):
                yield Expectation(name, SMOKE_DEBUG.name, expected, metric, equals=0.0)
