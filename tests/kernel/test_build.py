# SPDX-License-Identifier: MIT
"""Kernels are built whole or not at all, only what a patch touches is compiled, layouts hold."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import toy
from support import PATIENCE_S, eventually
from toy import Toy

from contended import doctor
from contended.errors import ContendedError
from contended.kernel import build as builds
from contended.kernel import make as makes
from contended.kernel import source as sources
from contended.kernel.build import Kernel, LayoutError
from contended.kernel.make import BuildError
from contended.kernel.source import KernelSource
from contended.kernel.variants import Layout, Variant
from contended.profile.dwarf import Image


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    return toy.make(tmp_path, monkeypatch)


class Watch:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int, int]] = []

    def __call__(self, what: str, done: int, expected: int) -> None:
        self.said.append((what, done, expected))

    @property
    def compiled(self) -> int:
        """The objects that the last make compiled."""
        counts = [done for what, done, _ in self.said if what.endswith("compiling")]
        starts = [i for i, n in enumerate(counts) if i == 0 or n <= counts[i - 1]]
        return counts[-1] - counts[starts[-1]] if counts else 0


def build(kit: Toy, variant: Variant, config: str = "base") -> tuple[Kernel, int]:
    """The kernel, and how many objects the last make compiled."""
    watch = Watch()
    kernel = builds.build(variant, config, kit.source(), watch)
    return kernel, watch.compiled


def built(kit: Toy) -> list[str]:
    """The digests of the finished kernels, and whatever else is beside them."""
    there = (kit.cache / "kernel" / "kernels").glob("*")
    return sorted(p.name for p in there if p.name != "lock")


def test_a_kernel_is_built_and_found(kit: Toy) -> None:
    variant = kit.variant(name="before")
    assert builds.find(variant, "base", kit.source()) is None
    kernel, compiled = build(kit, variant)
    assert compiled == 2
    assert (kernel.slug, kernel.variant, kernel.config) == ("toy", "before", "base")
    assert kernel.version == "6.1.192"
    assert "gcc" in kernel.compiler
    assert kernel.image.read_bytes() == kernel.vmlinux.read_bytes()
    assert "CONFIG_BASE=y" in (kernel.image.parent / "config").read_text()
    assert len(kernel.build_id) == 40
    notes = subprocess.run(["readelf", "-n", kernel.vmlinux], capture_output=True, text=True)
    assert f"Build ID: {kernel.build_id}" in notes.stdout
    assert builds.find(variant, "base", kit.source()) == kernel
    assert build(kit, variant) == (kernel, 0)
    assert built(kit) == [kernel.digest]


def test_a_damaged_kernel_is_said_in_a_line(kit: Toy) -> None:
    kernel, _ = build(kit, kit.variant())
    (kernel.image.parent / "meta.json").write_text("{")
    with pytest.raises(ContendedError, match=f"{kernel.digest} is damaged: remove it"):
        builds.find(kit.variant(), "base", kit.source())


def test_only_what_a_patch_touches_is_compiled(kit: Toy) -> None:
    before, _ = build(kit, kit.variant(name="before"))
    pristine = toy.image(kit.source().tree)
    after, compiled = build(kit, kit.variant(kit.patch(toy.NAMEI)))
    assert compiled == 1
    assert after.build_id != before.build_id
    header, compiled = build(kit, kit.variant(kit.patch(toy.HEADER, "0002-b.patch")))
    assert compiled == 2
    assert toy.image(kit.source().tree) == pristine
    assert len({before.digest, after.digest, header.digest}) == 3
    assert built(kit) == sorted([before.digest, after.digest, header.digest])


def test_a_variant_starts_from_the_unpatched_objects(kit: Toy) -> None:
    """After a variant that changed namei.c, one that does not must not have its object."""
    build(kit, kit.variant(kit.patch(toy.NAMEI)))
    other = toy.change("fs/dcache.c", ("++d", "--d"))
    kernel, compiled = build(kit, kit.variant(kit.patch(other, "0002-b.patch"), name="other"))
    assert compiled == 1
    seen = disassembly(kernel)
    base = disassembly(build(kit, kit.variant())[0])
    assert [name for name in base if base[name] != seen[name]] == ["dget"]


def test_a_clock_that_was_set_back_spares_no_compilation(kit: Toy) -> None:
    """The unpatched objects are then of tomorrow, and the patched file of today."""
    build(kit, kit.variant(name="before"))
    tomorrow = time.time() + 86_400
    for file in (kit.cache / "kernel" / "build").rglob("*.[od]"):
        os.utime(file, (tomorrow, tomorrow))
    _, compiled = build(kit, kit.variant(kit.patch(toy.NAMEI)))
    assert compiled == 1


def disassembly(kernel: Kernel) -> dict[str, str]:
    """The instructions of each function."""
    command = ["objdump", "--no-addresses", "--no-show-raw-insn", "-d", str(kernel.vmlinux)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"^<(\w+)>:\n(.*?)(?:\n\n|\Z)", text, re.M | re.S))


def test_variants_with_the_same_headers_start_from_a_kernel_that_has_them(
    kit: Toy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a header of all, nearly everything is compiled; once, and with the same result."""
    more = toy.change("fs/dcache.c", ("++d", "--d"))
    header = kit.patch(toy.HEADER + more, "0001-h.patch")
    namei = kit.patch(toy.NAMEI, "0002-n.patch")
    again = kit.patch(toy.change("fs/dcache.c", ("++d", "d")).replace("++d", "--d"), "0003-d.patch")
    back = kit.patch(undone("fs/dcache.c", toy.FILES["fs/dcache.c"].replace("++d", "--d")))
    chosen = [(header,), (header, namei), (header, again), (header, back), (header, namei, again)]
    variants = [kit.variant(*patches, name=f"v{i}") for i, patches in enumerate(chosen)]
    seen = [build(kit, variant) for variant in variants]
    assert [compiled for _, compiled in seen] == [2, 1, 1, 1, 2]
    assert toy.image(kit.source().tree) == toy.image(kit.tree)
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(sources, "wide", lambda *_: ())
    for variant, (kernel, _) in zip(variants, seen, strict=True):
        alone, _ = build(kit, variant)
        assert disassembly(alone) == disassembly(kernel)
        assert alone.digest == kernel.digest


def undone(name: str, text: str) -> str:
    """The patch that makes the toy's own file of it."""
    one, other = (each.splitlines(keepends=True) for each in (text, toy.FILES[name]))
    return "".join(difflib.unified_diff(one, other, f"a/{name}", f"b/{name}"))


def test_a_header_that_needs_another_patch_is_nobodys_start(kit: Toy) -> None:
    first = kit.patch(toy.change("fs/dcache.c", ("++d", "--d")), "0001-a.patch")
    text = toy.change("fs/dcache.c", ("++d", "d")).replace("++d", "--d")
    header = kit.patch(toy.HEADER + text, "0002-h.patch")
    source = kit.source()
    assert sources.wide(source, (header,)) == ()
    kernel, compiled = build(kit, kit.variant(first, header))
    assert compiled == 2
    assert kernel.image.exists()


def test_variants_that_are_the_same_kernel_share_it(kit: Toy) -> None:
    patch = kit.patch(toy.NAMEI)
    first, _ = build(kit, kit.variant(patch))
    reworded = kit.patch(toy.NAMEI.replace("The message", "Better words"), "0009-same.patch")
    same, compiled = build(kit, kit.variant(reworded, name="same", cmdline="quiet"))
    assert compiled == 0
    assert (same.digest, same.image) == (first.digest, first.image)
    assert same.variant == "same"


def test_the_digest_covers_what_goes_in(kit: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    source = kit.source()
    variant = kit.variant(kit.patch(toy.NAMEI))

    def digest(config: str = "base") -> str:
        return builds.digest_of(kit.source(), variant.patches, config)

    seen = {digest(), digest("debug"), builds.digest_of(source, (), "base")}
    kit.patch(toy.NAMEI.replace("flags + 1", "flags + 2"))
    seen.add(digest())
    (kit.home / "patches" / "config" / "base.config").write_text("CONFIG_BASE=y\nCONFIG_MORE=y\n")
    seen.add(digest())
    monkeypatch.setattr(builds, "compiler", lambda: "gcc 99")
    seen.add(digest())
    monkeypatch.setattr(builds, "RECIPE", builds.RECIPE + 1)
    seen.add(digest())
    (kit.tree / "fs" / "dcache.c").write_text("int other;\n")
    seen.add(digest())
    assert len(seen) == 8


def test_configurations_have_objects_of_their_own(kit: Toy) -> None:
    base, _ = build(kit, kit.variant())
    debug, compiled = build(kit, kit.variant(), "debug")
    assert compiled == 2
    assert debug.digest != base.digest
    assert "CONFIG_BASE=y" not in (debug.image.parent / "config").read_text()
    assert build(kit, kit.variant(kit.patch(toy.NAMEI)))[1] == 1


def test_a_new_compiler_compiles_everything(kit: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    build(kit, kit.variant())
    monkeypatch.setattr(builds, "compiler", lambda: "gcc 99")
    assert build(kit, kit.variant(kit.patch(toy.NAMEI)))[1] == 1
    assert len(built(kit)) == 3, "the unpatched kernel of each compiler, and the patched one"


@pytest.mark.parametrize("text", [toy.WARNS, toy.WARNS + toy.HEADER])
def test_a_warning_in_a_patched_file_is_an_error(kit: Toy, text: str) -> None:
    build(kit, kit.variant())
    variant = kit.variant(kit.patch(text))
    for _ in range(2):  # the second time its object is there, and must not be taken
        with pytest.raises(BuildError, match=r"fs/dcache\.c:5:\d+: warning: unused variable") as e:
            build(kit, variant)
        assert "\n" not in str(e.value)
        assert str(kit.cache) not in str(e.value)
    assert builds.find(variant, "base", kit.source()) is None
    assert len(built(kit)) == 1


def test_a_warning_elsewhere_is_not_ours(kit: Toy) -> None:
    file = kit.tree / "fs" / "dcache.c"
    file.write_text(file.read_text().replace("{\n", "{\n\tint theirs;\n"))
    kernel, _ = build(kit, kit.variant(kit.patch(toy.HEADER)))
    assert kernel.image.exists()


def test_an_error_is_shown_with_its_line(kit: Toy) -> None:
    with pytest.raises(BuildError, match=r"toy/after, config base .*fs/dcache\.c:\d+:\d+: error: "):
        build(kit, kit.variant(kit.patch(toy.BROKEN)))
    pristine = toy.image(kit.tree)
    assert toy.image(kit.source().tree) == pristine
    assert build(kit, kit.variant(kit.patch(toy.NAMEI)))[1] == 1


@pytest.mark.parametrize(
    ("wall_s", "memory", "why"),
    [
        (1.5, 1 << 40, r"takes more than 1\.5 s to compile and was stopped"),
        (60, 1 << 20, r"needs more than 0\.00105 GB of memory to compile and was stopped"),
    ],
)
def test_a_patch_that_would_compile_for_ever_is_stopped(
    kit: Toy, wall_s: float, memory: int, why: str
) -> None:
    build(kit, kit.variant(name="before"))
    slow = kit.cache / "kernel" / "slow-namei"
    slow.touch()
    boxed = makes.Boxed(lambda command, *_: list(command), wall_s, memory)
    with pytest.raises(BuildError, match=why):
        builds.build(kit.variant(kit.patch(toy.NAMEI)), "base", kit.source(), None, boxed)
    assert not left_running(kit)
    slow.unlink()
    # the next one is built as if there had been none before
    assert build(kit, kit.variant(kit.patch(toy.NAMEI)))[1] == 1
    # and by itself the same patch is not too much
    other = kit.variant(kit.patch(toy.HEADER))
    assert builds.build(
        other, "base", kit.source(), None, replace(boxed, wall_s=60, memory=1 << 40)
    )


def test_a_linkers_error_is_shown(kit: Toy) -> None:
    text = toy.change("fs/namei.c", ("return d->d_flags;", "int gone(void); return gone();"))
    with pytest.raises(BuildError, match="undefined reference to `gone'"):
        build(kit, kit.variant(kit.patch(text)))


def test_a_patch_that_does_not_apply_leaves_all_as_it_was(kit: Toy) -> None:
    build(kit, kit.variant())
    patch = kit.patch(toy.NAMEI.replace("-\treturn d->d_flags;", "-\treturn 0;"))
    with pytest.raises(ContendedError, match="does not apply"):
        build(kit, kit.variant(patch))
    assert len(built(kit)) == 1


class Disk(NamedTuple):
    total: int = 10**12
    used: int = 10**12
    free: int = 3_000_000


def test_a_disk_that_is_nearly_full(kit: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    source = kit.source()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk())
    with pytest.raises(ContendedError, match=r"the first build needs about 1\.2 GB and .* free"):
        builds.build(kit.variant(), "base", source)
    assert built(kit) == []


def test_a_disk_that_fills_up_during_the_build(kit: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    source = kit.source()
    builds.build(kit.variant(), "base", source)
    real = makes.command

    def make(source: KernelSource, folder: Path, *goals: str) -> list[str]:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk())
        return real(source, folder, *goals, "no-such-target")

    monkeypatch.setattr(makes, "command", make)
    with pytest.raises(ContendedError, match=r"a build needs about .* GB free"):
        builds.build(kit.variant(kit.patch(toy.NAMEI)), "base", source)
    assert len(built(kit)) == 1


@pytest.mark.parametrize("name", ["a cache", "a:cache"])
def test_a_path_that_kbuild_refuses_is_refused_at_once(
    kit: Toy, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = kit.source()
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path / name))
    with pytest.raises(ContendedError, match=f"{name}.*blanks or colons: set CONTENDED_CACHE to"):
        builds.build(kit.variant(), "base", source)
    assert not (tmp_path / name).exists()


def test_missing_packages_are_named(kit: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        doctor.Package("a-tool", "x", ("kernels",), True, command="no-such-command"),
        doctor.Package("not-needed", "x", ("book",), True, command="no-such-command"),
        doctor.Package("a-header", "x", ("kernels",), True, file="/no/such/file"),
    ]
    monkeypatch.setattr(doctor, "PACKAGES", tuple(rows))
    with pytest.raises(ContendedError, match=r"needs: apt-get install a-tool a-header$"):
        builds.build(kit.variant(), "base", kit.source())


def run_in_child(kit: Toy, patch: Path | None) -> subprocess.Popen[bytes]:
    """A build in a process of its own."""
    patches = f"(Path({str(patch)!r}),)" if patch else "()"
    script = f"""
        from pathlib import Path
        from contended.kernel import build, source
        from contended.kernel.variants import Variant
        variant = Variant("toy", "after", "a toy", patches={patches})
        build.build(variant, "base", source.find(Path({str(kit.tree)!r})))
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], env=env,
                            stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip


def left_running(kit: Toy) -> list[str]:
    """The processes that work for this toy."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if f"CONTENDED_CACHE={kit.cache}".encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().decode())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("patched", [False, True], ids=["base", "variant"])
def test_an_interrupted_build(kit: Toy, number: int, patched: bool) -> None:
    """Nothing of it goes on, the tree is whole again, and the next build ends well."""
    patch = kit.patch(toy.HEADER) if patched else None
    if patched:
        build(kit, kit.variant())
    else:
        kit.source()
    kernels = built(kit)
    # The toy's compiler now takes longer than anybody waits.
    slow = kit.cache / "kernel" / "slow-namei"
    slow.touch()
    child = run_in_child(kit, patch)
    assert eventually((kit.cache / "kernel" / "sleeping").exists)
    os.kill(child.pid, number)
    child.wait(PATIENCE_S)
    assert child.returncode != 0
    assert eventually(lambda: not left_running(kit)), left_running(kit)
    assert built(kit) == kernels, "no half kernel"
    slow.unlink()
    kernel, compiled = build(kit, kit.variant(*([patch] if patch else [])))
    assert compiled in (1, 2), "dcache.o may have been done"
    assert kernel.image.exists()
    assert toy.image(kit.source().tree) == toy.image(kit.tree)


def test_a_build_goes_on_where_ctrl_c_stopped_it(kit: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two objects is done; only the second is compiled afterwards."""
    build(kit, kit.variant())
    variant = kit.variant(kit.patch(toy.HEADER))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # one after the other
    slow = kit.cache / "kernel" / "slow-dcache"
    slow.touch()

    def stop(what: str, done: int, expected: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        builds.build(variant, "base", kit.source(), stop)
    slow.unlink()
    assert toy.image(kit.source().tree) == toy.image(kit.tree)
    kernel, compiled = build(kit, variant)
    assert compiled == 1
    assert kernel.image.exists()


def test_half_a_kernel_is_none(kit: Toy) -> None:
    """A folder without its last file was left by something else than us."""
    kernel, _ = build(kit, kit.variant())
    (kernel.image.parent / "meta.json").unlink()
    assert builds.find(kit.variant(), "base", kit.source()) is None


def test_lost_caches_are_made_again(kit: Toy) -> None:
    first, _ = build(kit, kit.variant())
    shutil.rmtree(first.image.parent)
    again, compiled = build(kit, kit.variant())
    assert (again, compiled) == (first, 0)
    shutil.rmtree(kit.cache / "kernel" / "build")
    assert build(kit, kit.variant(kit.patch(toy.NAMEI)))[1] == 1
    for state in (kit.cache / "kernel" / "build").glob("*/state.json"):
        state.write_text("not JSON")
    other = kit.patch(toy.HEADER, "0002-b.patch")
    assert build(kit, kit.variant(other))[0].image.exists()


def test_progress_counts_towards_what_is_expected(kit: Toy) -> None:
    watch = Watch()
    builds.build(kit.variant(), "base", kit.source(), watch)
    counts = [s for s in watch.said if s[0] == "Linux 6.1.192, config base: compiling"]
    expected = builds.OBJECTS["base"]
    assert counts == [(counts[0][0], n, expected) for n in (0, 1, 2)]
    assert any(s[0].endswith("linking") for s in watch.said)


def test_kernels_name_no_machine(kit: Toy) -> None:
    """What is put beside a kernel can be shown to anybody."""
    kernel, _ = build(kit, kit.variant())
    meta = json.loads((kernel.image.parent / "meta.json").read_text())
    assert meta.keys() == {"build_id", "version", "compiler", "config"}


def test_what_a_layout_names_must_be_there(kit: Toy) -> None:
    kernel, _ = build(kit, kit.variant())
    wanted = Layout(size=128)
    with Image(kernel.vmlinux) as image:
        assert builds.layout_problem(image, "dentry", wanted) == ""
        with pytest.raises(ContendedError, match="has no struct inode"):
            builds.layout_problem(image, "inode", wanted)
        with pytest.raises(ContendedError, match="has no member 'd_gone'"):
            builds.layout_problem(image, "dentry", Layout(apart=(("d_gone", "d_flags"),)))
    subprocess.run(["strip", "-o", kit.home / "bare", kernel.vmlinux], check=True)
    with (
        Image(kit.home / "bare") as image,
        pytest.raises(ContendedError, match="has no debug information"),
    ):
        builds.layout_problem(image, "dentry", wanted)


def test_a_layout_that_holds(kit: Toy) -> None:
    wanted = Layout(
        size=128,
        apart=(("d_time", "d_lockref.lock_count"), ("d_flags", "d_time")),
        together=(("d_lockref", "d_iname"), ("d_iname", "d_time")),
    )
    variant = kit.variant(layout={"dentry": wanted})
    kernel, _ = build(kit, variant)
    assert builds.find(variant, "base", kit.source()) == kernel


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (Layout(size=192), "its size is 128 and not 192"),
        (
            Layout(apart=(("d_iname", "d_lockref"),)),
            r"d_iname \(offset 24\) and d_lockref \(offset 16\) share a line",
        ),
        (
            Layout(together=(("d_flags", "d_time"),)),
            r"d_flags \(offset 0\) and d_time \(offset 120\) share no line",
        ),
    ],
    ids=["size", "apart", "together"],
)
def test_a_layout_that_does_not(kit: Toy, wanted: Layout, what: str) -> None:
    variant = kit.variant(layout={"dentry": wanted})
    for _ in range(2):
        with pytest.raises(LayoutError, match=f"toy/after: in struct dentry {what}"):
            build(kit, variant)
        assert builds.find(variant, "base", kit.source()) is None
    assert build(kit, kit.variant(layout={"dentry": wanted}), "debug")[0].image.exists()
    assert build(kit, kit.variant())[0].image.exists()


def test_a_member_that_a_patch_renames_is_told(kit: Toy) -> None:
    wanted = {"dentry": Layout(together=(("d_gone", "d_flags"),))}
    for _ in range(2):
        with pytest.raises(LayoutError, match="has no member 'd_gone'"):
            build(kit, kit.variant(layout=wanted))


def test_a_patched_layout_is_the_patched_kernels(kit: Toy) -> None:
    """d_flags grows, so what the unpatched kernel's debug information says is no longer true."""
    wanted = Layout(size=128)
    build(kit, kit.variant(layout={"dentry": wanted}, name="before"))
    bigger = toy.change("include/dcache.h", ("int d_time", "long d_time, d_more"))
    with pytest.raises(LayoutError, match="its size is 136 and not 128"):
        build(kit, kit.variant(kit.patch(bigger), layout={"dentry": wanted}))
