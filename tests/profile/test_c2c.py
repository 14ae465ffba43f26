# SPDX-License-Identifier: MIT
"""`contended c2c`: what is chosen, what is refused, and the whole way on models and kernels."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import profiles as made
import pytest
from ctools import C, execute

from contended import cc
from contended.commands import c2c as command
from contended.errors import ContendedError, UsageError
from contended.kernel import build, c2c, source
from contended.kernel.build import Kernel
from contended.kernel.variants import GuestRun, KernelCase, Variant
from contended.measure import models, native
from contended.profile import assemble, plugin, query, saved, usermode
from contended.profile.assemble import NoRegion
from contended.profile.coherence import Thing
from contended.profile.dwarf import Image
from contended.profile.saved import Profiles

pytest_plugins = ("labfixtures",)


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    program = tmp_path / "layouts"
    done = execute(
        *(cc.compiler().command, "-O2", "-g", "-no-pie", "-Wl,--build-id"),
        *("-o", program, C / "layouts.c"),
    )
    assert done.returncode == 0, done.stderr
    with Image(program) as image:
        yield image


def case(*names: str, runs: Sequence[GuestRun] = ()) -> KernelCase:
    variants = {name: Variant("x", name, "one line") for name in names}
    return KernelCase("x", variants, {run.name: run for run in runs}, ())


def test_before_and_after_are_shown_unless_others_are_asked_for() -> None:
    some = case("before", "wrong", "after")
    assert [v.name for v in c2c.choose_variants(some, None)] == ["before", "after"]
    assert [v.name for v in c2c.choose_variants(some, ["wrong", "wrong"])] == ["wrong"]
    assert [v.name for v in c2c.choose_variants(case("a", "b"), None)] == ["a", "b"]
    with pytest.raises(UsageError, match="no variant 'new'; there are: before, wrong, after"):
        c2c.choose_variants(some, ["new"])


def test_the_run_is_the_first_that_can_be_profiled() -> None:
    counted, plain, bare, single = (
        GuestRun("count", "open-creat", {}, icount=True, vcpus=1),
        GuestRun("plain", "stat", {}),
        GuestRun("bare", "stat", {}, config="hz-250"),
        GuestRun("single", "stat", {}, config="up", vcpus=1),
    )
    some = case("before", runs=[counted, plain, bare, single])
    assert c2c.choose_run(some) is plain
    assert c2c.choose_run(some, "count") is counted
    with pytest.raises(UsageError, match="no run 'new'; there are: count, plain"):
        c2c.choose_run(some, "new")
    for name in ("bare", "single"):
        with pytest.raises(UsageError, match="have no debug information: name another run"):
            c2c.choose_run(some, name)
    with pytest.raises(UsageError, match="no run that can be profiled"):
        c2c.choose_run(case("before", runs=[counted]))


def test_functions_and_calls_in_them_are_watched(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = c2c.watched_addresses(image, ["take", "take_twice>spin_lock"])
    assert found[image.symbol("take").address] == "take"
    calls = [at for at, name in found.items() if name == "take_twice>spin_lock"]
    assert calls == list(image.calls("take_twice", "spin_lock"))
    assert len(calls) == 2
    with pytest.raises(UsageError, match="no symbol 'nothing'"):
        c2c.watched_addresses(image, ["nothing"])
    with pytest.raises(UsageError, match="main does not call spin_lock"):
        c2c.watched_addresses(image, ["main>spin_lock"])
    with pytest.raises(UsageError, match="no slow path 'slow\\(none\\)'"):
        c2c.watched_addresses(image, ["slow(none)"])
    slow = {"lockref": (("take", "not_there"), "spin_lock")}
    monkeypatch.setattr(query, "SLOW", slow)
    assert set(c2c.watched_addresses(image, ["slow(lockref)"]).values()) == {
        "take",
        "take>spin_lock",
    }


def named(image: Image, out: Path, results: list[dict[str, Any]]) -> Any:
    seen = c2c.name_regions(out, results, image, None, "before", made.PROVENANCE, {})
    return [profile for _, profile in seen]


def test_regions_belong_to_the_results_in_order(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "profile.json"
    out.write_text(json.dumps(made.report(made.region(), made.region(2), made.nothing())))
    results = [
        {"label": "plain", "size": 10},
        {"label": "plain", "size": 20},
        {"label": "lazy", "size": 0},
    ]
    found = named(image, out, results)
    assert [(p.label, p.size) for p in found] == [("plain@10", 10), ("plain@20", 20), ("lazy", 0)]
    assert [p.kernel.counts.hitm for p in found] == [130, 260, 0]
    assert found[0].lines[0].things == ()
    with pytest.raises(NoRegion, match="3 measured regions for 2 results"):
        named(image, out, results[:2])


def test_no_table_without_a_whole_region(image: Image, tmp_path: Path) -> None:
    out = tmp_path / "profile.json"
    with pytest.raises(NoRegion, match="never finished a measured region"):
        named(image, out, [{}])
    for content, message in (
        (json.dumps(made.report()), "instead of 1"),
        (json.dumps(made.report({**made.region(), "complete": False})), "not finished"),
        (json.dumps({**made.report(made.region()), "abi": 2}), "version 2"),
        (json.dumps(made.report(made.region()))[:500], "damaged"),
        ("", "damaged"),
    ):
        out.write_text(content)
        with pytest.raises(plugin.BadReport, match=message):
            named(image, out, [{}])


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.fill(parser)
    return parser.parse_args(arguments)


def test_the_commands_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    args = parsed("overlay-creds", "--variants", "before, after", "--vcpus", "8", "--user")
    assert (args.slug, args.variants, args.vcpus, args.user) == (
        "overlay-creds", ["before", "after"], 8, True,
    )  # fmt: skip
    assert parsed("x", "--set", "name=9", "--set", "ops=5").set == [("name", "9"), ("ops", "5")]
    for wrong in (
        ["--vcpus", "0"], ["--top", "x"], ["--quantum", "-1"], ["--variants", ","],
        ["--set", "name"], ["--set", "name=9 ops=1"], ["--set", "Name=9"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            parsed("overlay-creds", *wrong)
        assert ended.value.code == 2
    for kernels in (["--run", "x"], ["--set", "name=9"]):
        args = parsed("overlay-creds", "--user", *kernels)
        with pytest.raises(UsageError, match="leave out --run, --set and --source"):
            args.command(args)
    capsys.readouterr()


def test_parameters_are_set_over_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[GuestRun] = []

    def profiled(_kernel: object, _variant: object, how: GuestRun, **_: object) -> object:
        seen.append(how)
        return [(None, made.profile())]

    monkeypatch.setattr(source, "find", lambda *_: None)
    monkeypatch.setattr(build, "build", lambda *_: None)
    monkeypatch.setattr(c2c, "profile_kernel", profiled)
    c2c.profile("dentry-false-sharing", run="stats", settings={"name": "9"})
    c2c.profile("dentry-false-sharing", run="stats")
    assert [how.args["name"] for how in seen] == ["9", "9", 18, 18]
    assert {how.args["ops"] for how in seen} == {300}


def test_the_command_prints_tables_or_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(c2c, "profile", lambda *args, **more: made.profiles())
    args = parsed("open-creat-unlazy", "--json", str(tmp_path / "p.json"))
    assert args.command(args) == 0
    shown = capsys.readouterr().out
    assert "Shared Data Cache Line Table" in shown
    assert saved.load(tmp_path / "p.json").case == "open-creat-unlazy"
    args = parsed("open-creat-unlazy", "--json", "-")
    assert args.command(args) == 0
    assert json.loads(capsys.readouterr().out)["case"] == "open-creat-unlazy"
    args = parsed("open-creat-unlazy", "--json", str(tmp_path / "none" / "p.json"))
    with pytest.raises(UsageError, match="there is no folder"):
        args.command(args)


def test_what_a_model_allocates_is_known_by_its_size(image: Image) -> None:
    def kind(expression: str, size: int, variant: str = "before") -> tuple[str, str | None]:
        name, found = usermode._type_of(image, {"expression": expression, "size": size}, variant)
        return name, found.name if found else None

    assert kind("layout->size", 144, "entry") == ("", "entry")
    assert kind("layout->size", 100, "entry") == ("", None)
    assert kind("whatever", 10) == ("", None)
    heap = [(0x1000, 3 * 144, "entries", image.type("entry"))]
    assert usermode.resolve(image, heap, 0x1000 + 144 + 28) == Thing(
        "heap", "entries", "entry", 28, "ref.count", 0x1000 + 144, "entries[1]"
    )
    root = image.symbol("root_entry").address
    assert usermode.resolve(image, heap, root + 28).field == "ref.count"
    assert usermode.resolve(image, heap, 8).kind == "unknown"


# --- the whole way, on models ---


@pytest.fixture(scope="module")
def qemu_user() -> None:
    try:
        plugin.find("user")
    except plugin.NoPlugins as reason:
        pytest.skip(str(reason))


def user(slug: str, variants: Sequence[str] = ("before", "after"), **more: Any) -> Profiles:
    settings: dict[str, Any] = {"threads": 4, "ops": 500, **more}
    return usermode.profile(slug, variants, **settings)


@pytest.mark.usefixtures("qemu_user")
def test_the_overlay_models_threads_fight_for_the_creds_counter() -> None:
    found = user("overlay-creds")
    metric = "hitm_per_op.field(overlay.creator.usage)"
    assert query.value(found, "before", metric) > 0.5  # type: ignore[operator]
    assert query.value(found, "after", "hitm_per_op") <= 0.05  # type: ignore[operator]
    worst = found.of("before").lines[0]
    assert "creator.usage" in {thing.field for thing in worst.things}
    assert worst.sites[0].symbol == "before_op"
    assert any(frame.function == "get_cred" for s in worst.sites for frame in s.frames)
    assert found.of("before").ops == 2000
    assert found.of("before").named_share > 0.9


@pytest.mark.usefixtures("qemu_user")
def test_one_thread_finds_nothing_modified_by_another() -> None:
    # Enough of them that what is left of the set-up does not count.
    found = user("overlay-creds", ["before"], threads=1, ops=2000)
    assert query.value(found, "before", "hitm_per_op") <= 0.02  # type: ignore[operator]
    assert "overlay" not in {
        thing.struct for line in found.of("before").lines for thing in line.things
    }


@pytest.mark.usefixtures("qemu_user")
def test_the_dentry_models_lookups_are_disturbed_by_the_layout_only() -> None:
    found = user("dentry-false-sharing")
    metric = "hitm_loads_per_op.field({}.iname)"
    before = query.value(found, "before", metric.format("before"))
    after = query.value(found, "after", metric.format("after"))
    assert isinstance(before, float)
    assert before > 0.2
    assert after == 0


@pytest.mark.usefixtures("qemu_user")
@pytest.mark.parametrize("slug", ["lockref-degrade", "mount-hash", "umount-grace-period"])
def test_other_models_run_too(slug: str) -> None:
    try:
        found = user(slug, ["before"], threads=2, ops=20)
    except native.MissingPackage as lacking:
        pytest.skip(str(lacking))
    assert found.profiles
    labels = list(dict.fromkeys(p.label for p in found.profiles))
    assert labels == (list(models.describe(slug).phases) if len(labels) > 1 else [""])


@pytest.mark.usefixtures("qemu_user")
def test_what_a_model_cannot_do_is_one_line() -> None:
    with pytest.raises(UsageError, match="has no variant 'new'"):
        user("overlay-creds", ["new"])
    with pytest.raises(UsageError, match="give 1 to 128 threads"):
        user("overlay-creds", threads=129)
    with pytest.raises(UsageError, match="has no parameter 'depth'"):
        user("overlay-creds", params={"depth": 1})
    with pytest.raises(ContendedError, match="quantum of 5"):
        user("overlay-creds", quantum=5)


def test_without_qemu_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plugin.find.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        with pytest.raises(plugin.NoPlugins, match="apt-get install qemu-user"):
            user("overlay-creds")
    finally:
        plugin.find.cache_clear()


# --- the whole way, on a kernel ---


@pytest.fixture(scope="module")
def profiled() -> dict[str, Profiles]:
    return {}


def on_kernel(kernel: Kernel, cache: dict[str, Profiles], run: GuestRun) -> Profiles:
    """A workload profiled on the unpatched kernel, once for all tests of it."""
    if run.name not in cache:
        seen = c2c.profile_kernel(kernel, Variant("test", "before", "as it is"), run)
        found = tuple(profile for _, profile in seen)
        cache[run.name] = Profiles(case="test", run=run.name, mode="system", profiles=found)
    return cache[run.name]


OPENS = GuestRun("opens", "open-creat", {"ops": 150}, vcpus=4)
STATS = GuestRun("stats", "stat", {"ops": 150, "name": 18}, vcpus=4)


def test_opening_files_moves_the_root_dentrys_lockref(
    kernel: Kernel, profiled: dict[str, Profiles]
) -> None:
    found = on_kernel(kernel, profiled, OPENS)
    metric = "hitm_per_op.field(dentry.d_lockref).role(root)"
    seen = query.value(found, "before", metric)
    assert isinstance(seen, float)
    assert seen >= 0.5
    worst = found.of("before").lines[0]
    assert str(worst.things[0]).startswith("struct dentry + ")
    symbols = {site.symbol for site in worst.sites}
    assert symbols >= {"lockref_get_not_dead", "lockref_put_return"}
    assert found.of("before").ops == 600


@pytest.mark.check
@pytest.mark.usefixtures("kernel")  # skips where there is no source
def test_a_distribution_s_kernel_does_more_in_an_open(profiled: dict[str, Profiles]) -> None:
    """It asks a security module, and counts whose memory the open file is: the guest's group's.

    And on ext4 it takes the directory's dentry, which files of their own have in common.
    """
    asked = ("apparmor_file_open", "obj_cgroup_charge", "ext4_file_open", "dget_parent")
    run = GuestRun(
        *("opens-disk", "open", {"ops": 50, "disk": 1, "own": 1}, "distribution-disk"),
        vcpus=2,
        watch=asked,
    )
    plain = Variant("test", "before", "Linux as it is")
    kernel = build.build(plain, run.config, source.find())
    found = on_kernel(kernel, profiled, run)
    for function in asked:
        seen = query.value(found, "before", f"calls_per_op.{function}")
        assert seen == pytest.approx(1, abs=0.05), function
    lines = found.of("before").lines
    counts = [
        t for line in lines for t in map(str, line.things) if "d_lockref" in t and "ext4" in t
    ]
    assert counts
    assert all('"/" of ext4' in thing for thing in counts), "each has a file of its own"


def test_looking_up_a_long_name_moves_the_line_of_its_dentrys_lockref(
    kernel: Kernel, profiled: dict[str, Profiles]
) -> None:
    found = on_kernel(kernel, profiled, STATS)
    lookups = "hitm_loads_per_op.symbol(__d_lookup_rcu)"
    seen = query.value(found, "before", f"{lookups}.line(dentry.d_lockref)")
    assert isinstance(seen, float)
    assert seen >= 0.5
    at_name = query.value(found, "before", f"{lookups}.field(dentry.d_iname)")
    assert at_name == pytest.approx(seen, rel=0.05)


def test_a_vmlinux_of_another_build_makes_no_table(kernel: Kernel, tmp_path: Path) -> None:
    other = tmp_path / "vmlinux"
    data = kernel.vmlinux.read_bytes()
    with Image(kernel.vmlinux) as image:
        build_id = bytes.fromhex(image.build_id)
    assert data.count(build_id) == 1
    other.write_bytes(data.replace(build_id, bytes(len(build_id))))
    wrong = replace(kernel, vmlinux=other)
    with pytest.raises(assemble.WrongKernel, match="build the kernel again"):
        c2c.profile_kernel(wrong, Variant("test", "before", "as it is"), OPENS)
