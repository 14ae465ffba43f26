# SPDX-License-Identifier: MIT
"""Random operations: a planted bug is found and cut down, and what was recorded is judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contended import cli, tree
from contended.kernel import boot, fuzz, races, selftests, stressors, suite, variants
from contended.kernel.boot import GuestReport
from contended.kernel.build import Kernel
from contended.kernel.fuzz import Heard
from contended.kernel.observe import Said
from contended.kernel.qemu import Boot
from contended.kernel.vm import GuestHang

pytest_plugins = ("labfixtures",)


def kernel(*bug: int, ends: bool = False) -> fuzz.Hear:
    """A made-up kernel: operation n gives n, unless the bug's operations all went before it."""

    def hear(first: int, worlds: int, keep: Sequence[int] | None) -> Heard:
        heard = Heard()
        for world in range(first, first + worlds):
            done, wrong = list[int](), False
            for n in range(fuzz.WORLD) if keep is None else keep:
                done.append(world * fuzz.WORLD + n)
                wrong = bool(bug) and set(bug) <= set(done)
                if wrong and ends:
                    heard.ended = "panic: the kernel panicked"
                    return heard
                if keep is not None:
                    heard.log.append((f"{done[-1]} do", "wrong" if wrong else "right"))
            heard.worlds[world] = 2 if wrong else 1
        return heard

    return hear


def found(other: fuzz.Hear, worlds: int = 3) -> fuzz.Difference | None:
    one = kernel()
    return fuzz.compare(7, one, other, one(0, worlds, None), other(0, worlds, None))


def test_kernels_that_are_the_same_do_not_differ() -> None:
    assert found(kernel()) is None


@pytest.mark.parametrize("ends", [False, True])
def test_a_planted_bug_is_cut_down_to_its_operations(ends: bool) -> None:
    difference = found(kernel(103, 117, 150, ends=ends))
    assert difference
    assert (difference.seed, difference.keep) == (7, [3, 17, 50])
    if ends:
        assert "panicked" in difference.seen
    else:
        assert (difference.operation, difference.reference, difference.seen) == (
            150,
            "right",
            "wrong",
        )
    assert [line.split()[0] for line in difference.shortest] == ["103", "117", "150"]
    assert "seed 7" in suite.said(difference)


def test_what_does_not_come_again_is_no_operations_fault() -> None:
    one, other = kernel(), kernel(105)
    difference = fuzz.compare(7, one, one, one(0, 3, None), other(0, 3, None))
    assert difference
    assert difference.operation is None
    assert "not when it is run again" in suite.said(difference)


def test_nothing_of_what_is_left_can_be_spared() -> None:
    asked = list[tuple[int, ...]]()

    def still(items: Sequence[int]) -> bool:
        asked.append(tuple(items))
        return {4, 5, 90} <= set(items)

    assert fuzz.shrunk(range(100), still) == [4, 5, 90]
    assert len(asked) < 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seed", "-1"], "seed -1: give 0 to"),
        (["--ops", "150"], "150 operations: give a multiple of 100"),
        (["--config", "up"], "no configuration 'up' here; there are: base"),
        (["--variants", "stack/before"], "name two variants or more"),
        (["--variants", "stack/before,stack/nope"], "no kernel variant 'stack/nope'"),
        (["--repeats", "0"], "0 repeats"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["kernel", "suite", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_patch_is_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is applied in the kernel's tree, and named as it was given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "fix.patch").touch()
    _, found = suite.check(["stack/before", "sub/fix.patch"], ["base"], 1, 100, 1)
    assert (str(found), found.patches) == ("sub/fix.patch", (tmp_path / "sub" / "fix.patch",))


def test_addresses_are_no_difference_between_reports() -> None:
    line = "[    1.5] BUG: KASAN: use-after-free in dput+0x{}/0x400\n"
    assert suite.reports(line.format("1a") + line.format("2b")) == [
        "BUG: KASAN: use-after-free in dput"
    ]


def test_the_kernels_own_tests_are_heard() -> None:
    text = """\
TAP version 13
ok 1 openat2 with a flag succeeds
[    3.250000] not ok 2 openat2 with another fails
ok 3 # SKIP a file system that is not there
ok 4 global.a_test of /proc/43/exe
# Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0
"""
    ran = selftests.Ran(selftests.read("t", Said(command="t", status=1, text=text)), "")
    assert ran.results == {
        "t": "failed with status 1",
        "t: openat2 with a flag succeeds": "ok",
        "t: openat2 with another fails": "failed",
        "t: a file system that is not there": "skipped",
        "t: global.a_test of /proc/N/exe": "ok",
    }
    assert len(ran.not_ok) == 3
    skipped = selftests.read("t", Said(command="t", status=4, text=""))
    assert skipped == {"t": "skipped"}


def a_kernel(name: str, results: int, *not_ok: str) -> suite.Tested:
    return suite.Tested(
        variant=name,
        config="base",
        build_id="",
        smoke_checks=1,
        smoke_failed=[],
        worlds=1,
        done={},
        reports=[],
        ended="",
        selftests=results,
        selftests_not_ok=list(not_ok),
    )


def test_what_fails_on_both_kernels_is_no_finding() -> None:
    one = a_kernel("x/before", 5, "t: failed")
    assert suite.compared(one, a_kernel("x/after", 5, "t: failed")) == []
    for other, what in (
        (a_kernel("x/after", 5), "t: failed"),
        (a_kernel("x/after", 5, "t: failed", "u: skipped"), "u: skipped"),
        (a_kernel("x/after", 4, "t: failed"), "4 results instead of 5"),
    ):
        (found,) = suite.compared(one, other)
        assert (found.kind, found.what) == ("selftest", what)


def test_a_load_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    where = Path("bzImage")
    stock = Kernel("x", "before", races.CONFIG, "", where, where, "", "6.1", "")
    race = "BUG: KCSAN: data-race in a / b"

    def boots(asked: Boot) -> GuestReport:
        if asked.args["run"] == "lazy-busy":
            raise GuestHang("not done at the deadline", f"[ 1.0] {race}")
        checks = [{"name": name, "ok": name != suite.LOG} for name in ("one", suite.LOG)]
        return GuestReport(
            hello={}, results=[], checks=checks, dmesg="", console="", boot_s=1, wall_s=1
        )

    monkeypatch.setattr(boot, "boot", boots)
    found = suite.loaded(stock, "", suite.loads_of(races.CONFIG, 1))
    assert found.checks == 2
    assert list(found.failed) == ["lazy: hang: not done at the deadline"]
    assert found.complaints == [race] * races.TIMES
    one = replace(a_kernel("x/after", 5), smoke_failed=list(found.failed))
    (finding,) = suite.compared(a_kernel("x/before", 5), one)
    assert finding.what.startswith("lazy: hang")


def test_the_check_of_the_log_has_the_smoke_sets_name() -> None:
    assert f'"{suite.LOG}"' in (tree.home() / "csrc" / "guest" / "smoke.c").read_text()


def test_a_stressor_that_fails_on_one_kernel_is_a_finding() -> None:
    skipped, failed = "b: skipped", "a: failed with status 2"
    reference = replace(a_kernel("x/before", 5), stressors=2, stressors_not_ok=[skipped])
    assert suite.compared(reference, replace(reference, variant="x/after")) == []
    for not_ok, what in (([], skipped), ([failed, skipped], failed)):
        (found,) = suite.compared(reference, replace(reference, stressors_not_ok=not_ok))
        assert (found.kind, found.what) == ("stressor", what)


def test_each_stressor_is_a_result_by_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def look(
        kernel: object, commands: Sequence[str], programs: Sequence[Path], **_: object
    ) -> tuple[list[Said], SimpleNamespace]:
        asked.extend(commands)
        status = iter((0, 3, 137, 2))
        return [Said(command=c, status=next(status), text="") for c in commands], SimpleNamespace(
            console="quiet"
        )

    monkeypatch.setattr(stressors, "find", lambda: Path("/opt/stress-ng"))
    monkeypatch.setattr(
        "contended.kernel.guest.libraries", lambda _: [Path("/opt/lib/a"), Path("/b/c")]
    )
    monkeypatch.setattr("contended.kernel.observe.look", look)
    kernel: Any = SimpleNamespace(config="base")
    ran = stressors.ran(kernel, names=("dir", "xattr", "io", "hdd"))
    assert ran.not_ok == ["xattr: skipped", "io: not done after 120 s", "hdd: failed with status 2"]
    assert ran.console == "quiet"
    assert "LD_LIBRARY_PATH=/opt/lib:/b\n" in asked[0]
    assert "/opt/stress-ng --dir 2 " in asked[0]
    assert "--hdd-bytes 4m" in asked[3]


def test_stressors_need_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("contended.kernel.qemu.find", lambda: "qemu")
    monkeypatch.setattr("contended.kernel.guest.find_busybox", lambda: Path("busybox"))
    assert cli.main(["kernel", "suite", "--stress"]) == 1
    assert "apt-get install stress-ng" in capsys.readouterr().err


def test_the_record_has_all_operations_and_just_the_findings_that_are_known() -> None:
    """Right fixes are as the kernel without; a reader by number, and a wrong patch, are found."""
    record = suite.load(tree.home() / "results" / "suite" / "base.json")
    assert record.ops == fuzz.OPS
    for one in record.tested:
        assert (one.worlds * fuzz.WORLD, one.ended, one.reports) == (record.ops, "", [])
        assert one.smoke_checks > 100
        assert min(one.done.values()) > 50
        assert one.smoke_failed == [] or one.variant == "stack/never-copy"
    assert {one.variant for one in record.tested} == {k.variant for k in record.kernels}
    first, *others = record.tested
    assert first.selftests - len(first.selftests_not_ok) > 200
    for one in others:
        assert (one.selftests, one.selftests_not_ok) == (first.selftests, first.selftests_not_ok)
    right = [one for one in record.tested if variants.pick(one.variant).right]
    assert {one.variant.partition("/")[2] for one in right} == {"after"}
    assert len(right) >= 3
    found = {each.variant: each.difference for each in record.findings if each.kind == "fuzz"}
    assert set(found) == {
        "proc-mounts-seek/before",
        "proc-mounts-seek/event-counter",
        "stack/never-copy",
    }
    for difference in found.values():
        assert difference
        assert difference.reference != difference.seen
        assert 1 <= len(difference.shortest) <= 3


@pytest.mark.parametrize("name", ["stress", "stress-debug"])
def test_the_recorded_stressors_fail_everywhere_or_nowhere(name: str) -> None:
    record = suite.load(tree.home() / "results" / "suite" / f"{name}.json")
    assert record.findings == []
    first, *others = record.tested
    assert first.variant == suite.REFERENCE
    assert {"open-creat-unlazy/after", "overlay-creds/after"} <= {one.variant for one in others}
    for one in record.tested:
        assert one.stressors == len(stressors.STRESSORS)
        assert one.stressors_not_ok == first.stressors_not_ok
        assert len(one.stressors_not_ok) < 5
        assert (one.reports, one.smoke_failed, one.ended) == ([], [], "")


def test_kasan_sees_a_root_that_is_gone_and_nothing_else() -> None:
    """A lab's wrong solution keeps the root of a lookup without a reference."""
    record = suite.load(tree.home() / "results" / "suite" / "kasan.json")
    wrong = "labs/open-creat-unlazy/wrong/borrowed-root/fix.patch"
    umount = suite.load(tree.home() / "results" / "suite" / "kasan-umount.json")
    assert umount.findings == []
    for one in (*record.tested, *umount.tested):
        assert one.config == "kasan"
        assert (one.worlds * fuzz.WORLD, one.ended) == (record.ops, "")
        assert one.smoke_checks > 100 or one.variant == wrong
        assert one.selftests > 250
        assert len(one.selftests_not_ok) == 29, "those that base kernels lack something for"
        freed = [line for line in one.reports if "KASAN: use-after-free" in line]
        assert bool(freed) == (one.variant == wrong), one
        assert freed or (one.smoke_failed, one.reports) == ([], [])
    right = {one.variant for one in record.tested if one.variant != wrong}
    assert {"open-creat-unlazy/before", "open-creat-unlazy/after"} <= right
    assert {each.variant for each in record.findings} == {wrong}


@pytest.mark.parametrize(("name", "left"), [("users", 26), ("selftests", 2)])
def test_the_kernels_own_tests_give_the_same_with_all_patches(name: str, left: int) -> None:
    """With what they need in the kernel hardly any fails, and none that does not without."""
    record = suite.load(tree.home() / "results" / "suite" / f"{name}.json")
    assert record.findings == []
    assert [one.variant for one in record.tested] == ["stack/before", "stack/after"]
    for one in record.tested:
        assert one.config == name
        assert one.selftests > 250
        assert len(one.selftests_not_ok) == left
        assert (one.reports, one.smoke_failed, one.ended) == ([], [], "")
    assert name == "selftests" or {one.stressors for one in record.tested} == {45}
