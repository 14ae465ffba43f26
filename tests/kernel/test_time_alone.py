# SPDX-License-Identifier: MIT
"""What the page says of boots with one cost changed at a time is what their records say."""

from __future__ import annotations

from types import ModuleType

import pytest

from contended import register, stats, tree
from contended.cases import (
    dentry_false_sharing,
    evidence,
    lockref_degrade,
    lockref_pause,
    open_creat_unlazy,
    overlay_creds,
    robot,
    timed,
)
from contended.cases.alone import Alone
from contended.simulate import machines

Read = dict[str, tuple[Alone, tuple[float, float]]]
PAUSED = [("open", 2), ("fstat", 8), ("open", 8), ("fstat", 24), ("open", 24), ("open", 48)]
OTHERS = (
    (dentry_false_sharing, "stat-same-file", "stat by 20, after the move and before"),
    (lockref_degrade, "stat-collapse", "stat by 20, healthy and degraded"),
    (lockref_degrade, "spin-24-workers", "handle by 24, a hundred looks and none"),
)
NAMES = {
    "stat-same-file": ("after", "before"),
    "stat-collapse": ("healthy", "degraded"),
    "spin-24-workers": ("after", "before"),
}


def read(slug: str, id_: str, about: evidence.Evidence) -> Read:
    """By a row's name: what one cost at a time makes of it, and what is published."""
    figure = register.get(slug).figure(id_)
    found: Read = {}
    for name, timing in timed.load(slug, about.timed).items():
        top, _, base = name.partition("/")
        value = figure.value(top)
        ends = figure.ratio(top, base) if base else (value.low, value.high)
        if timing.alone is not None:
            found[name] = timing.alone, ends
    return found


def over(found: Read, name: str, change: str = "") -> float:
    """A number over the middle of what is published."""
    alone, (low, high) = found[name]
    value = alone.changed[change] if change else alone.stated
    return value / ((low + high) / 2 if "/" in name else low)


def pauses(call: str, workers: int) -> tuple[Read, tuple[str, str, str]]:
    id_ = lockref_pause.figure(workers)
    figure = register.get(lockref_pause.SLUG).figure(id_)
    both = lockref_pause.names(call)
    names = (*both, "/".join(both))
    probes = lockref_pause.evidence()[id_].timed
    found: Read = {}
    for name, timing in timed.load(lockref_pause.SLUG, probes).items():
        if name in names:
            assert timing.alone is not None
            middle = [figure.value(each).middle for each in name.split("/")]
            ends = middle[0] / middle[1] if len(middle) == 2 else middle[0]
            found[name] = timing.alone, (ends, ends)
    return found, names


@pytest.fixture(scope="module")
def cells() -> dict[str, list[tuple[float, float]]]:
    """By a row of the page's tables: each with the costs as stated, and where loads take lines."""
    rows = {}
    for call, workers in PAUSED:
        found, names = pauses(call, workers)
        rows[f"{call} by {workers}"] = [
            (over(found, name), over(found, name, "take=1")) for name in names
        ]
    for module, id_, title in OTHERS:
        found = read(module.SLUG, id_, module.STUDY.evidence[id_])
        top, base = NAMES[id_]
        names = top, base, f"{top}/{base}"
        rows[title] = [(over(found, name), over(found, name, "take=1")) for name in names]
    return rows


@pytest.fixture(scope="module")
def page(misses: str) -> str:
    return misses


def test_the_tables(page: str, cells: dict[str, list[tuple[float, float]]]) -> None:
    for title, row in cells.items():
        shown = " | ".join(f"{stated:.2f} → {taken:.2f}" for stated, taken in row)
        assert f"| {title} | {shown} |" in page


def test_what_lies_between(page: str) -> None:
    between = []
    for call, workers in PAUSED:
        found, names = pauses(call, workers)
        for name in names[:2]:
            ends = over(found, name), over(found, name, "take=1")
            if abs(ends[0] - 1) > 0.05 and min(ends) < 1 < max(ends):
                between.append((call, workers, name))
    assert (len(between), 2 * len(PAUSED)) == (5, 12)
    assert "of the table's twelve numbers five lie between the two" in flat(page)


def test_whether_a_load_takes_its_line_is_what_the_misses_have_in_common() -> None:
    lifted: dict[str, list[bool]] = {}
    slower = []
    for call, workers in PAUSED:
        found, (paused, plain, _) = pauses(call, workers)
        for change in found[paused][0].changed:
            name, value = change.split("=")
            way = "up" if float(value) > stated(name) else "down"
            lifts = over(found, paused, change) > 1.05 * over(found, paused)
            keeps = 1 / 1.25 < over(found, plain, change) < 1.25
            lifted.setdefault(f"{name} {way}", []).append(lifts and keeps)
        slower.append(over(found, plain, "take=1") < 0.98 * over(found, plain))
    assert len(lifted) > 15
    assert [change for change, each in lifted.items() if all(each)] == ["take up"]
    assert not any(slower)


def stated(name: str) -> float:
    regions = timed.record("will-it-scale", "time-drawn-disk-open-alone").regions
    return float(next(each["costs"][name] for each in regions if not each["label"]))


def test_the_stats_are_as_published_where_loads_take_their_line(page: str) -> None:
    stat = stats_of(dentry_false_sharing, "stat-same-file")
    fall = stats_of(lockref_degrade, "stat-collapse")
    for found, name in ((stat, "after"), (fall, "healthy")):
        assert over(found, name) < 1 / 1.2
        assert 1 / 1.1 < over(found, name, "take=1") < 1.1
    assert 1 / 1.1 < over(stat, "before") < over(stat, "before", "take=1") < 1.1
    assert over(fall, "degraded") < 0.9 < 1.4 < over(fall, "degraded", "take=1")
    left = drawn(lockref_degrade, "stat-collapse", "degraded").either("take")[0]
    assert f"({min(left) / 1e6:.2f} to {max(left) / 1e6:.2f} M/s) have what is published" in page
    quotient, ends = fall["healthy/degraded"]
    assert quotient.reach(ends) == []


def drawn(module: ModuleType, id_: str, name: str) -> timed.Timing:
    return timed.load(module.SLUG, module.STUDY.evidence[id_].timed)[name]


def published(module: ModuleType, id_: str, name: str) -> float:
    return register.get(module.SLUG).figure(id_).value(name).low


def test_the_stats_by_their_own_machines_ways() -> None:
    page = flat((tree.home() / "docs" / "published-table.md").read_text(encoding="utf-8"))
    before = dentry_false_sharing, "stat-same-file", "before"
    degraded = lockref_degrade, "stat-collapse", "degraded"
    ends = [stats.percentiles(drawn(*row).values) for row in (before, degraded)]
    for low, high in ends:
        assert f"{low / 1e6:.2f} to {high / 1e6:.2f} M/s" in page
    assert f"({published(*before) / 1e6:.2f} published)" in page
    assert f"(published {published(*degraded) / 1e6:.2f})" in page
    assert ends[0][0] < published(*before) < ends[0][1] < 2 * ends[0][0], "it holds"
    assert ends[1][1] > 2 * ends[1][0], "it says little"

    calm = lockref_degrade, "stat-collapse", "healthy"
    groups, told = [], []
    for row in ((dentry_false_sharing, "stat-same-file", "after"), calm):
        assert drawn(*row).machine == "1x24-spr"
        left, taken = drawn(*row).either("take")
        assert max(left) < min(taken) < published(*row) < max(taken)
        groups.append((left, f"{min(taken) / 1e6:.2f} to {max(taken) / 1e6:.2f}"))
        told.append(f"{published(*row) / 1e6:.2f}")
    (first, moved), (second, healthy) = groups
    assert f"{moved} M/s and {healthy}, where {' and '.join(told)} are published" in page
    assert f"none is above {max(*first, *second) / 1e6:.2f}" in page
    left, taken = drawn(*degraded).either("take")
    assert min(left) < published(*degraded) < max(left) < min(taken)
    assert f"({min(left) / 1e6:.2f} to {max(left) / 1e6:.2f})" in page
    assert f"({min(taken) / 1e6:.2f} and more)" in page


def test_of_the_profile_who_waits_longest_depends_on_whether_loads_take_lines() -> None:
    """As is noted beside it."""

    def most(which: str, end: str, other: str, taken: bool) -> tuple[float, float]:
        shares = (
            drawn(dentry_false_sharing, "stat-profile", f"{which}-{each}").either("take")[taken]
            for each in (end, other)
        )
        found = [share / beside for share, beside in zip(*shares, strict=True)]
        return min(found), max(found)

    for other in ("get", "lookup"):
        assert most("before", "put", other, taken=True)[0] > 1
    for other in ("put", "lookup"):
        assert most("before", "get", other, taken=False)[0] > 1
    assert most("after", "put", "get", taken=False)[1] < 0.9
    low, high = most("after", "put", "get", taken=True)
    assert 0.9 < low < high < 1.1


def stats_of(module: ModuleType, id_: str) -> Read:
    return read(module.SLUG, id_, module.STUDY.evidence[id_])


def test_no_cost_makes_a_pause_cost_ninety_six_processes_as_much(page: str) -> None:
    found, names = pauses("fstat", 96)
    _, no_pause, quotient = names
    stated, held = ([over(found, name, change) for name in names] for change in ("", "grouped=1"))
    assert (
        f"makes {stated[0]:.2f} times what is published with the pause and {stated[1]:.2f} "
        f"without, and {stated[2]:.2f} times as much of the one over the other."
    ) in page
    assert "(`grouped=1`) that is {:.2f}, {:.2f} and {:.2f};".format(*held) in page
    others = {each for each in found[no_pause][0].changed if each != "grouped=1"}
    rates = {each: over(found, no_pause, each) for each in others}
    most = max(rates, key=rates.__getitem__)
    assert f"beyond {rates[most]:.2f} (`{most}`)" in page
    changed = {each: over(found, quotient, each) for each in found[quotient][0].changed}
    nearest = min(changed, key=changed.__getitem__)
    assert changed[nearest] > 1.1
    assert f"`{nearest}` still the nearest ({changed[nearest]:.2f})." in page
    slow = {each: rate for each, rate in rates.items() if rate < 0.5}
    assert {each.partition("=")[0] for each in slow} == {"request", "near", "core", "instruction"}
    low, high = min(slow.values()), max(slow.values())
    assert f"makes {low:.2f} to {high:.2f}, and the quotient is up to " in page
    assert f"the quotient is up to {max(changed.values()):.2f}." in page


def test_open_by_ninety_six_without_a_pause(page: str) -> None:
    published = register.get(lockref_pause.SLUG).figure(lockref_pause.figure(96))
    middle = published.value("open-no-pause").middle
    regions = timed.record("will-it-scale", "time-drawn-open-alone").regions
    by = {each["label"]: each["per_second"] / middle for each in regions}
    assert {each["cpus"] for each in regions} == {96}
    low, high = min(by.values()), max(by.values())
    assert (
        f"makes {by['']:.2f} times what is published, and {low:.2f} to {high:.2f} with one cost "
        f"changed; where a holder goes on for twice as long (`request=0.2`) it is "
        f"{by['request=0.2']:.2f}, and with a way between sockets twice as long "
        f"{by['far=270']:.2f}."
    ) in page


def test_handle_wants_a_longer_way(page: str) -> None:
    found = stats_of(lockref_degrade, "spin-24-workers")
    near = machines.get("1x24").costs.near
    ways, changed = [], []
    for name in ("after", "before"):
        slow, fast = over(found, name, f"near={2 * near:g}"), over(found, name)
        assert slow < 1 < fast
        ways.append(near + near * (1 - 1 / fast) / (1 / slow - 1 / fast))
        changed.append(slow)
    assert f"(`near={2 * near:g}`: {changed[0]:.2f} and {changed[1]:.2f})" in page
    assert (
        "a way of some {:.0f} ns would fit the one number, and of {:.0f} the other".format(*ways)
        in page
    )


def test_halved_or_doubled_no_cost_makes_waiting_hurt_the_robot_as_much(page: str) -> None:
    rows = timed.compared(*robot.LOOP, robot.CPUS, file="time-robot")  # ticks take no time there
    found = read(lockref_degrade.SLUG, "robot-handle", evidence.Evidence(timed=rows, note=""))
    assert f"without waiting ({over(found, 'before'):.2f} times)" in page
    assert f"and {over(found, 'after'):.1f} times as fast as published with" in page
    for name, said in (("after", "below {:.2f} times (`{}`)"), ("after/before", RATIO)):
        changed = found[name][0].changed
        least = min(changed, key=changed.__getitem__)
        assert over(found, name, least) > 1.2
        assert said.format(over(found, name, least), least) in page
    worth, (published, _) = found["after/before"]
    boots = [worth.stated, *worth.changed.values()]
    assert f"from boot to boot, {min(boots):.2f} to {max(boots):.2f} times" in page
    assert published < min(boots)


def test_sixty_workers_want_a_shorter_way_between_sockets(page: str) -> None:
    level, (low, high) = stats_of(lockref_degrade, "spin-700-of-1000")["spin-100"]
    (change,) = level.reach((low, high))
    there = level.changed[change]
    assert f"make {level.stated / 1e3:.0f} thousand stats a second" in page
    assert f"{low / 1e3:.0f} to {high / 1e3:.0f} are published" in page
    assert f"(`{change}`: {there / 1e3:.0f})" in page
    ways = [machines.get(name).costs.far for name in ("2x48-smt", "1x24")]
    assert f"Milan's {ways[0]:.0f} ns stand in" in page
    assert f"on Ice Lake it is {ways[1]:.0f}." in page


RATIO = "below {:.2f} times what is published (`{}`)"


def test_where_a_retry_comes_too_late_a_pause_hardly_matters(page: str) -> None:
    late = ("request=0.05", "instruction", "near=24")

    def at(call: str, workers: int) -> tuple[list[float], list[float]]:
        found, (paused, plain, quotient) = pauses(call, workers)
        twice = 2 * found_stated(call)
        changes = [f"{each}={twice:g}" if each == "instruction" else each for each in late]
        assert all(over(found, paused, each) for each in changes)
        plain_there = [over(found, plain, each) for each in changes]
        return plain_there, [found[quotient][0].changed[each] for each in changes]

    rates, quotients = zip(at("fstat", 24), at("open", 24), strict=True)
    flat_rates = [rate for each in rates for rate in each]
    said = f"makes {min(flat_rates):.2f} to {max(flat_rates):.2f} of what is published with 24"
    assert said in page
    assert min(value for each in quotients for value in each) > 0.9
    rate, _ = at("open", 48)
    assert f"makes {min(rate):.2f} to {max(rate):.2f} of what is published." in page


def found_stated(call: str) -> float:
    regions = timed.record("will-it-scale", f"time-drawn-disk-{call}-alone").regions
    return float(next(each["costs"]["instruction"] for each in regions if each["cpus"] > 8))


def test_no_cost_is_what_two_chapters_miss(page: str) -> None:
    after, (low, high) = stats_of(open_creat_unlazy, "open-close-64-mounts")["after"]
    seconds = sorted([after.stated, *after.changed.values()])
    assert seconds[-1] < low / 2
    said = (
        f"would take {seconds[0]:.1f} to {seconds[-1]:.1f} s, whichever cost is changed, and took"
    )
    assert f"{said} {low:.0f} to {high:.0f}." in page
    site, (low, high) = stats_of(overlay_creds, "hitm-sites")["override-creds"]
    parts = sorted([site.stated, *site.changed.values()])
    assert parts[0] > 2 * high
    said = f"`override_creds` has {parts[0]:.0f} to {parts[-1]:.0f} %, where samples have"
    assert f"{said} {low:.0f} to {high:.0f}." in page


def test_how_far_boots_differ_that_cannot(page: str) -> None:
    rates: dict[str, list[float]] = {}
    for region in timed.record("will-it-scale", "time-drawn-disk-open-alone").regions:
        if region["cpus"] == 24 and region["label"].partition("=")[0] in ("", "far", "grouped"):
            rates.setdefault(region["variant"], []).append(region["per_second"])
    assert all(len(each) == 4 for each in rates.values())
    most = max(max(each) / min(each) for each in rates.values())
    assert f"boots differed by up to {100 * (most - 1):.1f} %" in page


def test_how_far_one_boot_of_handle_may_be_off(page: str) -> None:
    def rates(file: str) -> list[timed.Region]:
        regions = timed.record(lockref_degrade.SLUG, file).regions
        return [each for each in regions if each["variant"] == "before"]

    by = {each["label"]: each["per_second"] for each in rates("time-handle-alone")}
    leave = [each for each in rates("time-handle") if not each["costs"]["take"]]
    most = max(each["per_second"] for each in leave) / by[""]
    said = f"one boot makes {by['share=5'] / by['']:.2f} times as much as with each cost as stated"
    assert said in page
    assert f"of today's, in boots of sixty, the highest is {most:.2f} times" in page
    assert min(each["costs"]["share"] for each in leave) < 3


def flat(page: str) -> str:
    return " ".join(page.split())
