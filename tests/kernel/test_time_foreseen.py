# SPDX-License-Identifier: MIT
"""Which line an instruction wants: what foresight makes of a crowd, beside the simulator's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from contended import stats, tree
from contended.cases import overlay_creds, timed
from contended.kernel import times
from contended.simulate import machines, recorded
from contended.simulate.draws import priced
from contended.simulate.predict import Draw, Ground

SLUG = overlay_creds.SLUG
BEFORE, TODAY = "time-own-before", "time-own"
SITES = ("override_creds", "revert_creds", "generic_permission")


def by_boots(file: str) -> dict[str, float]:
    """M/s, then by function the HITM on the mounter's credentials in a check: medians of boots."""
    regions = timed.record(SLUG, file).regions
    found = {"rate": stats.median([each["per_second"] / 1e6 for each in regions])}
    for name in SITES:
        here = [
            sum(
                place["hitm"]
                for place in each["places"]
                if place["function"] == name and place["thing"].startswith("struct cred ")
            )
            for each in regions
        ]
        found[name] = stats.median(here)
    for name in ("late", "misled"):
        found[name] = stats.median([each[name] for each in regions])
    return found


@pytest.fixture(scope="module")
def simulated() -> dict[str, float]:
    """The same checks of eighty files by eighty CPUs, with each cost as the boots have it."""
    box = machines.get("2x20-smt")
    costs = timed.record(SLUG, TODAY).regions[0]["costs"]
    check = recorded.load(SLUG).of("before")
    work = (("faccessat", costs["instruction"] * check.instructions), ("smt", costs["smt"]))
    here = Ground(overlay_creds.BY_SITE, box.name, 80)
    phase = here.phase("files-before", "run", Draw(priced(box, costs), work, seed=1))
    return {
        "rate": phase.ops_per_s / 1e6,
        **{name: phase.counts[name] / phase.counts["ops"] for name in SITES},
    }


def test_a_crowd_s_checks_find_their_line_as_in_the_simulator(
    simulated: Mapping[str, float],
) -> None:
    """With files of their own: to a tenth by today's foresight, and half as often before."""
    today, before = by_boots(TODAY), by_boots(BEFORE)
    for name, value in simulated.items():
        assert today[name] == pytest.approx(value, rel=0.1), name
    assert before["revert_creds"] < simulated["revert_creds"] / 2
    assert all(not times.outdated(each) for each in timed.record(SLUG, TODAY).regions)
    assert all(times.outdated(each) for each in timed.record(SLUG, BEFORE).regions)


def test_the_page_has_what_the_boots_and_the_simulator_make(
    simulated: Mapping[str, float],
) -> None:
    page = (tree.home() / "docs" / "virtual-time.md").read_text()
    today, before = by_boots(TODAY), by_boots(BEFORE)
    for said, name in (
        ("checks, million a second", "rate"),
        *((f"`{name}` finds it modified, a check", name) for name in SITES),
        ("not foreseen, a check", "late"),
        ("waits in error, a check", "misled"),
    ):
        told = f"{simulated[name]:.2f}" if name in simulated else "-"
        assert f"| {said} | {told} | {today[name]:.2f} | {before[name]:.2f} |" in page
    late = [each["late"] for each in timed.record(SLUG, TODAY).regions]
    assert f"(Not foreseen are {min(late):.2f} to {max(late):.2f} a check in today's" in page
    opens = timed.record("open-creat-unlazy", timed.DRAWN).of("before", 80).values()
    wrong = [each["misled"] / (each["transfers"] + each["fills"]) for each in opens]
    assert f"wait in error at {min(wrong):.2f} to {max(wrong):.2f} of their lines" in page


def test_the_page_says_by_how_much_boots_are_apart_anyway() -> None:
    page = (tree.home() / "docs" / "virtual-time.md").read_text()
    rates = [boot["per_second"] for boot in timed.record(SLUG, TODAY).regions]
    apart = 100 * (1 - min(rates) / max(rates))
    assert (
        f"less than the {apart:.0f} % by which the rates of the five boots above are apart" in page
    )
