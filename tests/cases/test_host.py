# SPDX-License-Identifier: MIT
"""Which case a kernel has: kernels that never were, and the one that runs here."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from madeup import layout
from support import CPUS, PROVENANCE, Cli, one_line, our_mounts, sample

from contended import machine, register
from contended.cases import host, study
from contended.cases.host import Finding, Host, Seen, find, sampled
from contended.kernel import observe
from contended.measure import results, sampling, today, tracing
from contended.measure.btf import Btf
from contended.measure.results import Measurement, Sample
from contended.measure.runner import RunFailed
from contended.measure.running import Running, parse_symbols
from contended.measure.sampling import Taken
from contended.state import Check

HAS, CANNOT, UNKNOWN = "has it", "cannot have it", "cannot tell without root"
OLD, NEW = "3.10.0-1160.el7.x86_64", "6.18.1"
HEAD = {"d_flags": 0, "d_seq": 8, "d_hash": 16, "d_parent": 32, "d_name": 40, "d_inode": 56}


def kernel(
    folder: Path,
    release: str = OLD,
    functions: tuple[str, ...] = (),
    config: dict[str, str] | None = None,
    log: str = "",
    systems: tuple[str, ...] = ("overlay",),
    **structs: Any,
) -> Running:
    """A kernel that shows these functions and structs; without any it does not show its types."""
    types = Btf(layout(folder / "vmlinux", **structs)) if structs else None
    symbols = parse_symbols("".join(f"0 T {name}\n" for name in functions))
    return Running(release, "x86_64", types, config, symbols, frozenset(systems), log, {}, ())


def measured(variants: dict[str, list[Sample]], metric: str = "ops_per_s") -> Measurement:
    """A measurement that nobody made."""
    about: dict[str, Any] = {"case": "x", "metric": metric, "unit": "x", "params": {}}
    return results.build(samples=variants, failures=[], provenance=PROVENANCE, **about)


def rates(*values: float, threads: int = 2) -> list[Sample]:
    return [sample(value, threads=threads, repeat=i) for i, value in enumerate(values)]


def growth(few: int, many: int, values: tuple[float, float], **counts: int) -> list[Sample]:
    """Three samples at each of two numbers of mounts."""
    return [
        sample(value, repeat=i, phase=str(n), counts={"ops": 1, "mounts": n, **counts})
        for i in range(3)
        for n, value in zip((few, many), values, strict=True)
    ]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No control measures of itself, and two CPUs are there."""
    host._binds.cache_clear()
    monkeypatch.setattr(machine, "allowed_cpus", lambda: [0, 1])

    def unasked(*_: object, **__: object) -> Measurement:
        raise today.NotAllowed("not in this test")

    names = ("degrade", "walks", "roots", "overlays", "umount_latency", "bind_cost", "mountinfo")
    for name in (*names, "ends", "crossing"):
        monkeypatch.setattr(today, name, unasked)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def verdict(slug: str, of: Running) -> Finding:
    return find(register.get(slug), study(slug).host, of)


# --- types, symbols, configuration ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("slug", "of", "expected"),
    [
        ("lockref-degrade", {"lockref": ("lock_count", "lock")}, HAS),
        ("lockref-degrade", {"lockref": ("lock", "count")}, CANNOT),
        ("lockref-degrade", {"config": {"CONFIG_ARCH_USE_CMPXCHG_LOCKREF": "y"}}, HAS),
        (
            "lockref-degrade",
            {"config": {"CONFIG_ARCH_USE_CMPXCHG_LOCKREF": "y", "CONFIG_PREEMPT_RT": "y"}},
            CANNOT,
        ),
        ("lockref-degrade", {"config": {"CONFIG_SMP": "y"}}, CANNOT),
        ("lockref-degrade", {"release": NEW}, UNKNOWN),
        ("dentry-false-sharing", {"dentry": {**HEAD, "d_lockref": 48}}, HAS),
        ("dentry-false-sharing", {"dentry": {**HEAD, "d_iname": 64, "d_lockref": 96}}, HAS),
        ("dentry-false-sharing", {"dentry": {**HEAD, "d_iname": 64, "d_lockref": 128}}, CANNOT),
        # what a vendor has put back shows in the types, whatever the release
        ("dentry-false-sharing", {"release": NEW, "dentry": {**HEAD, "d_lockref": 48}}, HAS),
        ("dentry-false-sharing", {"release": NEW}, CANNOT),
        ("dentry-false-sharing", {"release": "6.10.9"}, UNKNOWN),
        ("dentry-false-sharing", {"release": "6.11.0"}, CANNOT),
        ("open-creat-unlazy", {"functions": ("lookup_fast_for_open",)}, CANNOT),
        ("open-creat-unlazy", {"functions": ("path_openat",)}, UNKNOWN),
        ("open-creat-unlazy", {"release": "6.12.1"}, CANNOT),
        ("overlay-creds", {"functions": ("path_openat",)}, CANNOT),
        ("overlay-creds", {"functions": ("override_creds",)}, UNKNOWN),
        ("overlay-creds", {"functions": ("override_creds",), "release": "6.13.2"}, CANNOT),
        ("overlay-creds", {"config": {"CONFIG_SMP": "y"}}, CANNOT),
        ("overlay-creds", {"config": {"CONFIG_OVERLAY_FS": "m"}}, UNKNOWN),
        ("umount-grace-period", {"release": NEW}, UNKNOWN),
        ("percpu-area-map", {"pcpu_chunk": ("bound_map",)}, CANNOT),
        ("percpu-area-map", {"pcpu_chunk": ("map", "map_used")}, UNKNOWN),
        ("percpu-area-map", {"functions": ("pcpu_next_fit_region",)}, CANNOT),
        ("percpu-area-map", {"functions": ("pcpu_alloc_area",)}, UNKNOWN),
        ("percpu-area-map", {"release": "4.19.0"}, CANNOT),
        ("mount-propagation", {"release": "3.14.0"}, UNKNOWN),
        ("mount-propagation", {"release": "3.15.0"}, CANNOT),
        ("proc-mounts-seek", {"mount": ("mnt_list",), "proc_mounts": ("ns", "cursor")}, CANNOT),
        ("proc-mounts-seek", {"mount": ("a",), "proc_mounts": ("ns", "cached_mount")}, CANNOT),
        ("proc-mounts-seek", {"mount": ("mnt_node",), "proc_mounts": ("ns",)}, CANNOT),
        ("proc-mounts-seek", {"mount": ("mnt_list",), "proc_mounts": ("ns",)}, UNKNOWN),
        ("mount-hash", {"log": "Mount-cache hash table entries: 256 (order"}, HAS),
        ("mount-hash", {"log": "Mount-cache hash table entries: 4096 (order"}, CANNOT),
        # the sources disagree whether it was 3.14
        ("mount-hash", {"release": "3.14.9"}, UNKNOWN),
        ("mount-hash", {"release": "3.15.9"}, CANNOT),
    ],
)
def test_what_a_kernel_shows_decides(
    tmp_path: Path, slug: str, of: dict[str, Any], expected: str
) -> None:
    found = verdict(slug, kernel(tmp_path, **of))
    assert found.verdict == expected, found
    assert found.ask_root.startswith("sudo ")
    assert all(why and "\n" not in why for why in found.why)
    assert any("not in this test" in why for why in found.why) or "loaded" in str(found.why)


def test_every_case_can_be_asked_for() -> None:
    assert all(study(slug).host for slug in register.slugs())


def test_a_case_without_a_check_goes_by_its_release(tmp_path: Path) -> None:
    case = register.get("percpu-area-map")
    assert find(case, None, kernel(tmp_path)).verdict == UNKNOWN
    assert "nobody" in find(case, None, kernel(tmp_path)).why[0]


# --- controls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slug", "name", "variants", "expected"),
    [
        ("dentry-false-sharing", "walks", ("walk-beside", "walk-held"), HAS),
        ("open-creat-unlazy", "roots", ("open-own-root", "open-one-root"), HAS),
        ("overlay-creds", "overlays", ("access-own-overlay", "access-overlay"), HAS),
    ],
)
def test_a_clear_paired_ratio_is_the_bug(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slug: str,
    name: str,
    variants: tuple[str, str],
    expected: str,
) -> None:
    asked = []

    def control(threads: list[int]) -> Measurement:
        asked.append(threads)
        base, other = variants
        rows = {base: rates(*[100.0] * 7), other: rates(*[60.0 + i for i in range(7)])}
        return measured(rows)

    monkeypatch.setattr(today, name, control)
    found = verdict(slug, kernel(tmp_path))
    assert (found.verdict, asked) == (expected, [[2]])
    assert "0.63 times" in found.cost
    assert "7 pairs" in found.cost

    quiet = control([2])
    busy = replace(PROVENANCE, state=[Check("other load", False, False, "half of it")])
    monkeypatch.setattr(today, name, lambda _: replace(quiet, provenance=busy))
    found = verdict(slug, kernel(tmp_path))
    assert found.verdict == UNKNOWN
    assert "half of it" in str(found.why)

    noisy = {variants[0]: rates(*[100.0] * 7), variants[1]: rates(50, 200, 55, 180, 60, 80, 120)}
    monkeypatch.setattr(today, name, lambda _: measured(noisy))
    assert verdict(slug, kernel(tmp_path)).verdict == UNKNOWN


def test_overlay_is_not_mounted_where_that_would_load_it(tmp_path: Path) -> None:
    found = verdict("overlay-creds", kernel(tmp_path, systems=("tmpfs",)))
    assert found.verdict == UNKNOWN
    assert any("modprobe overlay" in why for why in found.why)


@pytest.mark.parametrize(("slept", "expected"), [(1, HAS), (0, CANNOT)])
def test_who_waits_in_umount_gives_up_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slept: int, expected: str
) -> None:
    rows = [sample(30.0 + i, repeat=i, counts={"ops": 1, "slept": slept}) for i in range(3)]
    monkeypatch.setattr(
        today, "umount_latency", lambda: measured({"umount": rows, "umount-l": rows})
    )
    found = verdict("umount-grace-period", kernel(tmp_path, NEW))
    assert found.verdict == expected
    assert "31 µs" in found.cost
    assert "no release" in found.gone


@pytest.mark.parametrize(
    ("shared", "allocated", "expected"),
    [
        (50.0, 1, CANNOT),
        (5000.0, 2000, HAS),
        (50.0, 0, CANNOT),
        (5000.0, 0, HAS),
        (300.0, 0, UNKNOWN),
        (300.0, 30, UNKNOWN),
    ],
)
def test_mounts_that_are_made_for_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shared: float,
    allocated: int,
    expected: str,
) -> None:
    counts = {"allocated": allocated} if allocated else {}
    seen = measured(
        {
            "private": growth(250, 2000, (20.0, 21.0)),
            "shared": growth(250, 2000, (22.0, shared), **counts),
        }
    )
    monkeypatch.setattr(today, "bind_cost", lambda _: seen)
    found = verdict("mount-propagation", kernel(tmp_path))
    assert found.verdict == expected
    assert "2000 binds" in found.cost
    assert "21 µs with 2000" in verdict("percpu-area-map", kernel(tmp_path)).cost


@pytest.mark.parametrize(("last", "expected"), [(1.1, CANNOT), (3.0, HAS), (1.8, UNKNOWN)])
def test_a_read_of_the_mounts_costs_more_at_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: float, expected: str
) -> None:
    monkeypatch.setattr(
        today, "mountinfo", lambda *_, **__: measured({"mountinfo": growth(500, 4000, (9.0, 80.0))})
    )
    monkeypatch.setattr(
        today,
        "ends",
        lambda _: measured(
            {"first": rates(*[1.0] * 7, threads=1), "last": rates(*[last] * 7, threads=1)}
        ),
    )
    found = verdict("proc-mounts-seek", kernel(tmp_path))
    assert found.verdict == expected
    assert f"{last:g} times as long" in str(found.why)
    assert found.cost == "80 µs to read 4000 mounts, median"


def test_the_cost_behind_a_mount_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = measured({"crossing": growth(250, 4000, (1000.0, 1500.0))}, "stat_ns")
    monkeypatch.setattr(today, "crossing", lambda: seen)
    found = verdict("mount-hash", kernel(tmp_path))
    assert found.verdict == UNKNOWN
    assert "1,500 ns with 4000 mounts, 1.5 times as much as with 250" in found.cost


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RunFailed("too slow", late=True), "did not end in time: too slow"),
        (today.NotAllowed("no namespace"), "was not run: no namespace"),
    ],
)
def test_a_control_that_fails_is_one_line(tmp_path: Path, error: Exception, says: str) -> None:
    def control(_: Running) -> Seen:
        raise error

    case, plain = register.get("percpu-area-map"), Host(command="sudo true")
    found = find(case, Host(command="sudo true", control=control), kernel(tmp_path))
    assert says in found.why[0]
    assert found.why[1:] == find(case, plain, kernel(tmp_path)).why
    unasked = find(
        case, Host(command="sudo true", control=control), kernel(tmp_path), controls=False
    )
    assert says not in str(unasked.why)


def test_one_cpu_is_no_crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "allowed_cpus", lambda: [3])
    monkeypatch.setattr(today, "roots", lambda _: pytest.fail("it was measured"))
    found = verdict("open-creat-unlazy", kernel(tmp_path))
    assert any("needs two CPUs" in why for why in found.why)


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(Path(__file__).resolve().parents[2], tmp_path / "cache")


def test_the_command_on_this_kernel(cli: Cli) -> None:
    before = our_mounts()
    done = cli.run("host", "mount-propagation", "--json")
    assert done.returncode == 0, done.stderr
    assert our_mounts() == before
    said = json.loads(done.stdout)
    assert (said["kernel"], said["cpus"]) == (platform.release(), len(CPUS))
    (found,) = said["cases"]
    assert found["verdict"] == CANNOT  # nobody runs these tests on a kernel from 2014
    assert found["chapter"] == "notebooks/08-mount-propagation.ipynb"

    done = cli.run("host", "umount-grace-period")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"Linux {platform.release()}, ")
    assert any(line.startswith("umount-grace-period: ") for line in lines)
    assert cli.alive() == {}


def _no_namespaces(command: Any) -> list[str]:
    shell = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv "
    shell += '--bounding-set=-sys_admin --inh-caps=-sys_admin "$@"'
    return ["unshare", "--user", "--map-root-user", "sh", "-c", shell, "sh", *command]


def test_without_namespaces_the_rest_is_still_said(cli: Cli) -> None:
    done = cli.run("host", "--json", wrap=_no_namespaces)
    if "unshare" in done.stderr:
        pytest.skip(f"no user namespaces to try this in: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    (note,) = [note for note in said["notes"] if "controls are not run" in note]
    assert "no private mount namespace" in note
    assert len(said["cases"]) == len(register.slugs())
    assert {one["cost"] for one in said["cases"]} == {"not measured"}


def test_a_wrong_slug_is_one_line(cli: Cli) -> None:
    done = cli.run("host", "mount-hsah")
    assert done.returncode == 2
    assert "no case 'mount-hsah'" in one_line(done.stderr)
    assert not done.stdout


# --- what root counts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "of", "expected", "said"),
    [
        (1900, 1000, HAS, "counted as root: 1.9 calls of __legitimize_path for each of"),
        (1005, 1000, CANNOT, "(1005 and 1000); with the bug 1.6 or more, without it 1.2 or fewer"),
        (1400, 1000, UNKNOWN, "counted as root: 1.4 calls"),
        (10, 0, UNKNOWN, "as root: try_to_unlazy was not called"),
        (None, 0, UNKNOWN, "as root: calls cannot be counted: made up"),
    ],
)
def test_a_count_decides_before_a_control(
    calls: int | None,
    of: int,
    expected: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[int] = []

    @contextmanager
    def counting(functions: tuple[str, str]) -> Iterator[dict[str, int]]:
        if calls is None:
            raise tracing.NotCounted("calls cannot be counted: made up")
        found: dict[str, int] = {}
        yield found
        assert done == [1], "the operation was carried out while it was counted"
        found.update(zip(functions, (calls, of), strict=True))

    monkeypatch.setattr(tracing, "counting", counting)

    def roots(processes: list[int], **more: int) -> Measurement:
        if not more:
            raise today.NotAllowed("not in this test")
        done.extend(processes)
        return measured({"open-one-root": rates(1.0)})

    monkeypatch.setattr(today, "roots", roots)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = verdict("open-creat-unlazy", kernel(tmp_path, functions=("path_openat",)))
    assert found.verdict == expected
    assert any(said in why for why in found.why), found.why


def test_who_is_not_root_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = verdict("open-creat-unlazy", kernel(tmp_path, functions=("path_openat",)))
    assert not any("as root" in why for why in found.why)


def test_what_a_processor_samples_stands_beside_the_emulators_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By function, of the record that is kept; no rows without root, a counter or a record."""
    case, of = "open-creat-unlazy", kernel(tmp_path)
    places = [Taken("lockref_get_not_dead", 24, 30), Taken("up_read", 8, 10)]

    def taken(load: Any) -> list[Taken]:
        assert "not in this test" in load().why, "the control is what runs meanwhile"
        return places

    monkeypatch.setattr(sampling, "taken", taken)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine, "hardware_counters", lambda: True)

    def rows(slug: str) -> tuple[str, ...]:
        found = study(slug).host
        assert found
        return sampled(slug, found, of)

    head, first, second = rows(case)
    assert head.startswith("40 of the sampled loads")
    member = r"most of them byte 24, struct dentry \+ 88: d_lockref \(\"/\" of rootfs\)"
    pattern = rf"75% lockref_get_not_dead, byte 24; in the emulator [1-9]\d?%, {member}"
    assert re.fullmatch(pattern, first)
    assert second == "25% up_read, byte 8; in the emulator no such load"
    assert rows("mount-hash") == ()
    places.clear()
    assert rows(case) == ("0 of the sampled loads found a line that another CPU had modified",)

    def refused(_: object) -> list[Taken]:
        raise sampling.NotSampled("made up")

    monkeypatch.setattr(sampling, "taken", refused)
    assert rows(case) == ("made up",)
    monkeypatch.setenv("CONTENDED_HOME", "/none")
    assert "no C models in /none" in rows(case)[0]
    monkeypatch.setattr(machine, "hardware_counters", lambda: False)
    assert rows(case) == ()
    monkeypatch.setattr(machine, "hardware_counters", lambda: True)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert rows(case) == ()


def test_the_bounds_are_on_either_side_of_the_field_guides() -> None:
    """What tells two kernels of the lab apart does so here: other calls are counted as well."""
    for slug, pairs in observe.watched().items():
        of = study(slug).host
        if of and of.traced:
            (sign,) = pairs[0].signs
            assert sign.metric == f"ratio({of.traced.calls}, {of.traced.per})"
            assert sign.healthy <= of.traced.healthy < of.traced.sick <= sign.sick
