# SPDX-License-Identifier: MIT
"""`contended kernel waits`: how long a wait is in guest time, its record, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from contended import cli, stats
from contended.cases.umount_grace_period import CONFIGURED
from contended.errors import ContendedError
from contended.kernel import build, make, source, variants, waits
from contended.show import lesson

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
    assert new == set(waits.counting(case, seen.source)) - set(waits.counting(case, "6.1"))
    middle = stats.median(waits.recorded(SLUG).ms("hz-1000", "before", "lazy"))
    ms = seen.ms("rt", "before", "lazy")
    assert len(ms) >= 10
    assert 0.5 * middle < min(ms)
    assert max(ms) < 2 * middle
    assert max(seen.ms("rt-nocbs", "before", "lazy")) < min(ms)


@pytest.mark.check
@pytest.mark.usefixtures("no_vm_left")
def test_guest_time_is_as_recorded() -> None:
    """Whatever the host does meanwhile: 100 ticks a second, on kernels that the lab has anyway."""
    case, tree = variants.load(SLUG), source.find()
    kept = waits.recorded(SLUG)
    for variant in case.pick(BOTH):
        for run in case.pick_runs(("hz-100", "hz-100-expedited")):
            seen = waits._waited(build.build(variant, run.config, tree), variant, run, 1)
            for one in seen:
                ms = kept.ms(run.name, variant.name, one.label)
                assert one.mean_ns / 1e6 == pytest.approx(stats.median(ms), rel=0.25)


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


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["no-such-case"], "no kernel variants of 'no-such-case'"),
        (["lockref-degrade"], "lockref-degrade has no run with icount = true"),
        ([SLUG, "--runs", "normal"], "run 'normal' is without icount = true: no guest time"),
        ([SLUG, "--runs", "x"], "has no run 'x'"),
        ([SLUG, "--variants", "x"], "has no variant 'x'"),
        ([SLUG, "--boots", "0"], "--boots"),
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
