# SPDX-License-Identifier: MIT
"""The machine's state, out of made-up trees of /proc and /sys: what spoils runs is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from madeup import tree

from contended import state
from contended.measure import measure
from contended.show import lesson, report
from contended.state import Check, Ticks

CPU = "sys/devices/system/cpu/"


def files(root: Path, **texts: str) -> Path:
    return tree(root, **texts)


def put(root: Path, place: str, text: str) -> Path:
    return tree(root, **{place: text})


@pytest.mark.parametrize(
    ("governors", "ok", "says"),
    [
        ((), True, "none that this system sees"),
        (("performance", "performance"), True, "performance"),
        (("performance", "schedutil"), False, "performance, schedutil: the clock follows"),
        (("powersave", "powersave"), False, "cpupower"),
    ],
)
def test_the_governor_of_all_allowed_cpus(
    tmp_path: Path, governors: tuple[str, ...], ok: bool, says: str
) -> None:
    for cpu, name in zip((3, 5), governors, strict=False):
        put(tmp_path, f"{CPU}cpu{cpu}/cpufreq/scaling_governor", name + "\n")
    put(tmp_path, f"{CPU}cpu4/cpufreq/scaling_governor", "powersave\n")  # not ours
    found = state.governor(tmp_path, [3, 5])
    assert (found.ok, found.required) == (ok, False)
    assert says in found.detail


@pytest.mark.parametrize(
    ("place", "text", "ok", "says"),
    [
        ("cpufreq/boost", "1\n", False, "on: one busy CPU"),
        ("cpufreq/boost", "0\n", True, "off"),
        ("intel_pstate/no_turbo", "0\n", False, "on: one busy CPU"),
        ("intel_pstate/no_turbo", "1\n", True, "off"),
        ("nothing", "1\n", True, "not to be seen"),
    ],
)
def test_boost(tmp_path: Path, place: str, text: str, ok: bool, says: str) -> None:
    found = state.boost(put(tmp_path, CPU + place, text))
    assert found.ok is ok
    assert says in found.detail


def test_siblings_count_only_among_the_allowed(tmp_path: Path) -> None:
    for cpu in range(4):
        siblings = f"{cpu % 2},{cpu % 2 + 2}\n"
        put(tmp_path, f"{CPU}cpu{cpu}/topology/thread_siblings_list", siblings)
    assert state.smt(tmp_path, [0, 1]).ok
    assert state.smt(tmp_path, [0, 3]).ok
    found = state.smt(tmp_path, [0, 1, 2])
    assert not found.ok
    assert "CPUs 0 and 2 share a core" in found.detail
    assert "0 and 2; 1 and 3" in state.smt(tmp_path, [0, 1, 2, 3]).detail
    assert state.smt(tmp_path / "nothing", [0, 1]).ok


V1 = "3:memory:/a/b\n2:cpu,cpuacct:/a/b\n0::/\n"


@pytest.mark.parametrize(
    ("group", "limits", "ok", "says"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "max 100000"}, True, "none"),
        ("0::/a/b\n", {"a/b/cpu.max": "50000 100000"}, False, "0.5 of 2 CPUs"),
        # a parent's quota counts as one's own
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, False, "1.5 of"),
        ("0::/a/b\n", {"a/b/cpu.max": "400000 100000"}, True, "4 of 2 CPUs"),
        # in a container only the top is there, whatever the path
        ("0::/docker/0123\n", {"cpu.max": "100000 100000"}, False, "1 of 2"),
        ("0::/../..\n", {"cpu.max": "100000 100000"}, False, "1 of 2"),
        ("0::/a\n", {"unified/a/cpu.max": "100000 100000"}, False, "1 of 2"),
        (
            V1,
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "20000", "cpu,cpuacct/a/cpu.cfs_period_us": "80000"},
            False,
            "0.25 of 2",
        ),
        (V1, {"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "9"}, True, "none"),
        (V1, {"memory/a/b/cpu.cfs_quota_us": "1", "memory/a/b/cpu.cfs_period_us": "9"}, True, ""),
        ("", {"cpu.max": "1 100"}, True, "none"),
        ("no cgroups\n", {"cpu.max": "broken"}, True, "none"),
    ],
)
def test_the_tightest_quota_of_a_group_and_those_above(
    tmp_path: Path, group: str, limits: dict[str, str], ok: bool, says: str
) -> None:
    put(tmp_path, "proc/self/cgroup", group)
    for place, text in limits.items():
        put(tmp_path, f"sys/fs/cgroup/{place}", text + "\n")
    found = state.quota(tmp_path, 2)
    assert found.ok is ok, found
    assert says in found.detail


STAT = """\
cpu  9 9 9 9 9 9 9 9 9 9
cpu0 100 10 20 500 5 1 2 30 7 0
cpu1 1 1 1 1 1 1 1 1 1 1
cpu11 50 0 0 50 0 0 0 0
intr 12345
"""


def test_ticks_of_the_allowed_cpus() -> None:
    assert state.ticks(STAT, [0]) == Ticks(668, 133, 30)
    assert state.ticks(STAT, [0, 11]) == Ticks(768, 183, 30)
    assert state.ticks("", [0]) == Ticks(0, 0, 0)
    assert state.ticks("cpu0 5 5 5 5\n", [0]) == Ticks(20, 15, 0)  # a kernel of long ago


@pytest.mark.parametrize(
    ("after", "steal", "others"),
    [
        (Ticks(200, 10, 0), True, True),
        (Ticks(200, 50, 0), True, False),
        (Ticks(200, 0, 5), False, True),
        (Ticks(100, 0, 0), True, True),  # no tick in between
        (Ticks(0, 0, 0), True, True),
    ],
)
def test_what_others_took(after: Ticks, steal: bool, others: bool) -> None:
    before = Ticks(100, 0, 0)
    assert state.steal(before, after).ok is steal
    assert state.others(before, after).ok is others
    assert "50% of the allowed" in state.others(before, Ticks(200, 50, 0)).detail


def test_this_machine() -> None:
    names = ["governor", "boost", "SMT", "CPU quota", "steal", "other load"]
    found = state.checks()
    assert [check.name for check in found] == names
    assert all(check.detail and not check.required for check in found)


def test_a_measurement_keeps_it_and_says_what_disturbed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quota = Check("CPU quota", False, False, "0.5 of 2 CPUs (/x): threads are stopped in mid-run")
    fine = Check("boost", True, False, "off")
    monkeypatch.setattr(state, "checks", lambda: (quota, fine))

    def run() -> object:
        return measure("measuring", variants=["kept"], threads=[1], repeats=1, slices=1)

    done = run()
    where = done.provenance  # type: ignore[attr-defined]
    assert where.state[:2] == [quota, fine]
    assert where.state[2].name == "steal"
    assert where.disturbed[0] == str(quota)
    assert f"The machine: {quota}." in report.measurement_text(done)  # type: ignore[arg-type]

    monkeypatch.setattr(lesson, "_warned", set())
    for _ in range(2):
        lesson.live("no-such/run", run)  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert said.count("0.5 of 2 CPUs") == 1
    assert "boost" not in said
