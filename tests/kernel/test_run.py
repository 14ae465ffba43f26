# SPDX-License-Identifier: MIT
"""Runs of a case's kernels: what is booted, in which order, and what is kept of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import profiles
import pytest
from labtools import path_with, report, script

from contended.errors import ContendedError, UsageError
from contended.kernel import boot as boots
from contended.kernel import (
    build,
    c2c,
    guest,
    qemu,
    record,
    run,
    source,
    variants,
    vm,
)
from contended.kernel.boot import GuestReport
from contended.kernel.build import Kernel
from contended.kernel.qemu import Boot
from contended.kernel.record import KernelRun
from contended.kernel.run import carry_out
from contended.kernel.source import KernelSource
from contended.kernel.variants import Expectation, GuestRun, KernelCase, Variant
from contended.profile import assemble

pytest_plugins = ("labfixtures",)
pytestmark = pytest.mark.usefixtures("no_vm_left")

CASE = KernelCase(
    slug="example",
    variants={
        "before": Variant("example", "before", "as it is"),
        "after": Variant("example", "after", "fixed", right=True, cmdline="quick"),
        "wrong": Variant("example", "wrong", "not fixed"),
    },
    runs={
        "opens": GuestRun("opens", "open-creat", {"ops": 300}, calls=("f", "g")),
        "log": GuestRun("log", "umount", {}, config="up", vcpus=1, cmdline="slow"),
    },
    outcomes=(
        Expectation("before", "opens", "two calls", "calls_per_op.f", at_least=1.9),
        Expectation("after", "opens", "fewer", "calls_per_op.f", at_most=0.6, relative_to="before"),
        Expectation("wrong", "log", "a report", "dmesg", contains="oh no"),
    ),
)
SILENT = replace(CASE, outcomes=CASE.outcomes[:1], variants={"before": CASE.variants["before"]})


class Booted(list[Boot]):
    """What was asked for, in order."""

    def names(self) -> list[str]:
        return [f"{b.kernel.variant} {b.args['run']} {b.kernel.config}" for b in self]


@pytest.fixture
def booted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Booted:
    """No kernel is built and no machine is started: each boot has the answer of a fake guest."""
    made = Booted()

    def answer(asked: Boot) -> GuestReport:
        made.append(asked)
        if asked.args["run"] == "smoke":
            return report(checks=[{"name": "link", "ok": asked.kernel.variant != "wrong"}])
        calls = 200 if asked.kernel.variant == "before" else 100
        return report({"ops": 100, "ns": 5, "calls": {"f": calls}}, dmesg="well, oh no\n")

    fake_kernels(monkeypatch, Path("/nonexistent"))
    monkeypatch.setattr(boots, "boot", answer)
    monkeypatch.setenv("PATH", path_with(script(tmp_path / "bin", 'echo "QEMU 7.2"')))
    return made


def fake_kernels(monkeypatch: pytest.MonkeyPatch, image: Path) -> None:
    def make(variant: Variant, config: str, *_: object) -> Kernel:
        return Kernel(
            # as the cache may have it: built for another case
            "another", variant.name, config, "0", image, image, "b1d", "6.1.192", "gcc 12"
        )  # fmt: skip

    monkeypatch.setattr(build, "build", make)
    monkeypatch.setattr(source, "find", lambda *_: KernelSource(Path("/none"), "6.1.192", "0"))


def carry(case: KernelCase = CASE, **fields: Any) -> KernelRun:
    settings = {
        "vcpus": 4,
        "repeats": 1,
        "accel": "tcg",
        "smoke": True,
        "wanted": None,
        "runs": None,
        **fields,
    }
    what = run.plan(
        case, settings.pop("wanted"), smoke=settings.pop("smoke"), runs=settings.pop("runs")
    )
    return carry_out(what, **settings)


def test_the_variants_take_turns(booted: Booted) -> None:
    done = carry(repeats=2)
    once = [
        "before open-creat base",
        "after open-creat base",
        "wrong umount up",
        "before smoke base",
        "after smoke base",
        "wrong smoke base",
        "after smoke debug",
    ]
    assert booted.names() == once + once
    assert [b.repeat for b in done.boots] == [0] * 7 + [1] * 7


def test_what_the_guest_is_told(booted: Booted) -> None:
    carry(smoke=False)
    opens, fixed, log = booted
    assert dict(opens.args) == {"run": "open-creat", "ops": "300", "calls": "f,g"}
    assert (opens.vcpus, opens.cmdline) == (4, "")
    assert fixed.cmdline == "quick"
    assert (log.vcpus, log.cmdline) == (1, "slow")
    assert log.args["dmesg"] == "1"


def test_outcomes_and_the_smoke_set(booted: Booted) -> None:
    done = carry()
    seen = {(o.variant, o.run, o.metric): o.held for o in done.outcomes}
    assert seen == {
        ("before", "opens", "calls_per_op.f"): True,
        ("after", "opens", "calls_per_op.f"): True,
        ("wrong", "log", "dmesg"): True,
        ("before", "smoke", "smoke.failed"): True,
        ("after", "smoke", "smoke.failed"): True,
        ("after", "smoke-debug", "smoke.failed"): True,
        ("after", "smoke-debug", "splats"): True,
        ("wrong", "smoke", "smoke.failed"): False,
    }
    assert not done.held
    assert done.first_miss.startswith("variant wrong, run smoke: the VFS smoke set passes: 1 is")
    assert carry(smoke=False).held


def test_a_case_may_expect_something_else_of_the_smoke_set(booted: Booted) -> None:
    own = replace(
        CASE,
        runs={**CASE.runs, "mine": GuestRun("mine", "smoke", {})},
        outcomes=(
            *CASE.outcomes,
            Expectation("wrong", "mine", "fails", "smoke.failed", at_least=1),
        ),
    )
    done = carry(own)
    assert done.held
    assert [o.run for o in done.outcomes if o.variant == "wrong"] == ["log", "mine"]


def test_a_case_may_run_the_smoke_set_with_its_own_configuration() -> None:
    own = replace(
        CASE,
        runs={**CASE.runs, "smoke": GuestRun("smoke", "smoke", {}, config="users")},
        outcomes=(
            *CASE.outcomes,
            Expectation("wrong", "smoke", "fails", "smoke.failed", at_least=1),
        ),
    )
    done = run.plan(own)
    smoke = [(v.name, r.config) for v, r in done.boots if r.workload == "smoke"]
    users = [(name, "users") for name in ("before", "after", "wrong")]
    assert smoke == [*users, ("after", "debug")]
    # and what it expects itself of a variant stands alone
    about = [o.expected for o in done.case.outcomes if (o.variant, o.run) == ("wrong", "smoke")]
    assert about == ["fails"]


def test_some_variants_and_what_they_are_compared_with(booted: Booted) -> None:
    done = carry(wanted=["after"], smoke=False)
    assert booted.names() == ["before open-creat base", "after open-creat base"]
    assert [o.variant for o in done.outcomes] == ["after"]
    with pytest.raises(UsageError, match="no variant 'best'; there are: before, after, wrong"):
        carry(wanted=["best"])


def test_kernels_are_named_by_this_case(booted: Booted) -> None:
    patched = replace(CASE.variants["after"], patches=(Path("/x/0001-y.patch"),))
    done = carry(replace(CASE, variants={**CASE.variants, "after": patched}))
    info = {(k.variant, k.config): k.patches for k in done.kernels}
    assert info["after", "debug"] == ["0001-y.patch"]
    assert set(info) == {
        ("before", "base"), ("after", "base"), ("wrong", "base"), ("wrong", "up"),
        ("after", "debug"),
    }  # fmt: skip


def test_saved_and_loaded(booted: Booted, tmp_path: Path) -> None:
    done = carry(repeats=2)
    file = tmp_path / "kernel.json"
    done.save(file)
    again = record.load(file)
    assert again == replace(done, recorded=True)
    assert again.results("before", "opens")[0]["calls"] == {"f": 200}
    assert len(again.results("before", "opens")) == 2
    assert again.results("before", "opens", "other") == []
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["kernel.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.pop("outcomes"), "outcomes"),
        (lambda c: c.update(surprise=1), "surprise"),
        (lambda c: c.update(schema=99), "schema 99, this version reads"),
        (lambda c: c["boots"][0].update(vcpus="two"), r"boots.0.vcpus"),
    ],
)
def test_files_that_do_not_fit(
    booted: Booted, tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    content = json.loads(carry().to_json())
    change(content)
    file = tmp_path / "kernel.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ContendedError, match=words) as caught:
        record.load(file)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ContendedError, match="cannot read"):
        record.load(tmp_path / "none.json")


def test_tables(booted: Booted) -> None:
    done = carry(repeats=2)
    text = str(done)
    assert "calls_per_op.f 2" in text
    assert "well, oh no" in text
    assert "outcomes held>" in repr(done)
    long = replace(
        done, provenance=replace(done.provenance, note="no KVM, " + "why " * 50 + ": abort")
    )
    assert "no KVM, why" in str(long)
    assert "why " * 20 not in str(long)
    short = replace(done, provenance=replace(done.provenance, note="no KVM: (SIGABRT): kvm.c:3183"))
    assert "tcg (no KVM), 4 vCPUs" in str(short)
    assert "NOT HELD variant wrong" in text
    assert "Linux 6.1.192" in text
    assert "tcg, 4 vCPUs, 2 repeats" in text
    assert max(map(len, text.splitlines()[:20])) < 140
    page = done._repr_html_()
    assert page.count("<tr>") == 1 + len(done.outcomes)
    assert ">did not hold</td>" in page
    assert "run now" in page
    assert "recorded reference run" in replace(done, recorded=True)._repr_html_()


def test_html_is_escaped(booted: Booted) -> None:
    nasty = replace(CASE.outcomes[0], expected="<script>")
    page = carry(replace(CASE, outcomes=(nasty,)), smoke=False)._repr_html_()
    assert "<script>" not in page


def test_progress_counts_the_boots(booted: Booted) -> None:
    seen: list[tuple[str, int, int]] = []
    carry(smoke=False, progress=lambda *what: seen.append(what))
    assert seen == [
        ("boot before: opens", 0, 3),
        ("boot after: opens", 1, 3),
        ("boot wrong: log", 2, 3),
        ("done", 3, 3),
    ]


def test_a_guest_in_trouble_is_a_finding(booted: Booted, monkeypatch: pytest.MonkeyPatch) -> None:
    console = "[    1.0] WARNING: oh\n[    1.1] Kernel panic - not syncing: x\n"

    def panics(asked: Boot) -> GuestReport:
        raise vm.GuestPanic("the kernel panicked: x", console)

    monkeypatch.setattr(boots, "boot", panics)
    done = carry(SILENT, smoke=False)
    (boot,), (outcome,) = done.boots, done.outcomes
    assert boot.failed == "panic: the kernel panicked: x"
    assert boot.splats == ["WARNING: oh", "Kernel panic - not syncing: x"]
    assert boot.excerpt.startswith("WARNING: oh")
    assert not outcome.held
    assert outcome.reason == "panic: the kernel panicked: x"
    assert "FAILED before, run opens, repeat 1: panic" in str(done)


@pytest.mark.parametrize("error", [qemu.LostVm("killed"), qemu.NoQemu("none")])
def test_a_lost_machine_is_no_finding(
    booted: Booted, monkeypatch: pytest.MonkeyPatch, error: ContendedError
) -> None:
    def lost(asked: Boot) -> GuestReport:
        raise error

    monkeypatch.setattr(boots, "boot", lost)
    with pytest.raises(type(error)):
        carry(SILENT)


def test_nothing_is_built_without_qemu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def never(*_: object) -> Kernel:
        raise AssertionError("it began to build")

    monkeypatch.setattr(build, "build", never)
    monkeypatch.setattr(source, "find", never)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(qemu.NoQemu):
        carry(SILENT)


@pytest.mark.parametrize(("vcpus", "repeats"), [(0, 1), (999, 1), (2, 0)])
def test_numbers_out_of_range(vcpus: int, repeats: int) -> None:
    with pytest.raises(UsageError, match="give"):
        run.run("open-creat-unlazy", vcpus=vcpus, repeats=repeats)


def test_nothing_expected_is_nothing_held(booted: Booted) -> None:
    done = carry(replace(SILENT, outcomes=()), smoke=False)
    assert not done.held
    assert done.first_miss


def test_the_accelerator_is_that_of_the_runs_that_are_free_to_choose(
    booted: Booted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(asked: Boot) -> tuple[str, str]:
        return ("tcg", "forced") if asked.icount else ("kvm", "")

    monkeypatch.setattr(boots, "choose", choose)
    counted = GuestRun("counted", "open-creat", {}, vcpus=1, icount=True)
    case = replace(
        CASE,
        runs={"opens": CASE.runs["opens"], "counted": counted},
        outcomes=(CASE.outcomes[0], replace(CASE.outcomes[0], run="counted")),
    )
    done = carry(case, accel="auto", smoke=False)
    assert (done.provenance.accel, done.provenance.note) == ("kvm", "")
    assert [b.accel for b in done.boots] == ["kvm", "tcg"]


def test_some_runs_only(booted: Booted) -> None:
    done = carry(runs=["log"], smoke=False)
    assert booted.names() == ["wrong umount up"]
    assert [o.run for o in done.outcomes] == ["log"]
    with pytest.raises(UsageError, match=r"has no run 'nope'; there are: opens, log"):
        carry(runs=["nope"])


LINES = GuestRun("lines", "stat", {}, profile=True, vcpus=4)
PROFILED = replace(
    CASE,
    runs={"opens": CASE.runs["opens"], "lines": LINES},
    outcomes=(
        CASE.outcomes[0],
        Expectation(
            "before", "lines", "fought for", "hitm_per_op.field(dentry.d_lockref)", at_least=1
        ),
        Expectation("after", "lines", "not any more", "hitm_per_op", at_most=0.05),
        Expectation(
            "after", "lines", "of the other", "hitm_per_op", at_most=0.1, relative_to="before"
        ),
        Expectation("after", "lines", "no such", "no_such_metric", at_most=1),
    ),
)


def test_a_run_under_the_profiler(booted: Booted, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "before": profiles.profile(),
        "after": profiles.profile("after", raw=profiles.nothing()),
    }
    monkeypatch.setattr(
        c2c, "profile_kernel", lambda kernel, variant, how: [(None, made[variant.name])]
    )
    done = carry(PROFILED, smoke=False)
    assert [o.held for o in done.outcomes] == [True, True, True, True, False]
    assert "no_such_metric" in done.outcomes[-1].reason
    assert done.seen("before", "hitm_per_op.field(dentry.d_lockref)", "lines") >= 1
    with pytest.raises(UsageError, match="no number 'hitm_per_op' of example/before"):
        done.seen("before", "hitm_per_op")
    assert [b.run for b in done.boots] == ["opens", "lines", "lines"]
    assert [b.failed for b in done.boots] == [""] * 3
    again = done.to_json()
    assert '"lines"' in again
    assert {b.accel for b in done.boots} == {"tcg"}


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (assemble.NoRegion("the workload never finished"), "error: the workload never"),
        (vm.GuestHang("the guest said nothing", "console"), "hang: the guest said nothing"),
    ],
)
def test_a_profiled_kernel_that_fails_is_an_outcome_that_did_not_hold(
    booted: Booted, monkeypatch: pytest.MonkeyPatch, trouble: Exception, kind: str
) -> None:
    def fail(*_: object) -> None:
        raise trouble

    monkeypatch.setattr(c2c, "profile_kernel", fail)
    done = carry(PROFILED, smoke=False)
    assert [o.held for o in done.outcomes] == [True] + [False] * 4
    assert done.of("after", "lines")[0].failed.startswith(kind)


def test_every_case_has_a_plan() -> None:
    """Each file of patches/ can be read, and asks something of each of its variants."""
    for slug in variants.slugs():
        case = variants.load(slug)
        expected = {outcome.variant for outcome in case.outcomes}
        assert expected == set(case.variants), slug
        assert run.plan(slug).kernels


def test_real_machines(
    kernel: Kernel, tiny: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From end to end, but for the build and the lab's own guest."""
    fake_kernels(monkeypatch, kernel.image)
    monkeypatch.setattr(guest, "initrd", lambda: tiny)
    case = KernelCase(
        slug="example",
        variants={"before": CASE.variants["before"], "wrong": CASE.variants["wrong"]},
        runs={
            "fine": GuestRun("fine", "fine", {"how": "count"}, vcpus=1),
            "hangs": GuestRun("hangs", "none", {"how": "hang"}, vcpus=1),
            "dies": GuestRun("dies", "none", {"how": "exit"}, vcpus=1),
            "warns": GuestRun("warns", "none", {"how": "splat"}, vcpus=1),
        },
        outcomes=(
            Expectation("before", "fine", "operations", "ops", equals=1_000_000),
            Expectation("wrong", "fine", "impossible", "ops", at_most=1),
            Expectation("before", "hangs", "an end", "ops", at_least=1),
            Expectation("before", "dies", "a panic", "ended", contains="Attempted to kill init"),
            Expectation("before", "warns", "a warning", "splats", equals=1),
        ),
    )
    monkeypatch.setitem(run.DEADLINE_S, "base", 60)
    done = carry(case, wanted=["before", "wrong"])
    held = {(o.variant, o.run): o.held for o in done.outcomes}
    assert held == {
        ("before", "fine"): True,
        ("wrong", "fine"): False,
        ("before", "hangs"): False,
        ("before", "dies"): True,
        ("before", "warns"): True,
        ("before", "smoke"): True,
        ("wrong", "smoke"): True,
    }
    assert done.of("before", "hangs")[0].failed.startswith("hang: the guest said nothing for")
    assert done.of("before", "warns")[0].excerpt.startswith("WARNING: something is wrong")
    assert done.of("before", "fine")[0].splats == []
