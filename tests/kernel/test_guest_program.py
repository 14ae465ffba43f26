# SPDX-License-Identifier: MIT
"""The guest program: what it refuses, what it reports, and what it counts on the lab's kernel.

On the host it runs in a user and mount namespace of its own only, where nothing it mounts is seen
by others; where the host forbids such namespaces these tests are skipped. The rest boots it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import eventually

from contended import cc, tree
from contended.kernel import boot as boots
from contended.kernel import fuzz, guest
from contended.kernel.boot import GuestReport
from contended.kernel.build import Kernel
from contended.kernel.qemu import Boot
from contended.kernel.vm import GuestError, GuestPanic

pytest_plugins = ("labfixtures",)

Lines = list[dict[str, Any]]

SINGLE = ("umount", "lazy-busy", "binds", "mountinfo", "mount-walk", "percpu", "smoke", "fuzz")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program as a command."""
    file = tmp_path_factory.mktemp("guest") / "ct"
    cc.compile_(sorted((tree.home() / "csrc" / "guest").glob("*.c")), guest.FLAGS, file)
    return file


@pytest.fixture(scope="session")
def alone(program: Path) -> list[str]:
    """The command within namespaces of its own."""
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"]
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed: apt-get install util-linux")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host forbids user namespaces")
    if not Path("/mnt").is_dir():
        pytest.skip("there is no /mnt to mount on")
    return [*prefix, str(program)]


def run(command: list[str], *arguments: str) -> tuple[int, Lines]:
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stderr == ""
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def error_of(command: list[str], *arguments: str) -> str:
    """The one error line, after which nothing came."""
    status, lines = run(command, *arguments)
    assert status != 0
    assert [line["type"] for line in lines] == ["error"]
    what: str = lines[0]["what"]
    assert "\n" not in what
    return what


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], ["nope", "open-creat", "smoke"]),
        (['no"pe\\\n\x01é'], ['no"pe\\']),
        (["stat", "bogus=1"], ["bogus", "ops", "name", "procs"]),
        (["stat", "ops"], ["ops", "NAME=VALUE"]),
        (["stat", "ops="], ["ops", "1 to"]),
        (["stat", "ops=x"], ["ops=x", "1 to"]),
        (["stat", "ops=0"], ["ops=0", "1 to"]),
        (["stat", "ops=-1"], ["ops=-1"]),
        (["stat", "ops=5x"], ["ops=5x"]),
        (["stat", "ops=99999999999999999999999"], ["1 to"]),
        (["stat", "ops=5", "ops=6"], ["ops", "twice"]),
        (["stat", "procs=0"], ["procs=0"]),
        (["binds", "sizes=1+"], ["sizes=1+", "+ between"]),
        (["binds", "sizes=" + "+".join(["1"] * 129)], ["up to 128"]),
        (["binds", "shared=2"], ["shared=2", "0 to 1"]),
        (["c2c-validate", "kind=ping"], ["kind=ping", "padded|unpadded"]),
        (["umount", "procs=2"], ["umount", "one process"]),
    ],
)
def test_what_is_wrong_is_said(program: Path, arguments: list[str], words: list[str]) -> None:
    what = error_of([str(program)], *arguments)
    assert all(word in what for word in words)


def test_half_a_core_is_refused(alone: list[str]) -> None:
    """It is seen when the workload begins: without root, in namespaces of its own."""
    what = error_of(alone, "c2c-validate", "kind=exchanged", "procs=3")
    assert "procs=3" in what
    assert "even number" in what


def test_nothing_dangerous_outside_of_the_lab(alone: list[str]) -> None:
    for how in ("panic", "oops", "hang", "exit", "reset"):
        assert "lab kernels only" in error_of(alone, "panic", f"how={how}")
    assert "lab kernels only" in error_of(alone, "stat", "calls=vfs_open")


def test_the_list_describes_every_workload(program: Path) -> None:
    status, lines = run([str(program)], "list")
    assert status == 0
    assert {line["type"] for line in lines} == {"workload"}
    names = [line["name"] for line in lines]
    assert len(names) == len(set(names)) == 26
    assert set(SINGLE) < set(names)
    assert all(line["help"] for line in lines)


@pytest.mark.parametrize("name", ["open-creat", "stat", "scripts"])
def test_ops_are_those_of_all_processes(alone: list[str], name: str) -> None:
    status, lines = run(alone, name, "procs=3", "ops=7")
    assert status == 0
    (result,) = lines
    assert (result["type"], result["procs"], result["ops"]) == ("result", 3, 21)
    assert result["ns"] > 0
    assert result["calls"] == {}


def test_processes_that_prepare_in_no_time_all_get_their_turn(alone: list[str]) -> None:
    """Even before the next one is forked, so each of many tries must end."""
    for _ in range(20):
        status, lines = run(alone, "stat", "procs=24", "ops=1")
        assert status == 0
        assert next(line for line in lines if line["type"] == "result")["ops"] == 24


def test_nobody_wakes_a_whole_crowd(alone: list[str]) -> None:
    """As many do as there are CPUs, or the others would come one by one, and CPUs wait for them."""
    online = os.sysconf("SC_NPROCESSORS_ONLN")
    if online < 2:
        pytest.skip("one CPU has one leader, who wakes all")
    status, lines = run(alone, "stat", f"procs={8 * online}", "ops=1")
    assert status == 0
    (result,) = (line for line in lines if line["type"] == "result")
    # The first wakes the other leaders, too; who is not yet asleep is not counted.
    assert 1 <= result["counts"]["woken_by_one"] <= online - 1 + 7


def test_umounts_are_timed_one_by_one(alone: list[str]) -> None:
    status, lines = run(alone, "umount", "ops=7", "rounds=3")
    assert status == 0
    assert [(line["label"], line["ops"]) for line in lines] == [("plain", 7), ("lazy", 7)]
    for line in lines:
        times = line["latency_ns"]
        assert 0 < times["p50"] <= times["p90"] <= times["p99"] <= times["max"] <= line["ns"]


def test_umounts_by_commands_are_timed_as_well(alone: list[str]) -> None:
    status, lines = run(alone, "umount", "ops=3", "rounds=1", "command=1")
    assert status == 0
    assert [(line["label"], line["ops"]) for line in lines] == [("plain", 3), ("lazy", 3)]
    assert all(line["latency_ns"]["p50"] > 0 for line in lines)


def test_commands_take_no_times_of_their_own(alone: list[str]) -> None:
    what = error_of(alone, "umount", "command=1", "apart=5")
    assert "no drawn=, apart= or asleep= with command=1" in what


def test_who_computes_beside_umounts_does(alone: list[str]) -> None:
    """On this host umounts may wait for less than a millisecond each, so they are many."""
    status, lines = run(alone, "umount", "ops=300", "rounds=1", "loops=1")
    assert status == 0
    assert lines[0]["counts"]["beside_ms"] > 0


def test_whoever_works_ends_with_who_began_it(alone: list[str], program: Path) -> None:
    """Who waits, a process for the workload, one who umounts, and one who computes beside.

    They have work for a quarter of an hour.
    """

    def working() -> int:
        return sum(_runs(process, program) for process in Path("/proc").iterdir())

    command = [*alone, "umount", "ops=50000", "rounds=1", "loops=1", "apart=20000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as began:
        try:
            assert eventually(lambda: working() == 4)
        finally:
            began.kill()
    assert eventually(lambda: working() == 0)


def _runs(process: Path, program: Path) -> bool:
    try:
        return (process / "exe").samefile(program)
    except OSError:  # it has ended, or is the kernel's
        return False


@pytest.mark.parametrize("name", ["mounts", "unmounts"])
def test_such_a_command_ends_with_what_was_wrong(program: Path, tmp_path: Path, name: str) -> None:
    there = [str(tmp_path / "nothing"), *["0"] * (name == "unmounts")]
    done = subprocess.run([name, *there], executable=program, check=False, capture_output=True)
    assert done.returncode == errno.ENOENT, "for whoever runs it: the path is looked up first"
    assert (done.stdout, done.stderr) == (b"", b"")


def test_each_size_is_a_result(alone: list[str]) -> None:
    status, lines = run(alone, "mountinfo", "sizes=3+50", "chunk=7")
    assert status == 0
    assert [(line["label"], line["size"]) for line in lines] == [("3", 3), ("50", 50)]
    for line in lines:
        counts = line["counts"]
        assert counts["records"] == line["size"]
        assert counts["missing"] == counts["duplicate"] == 0
        # The last read finds the end, and the one before may be short.
        assert counts["reads"] >= counts["bytes"] / 7


@pytest.mark.parametrize("family", ["lookup", "mounts"])
def test_checks_pass_on_the_host_as_well(alone: list[str], family: str) -> None:
    status, lines = run(alone, "smoke", f"only={family}")
    assert status == 0
    checks = [line for line in lines if line["type"] == "check"]
    assert len(checks) > 20
    assert [check for check in checks if not check["ok"]] == []
    assert lines[-1]["counts"] == {"failed": 0}


def test_a_check_can_fail(alone: list[str]) -> None:
    """A user namespace has no user 1000: what needs one has to say so."""
    status, lines = run(alone, "smoke", "only=names")
    assert status == 0
    failed = [line for line in lines if line["type"] == "check" and not line["ok"]]
    assert [check["name"] for check in failed] == ["permissions"]
    assert "setresgid" in failed[0]["detail"]
    assert lines[-1]["counts"] == {"failed": 1}


@pytest.mark.parametrize(
    ("kind", "procs"),
    [
        ("padded", 2),
        ("unpadded", 2),
        ("pingpong", 2),
        ("ring", 2),
        ("readonly", 2),
        ("exchanged", 2),
    ],
)
def test_shared_lines_are_named(alone: list[str], kind: str, procs: int) -> None:
    if len(os.sched_getaffinity(0)) < procs:
        pytest.skip("needs two CPUs")
    status, lines = run(alone, "c2c-validate", f"kind={kind}", "ops=20", f"procs={procs}")
    assert status == 0
    (result,) = lines
    assert (result["label"], result["ops"]) == (kind, 20 * procs)
    assert result["counts"]["address"] % 4096 == 0
    assert result["counts"]["bytes"] > 0


def on(kernel: Kernel, vcpus: int = 2, icount: bool = False, **args: str) -> GuestReport:
    return boots.boot(
        Boot(kernel=kernel, vcpus=vcpus, args=args, accel="tcg", icount=icount, deadline_s=300)
    )


def test_an_open_takes_two_references(kernel: Kernel) -> None:
    report = on(kernel, run="open-creat", ops="50", calls="__legitimize_path,try_to_unlazy")
    (result,) = report.results
    assert report.hello["cpus"] == result["procs"] == 2
    assert result["ops"] == 100
    assert result["calls"] == {"__legitimize_path": 200, "try_to_unlazy": 100}


def test_a_workers_calls_only(kernel: Kernel) -> None:
    """The process that lists the directory walks no path, and has a CPU of its own."""
    # Long enough for a listing, even if the host lets its CPU wait meanwhile.
    report = on(kernel, run="stat-perturbed", ops="20000", calls="__legitimize_path")
    assert [r["label"] for r in report.results] == ["calm", "perturbed", "after"]
    for result in report.results:
        assert result["procs"] == 1
        assert result["calls"] == {"__legitimize_path": 20_000}
        assert ("passes" in result["counts"]) == (result["label"] == "perturbed")
    assert report.results[1]["counts"]["passes"] > 0


def test_listings_come_to_sysfs_by_either_call(kernel: Kernel) -> None:
    """Each goes all the way, and on until more than half are through."""
    calls = "__x64_sys_getdents,__x64_sys_getdents64,proc_pident_readdir,kernfs_fop_readdir"
    (result,) = on(kernel, vcpus=3, run="getdent", ops="3000", calls=calls).results
    assert 500 < result["size"] < 3000
    assert result["procs"] == 3
    # Two did as many, and neither they nor the third stopped at that.
    assert 2 * 3000 < result["ops"] != 3 * 3000
    assert all(result["calls"].values())


def test_sysfs_can_be_gone_through_more_often(kernel: Kernel) -> None:
    calls, sizes, listed = "kernfs_fop_readdir", [], []
    for often in ("1", "3"):
        (result,) = on(kernel, run="getdent", ops="3000", sysfs=often, calls=calls).results
        sizes.append(result["size"])
        listed.append(result["calls"][calls] / result["ops"])
    # From one to three times there are twice as many more: so sysfs has a part of the first.
    part = (sizes[1] - sizes[0]) / 2 / sizes[0]
    assert 0.05 < part < 0.95
    assert listed[1] > listed[0] > 0


def test_directories_in_memory_can_be_left_out(kernel: Kernel) -> None:
    listed = []
    for memory in ("1", "0"):
        calls = "dcache_readdir,kernfs_fop_readdir,proc_pident_readdir"
        (result,) = on(kernel, run="getdent", ops="3000", memory=memory, calls=calls).results
        listed.append(result["calls"])
    assert listed[0]["dcache_readdir"] > 0
    assert listed[1].pop("dcache_readdir", 0) == 0
    assert all(listed[1].values())


@pytest.mark.parametrize("held", [0, 1])
def test_directories_above_stay_open(kernel: Kernel, held: int) -> None:
    """Each that is listed lies below /proc, /dev or /sys, and few below more than eight."""
    opens, closes = "__x64_sys_open", "__x64_sys_close"
    watched = f"{opens},{opens}at,{closes}"
    report = on(kernel, run="getdent", ops="1000", held=str(held), calls=watched)
    (result,) = report.results
    calls = result["calls"]
    left = calls.get(opens, 0) + calls[f"{opens}at"] - calls[closes]
    if held:
        # all but the three themselves have at least one above
        assert 0.9 < result["counts"]["held"] / result["ops"] < 9
        assert abs(left) <= 16
    else:
        assert "held" not in result["counts"]
        assert left == 0


@pytest.mark.parametrize("name", ["handle", "handle-perturbed"])
def test_handles_need_a_configuration_of_their_own(kernel: Kernel, name: str) -> None:
    with pytest.raises(GuestError, match="boot one with config handles"):
        on(kernel, run=name, ops="1")


def test_an_unknown_function_is_named(kernel: Kernel) -> None:
    with pytest.raises(GuestError, match="no_such_function"):
        on(kernel, run="stat", calls="no_such_function")


def test_an_unknown_parameter_is_named(kernel: Kernel) -> None:
    with pytest.raises(GuestError, match="bogus"):
        on(kernel, vcpus=1, run="stat", bogus="1")


def test_init_may_crash(kernel: Kernel) -> None:
    with pytest.raises(GuestPanic, match="kill init"):
        on(kernel, vcpus=1, run="panic", how="panic")


def test_a_loop_device_is_free_at_once(kernel: Kernel) -> None:
    report = on(kernel, run="lazy-busy", ops="4")
    assert [r["label"] for r in report.results] == ["lazy", "plain"]
    for result in report.results:
        assert result["ops"] == 4
        assert result["counts"] == {"ebusy": 0, "released_later": 0, "clr_busy": 0}


def test_binds_make_one_mount_each(kernel: Kernel) -> None:
    report = on(kernel, run="binds", sizes="20+40", calls="clone_mnt")
    assert [(r["label"], r["calls"]["clone_mnt"]) for r in report.results] == [
        ("20", 20),
        ("40", 40),
    ]


def test_instructions_are_repeatable(kernel: Kernel) -> None:
    first, second = (
        on(kernel, vcpus=1, icount=True, run="mountinfo", sizes="100+200") for _ in range(2)
    )
    for one, other in zip(first.results, second.results, strict=True):
        assert other["ns"] == pytest.approx(one["ns"], rel=0.01)
    assert first.results[1]["ns"] == pytest.approx(2 * first.results[0]["ns"], rel=0.1)


def test_the_unpatched_kernel_passes_the_smoke_set(kernel: Kernel) -> None:
    report = on(kernel, run="smoke")
    assert len(report.checks) >= 100
    assert [check for check in report.checks if not check["ok"]] == []
    assert report.results[-1]["counts"] == {"failed": 0}


def test_random_operations_are_the_same_each_time_and_others_with_another_seed(
    alone: list[str],
) -> None:
    def digests(*arguments: str) -> list[int]:
        status, lines = run(alone, "fuzz", "worlds=2", *arguments)
        assert status == 0
        assert [line["size"] for line in lines] == [0, 1]
        return [line["counts"]["digest"] for line in lines]

    assert digests("seed=5") == digests("seed=5")
    assert not set(digests("seed=5")) & set(digests("seed=6"))


def test_an_operation_is_the_same_whatever_is_left_out(alone: list[str]) -> None:
    def log(*arguments: str) -> list[str]:
        status, lines = run(alone, "fuzz", "worlds=1", "first=3", "log=1", *arguments)
        assert status == 0
        names = [line["name"] for line in lines if line["type"] == "check"]
        return [name for name in names if re.match(r"\d+ ", name)]

    every = log()
    assert len(every) == fuzz.WORLD
    assert [int(name.split()[0]) for name in every] == list(range(300, 400))
    few = log("keep=7+30+99")
    assert [int(name.split()[0]) for name in few] == [307, 330, 399]
    # whether a chroot is refused is part of what was done
    assert [one for one in few if one in every] == [one for one in few if "root" not in one]


def test_each_family_of_operations_succeeds_often(alone: list[str]) -> None:
    status, lines = run(alone, "fuzz", "worlds=20")
    assert status == 0
    done: Counter[str] = Counter()
    for line in lines:
        done.update(line["counts"])
    families = {"names", "opens", "mounts", "propagation", "unmounts", "overlays"}
    assert families < set(done)
    assert all(done[family] >= 10 for family in families), done
