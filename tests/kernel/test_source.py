# SPDX-License-Identifier: MIT
"""The source is found, unpacked whole or not at all, and pristine again whatever happened."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest
import toy
from toy import Toy

from contended.errors import ContendedError, UsageError
from contended.kernel import patchfile
from contended.kernel import source as sources


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    return toy.make(tmp_path, monkeypatch)


class Disk(NamedTuple):
    """What `shutil.disk_usage` says of a disk that is nearly full."""

    total: int = 10**12
    used: int = 10**12
    free: int = 3_000_000


def test_without_the_package_the_command_is_named(
    kit: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "packaged", lambda _: None)
    with pytest.raises(ContendedError, match=r"contended kernel source .*--source") as e:
        sources.find()
    assert e.value.exit_code == 1


def test_the_package_is_where_dpkg_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tarball = tmp_path / "elsewhere" / "linux-source-6.1.tar.xz"
    tarball.parent.mkdir()
    tarball.touch()
    dpkg = tmp_path / "bin" / "dpkg"
    dpkg.parent.mkdir()
    dpkg.write_text(f"#!/bin/sh\necho /usr/share/doc\necho /gone/linux.tar.xz\necho {tarball}\n")
    dpkg.chmod(0o755)
    monkeypatch.setenv("PATH", str(dpkg.parent), prepend=os.pathsep)
    assert sources.packaged() == tarball


def test_what_is_given_must_be_a_source(kit: Toy, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        sources.find(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no kernel source"):
        sources.find(tmp_path / "empty")
    (tmp_path / "file.tar.xz").write_text("this is no tarball")
    with pytest.raises(UsageError, match="cannot be unpacked"):
        sources.find(tmp_path / "file.tar.xz")
    shutil.make_archive(str(tmp_path / "other"), "gztar", tmp_path / "empty")
    with pytest.raises(UsageError, match="holds no kernel source"):
        sources.find(tmp_path / "other.tar.gz")
    assert [p.name for p in (kit.cache / "kernel" / "source").iterdir()] == ["lock"]


def test_a_tarball_is_unpacked_once(kit: Toy, tmp_path: Path) -> None:
    file = toy.tarball(kit, tmp_path)
    said: list[str] = []
    first = sources.find(file, said.append)
    assert said == ["unpacking linux-toy.tar.xz"]
    assert first.version == "6.1.192"
    assert toy.image(first.tree).keys() == toy.image(kit.tree).keys()
    (first.tree / "mark").touch()
    assert sources.find(file, said.append) == first
    assert (first.tree / "mark").exists()
    assert len(said) == 1
    other = tmp_path / "again.tar.xz"
    shutil.copy(file, other)
    assert sources.find(other) == first, "it is the content that counts"


def test_the_environment_names_a_source(
    kit: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTENDED_KERNEL_SOURCE", str(kit.tree))
    assert sources.find() == sources.find(kit.tree)


def test_a_folder_is_copied_and_never_written_to(kit: Toy) -> None:
    (kit.tree / ".git").mkdir()
    (kit.tree / ".git" / "huge").touch()
    before = toy.image(kit.tree)
    first = kit.source()
    assert first.tree != kit.tree
    with sources.patched(first, [kit.patch(toy.NAMEI)]):
        pass
    assert toy.image(kit.tree) == before
    assert not (first.tree / ".git").exists()


def test_a_changed_folder_is_another_source(kit: Toy) -> None:
    first = kit.source()
    assert kit.source() == first
    (kit.tree / "fs" / "dcache.c").unlink()
    (kit.tree / "fs" / "namei.c").write_text("int changed;\n")
    second = kit.source()
    assert second.digest != first.digest
    assert second.tree == first.tree
    assert toy.image(second.tree) == toy.image(kit.tree)


def test_another_version_is_known(kit: Toy) -> None:
    makefile = kit.tree / "Makefile"
    text = makefile.read_text().replace("PATCHLEVEL = 1", "PATCHLEVEL = 9")
    makefile.write_text(text.replace("EXTRAVERSION =", "EXTRAVERSION = -rc1"))
    found = kit.source()
    assert found.version == "6.9.192-rc1"


def test_a_disk_that_is_nearly_full(
    kit: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = toy.tarball(kit, tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Disk())
    for given in (file, kit.tree):
        with pytest.raises(ContendedError, match=r"needs about 2\.0 GB and .* has 0\.0 GB free"):
            sources.find(given)
    assert [p.name for p in (kit.cache / "kernel" / "source").iterdir()] == ["lock"]


def test_patches_are_there_and_gone(kit: Toy) -> None:
    source = kit.source()
    before = toy.image(source.tree)
    with sources.patched(source, [kit.patch(toy.NAMEI)]) as tree:
        assert "d_flags + 1" in (tree / "fs" / "namei.c").read_text()
        assert (tree / "fs" / "namei.c").stat().st_mtime_ns > before["fs/namei.c"][1]
        now = toy.image(tree)
        assert [name for name in before if now[name] != before[name]] == ["fs/namei.c"]
    assert toy.image(source.tree) == before
    assert sorted(p.name for p in source.tree.parent.iterdir()) == ["copied", "lock", "tree"]


def test_files_come_and_go_with_a_patch(kit: Toy) -> None:
    source = kit.source()
    before = toy.image(source.tree)
    with sources.patched(source, [kit.patch(toy.NEW_FILE)]) as tree:
        assert (tree / "lib" / "new" / "more.c").read_text() == "int more;\n"
        assert not (tree / "fs" / "dcache.c").exists()
    assert toy.image(source.tree) == before
    assert not (source.tree / "lib").exists()


def test_patches_build_on_one_another(kit: Toy) -> None:
    second = toy.NAMEI.replace("flags + 1", "flags + 2").replace("flags;", "flags + 1;")
    source = kit.source()
    patches = [kit.patch(toy.NAMEI), kit.patch(second, "0002-b.patch")]
    with sources.patched(source, patches) as tree:
        assert "d_flags + 2" in (tree / "fs" / "namei.c").read_text()
    with (
        pytest.raises(ContendedError, match=r"0002-b\.patch"),
        sources.patched(source, patches[1:]),
    ):
        pass


def test_an_error_inside_restores_as_well(kit: Toy) -> None:
    source = kit.source()
    before = toy.image(source.tree)
    with pytest.raises(KeyboardInterrupt), sources.patched(source, [kit.patch(toy.NEW_FILE)]):
        raise KeyboardInterrupt
    assert toy.image(source.tree) == before


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            toy.NAMEI.replace("-\treturn d->d_flags;", "-\treturn 0;"),
            "hunk 1 (line 2) of fs/namei.c",
        ),
        (toy.NAMEI.replace("{\n", "[\n"), "hunk 1 (line 2) of fs/namei.c"),
        (toy.NAMEI.replace("fs/namei.c", "fs/gone.c"), "there is no fs/gone.c"),
    ],
    ids=["other line", "other context", "no file"],
)
def test_a_patch_that_does_not_apply(kit: Toy, text: str, what: str) -> None:
    """Context must fit to the letter: fuzz would put a lock where it does not belong."""
    source = kit.source()
    before = toy.image(source.tree)
    with pytest.raises(ContendedError) as e, sources.patched(source, [kit.patch(text)]):
        pass
    assert what in str(e.value)
    assert "toy/0001-a.patch does not apply" in str(e.value)
    assert "Linux 6.1.192, the patches were tested with 6.1.192" in str(e.value)
    assert "\n" not in str(e.value)
    assert toy.image(source.tree) == before


def test_the_hunk_that_fails_is_named(kit: Toy) -> None:
    text = toy.NAMEI + "@@ -17,3 +17,3 @@\n never\n-there\n+here\n before\n"
    with (
        pytest.raises(ContendedError, match=r"hunk 2 \(line 17\) of fs/namei\.c"),
        sources.patched(kit.source(), [kit.patch(text)]),
    ):
        pass


def test_a_patch_moves_with_the_lines(kit: Toy) -> None:
    file = kit.tree / "fs" / "namei.c"
    file.write_text("/* another line */\n/* and another */\n" + file.read_text())
    with sources.patched(kit.source(), [kit.patch(toy.NAMEI)]) as tree:
        assert "d_flags + 1" in (tree / "fs" / "namei.c").read_text()


def test_a_patch_twice(kit: Toy) -> None:
    patch = kit.patch(toy.NAMEI)
    with (
        pytest.raises(ContendedError, match="has this change already"),
        sources.patched(kit.source(), [patch, patch]),
    ):
        pass


@pytest.mark.parametrize("name", ["/etc/passwd", "a/../../x", "Makefile"])
def test_a_patch_stays_in_the_tree(kit: Toy, name: str) -> None:
    text = toy.NAMEI.replace("a/fs/namei.c", name).replace("b/fs/namei.c", name)
    with pytest.raises(ContendedError, match="is no name like a/"):
        patchfile.read(kit.patch(text))


def test_text_is_no_patch(kit: Toy) -> None:
    with pytest.raises(ContendedError, match="holds no change"):
        patchfile.read(kit.patch("Subject: nothing\n"))
    with pytest.raises(ContendedError, match="the patch has no hunk for fs/namei"):
        patchfile.read(kit.patch(toy.NAMEI.replace("@@ -2,7 +2,7", "@@ -2,x")))


def test_a_kill_in_the_middle_is_repaired(kit: Toy) -> None:
    """The journal is there for this: content, times and new files are as before."""
    source = kit.source()
    before = toy.image(source.tree)
    patch = kit.patch(toy.NAMEI + toy.NEW_FILE)
    script = f"""
        import os, signal
        from pathlib import Path
        from contended.kernel import source as sources
        with sources.patched(sources.find(Path({str(kit.tree)!r})), [Path({str(patch)!r})]):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=env, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert toy.image(source.tree) != before
    with sources.lock(source):
        assert toy.image(source.tree) == before
    assert not (source.tree / "lib").exists()
    assert sorted(p.name for p in source.tree.parent.iterdir()) == ["copied", "lock", "tree"]


@pytest.mark.parametrize("step", ["copy2", "copyfile", "utime"])
def test_a_kill_at_any_step_is_repaired(
    kit: Toy, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Die at the first, second, third... of the steps that change the tree or set files aside."""
    source = kit.source()
    before = toy.image(source.tree)
    patch = kit.patch(toy.NAMEI + toy.NEW_FILE)
    for number in range(1, 4):
        script = f"""
            import os, shutil, signal
            from pathlib import Path
            from contended.kernel import source as sources
            left = {number}
            source = sources.find(Path({str(kit.tree)!r}))
            def deadly(real):
                def act(*args, **kwargs):
                    global left
                    left -= 1
                    if not left:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return real(*args, **kwargs)
                return act
            place = os if {step!r} == "utime" else shutil
            setattr(place, {step!r}, deadly(getattr(place, {step!r})))
            with sources.patched(source, [Path({str(patch)!r})]):
                pass
        """
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        ran = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=env, check=False)
        assert ran.returncode in (0, -signal.SIGKILL)
        if number == 1:
            assert ran.returncode == -signal.SIGKILL, "the step is never taken"
        with sources.lock(source):
            assert toy.image(source.tree) == before


def test_only_one_has_the_tree(kit: Toy) -> None:
    source = kit.source()
    script = f"""
        from pathlib import Path
        from contended.kernel import source as sources
        source = sources.find(Path({str(kit.tree)!r}))
        with sources.lock(source, lambda what: print(what, flush=True)):
            print("mine", flush=True)
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with sources.lock(source):
        other = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert other.stdout
        assert other.stdout.readline() == "waiting for another build to end\n"
    assert other.communicate()[0] == "mine\n"


def test_a_cache_that_cannot_be_written(kit: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.cache.touch()
    with pytest.raises(ContendedError, match="set CONTENDED_CACHE"):
        kit.source()


def test_the_real_source() -> None:
    source = toy.real()
    assert source.version.startswith("6.")
    assert (source.tree / "fs" / "namei.c").is_file()
