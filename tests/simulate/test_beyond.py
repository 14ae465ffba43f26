# SPDX-License-Identifier: MIT
"""What chapters show past the reader's machine: records, figures, the slider, the tables."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest

from contended import cases, register, stats
from contended.book import simulator
from contended.cases import beyond, lockref_degrade, open_creat_unlazy, timed
from contended.errors import ContendedError, UsageError
from contended.kernel import releases, times
from contended.measure.results import number
from contended.show import lesson, widget
from contended.simulate import chart, curves, grace, machines
from contended.simulate.chart import Mark
from contended.simulate.slider import Slider
from contended.simulate.workload import Scenario

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

SLUGS = tuple(beyond.sweeps())
OVERLAY = "overlay-creds"


@pytest.mark.parametrize("slug", SLUGS)
def test_the_record_is_what_the_command_makes_digit_for_digit(slug: str) -> None:
    curve = beyond.load(slug)
    frame = curve.frame
    assert tuple(curve.cpus) == curves.CPUS
    assert sorted(set(frame.seed)) == list(range(curves.SEEDS))
    assert set(frame.variant) == set(curve.sweep.variants)
    assert set(frame.machine) == {curve.sweep.machine}
    assert set(frame.case) == {curve.sweep.workload.name}
    whole = len(curves.CPUS) * curves.SEEDS * len(curve.sweep.variants)
    assert len(frame) % whole == 0
    assert not frame.duplicated(["variant", "cpus", "seed", "phase"]).any()
    for line in curve.sweep.lines:
        assert curve.again(line.label, 16, seed=1)
    words = beyond.command(slug).split()
    assert words[words.index("--machine") + 1] == curve.sweep.machine
    assert words[-1] == f"results/{slug}/simulate.parquet"


def test_a_record_that_was_changed_is_noticed() -> None:
    curve = beyond.load("overlay-creds")
    frame = curve.frame.copy()
    hit = (frame.variant == "before") & (frame.cpus == 16) & (frame.seed == 0)
    frame.loc[hit & (frame.phase == "run"), "transfers"] += 1
    assert not curves.Curve(curve.sweep, frame).again("before", 16)
    missing = curves.Curve(curve.sweep, frame[~hit])
    assert not missing.again("before", 16)


@pytest.mark.parametrize("slug", SLUGS)
def test_figures_show_curves_fits_and_what_was_published(slug: str) -> None:
    curve = beyond.load(slug)
    plot = curve.plot("As far as it goes")
    for line in curve.sweep.lines:
        assert line.label in plot.alt
    for mark in curve.sweep.marks:
        assert f"published, {mark.label}" in plot.alt
    assert plot.svg() == curve.plot("As far as it goes").svg()
    box = machines.get(curve.sweep.machine)
    drawn = plot.figure.axes[0].get_legend_handles_labels()[1] + [
        text.get_text() for legend in plot.figure.legends for text in legend.get_texts()
    ]
    throughput = curve.sweep.unit != "ms"
    assert ("USL fit" in drawn) is throughput
    assert ("past the machine's size" in drawn) is throughput
    assert box.cpus < curves.CPUS[-1]


def test_published_marks_are_the_register_s() -> None:
    healthy, degraded = beyond.sweep("lockref-degrade").marks
    figure = register.get("lockref-degrade").figure("stat-collapse")
    assert (healthy.x, healthy.low) == (figure.workers, figure.value("healthy").low)
    assert (degraded.low, degraded.high) == (
        figure.value("degraded").low,
        figure.value("degraded").high,
    )
    before, _ = beyond.sweep("open-creat-unlazy").marks
    seconds = register.get("open-creat-unlazy").figure("open-close-64-mounts").value("before")
    assert before.high == pytest.approx(open_creat_unlazy.OPENS / seconds.low)
    assert all(mark.x is None for mark in beyond.sweep("umount-grace-period").marks)
    assert beyond.sweep("overlay-creds").marks == ()


def test_the_law_is_fitted_where_the_machine_is_and_nowhere_else() -> None:
    curve = beyond.load("dentry-false-sharing")
    fit = curve.fit("after")
    assert fit.r2 > 0.95
    kept = curve.frame[curve.frame.cpus <= 24]
    assert curves.Curve(curve.sweep, kept).fit("after") == fit
    assert "after" in repr(curve.fits())


def test_the_kernel_s_curve_stands_beside_the_simulated_one_and_the_published_points() -> None:
    drawn = beyond.in_virtual_time("dentry-false-sharing", "stat")
    kernel = timed.record("dentry-false-sharing")
    for variant in ("before", "after"):
        middle = stats.median([*kernel.rates(variant, 20).values()])
        assert f"{number(middle, 3)} at 20" in drawn.alt
        assert f"{variant} kernel: " in drawn.alt
        assert f"{variant}, simulated: " in drawn.alt
    assert "published, before: 5,040,000 at 20" in drawn.alt
    assert "512" not in drawn.alt  # the machine has 24 CPUs
    # of another machine, or of a case without a sweep, nothing simulated stands beside it
    region = dict(kernel.regions[0], machine="2x128", cpus=256)
    alone = beyond.in_virtual_time("dentry-false-sharing", "stat", [region])
    assert "simulated: " not in alone.alt.replace("and simulated: ", "")
    assert "doubtful" not in alone.alt
    doubted = beyond.in_virtual_time("dentry-false-sharing", "stat", [{**region, "ticks": 0.02}])
    assert f"; doubtful: {region['variant']} (256)" in doubted.alt
    with pytest.raises(ContendedError, match="no record of kernel time"):
        beyond.in_virtual_time("umount-grace-period", "umount")


@pytest.mark.parametrize(
    "slug",
    ["open-creat-unlazy", "dentry-false-sharing", "overlay-creds", "umount-grace-period"],
)
def test_each_release_has_a_curve_of_its_own_record(slug: str) -> None:
    drawn = beyond.by_release(slug, "by release")
    kept = timed.record("history/time", slug)
    rates = beyond.release_rates(slug, 16)
    assert list(rates) == releases.names()
    for name, rate in rates.items():
        (seen,) = kept.rates(name, 16, "lazy" if slug == "umount-grace-period" else "").values()
        assert rate == seen
        assert f"Linux {name}: " in drawn.alt
        assert f"{number(rate, 3)} at 16" in drawn.alt
    doubts = drawn.alt.partition("; doubtful: ")[2].partition("). ")[0] + ")"
    for region in kept.regions:
        named = re.search(rf"(?:^|, ){region['variant']} \(([\d, ]+)\)", doubts)
        cpus = named[1].split(", ") if named else []
        assert (str(region["cpus"]) in cpus) == times.doubtful(region)


def test_what_was_seen_beside_ticks_is_doubtful_but_where_nobody_waits_for_them() -> None:
    region = dict(timed.record("open-creat-unlazy").regions[0], cpus=4, ticks=0.0, escaped=0.0)
    assert not times.doubtful(region)
    assert times.doubtful({**region, "ticks": 0.02})
    assert times.doubtful({**region, "escaped": 0.02})
    assert times.doubtful({**region, "together_ns": 0.0})
    assert not times.doubtful({**region, "ticks": 0.02, "cpus": 1})
    assert not times.doubtful({"clock": "guest"})


def test_the_crossover_is_where_the_published_points_need_it() -> None:
    found = lockref_degrade.crossover("2x48-smt-intel", (24, 192), parts=[0.1])
    assert found.ratio(0.1, 24) > 2
    assert found.ratio(0.1, 192) < 0.8
    assert found.sizes(0.1, above=1) == [24]
    alt = found.plot("Crossing").alt
    assert "published, 24 workers: 3.76 at 24" in alt
    assert "published, 192 workers: 0.313 at 192" in alt


def test_what_the_discussion_says_of_parameters_is_so() -> None:
    """The text says so in words; these are the rows behind it."""
    said = cases.prediction("lockref-degrade")
    at_192, robot = (said.row(f, "after/before") for f in ("spin-192-workers", "robot-handle"))
    assert at_192.range is not None
    assert robot.range is not None
    assert at_192.published[1] < at_192.range[0] < 1 < at_192.range[1]
    assert robot.published[1] < robot.range[0] < robot.range[1] < 1


def test_the_slider_stands_still_in_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(widget.BOOK, "1")
    bundle = beyond.slider("overlay-creds", "Still")._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert "<svg" in bundle["text/html"]


def test_the_slider_stands_still_without_ipywidgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(widget.BOOK, raising=False)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    bundle = beyond.slider("overlay-creds", "Still")._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}


@pytest.mark.parametrize("slug", ["overlay-creds", "umount-grace-period"])
def test_the_slider_simulates_anew(slug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    widgets = pytest.importorskip("ipywidgets")
    monkeypatch.delenv(widget.BOOK, raising=False)
    live = beyond.slider(slug, "Live")
    assert isinstance(live, Slider)
    bundle = live._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "<svg" in bundle["text/html"]
    box = live.widget()
    knob = next(
        w for w in box.children if isinstance(w, widgets.FloatSlider | widgets.FloatLogSlider)
    )
    picture = box.children[-1]
    before = picture.value
    start = knob.value
    knob.value = 1.0 if slug == "umount-grace-period" else 4.0
    assert picture.value != before
    knob.value = start
    assert picture.value == before
    if slug == "overlay-creds":
        machine = box.children[0]
        machine.value = "2x48-smt"
        assert "groups of 8" in picture.value


def test_more_work_lowers_a_live_curve() -> None:
    one, four = (beyond.sweep("overlay-creds").now([1], amount=f) for f in (1.0, 4.0))
    # the accesses themselves do not grow with the work, and 150 draws of a few long parts differ
    quarter = one.at("files-after", 1) / 4
    assert four.at("files-after", 1) == pytest.approx(quarter, rel=0.08)
    sweep = beyond.sweep("umount-grace-period")
    rows = sweep.workload.rows("before", sweep.machine, 64, 0, draws=40)
    idle, busy = (sweep.now([64], amount=part).at("waits", 64) for part in (0.0, 1.0))
    assert idle == next(row["ns_per_op"] / 1e6 for row in rows if row["phase"] == "idle")
    assert busy == next(row["ns_per_op"] / 1e6 for row in rows if row["phase"] == "busy")


def test_laws_are_drawn_and_held_against_counts() -> None:
    laws = {"before": lambda n: n * (n + 1), "after": lambda n: 2 * n}
    plot = chart.law(
        "Far",
        laws,
        {"before": {10: 110.0}},
        [10, 1e6],
        xlabel="areas",
        ylabel="steps",
        marks=[Mark("said", 100, 5000, 5000)],
    )
    assert "before: 110 at 10" in plot.alt
    assert "published, said: 5,000 at 100" in plot.alt
    assert chart.off(laws["before"], {10: 110.0, 100: 10_000.0}) == pytest.approx(0.01)
    assert chart.exponent(laws["after"], 1e6) == pytest.approx(1)
    assert chart.exponent(lambda n: math.pow(n, 1.5), 10) == pytest.approx(1.5)
    with pytest.raises(UsageError, match="'later' was counted but has no formula"):
        chart.law("Far", laws, {"later": {1: 1.0}}, [1, 2], xlabel="x", ylabel="y")
    with pytest.raises(UsageError, match="nothing to plot"):
        chart.chart("Empty", {}, xlabel="x", ylabel="y")


def test_what_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="choose one of: lockref-degrade"):
        beyond.load("mount-hash")
    with pytest.raises(UsageError, match="choose one of: lockref-degrade"):
        beyond.slider("mount-hash", "None")
    curve = beyond.load("overlay-creds")
    with pytest.raises(UsageError, match="no line 'x'; choose one of: before, own-line, after"):
        curve.at("x", 1)
    with pytest.raises(UsageError, match="3 CPUs were not simulated; there are 1, 2, 4"):
        curve.at("before", 3)
    monkeypatch.setattr(lesson, "reference", lambda name: tmp_path / f"{name}.json")
    beyond.load.cache_clear()
    with pytest.raises(ContendedError, match=r"simulate\.parquet is missing: contended simulate"):
        beyond.load("overlay-creds")
    monkeypatch.undo()
    beyond.load.cache_clear()


def test_the_page_s_tables_are_the_code_s(root: Path) -> None:
    text = (root / simulator.PAGE).read_text(encoding="utf-8")
    assert simulator.render(text) == text, "run: python -m contended.book.simulator"
    for name in simulator.TABLES:
        assert f"<!-- table {name} -->" in text
    for name in machines.names():
        assert f"`{name}`" in text
    with pytest.raises(ContendedError, match="no table 'x'; choose one of: machines"):
        simulator.render("<!-- table x -->\n<!-- end -->")


def test_every_cited_source_is_in_the_references(root: Path) -> None:
    references = (root / "docs" / "references.bib").read_text(encoding="utf-8")
    known = set(re.findall(r"^@\w+\{(\w+),", references, flags=re.MULTILINE))
    found = [grace.PARAMETERS["wait_ticks"]]
    for name in machines.names():
        box = machines.get(name)
        found += [*box.parameters.values(), box.take, box.early, box.grouped]
    for each in cases.workloads().values():
        found += [w.where for w in each.works.values()] if isinstance(each, Scenario) else []
    keys = {re.split(r"\W", each.source)[0] for each in found if each.basis == "cited"}
    assert len(keys) > 5
    assert keys <= known
