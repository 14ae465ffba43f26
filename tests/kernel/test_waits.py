# SPDX-License-Identifier: MIT
"""`contended kernel waits`: how long a wait is in guest time, its record, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from contended import cli, stats, tree
from contended.cases.umount_grace_period import CONFIGURED
from contended.errors import ContendedError
from contended.kernel import boot, build, make, qemu, source, times, variants, waits
from contended.kernel.run import emulated
from contended.show import lesson
from contended.simulate import machines

pytest_plugins = ("labfixtures",)

SLUG = "umount-grace-period"
BOTH = ("before", "queue-rcu-work")


def test_the_record_says_what_ticks_and_readers_explain() -> None:
    """A normal grace period is ticks, and an expedited one none; deferred, nobody waits."""
    seen = waits.recorded(SLUG)
    case = variants.load(SLUG)
    hz = {one.run: one.hz for one in seen.results}
    assert {"hz-100", "hz-100-expedited"} <= set(hz)
    assert set(hz) <= {name for name, run in case.runs.items() if run.icount}
    for name, rate in hz.items():
        assert rate == make.hz(case.runs[name].config, seen.source)
        tick_ms = 1000 / rate
        for variant in BOTH:
            for label in ("plain", "lazy"):
                ms = seen.ms(name, variant, label)
                assert len(ms) >= 10
                deferred = (variant, label) == ("queue-rcu-work", "lazy")
                if deferred or name not in CONFIGURED:
                    assert max(ms) < 0.1
                else:
                    assert tick_ms < min(ms)
                    assert max(ms) < 10 * tick_ms
    # the more ticks in a second, the shorter the wait, though it is of more ticks
    ticking = [name for name in CONFIGURED[:3] if name in hz]
    middle = [stats.median(seen.ms(name, "before", "lazy")) for name in ticking]
    assert middle == sorted(middle, reverse=True)
    assert middle[0] < 10 * middle[-1]


def test_a_real_time_kernel_waits_for_as_many_ticks() -> None:
    seen, case = waits.recorded(SLUG, "waits-rt"), variants.load(SLUG)
    new = {each.run for each in seen.results}
    assert new == {"rt", "rt-nocbs"}
    more = set(waits.counting(case, seen.source)) - set(waits.counting(case, "6.1"))
    assert more == new | {"command-rt", "command-rt-100", "command-rt-250"}
    several = waits.recorded(SLUG, "waits-several")
    for cpus, of, boots in ((1, waits.recorded(SLUG), 10), (4, several, 3), (16, several, 3)):
        middle = stats.median(of.ms("hz-1000", "before", "lazy", cpus))
        ms = seen.ms("rt", "before", "lazy", cpus)
        assert len(ms) >= boots
        assert 0.5 * middle < min(ms)
        assert max(ms) < 2 * middle
        threads = seen.ms("rt-nocbs", "before", "lazy", cpus)
        assert stats.median(threads) < stats.median(ms)


@pytest.mark.check
@pytest.mark.usefixtures("no_vm_left")
def test_guest_time_is_as_recorded() -> None:
    """Whatever the host does meanwhile: 100 ticks a second, on kernels that the lab has anyway."""
    case, tree = variants.load(SLUG), source.find()
    kept = waits.recorded(SLUG)
    for variant in case.pick(BOTH):
        for run in case.pick_runs(("hz-100", "hz-100-expedited")):
            seen = waits.waited(build.build(variant, run.config, tree), variant, run, 1)
            for one in seen:
                ms = kept.ms(run.name, variant.name, one.label)
                assert one.mean_ns / 1e6 == pytest.approx(stats.median(ms), rel=0.25)


@contextmanager
def busy_host() -> Iterator[None]:
    """Twice as many busy loops as the host has CPUs."""
    command = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.mark.check
@pytest.mark.usefixtures("no_vm_left")
def test_several_cpus_wait_for_ticks_and_one_as_long_by_either_clock(
    tmp_path: Path,
) -> None:
    """A known answer: on one CPU the plugin's clock and QEMU's -icount are two ways to one time.

    A busy host is late to wake up who waits for a tick, and that is none of the guest's time.
    With a hundred ticks a second it is a kernel that the lab has anyway.
    """
    case, tree, box = variants.load(SLUG), source.find(), machines.get("2x20-smt")
    before, run = case.variants["before"], case.runs["row-100"]
    kernel = build.build(before, run.config, tree)
    kept = waits.recorded(SLUG, "waits-row")
    tick_ms = 1000 / make.hz(run.config, kernel.version)
    asked = waits.of_several(emulated(kernel, run), 1, box, 1, tmp_path / "profile.json")
    with busy_host():
        four = waits.waited(kernel, before, run, 1, 4, box)
        alone = boot.boot(asked).results
    for one in four:
        # Chance is the guest's: how many ticks is not always the same.
        assert 2.5 < one.mean_ns / 1e6 / tick_ms < 6
        assert (one.cpus, one.machine) == (4, box.name)
        assert one.escaped < times.DOUBT
    for result in alone:
        ms = stats.median(kept.ms(run.name, before.name, result["label"], 1))
        assert result["latency_ns"]["mean"] / 1e6 == pytest.approx(ms, rel=0.03)
        assert result["latency_ns"]["max"] / 1e6 < 1.02 * ms


def test_who_is_not_alone_waits_longer() -> None:
    """From one CPU to four the wait grows, from four to 64 hardly."""
    alone, several = waits.recorded(SLUG), waits.recorded(SLUG, "waits-several")
    assert {one.cpus for one in several.results} == {2, 4, 16, 64}
    for run in CONFIGURED:
        one = stats.median(alone.ms(run, "before", "lazy"))
        four = stats.median(several.ms(run, "before", "lazy", 4))
        assert 1.4 * one < four < 3 * one
        for cpus in (4, 16, 64):
            ms = several.ms(run, "before", "lazy", cpus)
            assert len(ms) >= 3
            assert 0.7 < stats.median(ms) / four < 1.5
            assert max(several.ms(run, "queue-rcu-work", "lazy", cpus)) < 0.1
    assert max(one.escaped for one in several.results) < times.DOUBT


def test_idle_cpus_are_looked_at_late_and_busy_ones_need_no_look() -> None:
    looks = waits.recorded(SLUG, "waits-look")
    for label in ("plain", "lazy"):
        usual, sooner, later, busy = (
            looks.ms(run, "before", label, 4) for run in ("hz-1000", "look-1", "look-9", "busy")
        )
        assert min(map(len, (usual, sooner, later, busy))) >= 10
        assert max(*sooner, *busy) < min(usual)
        assert max(usual) < min(later)


def test_grace_periods_of_others_on_a_busy_machine_do_not_double_a_wait() -> None:
    """They lengthen it, by the median of the boots; one boot with them may be as short."""
    beside = waits.recorded(SLUG, "waits-beside")
    for label in ("plain", "lazy"):
        alone, among = (beside.ms(run, "before", label, 4) for run in ("hz-100", "both-100"))
        assert min(len(alone), len(among)) >= 5
        assert stats.median(alone) < stats.median(among) < 1.4 * stats.median(alone)
        assert max(among) < 2 * stats.median(alone)


def test_a_guest_that_keeps_its_own_time_has_a_counter_of_nanoseconds(tmp_path: Path) -> None:
    case = variants.load(SLUG)
    place = tmp_path / "x"
    kernel = build.Kernel("x", "before", "base", "", place, place, "", "6.1.1", "")
    asked = replace(emulated(kernel, case.runs["hz-100"]), vcpus=4, icount=False)
    line = qemu.command_line(replace(asked, guest_clock=True))
    assert "tsc_early_khz=1000000 " in line
    assert "isolcpus" not in line
    assert "isolcpus" in qemu.command_line(asked)


def test_umounts_in_a_row_take_longer_on_four_cpus() -> None:
    rows = {"waits-row": ("row-100", "row-250", "row-1000"), "waits-row-preempt": ("row-preempt",)}
    for record, runs in rows.items():
        row = waits.recorded(SLUG, record)
        for run in runs:
            assert min(row.ms(run, "before", "plain", 4)) > max(row.ms(run, "before", "plain", 1))


def test_the_page_says_that_neither_preemption_nor_an_older_release_matters() -> None:
    page = " ".join((tree.home() / "docs" / "virtual-time.md").read_text().split())
    said = []
    for record in ("waits-row-preempt", "waits-row-510"):
        kept = waits.recorded(SLUG, record)
        one, four = (kept.ms("row-preempt", "before", "plain", cpus) for cpus in (1, 4))
        assert f"{min(one):.0f}" == f"{max(one):.0f}" == "12"
        said.append(f"{min(four):.0f} to {max(four):.0f}")
    assert waits.recorded(SLUG, "waits-row-510").source.startswith("5.10.")
    assert f"12 ms with one processor and {said[0]} with four, as without." in page
    assert f"12, and {said[1]}. Published are 7.2 and 20." in page


def test_a_table_has_a_row_for_each_run_and_a_range_of_its_boots() -> None:
    one = waits.recorded(SLUG).results[0]
    kept = replace(one, variant="before", label="lazy", run="x")
    changed = [replace(kept, seed=n, mean_ns=n * 10**6) for n in (1, 2)]
    found = waits.Waits(
        case=SLUG, source="6.1", qemu="7", cpu="c", commit=None, results=tuple(changed)
    )
    table = found.table("", [("umount -l", "before", "lazy"), ("umount", "before", "plain")])
    assert list(table.rows) == [("x", "1 to 2", "-")]
    assert "1 to 2 ms" in str(found)
    more = replace(found, results=(*changed, replace(kept, cpus=4, mean_ns=5 * 10**6)))
    table = more.table("", [("umount -l", "before", "lazy")])
    assert list(table.rows) == [("x", "1", "1 to 2"), ("x", "4", "5")]
    assert table.head[:2] == ("run", "CPUs")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["no-such-case"], "no kernel variants of 'no-such-case'"),
        (["lockref-degrade"], "lockref-degrade has no run with icount = true"),
        ([SLUG, "--runs", "normal"], "run 'normal' is without icount = true: no guest time"),
        ([SLUG, "--runs", "x"], "has no run 'x'"),
        ([SLUG, "--variants", "x"], "has no variant 'x'"),
        ([SLUG, "--boots", "0"], "--boots"),
        ([SLUG, "--cpus", "81"], "--cpus"),
        ([SLUG, "--cpus", "0"], "--cpus"),
        ([SLUG, "--machine", "x"], "no machine 'x'"),
        ([SLUG, "--json", "/nowhere/x"], "there is no folder /nowhere"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["kernel", "waits", *words]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


def test_a_damaged_record_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "waits.json"
    place.write_text(json.dumps({"case": SLUG}))
    monkeypatch.setattr(lesson, "reference", lambda _: place)
    with pytest.raises(ContendedError, match="run contended kernel waits umount-grace-period"):
        waits.recorded(SLUG)
