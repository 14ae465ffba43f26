# SPDX-License-Identifier: MIT
"""The scoreboard: every published number has a row, a verdict that follows, and a reason."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support import make_home, one_line

from contended import cases, register
from contended.book import picture, scoreboard
from contended.cases import (
    lockref_pause,
    open_creat_unlazy,
    timed,
    umount_grace_period,
    waited,
)
from contended.cases.evidence import Evidence, Read, RunProbe, Runs, count, lab, lab_text, ratio
from contended.cli import main
from contended.errors import ContendedError
from contended.kernel import times
from contended.measure import TooFewCpus, results
from contended.measure.results import Measurement
from contended.scoreboard import board, simulated
from contended.scoreboard.board import Entry, Said
from contended.show import claims, lesson
from contended.simulate import grace
from contended.simulate.predict import Predicted
from contended.simulate.verdict import SHOWN, gap, judge, near


@pytest.fixture(scope="module")
def entries(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Entry, ...]:
    """The board of the recorded runs alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTENDED_HOME", str(root))
        return board.board(tmp_path_factory.mktemp("nothing-fresh"))


# --- every number --------------------------------------------------------------------------------


def test_every_published_number_has_a_row(entries: tuple[Entry, ...]) -> None:
    shown = {(e.slug, e.figure, row.name) for e in entries for row in e.rows}
    for case in register.all():
        for figure in case.published:
            for value in figure.values:
                assert (case.slug, figure.id, value.name) in shown
        for kept in simulated.load(case.slug):
            assert (case.slug, kept.figure, kept.name) in shown
    assert len(entries) == sum(len(case.published) for case in register.all())


def test_the_evidence_is_of_figures_that_there_are() -> None:
    for case in register.all():
        assert cases.study(case.slug).evidence.keys() == {figure.id for figure in case.published}
    found = [each for slug in register.slugs() for each in cases.study(slug).evidence.values()]
    for about in found:
        # either a reading or the reason why there is none, never both
        assert bool(about.userspace) != bool(about.no_userspace)
        assert bool(about.kernel) != bool(about.no_kernel)
        assert about.note.strip()


def test_every_verdict_has_a_reason_and_every_row_a_source(entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        assert entry.url.startswith("https://")
        for row in entry.rows:
            assert len(row.why.split()) > 3, row
            assert row.why.endswith(".")
            assert entry.note.endswith(".")


def test_reasons_lead_to_sections_that_there_are(entries: tuple[Entry, ...], root: Path) -> None:
    for entry in entries:
        notebook = json.loads((root / "notebooks" / f"{entry.notebook}.ipynb").read_text())
        prose = "\n".join("".join(cell["source"]) for cell in notebook["cells"])
        heads = re.findall(r"^#+ (.+)$", prose, re.M)
        ids = {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads}
        assert entry.section in ids, (entry.notebook, entry.section)


def test_the_page_on_misses_has_each_figure_that_differs(
    entries: tuple[Entry, ...], root: Path
) -> None:
    page = (root / "docs" / "misses.md").read_text()
    listed = re.findall(r"^- `([a-z0-9-]+)`, ", page, flags=re.M)
    differs = [e.figure for e in entries if any(row.verdict == "differs" for row in e.rows)]
    assert sorted(listed) == sorted(differs)
    (two,) = (e for e in entries if e.figure == "pause-2")
    opens = [row for row in two.rows if row.name in ("open-pause", "open-no-pause")]
    assert "Too slow by less than a tenth in the middle of the draws" in page
    assert all(row.timed and 0.9 < 2 * row.timed.middle / sum(row.published) < 1 for row in opens)


def test_every_reading_is_in_a_file_of_the_tree(entries: tuple[Entry, ...], root: Path) -> None:
    readings = [reading for e in entries for reading in (*e.userspace, *e.kernel)]
    assert readings
    for reading in readings:
        assert not reading.live
        assert list(root.glob(reading.source)), reading.source
        assert re.search(r"\d", reading.text)


# --- verdicts ------------------------------------------------------------------------------------


def test_a_verdict_is_that_of_what_can_be_compared(entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        for row in entry.rows:
            readings = (*entry.userspace, *entry.kernel)
            same = [r for r in readings if r.of == row.name]
            assert row.compared == tuple(r.what for r in same)
            for said in filter(None, (row.timed, row.simulated, row.naive)):
                ends = said.low, said.high
                assert said.gap == gap(ends, row.published, row.unit)
                if row.verdict != "inconsistent":
                    least = judge(ends, row.published, row.unit), "consistent", "counted"
                    assert said.verdict in least
            if row.verdict == "inconsistent":
                assert len(row.why) > 60, "it is said what contradicts it"
            elif same:
                each = [judge((r.value,) * 2, row.published, row.unit, "counted") for r in same]
                agree = "consistent" if same[0].given else "counted"
                assert row.verdict == (agree if set(each) == {"counted"} else "differs")
            elif row.ours is None:
                assert row.verdict == "cannot"
            else:
                assert row.verdict == row.ours.verdict
    counts = board.tally(entries)
    assert sum(counts.values()) == sum(len(e.rows) for e in entries)
    assert counts["inconsistent"] == 3
    assert counts["counted"] > 3


def test_a_guess_is_judged_by_the_same_rule_and_tallied(entries: tuple[Entry, ...]) -> None:
    rows, ours, naive = board.skill(entries)
    guessed = [row for entry in entries for row in entry.rows if row.naive]
    assert 10 < rows <= len(guessed)
    assert ours == sum(row.verdict == "held" for row in guessed)
    text = board.summary(entries)
    assert f"Of the {rows} that a naive guess can be made of, held: ours {ours}, " in text
    assert f"the guess {naive}; within a quarter" in text
    every = [row for entry in entries for row in entry.rows]
    apart = [row for row in every if row.told == "held, between two groups"]
    assert f" {len(apart)} of those that held lie between two groups" in text
    assert apart == [row for row in every if row.between and row.verdict == "held"]
    first = guessed[0]
    assert first.naive
    held = replace(first.naive, verdict="held")
    changed = replace(entries[0], rows=(replace(first, naive=held),))
    assert board.skill((changed,))[2] == 1
    told = replace(changed, rows=(replace(changed.rows[0], verdict="inconsistent"),))
    assert board.skill((told,)) == (0, 0, 0), "no skill where there is nothing to hold"
    doubtful = [row for row in every if row.verdict == "held" and row.timed and row.timed.doubtful]
    assert f" {len(doubtful)} of those that held rest on some doubtful boots." in text
    assert 0 < len(doubtful) < board.tally(entries)["held"]


def test_middles_that_are_near_are_counted(entries: tuple[Entry, ...]) -> None:
    judged = [row for entry in entries for row in entry.rows if row.ours and row.naive]
    rows = [row for row in judged if row.verdict in ("held", "consistent", "differs")]
    assert board.close(entries) == (
        sum(row.ours.close for row in rows if row.ours),
        sum(row.naive.close for row in rows if row.naive),
    )
    middles = [row for row in rows if row.ours and near([row.ours.middle], row.published, row.unit)]
    assert all(row in middles for row in rows if row.ours and row.ours.close)
    assert 0 < board.close(entries)[0] < len(middles), "between two groups there is no draw"


def test_a_cost_that_so_many_cpus_cannot_tell_is_not_named(entries: tuple[Entry, ...]) -> None:
    """Two processes on two cores know no way within a core, and no other socket."""
    costs = {"core": 8.0, "near": 48.0, "far": 130.0}
    one = {"machine": "2x24-smt", "cpus": 2, "costs": costs}
    assert timed._told([one]) == {"near": 48.0}
    assert timed._told([one, {**one, "cpus": 96}]) == costs
    whys = [row.why for entry in entries if entry.figure == "pause-2" for row in entry.rows]
    assert any("it depends on" in why for why in whys)
    assert not any("the way within a core" in why for why in whys)


def test_the_pages_numbers_on_single_rows_are_of_the_rows(
    entries: tuple[Entry, ...], root: Path
) -> None:
    rows = {(e.figure, row.name): row for e in entries for row in e.rows}
    rules = (root / "docs" / "simulators.md").read_text()
    eight = rows["pause-8", "fstat-no-pause"]
    assert eight.timed
    assert eight.verdict == "held"
    point = sum(eight.published) / 2
    assert f"would be missed by {eight.timed.low / point:.3f}, where it holds" in rules
    waits = rows["no-wait", "before"]
    assert waits.timed
    rest = grace.Rcu().call_us / 1000 - umount_grace_period.OWN_MS
    assert waits.timed.high - rest < waits.published[0] < waits.timed.high, "virtual-time.md"
    misses = (root / "docs" / "misses.md").read_text()
    slow = rows["open-close-64-mounts", "before"].published[0]
    drawn = timed.record("open-creat-unlazy", "time-drawn").of("paused", 80).values()
    by = {
        rule: [
            slow * each["per_second"] / open_creat_unlazy.OPENS
            for each in drawn
            if each["costs"]["grouped"] == rule
        ]
        for rule in (0, 1)
    }
    ends = f"{min(by[0]):.2f} to {max(by[0]):.1f}"
    assert f"too fast, by {ends} if chance says" in misses
    assert max(by[0]) < min(by[1]), "and by more"
    table = (root / "docs" / "published-table.md").read_text()
    seconds = rows["open-close-64-mounts", "before"].timed
    assert seconds
    assert f"(virtual-time.md#what-is-foreseen) they are missed by {seconds.gap:.2f}.)" in table
    of = dict(re.findall(r"^\| (\w+), pause \| .*, ([\d.]+) !? ?\|$", table, re.M))
    both = (
        f"by {float(of['open']):.1f} and {float(of['fstat']):.1f} times in the middle if a socket"
    )
    assert both in misses


def test_what_boots_by_older_rules_lack_is_not_said_of_todays(
    entries: tuple[Entry, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change that brings them to what is published may lead away from it today."""

    def told(of: tuple[Entry, ...]) -> set[tuple[str, str]]:
        rows = [(entry, row) for entry in of for row in entry.rows]
        assert all(row.why.count(times.OUTDATED) != 1 for _, row in rows if "alone" in row.why)
        return {(e.figure, row.name) for e, row in rows if "of one cost alone" in row.why}

    first = told(entries)
    monkeypatch.setattr(times, "outdated", lambda _: False)
    assert set() < first < told(tuple(board.of_case(register.get("open-creat-unlazy")))) | first


@pytest.mark.parametrize("simulated_agrees", [False, True])
def test_one_reading_that_disagrees_decides(
    root: Path, monkeypatch: pytest.MonkeyPatch, simulated_agrees: bool
) -> None:
    """A published number that nobody here sees turns its row, and no other."""
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    case = register.get("mount-hash")
    figure = case.published[0]
    wrong = replace(figure.value("before"), low=512.0, high=512.0)
    changed = replace(figure, values=(wrong, *figure.values[1:]))
    agreed: dict[str, Any] = {"simulated": 512.0, "low": 512.0, "high": 512.0}
    agreed = agreed if simulated_agrees else {}
    kept = tuple(
        replace(row, published=(512.0, 512.0), **agreed) if row.name == "before" else row
        for row in simulated.load("mount-hash")
    )
    rows = board._entry(
        case,
        changed,
        cases.study(case.slug).evidence[figure.id],
        Runs(case.slug),
        kept,
        "https://a.invalid",
    ).rows
    assert [row.verdict for row in rows] == ["differs", "counted"]
    assert "number was put in" in rows[0].why
    assert "0 of 2 agree" in rows[0].why


def test_what_was_put_in_says_little(entries: tuple[Entry, ...]) -> None:
    """The kernel of before is told its 256 chains; how many there are by the memory it says."""
    (rows,) = (entry.rows for entry in entries if entry.figure == "hash-chains")
    assert [row.verdict for row in rows] == ["consistent", "counted"]
    assert "2048, so 4,096" in rows[1].why


# --- the real kernel in virtual time --------------------------------------------------------------


def region(variant: str, cpus: int, seed: int, rate: float, **changed: Any) -> dict[str, Any]:
    """A made-up region of a record of `contended kernel time --json`."""
    places = [{"function": "lockref_put_return", "thing": "dentry+88", "ns": 1000.0}] * 2
    known = {"variant": variant, "label": "", "machine": "1x24", "cpus": cpus, "seed": seed}
    known |= {"per_second": rate, "clock": "region", "escaped": 0.0, "places": places}
    known |= {"ticks": 0.0, "together_ns": 9.0}
    return known | changed


def drawn_record(slug: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where a case's record of draws would be, in a tree that has none."""
    home = make_home(tmp_path / "home")
    place = home / "results" / slug / f"{timed.DRAWN}.json"
    place.parent.mkdir(parents=True)
    monkeypatch.setenv("CONTENDED_HOME", str(home))
    return place


def test_the_cost_that_a_value_follows_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of each probe that makes one number of a draw; others, and what is not drawn, tell none."""
    place = drawn_record("some-case", monkeypatch, tmp_path)
    costs = {n: {"near": 40.0 + n, "far": 100.0 + 7 * n % 11} for n in range(1, 13)}
    found = [
        region(variant, 20, n, rate / costs[n]["near"], label=label, costs=costs[n])
        for n in costs
        for variant, label, rate in (("slow", "calm", 1e8), ("slow", "low", 1e7), ("fast", "", 9e8))
    ]
    place.write_text(json.dumps({"results": found}))
    probes = [
        timed.rate("rate", "fast", 20),
        timed.ratio("same", "fast", "slow", 20, labels=("", "calm")),
        timed.falling("falling", "slow", 20, ("calm", "low"), lambda _: True),
    ]
    seen = {name: each.depends() for name, each in timed.load("some-case", probes).items()}
    assert [str(each) for each in seen["rate"] or ()] == ["the way to a neighbour (-1.00)"]
    assert seen["falling"] is None
    for each in found:
        del each["costs"]
    place.write_text(json.dumps({"results": found}))
    assert timed.load("some-case", probes)["rate"].depends() is None


def timed_board(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, regions: dict[str, Any]
) -> dict[tuple[str, str], board.Row]:
    """The rows of a tree with these regions as the records of cases."""
    home = tmp_path / "home"
    (home / "docs").mkdir(parents=True)
    (home / "docs" / "references.bib").symlink_to(root / "docs" / "references.bib")
    (home / "csrc").symlink_to(root / "csrc")
    other = shutil.ignore_patterns("time*.json", "waits*.json")
    shutil.copytree(root / "results", home / "results", ignore=other)
    for slug, found in regions.items():
        text = json.dumps({"case": slug, "run": "lines", "results": found})
        for file in ("time", timed.DRAWN):
            (home / "results" / slug / f"{file}.json").write_text(text)
    monkeypatch.setenv("CONTENDED_HOME", str(home))
    entries = board.board(tmp_path / "nothing-fresh")
    return {(entry.figure, row.name): row for entry in entries for row in entry.rows}


def test_what_was_timed_goes_before_what_was_simulated(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rates = {"before": (4.9e6, 5.1e6) * 5, "after": (6e6, 6.2e6) * 5}
    stats_20 = [region(v, 20, seed, r) for v, pair in rates.items() for seed, r in enumerate(pair)]
    stats_20 += [region("before", 1, 0, 1e6), region("before", 4, 0, 3e6)]
    opens = [region("paused", 80, 0, 1.28e6), region("paused-after", 80, 0, 1.28e7, escaped=0.5)]
    rows = timed_board(
        root, monkeypatch, tmp_path, {"dentry-false-sharing": stats_20, "open-creat-unlazy": opens}
    )
    row = rows["stat-same-file", "before"]
    assert row.timed
    assert (row.timed.low, row.timed.high) == pytest.approx((4.9e6, 5.1e6))
    assert row.timed.verdict == row.verdict == "held"
    assert "virtual time on 1x24, 10 boots" in row.why
    row = rows["stat-same-file", "after"]
    assert row.timed
    assert (row.timed.verdict, row.told) == ("differs", "differs, 1.26 times")
    ratio = rows["stat-same-file", "after/before"].timed
    assert ratio
    assert (ratio.low, ratio.high) == pytest.approx((6.2 / 5.1, 6 / 4.9))
    # a function's waits, of all that the CPUs had: 2000 ns of 20 CPUs' 4000 ns an operation
    share = rows["stat-profile", "before-put"]
    assert share.timed
    assert share.timed.middle == pytest.approx(100 * 2000 * 5e6 / 20e9)
    assert rows["stat-profile", "before-get"].told == "differs"  # from zero: by no factor
    # the seconds that all opens take, and a run whose waits were given up says so
    row = rows["open-close-64-mounts", "before"]
    assert row.timed
    assert row.timed.middle == pytest.approx(6.4e7 / 1.28e6)
    assert row.verdict == "consistent"  # it is as published, in a single boot
    assert "doubtful" not in row.why
    assert not row.timed.ends.endswith("!")
    marked = rows["open-close-64-mounts", "after"]
    assert marked.timed
    assert "doubtful in 1 region (" in marked.why
    assert marked.timed.ends.endswith(" !")
    # nothing else was timed, and the page says so
    assert rows["stat-collapse", "healthy"].timed is None
    assert rows["robot-full", "after/before"].timed is None


def test_the_part_that_comes_from_another_socket_is_read_by_what_moves(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = drawn_record("overlay-creds", monkeypatch, tmp_path)
    things = [("cred+0: usage", 3.0, 1.0), ("cred+8: uid", 1.0, 0.0), ("dentry+88", 9.0, 9.0)]
    places: list[dict[str, Any]] = [
        {"thing": t, "hitm": hitm, "far": far} for t, hitm, far in things
    ]
    found = [region("before", 80, 1, 1e6, places=places, machine="2x20-smt")]
    place.write_text(json.dumps({"results": found}))
    probe = timed.remote("share", "before", 80, r"^cred\b")
    seen = timed.load("overlay-creds", [probe])["share"]
    assert seen.values == (0.25,)
    assert seen.guesses == (40 / 79,)
    # and by whose accesses
    for place_, function in zip(places, ("lend", "read", "lend"), strict=True):
        place_["function"] = function
    place.write_text(json.dumps({"results": found}))
    probes = [timed.by(name, "before", 80, r"^cred\b", name) for name in ("lend", "read", "x")]
    by = timed.load("overlay-creds", probes)
    assert [by[name].values for name in ("lend", "read", "x")] == [(75.0,), (25.0,), (0.0,)]
    assert by["lend"].guesses == ()
    assert timed.load("overlay-creds", [timed.remote("x", "before", 40, "cred")]) == {}


def test_a_state_is_read_from_the_boots_that_are_in_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A queue that keeps itself is there or not: the mean of both would be a rate of neither."""
    place = drawn_record("some-case", monkeypatch, tmp_path)

    def slow(hitm: float) -> dict[str, Any]:
        return {"function": "queued_spin_lock_slowpath", "thing": "lock", "hitm": hitm}

    rates, hitm = (7e6, 1e6, 6e6), ((), (0.75, 0.5), (0.25,))
    found = [
        region("moved", 20, n, rate, label="listed", places=[slow(each) for each in moved])
        for n, rate, moved in zip((1, 2, 3), rates, hitm, strict=True)
    ]
    found += [region("moved", 20, n, 8e6, label="calm") for n in (1, 2, 3)]
    place.write_text(json.dumps({"results": found}))
    probes = [
        timed.rate("all", "moved", 20, label="listed"),
        timed.rate("fallen", "moved", 20, label="listed", which=timed.queueing),
        timed.ratio("fall", "moved", "moved", 20, labels=("calm", "listed"), which=timed.queueing),
    ]
    seen = {name: each.values for name, each in timed.load("some-case", probes).items()}
    assert seen == {"all": rates, "fallen": (1e6,), "fall": (8.0,)}
    # while it falls: the two levels for a tenth more or less of the interval, of who fell only
    falling = timed.falling("x", "moved", 20, ("calm", "listed"), timed.queueing)
    (between,) = timed.load("some-case", [falling]).values()
    assert between.values == pytest.approx([1.35e6 + 0.7e6 * tenth for tenth in range(10)])
    assert between.seeds == 1
    here = region("moved", 20, 1, 1e6, places=[slow(0.5), {**slow(0.25), "thing": "cdev_lock + 2"}])
    assert [timed.queued(here, lock) for lock in ("", "cdev_lock", "dentry")] == [0.75, 0.25, 0]


def test_changes_and_waits_in_guest_time_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = make_home(tmp_path / "home")
    place = home / "results" / "some-case"
    place.mkdir(parents=True)
    monkeypatch.setenv("CONTENDED_HOME", str(home))
    found = [region("before", 64, 1, 2e6), region("spin", 64, 1, 1e6)]
    (place / "time-x.json").write_text(json.dumps({"results": found}))
    seen = timed.load("some-case", [timed.change("getdent", "spin", "before", 64, file="time-x")])
    assert (seen["getdent"].values, seen["getdent"].guesses) == ((-50.0,), (0.0,))
    assert seen["getdent"].source == "results/some-case/time-x.json"
    kinds = ("a", "lazy", 4e6), ("b", "lazy", 25e6), ("c", "lazy", 1), ("a", "plain", 1)
    waits = [
        {**region("before", 4, 1, 0), "run": run, "label": label, "mean_ns": ns, "clock": "guest"}
        for run, label, ns in kinds
    ]
    text = json.dumps({"results": waits})
    for file in ("waits-several", "waits-row"):
        (place / f"{file}.json").write_text(text)
    probe = waited.waits("before", "before", "lazy", ("a", "b"), (4,), rest_ms=3.0)
    (read,) = timed.load("some-case", [probe]).values()
    assert (read.values, read.guesses, read.clock) == ((7.0, 28.0), (), "guest")
    # of another variant there is nothing, and a configuration that is missing is a range's end
    for variant, runs in (("after", ("a",)), ("before", ("a", "d"))):
        assert timed.load("some-case", [waited.waits("x", variant, "lazy", runs, (4,))]) == {}
    # nor is there without one of the numbers of CPUs; with each, a run is compared with itself
    assert timed.load("some-case", [waited.waits("x", "before", "lazy", ("a", "b"), (1, 4))]) == {}
    ratio = waited.more_cpus("4/1", "before", "lazy", ("b",), (4, 1), file="waits-row")
    assert timed.load("some-case", [ratio]) == {}
    waits += [{**waits[1], "cpus": 1, "mean_ns": 10e6}]
    (place / "waits-row.json").write_text(json.dumps({"results": waits}))
    (read,) = timed.load("some-case", [ratio]).values()
    assert (read.values, read.guesses) == ((2.5,), (1.0,))
    # and with another variant, each with what else was published in its time
    waits += [{**waits[1], "variant": "after", "mean_ns": 47e6}]
    (place / "waits-row.json").write_text(json.dumps({"results": waits}))
    more: dict[str, Any] = {"rest_ms": 5.0, "file": "waits-row"}
    other = waited.other_wait("a/b", "after", "before", "lazy", ("b",), (4,), **more)
    (read,) = timed.load("some-case", [other]).values()
    assert (read.values, read.guesses) == ((52 / 30,), (1.0,))


def test_the_page_marks_what_is_doubtful(entries: tuple[Entry, ...]) -> None:
    sides = [said for entry in entries for row in entry.rows for said in row.sides if said]
    doubtful = sum(bool(said.doubtful) for said in sides)
    assert 0 < doubtful < len(sides) / 2
    page = scoreboard.html(entries)
    assert page.count("\u00a0!</span>") == doubtful
    assert html.escape(board.DOUBT) in page
    assert board.DOUBT in board.summary(entries)


def test_what_was_not_drawn_anew_is_named(entries: tuple[Entry, ...], root: Path) -> None:
    """On the page and in the row's reason, as long as it is of what was held of threads before."""
    page = (root / "docs" / "virtual-time.md").read_text()
    told = re.search(r"Not drawn anew yet (?:is|are) (.*)\.\n", page)
    old = {
        figure.id
        for case in register.all()
        for figure in case.published
        if figure.id in cases.study(case.slug).evidence
        for timing in timed.load(
            case.slug, cases.study(case.slug).evidence[figure.id].timed
        ).values()
        if timing.outdated
    }
    assert set(re.findall(r"`([a-z0-9-]+)`", told[1] if told else "")) == old
    said = {e.figure for e in entries for row in e.rows if f"; {times.OUTDATED}:" in row.why}
    assert said == old


def test_the_page_says_what_came_of_better_foresight(
    entries: tuple[Entry, ...], root: Path
) -> None:
    page = (root / "docs" / "virtual-time.md").read_text()
    found = {
        (entry.figure, row.name): row.timed for entry in entries for row in entry.rows if row.timed
    }

    def missed(figure: str, name: str) -> str:
        assert found[figure, name].verdict == "differs"
        return f"{found[figure, name].gap:.2f}"

    sites, opens = "hitm-sites", "open-close-64-mounts"
    revert = found[sites, "revert-creds"]
    crossed = found["robot-handle-hitm", "after"]
    assert [row.verdict for row in (revert, crossed)] == ["held", "held"]
    assert crossed.doubtful
    for said in (
        f"{100 * crossed.low:.0f} to {100 * crossed.high:.0f} % come from the other socket",
        f"`revert_creds` has {revert.low:.0f} to {revert.high:.0f} % of the HITM",
        f"`override_creds` is missed by {missed(sites, 'override-creds')} and not by 4.04",
        f"`generic_permission` still by {missed(sites, 'generic-permission')}, with "
        f"{found[sites, 'generic-permission'].middle:.0f} % in the middle",
        f"opens are missed by {missed(opens, 'before')} without the patch, and their gain by "
        f"{missed(opens, 'before/after')};",
        f"and the rate with looks is missed by {missed('robot-handle', 'after')}.",
    ):
        assert said in page


def test_what_was_given_up_is_doubted_whatever_kept_the_time() -> None:
    good = region("before", 4, 1, 1e6)
    wait = {"clock": "guest", "cpus": 4, "escaped": 0.02}
    assert [times.doubtful(each) for each in (good, wait, {"clock": "guest"})] == [0, 1, 0]
    for lost in ({"escaped": 0.02}, {"ticks": 0.02}, {"together_ns": 0}):
        assert times.doubtful(good | lost)
        assert times.doubtful(good | lost | {"clock": "guest"})


def test_a_record_that_was_written_anew_is_read_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file is kept as long as it is what it was, since many rows are of the same one."""
    home = make_home(tmp_path / "home")
    monkeypatch.setenv("CONTENDED_HOME", str(home))
    file = home / "results" / "will-it-scale" / "time-any.json"
    file.parent.mkdir(parents=True)
    for rate in (1000.0, 2000.5):
        file.write_text(json.dumps({"results": [region("pause", 8, 1, rate)]}))
        assert timed.record("will-it-scale", "time-any").rates("pause", 8) == {1: rate}


def test_the_table_of_the_pause_is_read_by_call_and_size(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each row has the rate of its own call, variant and number of processes, or nothing."""
    about = lockref_pause.evidence()
    rows = [row for row in simulated.load("lockref-degrade") if row.figure in about]
    home = make_home(tmp_path / "home")
    place = home / "results" / "will-it-scale"
    for folder in (place, place.with_name("lockref-degrade")):
        folder.mkdir(parents=True)
    monkeypatch.setenv("CONTENDED_HOME", str(home))
    rates = {("fstat", "pause"): 3e6, ("fstat", "no-pause"): 6e6}
    rates |= {("open", "pause"): 1e6, ("open", "no-pause"): 4e6}
    # the file of eight is on ext4: what is in memory must not be taken for it
    for disk, call, factor in (
        ("disk-", "fstat", 1),
        ("", "fstat", 3),
        ("disk-", "open", 1),
        ("", "open", 3),
    ):
        found = [
            region(variant, n, 1, n * rate * factor)
            for (name, variant), rate in rates.items()
            if name == call
            for n in (1, 8)
        ]
        (place / f"time-drawn-{disk}{call}.json").write_text(json.dumps({"results": found}))
    seen = timed.load("lockref-degrade", about["pause-8"].timed)
    for (call, variant), rate in rates.items():
        assert seen[f"{call}-{variant}"].values == (8 * rate,)
        assert seen[f"{call}-{variant}"].guesses == (8 * rate,), "eight times one"
    assert seen["fstat-pause/fstat-no-pause"].values == (0.5,)
    assert seen["open-pause/open-no-pause"].values == (0.25,)
    assert timed.load("lockref-degrade", about["pause-24"].timed) == {}
    named = {(row.figure, row.name) for row in rows}
    assert named == {(id_, probe.of) for id_, each in about.items() for probe in each.timed}
    worth = next(row for row in rows if row.figure == "pause-96" and "fstat-pause/" in row.name)
    # each of the two may be off by as much as the two runs of one process are apart
    apart, middle = (3_047_636 / 3_013_872) ** 2, 1_269_157 / 6_649_326
    assert worth.published == pytest.approx((middle / apart, middle * apart))


def test_a_size_that_was_not_timed_is_no_evidence(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = [region("before", 16, 0, 5e6), region("after", 16, 0, 8e6)]
    rows = timed_board(root, monkeypatch, tmp_path, {"dentry-false-sharing": found})
    assert all(row.timed is None for row in rows.values())


@pytest.mark.parametrize("text", ["", "[]", '{"results": [{"variant": "before"}]}', '{"x": 1}'])
def test_a_damaged_record_of_times_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    home = make_home(tmp_path / "home")
    place = home / "results" / "dentry-false-sharing" / f"{timed.DRAWN}.json"
    place.parent.mkdir(parents=True)
    place.write_text(text)
    monkeypatch.setenv("CONTENDED_HOME", str(home))
    probes = [timed.rate("before", "before", 20), timed.waiting("x", "before", 20, "f")]
    if "variant" in text:  # it is not of the size that is asked for
        assert timed.load("dentry-false-sharing", probes) == {}
        place.write_text('{"results": [{"variant": "before", "cpus": 20, "label": ""}]}')
    spoilt = r"time-drawn\.json is no record of kernel time"
    with pytest.raises(ContendedError, match=spoilt) as caught:
        timed.load("dentry-false-sharing", probes)
    assert "\n" not in str(caught.value)


# --- records and live runs -----------------------------------------------------------------------


@pytest.mark.parametrize("slug", register.slugs())
def test_the_recorded_predictions_are_what_is_simulated_now(slug: str) -> None:
    for kept, fresh in zip(simulated.load(slug), cases.prediction(slug).rows, strict=True):
        assert _words(kept) == _words(fresh), f"run {simulated.COMMAND}"
        assert kept.published == pytest.approx(fresh.published, rel=1e-9)
        assert (kept.simulated is None) == (fresh.simulated is None)
        if fresh.simulated is not None:
            numbers = (fresh.simulated, fresh.low, fresh.high, *(fresh.naive or ()))
            assert (kept.simulated, kept.low, kept.high, *(kept.naive or ())) == pytest.approx(
                numbers, rel=1e-9
            ), f"run {simulated.COMMAND}"


def _words(row: Predicted) -> tuple[object, ...]:
    return row.figure, row.name, row.unit, row.machine, row.cpus, row.verdict, row.why


def test_a_missing_or_damaged_record_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home")
    monkeypatch.setenv("CONTENDED_HOME", str(home))
    with pytest.raises(ContendedError, match="contended scoreboard --simulate"):
        simulated.load("overlay-creds")
    place = home / "results" / "overlay-creds" / "predictions.json"
    place.parent.mkdir(parents=True)
    for text in ("", "{}", '{"rows": [{"figure": "x"}]}', "[1]"):
        place.write_text(text)
        with pytest.raises(ContendedError, match="is no record of predictions: run contended"):
            simulated.load("overlay-creds")


@pytest.fixture
def kept(root: Path) -> Measurement:
    return results.load(root / "results" / "mount-propagation" / "binds-4000.json")


def test_what_the_build_measured_goes_before_the_record(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Measurement
) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    monkeypatch.setenv(lesson.FRESH, str(tmp_path))
    monkeypatch.delenv(claims.RECORD, raising=False)
    probe = RunProbe("wasted", count("binds-4000", "before", "wasted"))
    name = "mount-propagation/binds-4000"
    assert not Runs("mount-propagation", tmp_path).read(probe).live
    assert lesson.live(name, lambda: kept) is kept
    reading = Runs("mount-propagation", tmp_path).read(probe)
    assert (reading.live, reading.source) == (True, f"{name}.json")
    assert reading.value == 7_998_000

    def too_few() -> Measurement:
        raise TooFewCpus("contention needs two CPUs")

    # a machine that can no longer measure shows no measurement of its own
    monkeypatch.setattr("IPython.display.display", lambda _: None)
    lesson.live(name, too_few)
    assert not Runs("mount-propagation", tmp_path).read(probe).live


def test_nothing_is_kept_outside_of_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Measurement
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (lesson.FRESH, claims.RECORD):
        monkeypatch.delenv(name, raising=False)
    lesson.live("mount-propagation/binds-4000", lambda: kept)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "read",
    [
        count("binds-4000", "before", "no-such-counter"),
        count("binds-4000", "no-such-variant", "wasted"),
        count("no-such-run", "before", "wasted"),
        ratio("binds-4000", "after", "no-such-phase"),
        lab("before", "no-such-metric"),
        lab_text("before", "dmesg", r"(\d+)"),
    ],
)
def test_a_probe_that_finds_nothing_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    with pytest.raises(ContendedError) as caught:
        Runs("mount-propagation").read(RunProbe("gone", read))
    assert "\n" not in str(caught.value)


def test_a_reading_of_a_value_that_there_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    about = Evidence(
        userspace=(RunProbe("w", count("binds-4000", "before", "wasted"), of="afterwards"),),
        no_kernel="n",
        note="n",
    )
    case = register.get("mount-propagation")
    with pytest.raises(ContendedError, match="has no value 'afterwards'"):
        board._entry(
            case, case.published[0], about, Runs(case.slug), simulated.load(case.slug), "u"
        )


# --- the command and the page --------------------------------------------------------------------


def test_the_command_prints_every_figure(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    assert main(["scoreboard"]) == 0
    out = capsys.readouterr().out
    for case in register.all():
        for figure in case.published:
            assert f"{case.slug}: {figure.id}\n" in out
    assert re.search(
        r"Of \d+ published numbers and ratios, \d+ held and \d+ differ; \d+ are consistent", out
    )


def test_the_command_as_json(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(root))
    assert main(["scoreboard", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told["tally"]) == set(SHOWN)
    assert told["held where a guess can be made"].keys() == {"rows", "ours", "naive"}
    first = told["figures"][0]
    assert (first["slug"], first["rows"][0]["published"]) == ("lockref-degrade", [8401766.0] * 2)
    assert main(["scoreboard", "--json", str(tmp_path / "board.json")]) == 0
    assert json.loads((tmp_path / "board.json").read_text())["figures"] == told["figures"]
    assert "lockref-degrade: stat-collapse" in capsys.readouterr().out
    assert main(["scoreboard", "--json", str(tmp_path / "no" / "board.json")]) == 2
    assert "there is no folder" in one_line(capsys.readouterr().err)


def test_the_register_is_there_without_the_scoreboard() -> None:
    """Neither the package nor the board's command line pays for the simulator."""
    code = (
        "import sys, contended, contended.scoreboard.board; "
        "print([m for m in ('numba', 'pandas', 'sphinx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Table(HTMLParser):
    """Rows, reasons and links of the page's table, and whether all that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_a_reason_for_each_row(entries: tuple[Entry, ...], root: Path) -> None:
    text = scoreboard.html(entries, "../notebooks/")
    table = Table(text)
    assert not table.open
    rows = sum(len(entry.rows) for entry in entries)
    assert table.seen.count("details") == table.seen.count("summary") == rows
    # on a phone there are no columns, so each cell names its own
    assert text.count('class="scoreboard-head">real kernel, virtual time') == rows
    assert text.count("<em>not timed</em>") == sum(
        row.timed is None for e in entries for row in e.rows
    )
    inside = {link.partition("#")[0] for link in table.links if not link.startswith("https://")}
    chapters = {f"../notebooks/{case.notebook}.html" for case in register.all()}
    misses = "../docs/misses.html"
    assert inside == chapters | {misses}
    assert table.links.count(misses) == sum(r.verdict == "differs" for e in entries for r in e.rows)
    assert {entry.url for entry in entries} <= set(table.links)


def test_what_is_shown_is_escaped(entries: tuple[Entry, ...]) -> None:
    nasty = replace(entries[0], what="<script>", note="<b>", no_kernel="<i>", kernel=())
    text = scoreboard.html([nasty])
    assert not {"<script>", "<b>", "<i>"} & set(re.findall(r"<[^>]*>", text))


def test_the_first_page_asks_for_it(root: Path) -> None:
    assert "```{scoreboard}" in (root / "index.md").read_text()
    assert '"contended.book.scoreboard"' in (root / "conf.py").read_text()


# --- the picture ---------------------------------------------------------------------------------


def test_the_picture_has_a_point_for_each_row_with_both_numbers(
    entries: tuple[Entry, ...],
) -> None:
    text = picture.html(entries, "../notebooks/")
    table = Table(text)
    assert not table.open
    tally, drawn = board.tally(entries), picture.points(entries)
    assert table.seen.count("title") == len(drawn) == len(table.links)
    for verdict, many in tally.items():
        there = sum(point.row.verdict == verdict for point in drawn)
        assert text.count(f'class="{verdict}"') == there
        assert there == many or verdict in ("cannot", "inconsistent")
    rows = sum(len(entry.rows) for entry in entries)
    assert f"{rows - len(drawn)} more have no number here" in text
    for point in picture.points(entries):
        unit = point.row.unit

        def to(value: float, unit: str = unit) -> float:
            return 1 + value / 100 if unit == "%" else value / 1000 if unit == "ms" else value

        assert point.published[1:] == pytest.approx([to(end) for end in point.row.published])
        assert point.ours[1] <= point.ours[0] <= point.ours[2]
        if point.row.ours is not None:
            assert point.ours[0] == pytest.approx(to(point.row.ours.middle))


def _places(text: str) -> list[tuple[float, float]]:
    """Where the points of a panel are."""
    found = re.findall(r'class="(?:held|differs)" [^>]*translate\(([\d.]+),([\d.]+)\)', text)
    return [(float(x), float(y)) for x, y in found]


def _drawn(entry: Entry, *numbers: tuple[float, float | None], unit: str = "ratio") -> str:
    """The picture of rows with these published and simulated numbers."""
    row = replace(entry.rows[0], unit=unit, compared=(), timed=None, verdict="held")
    sides = [None if y is None else Said(y, y, y, "held", 1.0) for _, y in numbers]
    rows = [
        replace(row, published=(x, x), simulated=said)
        for (x, _), said in zip(numbers, sides, strict=True)
    ]
    return picture.html([replace(entry, rows=tuple(rows), userspace=(), kernel=())], "")


def test_equal_numbers_lie_on_the_diagonal(entries: tuple[Entry, ...]) -> None:
    (x1, y1), (x2, y2), (x3, y3), (x4, y4) = _places(
        _drawn(entries[0], (1.0, 1.0), (10.0, 10.0), (100.0, 100.0), (10.0, 5.0))
    )
    assert x1 + y1 == pytest.approx(x2 + y2, abs=0.2)
    assert x3 + y3 == pytest.approx(x2 + y2, abs=0.2)
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2), "logarithmic"
    assert x2 > x1
    assert x4 == x2
    assert y4 == pytest.approx(y2 + (y1 - y2) * 0.301, abs=0.2), "a factor of two below"
    ends = re.findall(r'<path d="M([\d.]+) ([\d.]+)V([\d.]+)h([\d.]+)', _drawn(entries[0], (1, 1)))
    left, top, foot, room = map(float, ends[0])
    assert x1 + y1 == pytest.approx(left + foot, abs=0.2), "on the line that is drawn"
    assert foot - top == room


def test_a_picture_of_nothing_and_of_zeros(entries: tuple[Entry, ...]) -> None:
    assert "<svg" not in _drawn(entries[0], (2.0, None))
    assert "1 more have no number" in _drawn(entries[0], (2.0, None))
    assert "<svg" not in picture.html([], "")
    ((x, y),) = _places(_drawn(entries[0], (0.0, 0.0)))
    assert x > 0
    (x, y), (x1, y1), (_, y2) = _places(_drawn(entries[0], (0.0, 0.0), (1.0, 1.0), (10.0, 0.0)))
    assert x < x1
    assert x + y == pytest.approx(x1 + y1, abs=0.2)
    assert y2 == y
    # a change of -100 % is a ratio of zero; one of more than that is drawn there, too
    assert len(_places(_drawn(entries[0], (-100.0, -100.0), (50.0, 40.0), unit="%"))) == 2


@pytest.mark.parametrize(
    ("value", "panel", "text"),
    [
        *((0.01, "Times", "10 ms"), (1.0, "Times", "1 s"), (0.0, "Times", "0 s")),
        *((0.0, "", "0"), (0.1, "", "0.1"), (1e3, "", "1 k"), (1e7, "", "10 M")),
    ],
)
def test_ticks(value: float, panel: str, text: str) -> None:
    assert picture._tick(value, panel) == text
