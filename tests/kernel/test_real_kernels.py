# SPDX-License-Identifier: MIT
"""Each case on real kernels: what its variants.toml expects is what is seen.

The kernels are those of the reader's cache, built now if they are not there; the first time that
takes half an hour. Emulated, since all machines can do that and none does it differently.
"""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import labtools
import pytest

from contended.errors import ContendedError
from contended.kernel import (
    build,
    chapter,
    fuzz,
    guest,
    history,
    observe,
    qemu,
    releases,
    run,
    selftests,
    source,
    variants,
    vm,
)
from contended.kernel.source import KernelSource
from contended.kernel.variants import GuestRun, KernelCase

pytest_plugins = ("labfixtures",)

CASES = [slug for slug in variants.slugs() if slug != "stack"]
"""The stack's patches are those of the cases; together they are two nearly whole kernels more."""
TRIES = 3
LATER = "6.12"
pytestmark = pytest.mark.usefixtures("no_vm_left")


@pytest.fixture(scope="module")
def origin() -> KernelSource:
    """The tested kernel's source."""
    if not labtools.has_qemu():
        pytest.skip(qemu.QEMU_MISSING)
    try:
        found = source.find()
    except ContendedError as error:
        if "apt-get" not in str(error):
            raise
        pytest.skip(str(error))
    return found


@pytest.mark.parametrize("slug", variants.slugs())
def test_a_patch_is_in_the_kernels_style(slug: str, origin: KernelSource) -> None:
    """By the kernel's own checker; a sign-off is left out on purpose (docs/kernel-lab.md)."""
    checker = origin.tree / "scripts" / "checkpatch.pl"
    patches = sorted({p for v in variants.load(slug).variants.values() for p in v.patches})
    for patch in patches:
        done = subprocess.run(
            ["perl", str(checker), "--strict", "--no-signoff", "--no-tree", str(patch)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert re.search(r"total: 0 errors, 0 warnings, 0 checks", done.stdout), done.stdout


def test_the_field_guide_names_functions_of_the_kernel(origin: KernelSource, root: Path) -> None:
    """Its index is by the names that somebody reads off a flame graph: of 6.1, and in order."""
    index = (
        (root / "docs/host.md").read_text().partition("(by-function)=")[2].partition("\n(seen-")[0]
    )
    names = re.findall(r"^\| `(\w+)`", index, re.M)
    assert len(names) > 20
    assert names == sorted(names)
    rooms = ("fs", "kernel", "lib", "mm")
    text = "\n".join(
        file.read_text(errors="replace")
        for room in rooms
        for file in sorted((origin.tree / room).rglob("*.[ch]"))
    )
    defined = set(re.findall(r"^[a-z][\w *]*?\b(\w+)\([^;]*$", text, re.M))
    assert set(names) <= defined, set(names) - defined


@pytest.mark.parametrize("slug", CASES)
def test_the_kernels_are_built(slug: str, origin: KernelSource) -> None:
    for variant, config in run.plan(slug).kernels:
        kernel = build.build(variant, config, origin)
        assert build.find(variant, config, origin) == kernel


@pytest.mark.parametrize(("slug", "vcpus"), [(s, 2 + i % 2 * 2) for i, s in enumerate(CASES)])
def test_all_outcomes_hold(slug: str, vcpus: int, origin: KernelSource) -> None:
    """With two or four processors, by turns; the records in results/ are of four."""
    done = run.run(slug, vcpus=vcpus, accel="tcg")
    late = {each.run for each in done.outcomes if each.timed and not each.held}
    broken = [
        miss
        for miss, each in zip(done.misses, [o for o in done.outcomes if not o.held], strict=True)
        if not each.timed
    ]
    assert not broken, "\n".join(broken)
    # What rests on time a busy host can spoil, but not each time; a wrong patch spoils it always.
    for _ in range(TRIES):
        if not late:
            break
        done = run.run(slug, vcpus=vcpus, repeats=3, accel="tcg", runs=sorted(late), smoke=False)
        late = {each.run for each in done.outcomes if each.timed and not each.held}
    assert not late, "\n".join(done.misses)


def test_the_stacked_patches_apply_together(origin: KernelSource) -> None:
    after = variants.load("stack").variants["after"]
    with source.applied(origin, after.patches, time.time_ns()) as changed:
        assert {"fs/namei.c", "include/linux/dcache.h", "fs/overlayfs/file.c"} <= set(changed)


def test_random_operations_give_the_same_but_with_a_wrong_patch(origin: KernelSource) -> None:
    """Two thousand; the wrong one is found, by few operations, and the right ones are not."""

    def hearing(name: str) -> fuzz.Hear:
        variant = replace(variants.pick(name), layout={})
        return fuzz.hearing(build.build(variant, "base", origin), seed=1)

    reference = hearing("open-creat-unlazy/before")
    first = reference(0, 20, None)
    assert (len(first.worlds), first.ended) == (20, "")
    for name in ("open-creat-unlazy/after", "overlay-creds/after", "dentry-false-sharing/after"):
        assert fuzz.parted(first, hearing(name)(0, 20, None)) is None, name
    wrong = hearing("stack/never-copy")
    found = fuzz.compare(1, reference, wrong, first, wrong(0, 20, None))
    assert found
    assert "user: access" in found.what
    assert 1 <= len(found.shortest) <= 3


def test_the_kernels_own_tests_see_the_root_that_a_wrong_patch_loses(
    origin: KernelSource, root: Path
) -> None:
    """A lab's wrong solution; the same fail without a patch, but for what `openat2` promises."""
    try:
        guest.find_busybox()
    except ContendedError as error:
        pytest.skip(str(error))
    before = variants.pick("open-creat-unlazy/before")
    file = root / "labs" / "open-creat-unlazy" / "wrong" / "scoped-root" / "fix.patch"
    right, wrong = (
        selftests.ran(build.build(replace(before, patches=patches), "base", origin), origin)
        for patches in ((), (file,))
    )
    assert len(right.results) - len(right.not_ok) > 200
    assert {name for name in wrong.results if wrong.results[name] != right.results.get(name)} == {
        "resolve_test",
        "resolve_test: [in_root] O_CREAT of tricky symlink outside root gives path 'newfile3'",
    }


def test_what_a_command_says_is_not_mixed_with_the_kernels_log(
    origin: KernelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where this host is slow to read it waits in the guest, and the next command has begun."""
    try:
        guest.find_busybox()
    except ContendedError as error:
        pytest.skip(str(error))
    at_once = vm.VirtualMachine._pump

    def slowly(machine: vm.VirtualMachine, seconds: float) -> None:
        time.sleep(0.03)
        at_once(machine, seconds)

    monkeypatch.setattr(vm.VirtualMachine, "_pump", slowly)
    plain = replace(variants.pick("open-creat-unlazy/before"), patches=())
    kernel = build.build(plain, "base", origin)
    asked = ["yes said | head -n 600", "echo '<1>a warning' >/dev/kmsg"] * 5
    said, report = observe.look(kernel, asked, [], vcpus=1, deadline_s=run.DEADLINE_S["base"])
    assert report.console.count("a warning\n") == 5
    for one in said[::2]:
        assert one.text == "said\n" * 600


@pytest.mark.parametrize(
    ("stacked", "failed"),
    [
        ("no-copy", set()),
        ("ids-only", {"users-capabilities", "roots-capabilities"}),
        (
            "never-copy",
            {"users-capabilities", "roots-capabilities", "real-user", "real-root", "real-group"},
        ),
    ],
)
def test_access_answers_for_the_real_user(
    stacked: str, failed: set[str], origin: KernelSource
) -> None:
    """The stack's own patch of each of its variants, alone: one file of 6.1 is compiled again."""
    variant = variants.load("stack").variants[stacked]
    own = tuple(patch for patch in variant.patches if patch.parent.name == "stack")
    alone = replace(variant, patches=own, layout={})
    calls = GuestRun("calls", "faccessat", {"ops": 500}, calls=("prepare_creds",))
    case = KernelCase("stack", {stacked: alone}, {"smoke": run.SMOKE, "calls": calls}, ())
    plan = run.Plan(case, ((alone, run.SMOKE), (alone, calls)))
    done = run.carry_out(plan, vcpus=2, repeats=1, accel="tcg", given=origin.given)
    (smoke,), (counted,) = done.of(stacked, "smoke"), done.of(stacked, "calls")
    assert {c["name"] for c in smoke.checks if not c["ok"]} == {f"access-{f}" for f in failed}
    assert len(smoke.checks) > 100
    # The workload's caller has one id, and the rights that go with it: no copy for it. A thread
    # that the kernel starts meanwhile gets its own (1 was seen in a run).
    (result,) = counted.results
    assert result["calls"]["prepare_creds"] <= 0.01 * result["ops"]


def test_the_recorded_stack_has_no_copies_and_no_misses() -> None:
    """Its kernels are not built here; what chapter 11 shows is of all its variants and runs."""
    case, kept = variants.load("stack"), chapter.recorded("stack")
    assert kept.held
    assert {(o.variant, o.run, o.metric) for o in case.outcomes} <= {
        (o.variant, o.run, o.metric) for o in kept.outcomes
    }
    patches = {k.variant: k.patches for k in kept.kernels}
    assert patches == {v.name: [p.name for p in v.patches] for v in case.variants.values()}
    for name, more in (("open", []), ("stat", []), ("access", ["no-copy"]), ("own", ["no-copy"])):
        assert chapter.profiles("stack", name).variants == ["before", "after", *more]


@pytest.fixture(scope="module")
def later() -> KernelSource:
    """The source of the release that is looked at besides the tested one."""
    if not labtools.has_qemu():
        pytest.skip(qemu.QEMU_MISSING)
    try:
        return source.find(release=releases.get(LATER))
    except source.NoSource as none:
        pytest.skip(f"{none}; contended kernel source --release {LATER}")


@pytest.mark.release
@pytest.mark.parametrize("slug", ["open-creat-unlazy", "dentry-false-sharing", "overlay-creds"])
def test_a_later_release_is_as_recorded(slug: str, later: KernelSource, root: Path) -> None:
    """An open leaves the root alone, the lockref has left the lookup's line, creds are counted."""
    watched = history.watched()[slug]
    seen = history.measure(slug, watched, releases.get(LATER), later)
    assert seen.verdict == watched.seen[LATER]
    assert not seen.splats
    record = history.load(root / "results" / "history" / f"{LATER}.json")
    (kept,) = (one for one in record.seen if one.case == slug)
    assert [count.metric for count in seen.counts] == [count.metric for count in kept.counts]
