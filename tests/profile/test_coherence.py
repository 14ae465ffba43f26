# SPDX-License-Identifier: MIT
"""From the plugin's counts to tables, differences, metrics, JSON and figures."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import profiles as made
import pytest

from contended.errors import ContendedError, UsageError
from contended.profile import assemble, figure, query, saved, tables
from contended.profile.assemble import NoRegion, WrongKernel
from contended.profile.coherence import Profile
from contended.profile.entries import Frame
from contended.profile.saved import Profiles


@pytest.fixture
def profile() -> Profile:
    return made.profile()


@pytest.fixture
def both() -> Profiles:
    return made.profiles()


def test_counts_are_summed_over_cpus_and_split_by_mode(profile: Profile) -> None:
    assert profile.ops == 100
    assert profile.kernel.instructions == 10_000
    assert profile.user.instructions == 1_000
    assert (profile.kernel.counts.hitm_loads, profile.kernel.counts.hitm_stores) == (115, 15)
    assert profile.user.counts.hitm_loads == 5
    assert profile.counts.hitm == 135
    assert profile.provenance.waits == 200


def test_lines_and_sites_are_ranked_and_named(profile: Profile) -> None:
    assert [line.address for line in profile.lines] == [made.ROOT, made.FILE, made.LOCK]
    root = profile.lines[0]
    assert [site.pc for site in root.sites] == [made.GET, made.LOOKUP, made.PUT]
    assert root.sites[0].symbol == "path_get"
    assert root.sites[0].source == "atomic.h:12"
    assert [frame.function for frame in root.sites[0].frames] == [
        "atomic_inc",
        "lockref_get",
        "path_get",
    ]
    assert [thing.field for thing in root.things] == ["d_lockref", "d_iname[8]"]
    assert profile.named_share == 1


GOLDEN = """\
before: open-creat ops=50, 2 CPUs
Linux 6.1.192, build 0123456789ab, QEMU 7.2.22, quantum 2000, lines of 64 bytes
counted in an idealised machine: infinite caches, sequential consistency, no prefetch, one distance between CPUs

=================================================
             Trace Event Information
=================================================
                                       kernel   user  per operation
  Operations                                     100
  Instructions                         10,000  1,000            110
  Load operations                       3,000    100             31
  Store operations                      2,000    100             21
  HITM                                    130      5           1.35
  HITM by loads                           115      5            1.2
  HITM by stores                           15      0           0.15
  Invalidations of shared lines            20      0            0.2
  Shared cache lines                               3
  Calls of lockref_get                    200                     2
  Calls of lockref_get>_raw_spin_lock      30                   0.3

=================================================
           Shared Data Cache Line Table
=================================================
#                 Total    HITM  ------  HITM  ------    Inval  Total   Total  What
# Index     Line   HITM  per op   share  Load   Store  dations  loads  stores  is there
  0      0x10040    100       1  74.07%    85      15       20    200     200  struct dentry + 88: d_lockref ("/" of rootfs), 1 more
  1      0x20040     30     0.3  22.22%    30       0        0     60      60  struct dentry + 88: d_lockref.count ("f" of tmpfs)
# physical addresses; 1 more lines not shown; the lines of 100% of the HITMs have a name

=================================================
      Shared Cache Line Distribution Pareto
=================================================
#           ----     HITM    ----    Inval
#   Num     Load    Store  per op  dations  Offset   Byte is                                             Code address  Symbol        Source:Line    Inlined
  ------------------------------------------------------------
      0       85       15       1       20  0x10040
  ------------------------------------------------------------
          70.59%    0.00%     0.6  100.00%  0x18     struct dentry + 88: d_lockref ("/" of rootfs)       0x1000        [k] path_get  atomic.h:12    atomic_inc < lockref_get
          29.41%    0.00%    0.25    0.00%  0x0      struct dentry + 64: d_iname[8] ("/" of rootfs)      0x2000        [k] lookup    dcache.c:2300
           0.00%  100.00%    0.15    0.00%  0x18     struct dentry + 88: d_lockref ("/" of rootfs)       0x1100        [k] path_put  namei.c:580
  ------------------------------------------------------------
      1       30        0     0.3        0  0x20040
  ------------------------------------------------------------
         100.00%    0.00%     0.3    0.00%  0x18     struct dentry + 88: d_lockref.count ("f" of tmpfs)  0x1100        [k] path_put  namei.c:580"""  # noqa: E501


def test_the_tables_have_the_shape_of_perf_c2c(profile: Profile) -> None:
    assert tables.profile_text(profile, top=2) == GOLDEN


def test_a_region_without_shared_lines_has_empty_tables() -> None:
    text = tables.profile_text(made.profile(raw=made.nothing()))
    assert text.count("# no shared lines") == 2
    assert re.search(r"^  HITM +0 +0 +0$", text, re.M)


def test_many_escapes_are_told(profile: Profile) -> None:
    shaky = replace(profile, provenance=replace(profile.provenance, waits=1000, escapes=11))
    assert "careful: 11 of 1000 waits" in tables.profile_text(shaky)
    steady = replace(profile, provenance=replace(profile.provenance, waits=1000, escapes=10))
    assert "careful" not in tables.profile_text(steady)


def test_a_long_chain_of_inlined_functions_is_cut(profile: Profile) -> None:
    site = profile.lines[0].sites[0]
    frames = (*(replace(site.frames[0], function=f"f{i}") for i in range(6)), *site.frames[2:])
    line = replace(profile.lines[0], sites=(replace(site, frames=frames),))
    text = tables.profile_text(replace(profile, lines=(line,)))
    assert "f0 < ... < f4 < f5" in text


def test_the_difference_is_by_meaning_and_by_function(both: Profiles) -> None:
    assert tables.diff(both.of("before"), both.of("after")) == [
        ("struct dentry: d_lockref (root directory)", 0.75, 0.0),
        ("struct dentry: d_lockref.count", 0.3, 0.0),
        ("struct dentry: d_iname[8] (root directory)", 0.25, 0.0),
        ("mount_lock", 0.05, 0.0),
    ]
    by_symbol = tables.diff(both.of("before"), both.of("after"), "symbol")
    assert by_symbol[0] == ("path_get", 0.6, 0.0)
    text = both.text()
    assert "HITM per operation: before -> after" in text
    assert re.search(
        r"^  struct dentry: d_lockref \(root directory\) +0\.75 +0 +-0\.75$", text, re.M
    )
    with pytest.raises(UsageError, match="give symbol or meaning"):
        tables.by(both.of("before"), "line")


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("hitm_per_op", 1.30),
        ("hitm_per_op.cpu(user)", 0.05),
        ("hitm_loads_per_op", 1.15),
        ("hitm_stores_per_op", 0.15),
        ("invalidations_per_op", 0.2),
        ("instructions_per_op", 100),
        ("instructions_per_op.cpu(user)", 10),
        ("loads_per_op", 30),
        ("stores_per_op", 20),
        ("hitm_per_op.field(dentry.d_lockref)", 1.05),
        ("hitm_per_op.field(dentry)", 1.30),
        ("hitm_per_op.field(dentry.d_lock)", 0),
        ("hitm_per_op.field(dentry.d_iname)", 0.25),
        ("hitm_per_op.field(dentry.d_lockref).role(root)", 0.75),
        ("hitm_per_op.line(dentry.d_lockref).role(root)", 1.0),
        ("hitm_per_op.name(mount_lock)", 0),
        ("hitm_per_op.name(mount_lock).cpu(user)", 0.05),
        ("hitm_per_op.symbol(path_put)", 0.45),
        ("hitm_stores_per_op.symbol(path_put)", 0.15),
        ("hitm_per_op.inline(lockref_get)", 0.6),
        ("hitm_loads_per_op.symbol(lookup)", 0.25),
        ("share.hitm.symbol(lookup)", 25 / 130),
        ("share.hitm", 1),
        ("hitm_per_op.source(lib/)", 0.6),
        ("hitm_per_op.source(fs/dcache.c+lib/)", 0.85),
        ("hitm_per_op.source(mm/)", 0),
        ("worst_per_op", 1.0),
        ("worst_per_op.source(fs/dcache.c)", 0.25),
        ("worst_per_op.source(mm/)", 0),
        ("rank.symbol(lookup)", 1),
        ("rank.field(dentry.d_lockref.count)", 2),
        ("rank.symbol(main).cpu(user)", 3),
        ("rank.symbol(nobody)", 0),
        ("calls.lockref_get", 200),
        ("calls_per_op.lockref_get", 2),
        ("share.calls(lockref_get>_raw_spin_lock,lockref_get)", 0.15),
        ("share.slow(lockref)", 0.15),
        ("top.symbol", "path_get"),
        ("top.field", "dentry.d_lockref"),
        ("top.what", 'struct dentry + 88: d_lockref ("/" of rootfs)'),
    ],
)
def test_metrics(both: Profiles, metric: str, value: float | str) -> None:
    seen = query.value(both, "before", metric)
    assert seen == (value if isinstance(value, str) else pytest.approx(value))


def test_top_of_nothing(both: Profiles) -> None:
    assert query.value(both, "after", "top.symbol") == "nothing"
    assert query.value(both, "after", "hitm_per_op") == 0
    assert query.value(both, "after", "share.hitm.symbol(lookup)") == 0
    everything = query.value(both, "before", "top.line")
    assert isinstance(everything, str)
    assert "d_iname[8]" in everything


@pytest.mark.parametrize(
    "metric",
    [
        "nonsense",
        "hitm",
        "hits_per_op",
        "hitm_per_op.feld(x)",
        "hitm_per_op.field(dentry",
        "hitm_per_op.field(a)b",
        "hitm_per_op.cpu(third)",
        "instructions_per_op.symbol(f)",
        "share.calls(f)",
        "share.hitm.feld(x)",
        "top.cpu",
        "rank.feld(x)",
    ],
)
def test_what_is_no_metric(both: Profiles, metric: str) -> None:
    with pytest.raises(UsageError, match=r"no metric|does not watch"):
        query.value(both, "before", metric)


def test_metrics_that_a_run_does_not_have(both: Profiles) -> None:
    with pytest.raises(UsageError, match="it watches: lockref_get, lockref_get>_raw_spin_lock"):
        query.value(both, "before", "calls.dput")
    with pytest.raises(UsageError, match="no slow path 'mutex'; there are: lockref"):
        query.value(both, "before", "share.slow(mutex)")
    unwatched = replace(both, profiles=(replace(both.profiles[0], calls={}),))
    with pytest.raises(UsageError, match="does not watch any of lockref_get, "):
        query.value(unwatched, "before", "share.slow(lockref)")
    with pytest.raises(UsageError, match=r"no profile of 'new'.*there are: before; after"):
        query.value(both, "new", "hitm_per_op")
    with pytest.raises(UsageError, match="a slope of hitm_per_op needs regions of two sizes"):
        query.value(both, "before", "slope.hitm_per_op")


def test_labels_and_slopes() -> None:
    several = Profiles(
        case="x",
        run="c2c",
        mode="system",
        profiles=(
            made.profile(label="plain@10", size=10),
            made.profile(label="plain@20", size=20, raw=made.region(scale=4)),
            made.profile(label="plain@40", size=40, raw=made.region(scale=16)),
        ),
    )
    assert query.value(several, "before", "plain@20/hitm_per_op") == pytest.approx(5.2)
    assert query.value(several, "before", "slope.hitm_per_op") == pytest.approx(2)
    assert query.value(several, "before", "slope.instructions_per_op") == (
        pytest.approx(0, abs=1e-9)
    )
    with pytest.raises(UsageError, match=r"no slope of top\.symbol"):
        query.value(several, "before", "slope.top.symbol")


def test_json_comes_back_whole(both: Profiles, tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    both.save(file)
    again = saved.load(file)
    assert again == replace(both, recorded=True)
    assert saved.load(file).of("before").lines[0].sites[0].thing == made.resolve(made.ROOT + 24, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["profiles.json"]


def change(text: str, where: tuple[str | int, ...], value: Any) -> str:
    data = json.loads(text)
    at = data
    for key in where[:-1]:
        at = at[key]
    if value is None:
        del at[where[-1]]
    else:
        at[where[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("case",), None),
        (("more",), 1),
        (("profiles", 0, "ops"), "many"),
        (("profiles", 0, "lines", 0, "sites", 0, "pc"), None),
        (("profiles", 0, "kernel", "counts", "extra"), 1),
    ],
)
def test_damaged_json_is_refused(
    both: Profiles, tmp_path: Path, where: tuple[str | int, ...], value: Any
) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(change(both.to_json(), where, value))
    with pytest.raises(ContendedError, match="holds no valid profiles"):
        saved.load(file)


def test_truncated_missing_and_other_files_are_refused(both: Profiles, tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    with pytest.raises(ContendedError, match="cannot read profiles"):
        saved.load(file)
    file.write_text(both.to_json()[:1000])
    with pytest.raises(ContendedError, match="holds no valid profiles"):
        saved.load(file)
    file.write_text(change(both.to_json(), ("schema",), 99))
    with pytest.raises(ContendedError, match="has schema 99, this version reads 1"):
        saved.load(file)


def test_only_the_worst_lines_are_kept_but_all_totals(both: Profiles) -> None:
    small = both.trimmed(1)
    assert [len(p.lines) for p in small.profiles] == [1, 0]
    assert small.of("before").counts == both.of("before").counts


def test_the_notebooks_table_escapes_what_it_shows(both: Profiles) -> None:
    bad = replace(both, case="<script>alert(1)</script>")
    text = bad._repr_html_()
    assert "<script>" not in text
    assert "counted now" in text
    assert "recorded reference run" in replace(bad, recorded=True)._repr_html_()
    assert "struct dentry &quot;/&quot; of rootfs: d_lockref" in text


@pytest.mark.parametrize("what", ["symbol", "meaning"])
def test_the_figure_says_what_it_shows(both: Profiles, what: str) -> None:
    plot = figure.stacked(both, what)
    assert "before: 1.35 in all" in plot.alt
    assert "after: 0 in all" in plot.alt
    assert ("path_get 0.6" if what == "symbol" else "root directory) 0.75") in plot.alt
    assert plot.svg() == figure.stacked(both, what).svg()


def test_the_figure_adds_up(both: Profiles) -> None:
    plot = figure.stacked(both, top=1)
    bars = [patch for patch in plot.figure.axes[0].patches if patch.get_y() < 0.5]  # type: ignore[attr-defined]
    assert sum(bar.get_width() for bar in bars) == pytest.approx(1.35)  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="no profiles"):
        figure.stacked(replace(both, profiles=()))


def test_the_legend_names_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = {**made.FRAMES, made.LOOKUP: (Frame("__d_lookup_rcu", "fs/dcache.c", 2300),)}
    monkeypatch.setattr(made, "FRAMES", frames)
    plot = figure.stacked(made.profiles())
    (legend,) = plot.figure.legends
    told = [text.get_text().strip() for text in legend.get_texts()]
    assert told == ["path_get", "path_put", "__d_lookup_rcu", "main", "the rest"]


def test_another_build_than_what_ran_is_refused() -> None:
    assemble.check_build("00ff", "00FF")
    with pytest.raises(WrongKernel, match="runs build 00aa, the vmlinux is build 00ff"):
        assemble.check_build("00ff", "00aa")
    with pytest.raises(WrongKernel, match="did not say which kernel"):
        assemble.check_build("00ff", "")


def test_no_table_of_a_region_that_was_not_measured() -> None:
    with pytest.raises(NoRegion, match="ended within its measured region"):
        made.profile(raw={**made.region(), "complete": False})
    idle = made.nothing()
    idle["cpus"] = [made.cpu(0, 0, 0, 0, 0)]
    with pytest.raises(NoRegion, match="no operation was marked"):
        made.profile(raw=idle)


def test_only_the_worst_lines_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "RESOLVED_LINES", 1)
    profile = made.profile()
    assert profile.lines[0].things
    assert not profile.lines[1].things
    assert profile.named_share == pytest.approx(100 / 135)
    text = tables.profile_text(profile)
    assert "not looked up" in text
    assert "the lines of 74% of the HITMs have a name" in text
