# SPDX-License-Identifier: MIT
"""The guest's archive: what is in it, the same each time, and nothing left behind by a failure."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest
from support import make_home, one_line

from contended import cc, tree
from contended.errors import ContendedError
from contended.kernel import build, guest, qemu

ENTRIES = (
    ("init", guest.PROGRAM, b"\x7fELF and so on"),
    ("bin", guest.FOLDER, b""),
    ("bin/tool", guest.PROGRAM, b"x" * 1001),
    ("bin/other", guest.LINK, b"tool"),
)

MAIN = "#include <stdio.h>\nint main(void)\n{\n\tputs(WORDS);\n\treturn 0;\n}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with a guest of one program and a header, and an empty cache."""
    place = make_home(tmp_path / "home")
    shutil.rmtree(place / "csrc" / "guest", ignore_errors=True)
    (place / "csrc" / "guest").mkdir()
    (place / "csrc" / "guest" / "main.c").write_text('#include "words.h"\n' + MAIN)
    (place / "csrc" / "guest" / "words.h").write_text('#define WORDS "hello"\n')
    monkeypatch.setenv("CONTENDED_HOME", str(place))
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path / "cache"))
    return place


def files(home: Path) -> list[str]:
    place = tree.cache_dir() / "kernel" / "guest"
    return sorted(file.name for file in place.rglob("*"))


def test_cpio_can_read_the_archive(tmp_path: Path) -> None:
    cpio = ["cpio"]
    if shutil.which("cpio") is None:
        try:
            cpio = [str(guest.find_busybox()), "cpio"]
        except ContendedError as reason:
            pytest.skip(str(reason))
    out = tmp_path / "out"
    out.mkdir()
    archive = gzip.decompress(guest.packed(ENTRIES))
    subprocess.run([*cpio, "-id"], cwd=out, input=archive, check=True)
    assert (out / "init").read_bytes() == b"\x7fELF and so on"
    assert (out / "init").stat().st_mode & 0o777 == 0o755
    assert (out / "bin" / "tool").stat().st_size == 1001
    assert (out / "bin" / "other").readlink() == Path("tool")
    assert (out / "bin").is_dir()


def test_the_same_bytes_each_time(home: Path) -> None:
    first = guest.initrd()
    content = first.read_bytes()
    first.unlink()
    assert guest.initrd() == first
    assert first.read_bytes() == content
    assert b"TRAILER!!!" in gzip.decompress(content)


def test_a_change_makes_another(home: Path) -> None:
    first = guest.initrd()
    stamp = first.stat().st_mtime_ns
    assert guest.initrd() == first
    assert first.stat().st_mtime_ns == stamp
    (home / "csrc" / "guest" / "words.h").write_text('#define WORDS "goodbye"\n')
    assert guest.initrd() != first


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("int main(void) { return 0 }\n", "error: expected"),
        ("int main(void) { int unused; return 0; }\n", "unused"),
        ("int other(void); int main(void) { return other(); }\n", "undefined reference to"),
    ],
)
def test_what_does_not_compile_is_one_line(home: Path, text: str, words: str) -> None:
    (home / "csrc" / "guest" / "main.c").write_text(text)
    with pytest.raises(ContendedError, match=words) as caught:
        guest.initrd()
    assert "does not compile" in one_line(f"{caught.value}\n")
    assert files(home) == []


def test_no_guest(home: Path) -> None:
    shutil.rmtree(home / "csrc" / "guest")
    with pytest.raises(ContendedError, match="CONTENDED_HOME"):
        guest.initrd()


def test_a_cache_that_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTENDED_CACHE", "/proc/no")
    with pytest.raises(ContendedError, match="set CONTENDED_CACHE"):
        guest.initrd()


def test_the_lab_s_own_guest_compiles() -> None:
    assert guest.initrd().stat().st_size > 100_000


def test_busybox_must_be_static(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest, "BUSYBOX", (str(tmp_path / "none"),))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ContendedError, match="apt-get install busybox-static"):
        guest.find_busybox()
    true = shutil.which("true", path="/bin:/usr/bin")
    assert true
    shutil.copy(true, tmp_path / "busybox")  # it needs the C library beside it
    with pytest.raises(ContendedError, match="apt-get install busybox-static"):
        guest.find_busybox()


def test_a_disk_is_an_empty_ext4_and_the_same_each_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = guest.disk_initrd()
    content = gzip.decompress(first.read_bytes())
    image = content[content.index(b"disk.img\0") :]
    image = image[len(b"disk.img") + (-(110 + len(b"disk.img\0"))) % 4 + 1 :][: guest.DISK_BYTES]
    assert image[1080:1082] == b"\x53\xef"  # the superblock's magic number
    first.unlink()
    assert guest.disk_initrd() == first
    assert gzip.decompress(first.read_bytes()) == content
    assert guest.initrd() != first
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ContendedError, match="apt-get install e2fsprogs"):
        guest.disk_initrd()


def test_a_run_with_a_disk_gets_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "find", lambda: "qemu")
    monkeypatch.setattr(qemu, "command_line", lambda _: "")
    kernel = build.Kernel("s", "v", "base", "0", Path(), Path(), "", "", "")
    for args, wanted in (
        ({"disk": "1"}, guest.disk_initrd()),
        ({"disk": "0"}, guest.initrd()),
        ({}, guest.initrd()),
    ):
        said = qemu.arguments(qemu.Boot(kernel=kernel, args=args), "tcg")
        assert said[said.index("-initrd") + 1] == str(wanted)


@pytest.fixture
def busybox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that says its commands as busybox does, where the guest's is looked for."""
    source = tmp_path / "fake.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("ls\\nsh\\n../x"); return 0; }\n')
    program = tmp_path / "busybox"
    cc.compile_([source], guest.FLAGS, program)
    monkeypatch.setenv("CONTENDED_BUSYBOX", str(program))
    return program


def test_a_shell_has_busybox_and_the_workloads(home: Path, busybox: Path) -> None:
    content = gzip.decompress(guest.shell_initrd().read_bytes())
    for name in (b"init\0", b"ct\0", b"bin/busybox\0", b"bin/ls\0", b"bin/sh\0"):
        assert name in content
    assert b"../x" not in content.replace(busybox.read_bytes(), b"")
    assert guest.shell_initrd() != guest.initrd()


@pytest.mark.parametrize("programs", [[], ["busybox"]])
def test_a_script_s_archive_begins_where_the_kernel_looks_for_it(
    programs: list[str], home: Path, busybox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a multiple of four, after a plain archive; a compressed one can be of any length."""
    monkeypatch.setattr(guest, "libraries", lambda _: [])
    guest.shell_initrd()  # must not be taken for the other
    with guest.tools_initrd([busybox for _ in programs], "echo hello") as initrd:
        content = initrd.read_bytes()
    second = content.index(b"TRAILER!!!\0") + len(b"TRAILER!!!\0")
    second += len(content[second:]) - len(content[second:].lstrip(b"\0"))
    assert content.startswith(b"070701")
    assert content[second:].startswith(b"070701")
    assert second % 4 == 0
    assert b"script\0" in content[second:]
