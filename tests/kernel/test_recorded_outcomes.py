# SPDX-License-Identifier: MIT
"""No outcome is empty: each is false for a kernel here, or says that it is a control."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import pytest

from contended import tree
from contended.kernel import outcomes, record, variants
from contended.kernel.boot import GuestReport
from contended.kernel.outcomes import Failed, Report
from contended.kernel.record import OutcomeRecord
from contended.kernel.variants import Expectation, KernelCase
from contended.profile import saved

Boots = Mapping[tuple[str, str], list[Report]]


def judged(case: KernelCase) -> list[OutcomeRecord]:
    file = tree.home() / "results" / case.slug / "kernel.json"
    return record.load(file).outcomes if file.exists() else []


def recorded(case: KernelCase) -> Boots:
    """The recorded boots and profiles of a case's kernels, as they were judged."""
    place = tree.home() / "results" / case.slug
    found: dict[tuple[str, str], list[Report]] = defaultdict(list)
    boots = record.load(place / "kernel.json").boots if judged(case) else []
    for boot in boots:
        if boot.run in case.runs and case.runs[boot.run].profile:
            continue  # it was not the guest that reported
        # Of the kernel's own words a record keeps its complaints, and what an outcome looked for.
        about = [o.seen for o in judged(case) if (o.variant, o.run) == (boot.variant, boot.run)]
        report: Report = GuestReport(
            hello={},
            results=boot.results,
            checks=boot.checks,
            dmesg="\n".join(word for word in about if isinstance(word, str)),
            console=boot.excerpt,
            boot_s=boot.boot_s,
            wall_s=boot.wall_s,
        )
        if boot.failed:
            kind, reason = boot.failed.split(": ", 1)
            report = Failed(kind, reason, boot.excerpt)
        found[boot.variant, boot.run].append(report)
    for file in sorted(place.glob("c2c*.json")):
        kept = saved.load(file)
        name = file.stem.removeprefix("c2c-") if file.stem != "c2c" else kept.run
        for variant in kept.variants if name in case.runs else ():
            found[variant, name].append(kept)
    return found


def is_broken(outcome: Expectation, seen: float) -> bool:
    return not (
        (outcome.at_least is None or seen >= outcome.at_least)
        and (outcome.at_most is None or seen <= outcome.at_most)
        and (outcome.equals is None or seen == pytest.approx(outcome.equals))
    )


def false_for(case: KernelCase, outcome: Expectation, boots: Boots) -> set[str]:
    """The kernels of which the records say that it is false."""
    found = set()
    for variant, run in boots:
        if run == outcome.run and variant != outcome.variant:
            other = replace(outcome, variant=variant)
            (seen,) = outcomes.judge(replace(case, outcomes=(other,)), boots)
            # What could not be judged is no evidence.
            if not seen.held and seen.seen is not None:
                found.add(variant)
    if outcome.relative_to and is_broken(outcome, 1.0):
        found.add(outcome.relative_to)  # compared with itself
    for known in judged(case) if not outcome.relative_to else ():
        # All that is kept of a profile that only outcomes were made from.
        about = (known.run, known.metric) == (outcome.run, outcome.metric)
        absolute = f"{known.metric} / " not in known.condition
        if not (about and absolute and isinstance(known.seen, float)):
            continue
        if known.variant != outcome.variant and is_broken(outcome, known.seen):
            found.add(known.variant)
    return found


@pytest.mark.parametrize("slug", variants.slugs())
def test_every_outcome_is_false_for_some_kernel_or_says_that_it_is_a_control(slug: str) -> None:
    case = variants.load(slug)
    boots = recorded(case)
    empty = [o for o in case.outcomes if not false_for(case, o, boots)]
    assert [f"{o.variant}, {o.run}: {o.expected}" for o in empty] == [
        f"{o.variant}, {o.run}: {o.expected}" for o in case.outcomes if o.control
    ]
