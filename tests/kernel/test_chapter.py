# SPDX-License-Identifier: MIT
"""What chapters show of the kernel lab: live if the kernels are there, else the reference run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import profiles as made
import pytest
from labtools import path_with, script

from contended.errors import ContendedError, UsageError
from contended.kernel import build, chapter, run, variants
from contended.kernel.qemu import LostVm
from contended.kernel.record import BootRecord, KernelProvenance, KernelRun, OutcomeRecord
from contended.profile import assemble, figure, query, saved
from contended.profile.saved import Profiles
from contended.show import claims, lesson

SLUG = "open-creat-unlazy"


def judged(seen: float, held: bool = True) -> KernelRun:
    outcome = OutcomeRecord(
        variant="before", run="opens", expected="two references", condition="calls >= 1.9",
        metric="calls", seen=seen, low=seen, high=seen, held=held,
        reason="" if held else f"{seen} is below 1.9",
    )  # fmt: skip
    where = KernelProvenance(
        cpu="a CPU", cpus_allowed=[0, 1], host_kernel="6.1", virtualized=None, qemu="7.2",
        accel="tcg", note="", source="6.1.192", guest_compiler="gcc 12", contended="0",
        commit=None, load_1min=0.0, started="2026-01-01T00:00:00+00:00", seconds=3.0,
    )  # fmt: skip
    return KernelRun(
        case=SLUG, vcpus=2, repeats=1, variants={"before": "as it is"}, kernels=[], boots=[],
        outcomes=[outcome], provenance=where,
    )  # fmt: skip


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where reference runs are in this test; there is one of the kernels, and one of the lines."""
    monkeypatch.setattr(lesson, "reference", lambda name: tmp_path / "results" / f"{name}.json")
    place = tmp_path / "results" / SLUG
    place.mkdir(parents=True)
    judged(2.0).save(place / "kernel.json")
    made.profiles().save(place / "c2c.json")
    return place


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is displayed beside the result."""
    import IPython.display

    shown: list[str] = []
    monkeypatch.setattr(IPython.display, "display", lambda thing: shown.append(repr(thing)))
    return shown


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """QEMU and all kernels are there; the calls of `run.run`, which answers 1.5."""
    asked: list[dict[str, Any]] = []

    def answer(slug: str, **how: Any) -> KernelRun:
        asked.append({"slug": slug, **how})
        return judged(1.5)

    monkeypatch.setenv("PATH", path_with(script(tmp_path / "bin", "exit 1")))
    monkeypatch.setattr(build, "find", lambda *_: SimpleNamespace())
    monkeypatch.setattr(run, "run", answer)
    return asked


def test_kernels_that_are_built_are_run(
    results: Path, built: list[dict[str, Any]], boxes: list[str]
) -> None:
    done = chapter.outcomes(SLUG)
    assert (done.recorded, done.seen("before", "calls")) == (False, 1.5)
    runs = [name for name, one in variants.load(SLUG).runs.items() if not one.profile]
    assert built == [{"slug": SLUG, "vcpus": chapter.VCPUS, "smoke": False, "runs": runs}]
    assert not boxes
    assert chapter.recorded(SLUG).seen("before", "calls") == 2.0, "nobody asked to record it"


@pytest.mark.parametrize("slug", variants.slugs())
def test_a_chapter_runs_something_of_every_case(
    results: Path, built: list[dict[str, Any]], slug: str
) -> None:
    chapter.outcomes(slug)
    (asked,) = built
    assert run.plan(slug, smoke=False, runs=asked["runs"]).case.outcomes


def test_a_live_run_becomes_the_reference_run_if_asked(
    results: Path, built: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(claims.RECORD, "1")
    chapter.outcomes(SLUG)
    assert chapter.recorded(SLUG).seen("before", "calls") == 1.5


def miss(timed: bool) -> KernelRun:
    return replace(
        judged(1.0), outcomes=[replace(judged(1.0, held=False).outcomes[0], timed=timed)]
    )


def test_a_missed_time_is_shown_beside_the_recorded_run(
    results: Path, built: list[dict[str, Any]], boxes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "run", lambda *_, **__: miss(timed=True))
    assert not chapter.outcomes(SLUG).held
    (box,) = boxes
    assert re.search("Not as expected.*before: two references .calls >= 1.9.", box)
    assert "1.0 is below 1.9; recorded run: 2." in box


def test_a_missed_count_stops_the_chapter(
    results: Path, built: list[dict[str, Any]], boxes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "run", lambda *_, **__: miss(timed=False))
    with pytest.raises(ContendedError, match=f"{SLUG}: .*two references: 1.0 is below 1.9"):
        chapter.outcomes(SLUG)


def boot(failed: str, *splats: str) -> list[BootRecord]:
    made = SimpleNamespace(variant="before", run="opens", failed=failed, splats=list(splats))
    return [cast(BootRecord, made)]


def hang(slug: str, **_: Any) -> KernelRun:
    return replace(judged(1.0, held=False), boots=boot("hang: not done after 180 s"))


def stall(slug: str, **_: Any) -> KernelRun:
    return replace(judged(1.0, held=False), boots=boot("", "rcu: INFO: rcu_sched self-detected"))


def test_a_panic_is_nobodys_noise(
    results: Path, built: list[dict[str, Any]], boxes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    panicked = replace(miss(timed=True), boots=boot("panic: Oops"))
    monkeypatch.setattr(run, "run", lambda *_, **__: panicked)
    with pytest.raises(ContendedError, match="before, run opens: panic: Oops"):
        chapter.outcomes(SLUG)


def test_a_failure_that_was_expected_is_no_miss(
    results: Path, built: list[dict[str, Any]], boxes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = replace(judged(1.0), boots=boot("hang: as it should", "rcu: INFO: stall"))
    monkeypatch.setattr(run, "run", lambda *_, **__: expected)
    assert chapter.outcomes(SLUG) is expected
    assert not boxes


def lose(slug: str, **_: Any) -> KernelRun:
    raise LostVm("QEMU was killed by signal 9")


@pytest.mark.parametrize("trouble", [hang, stall, lose])
def test_a_starved_machine_shows_the_reference_run(
    trouble: Any,
    results: Path,
    built: list[dict[str, Any]],
    boxes: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "run", trouble)
    assert chapter.outcomes(SLUG).recorded
    (box,) = boxes
    assert "Not as expected in this run" in box
    assert f"results/{SLUG}/kernel.json" in box


def test_an_outcome_that_does_not_hold_is_not_recorded(
    results: Path, built: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(claims.RECORD, "1")
    monkeypatch.setattr(run, "run", lambda *_, **__: judged(1.0, held=False))
    with pytest.raises(ContendedError, match=f"{SLUG}: .*two references: 1.0 is below 1.9"):
        chapter.outcomes(SLUG)
    assert chapter.recorded(SLUG).held


def test_without_a_kernel_the_reference_run_is_shown_and_the_box_says_why(
    results: Path, built: list[dict[str, Any]], boxes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "find", lambda variant, _: variant if variant.patches else None)
    done = chapter.outcomes(SLUG)
    assert done.recorded
    assert not built
    (box,) = boxes
    assert "1 of its 4 kernels are not built" in box
    assert f"contended kernel run {SLUG}" in box


def test_without_qemu_too(
    results: Path, boxes: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert chapter.outcomes(SLUG).recorded
    assert "QEMU is not installed" in boxes[0]


def test_what_is_missing_may_be_the_patches(
    built: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CONTENDED_HOME", str(tmp_path / "nowhere"))
    assert chapter.missing(SLUG)
    monkeypatch.delenv("CONTENDED_HOME")
    assert chapter.missing(SLUG) == ""


def test_profiles_are_the_recorded_ones(results: Path) -> None:
    found = chapter.profiles(SLUG)
    assert found == replace(made.profiles(), recorded=True)
    assert found.variants == ["before", "after"]


def test_a_case_may_have_several_records(results: Path) -> None:
    replace(made.profiles(), run="other").save(results / "c2c-name-9.json")
    assert chapter.profiles(SLUG, "name-9").run == "other"
    with pytest.raises(ContendedError, match=r"cannot read profiles from .*c2c-name-10\.json"):
        chapter.profiles(SLUG, "name-10")


def test_the_worst_lines_are_named(results: Path) -> None:
    table = chapter.profiles(SLUG).worst_lines(top=2)
    assert "open-creat-unlazy: cache lines taken" in table.caption
    assert "Linux 6.1.192, 2 CPUs" in table.caption
    assert [tuple(row) for row in table.rows] == [
        (
            "before", 1, "1", "74 %",
            'struct dentry "/" of rootfs: d_lockref, d_iname', "path_get, lookup, path_put",
        ),
        ("before", 2, "0.3", "22 %", 'struct dentry "f" of tmpfs: d_lockref', "path_put"),
        ("before", "all", "1.35", "", "", ""),
        ("after", "all", "0", "", "", ""),
    ]  # fmt: skip


def test_lines_that_nobody_looked_up_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "RESOLVED_LINES", 1)
    found = Profiles(case=SLUG, run="", mode="system", profiles=(made.profile(),))
    assert [row[4] for row in found.worst_lines().rows] == [
        'struct dentry "/" of rootfs: d_lockref, d_iname', "unknown", "unknown", "",
    ]  # fmt: skip
    # what has no name is part of the rest, however much it is
    assert "unknown" not in figure.stacked(found, "meaning").alt
    assert "the rest 0.35" in figure.stacked(found, "meaning").alt


def test_the_worst_lines_of_a_region(results: Path) -> None:
    found = Profiles(
        case=SLUG, run="", mode="system",
        profiles=(made.profile(label="calm", raw=made.nothing()), made.profile(label="hurt")),
    )  # fmt: skip
    assert len(found.worst_lines().rows) == 1
    assert len(found.worst_lines("hurt").rows) == 4
    with pytest.raises(UsageError, match="no profile of 'before', after; there are"):
        found.worst_lines("after")


def test_the_page_on_the_profiler_quotes_the_record(root: Path) -> None:
    """The docs are not executed, so the last three columns of their table are checked here."""
    found = saved.load(root / "results" / "overlay-creds" / "c2c.json")
    filters = {
        "the mounter's credentials": "role(overlay)",
        "scheduler": "symbol(update_cfs_group)",
        "not in the tables: group list": "name(init_groups)",
        "user, `root_user": "name(root_user)",
        "resource counts": "name(init_ucounts)",
        "the file's dentry": "field(dentry.d_lockref)",
    }
    page = (root / "docs" / "coherence.md").read_text()
    table = page.partition("| published line |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(table) == len(filters)
    for row, (begin, narrowed) in zip(table, filters.items(), strict=True):
        assert row.startswith(f"| {begin}")
        quoted = [cell.strip() for cell in row.split("|")[-4:-1]]
        values = [
            query.value(found, variant, f"hitm_per_op.{narrowed}")
            for variant in ("before", "after", "overlay-only")
        ]
        assert quoted == [f"{value:.2f}" for value in values], begin
