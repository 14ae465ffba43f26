# SPDX-License-Identifier: MIT
"""The guest's whole world: one static program, compiled from `csrc/guest`, in an initramfs.

The archive is a function of what went into it, byte for byte, so a digest of that is its name in
the cache.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contended import cc, tree
from contended.errors import ContendedError

FLAGS = ("-static", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
_WHAT = "the kernel lab's guest"
_STATIC = " (the static C library is missing: apt-get install libc6-dev)"
BUSYBOX = ("/bin/busybox", "/usr/bin/busybox", "/bin/busybox.static")

# File types of a mode, as stat(2) has them.
_FOLDER, _FILE, _LINK = 0o040000, 0o100000, 0o120000


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of an archive; a folder has no content, a symbolic link's content is its target."""

    name: str
    mode: int
    content: bytes = b""

    @classmethod
    def folder(cls, name: str) -> Entry:
        """A folder that everybody may enter."""
        return cls(name, _FOLDER | 0o755)

    @classmethod
    def program(cls, name: str, content: bytes) -> Entry:
        """A file that everybody may execute."""
        return cls(name, _FILE | 0o755, content)

    @classmethod
    def link(cls, name: str, target: str) -> Entry:
        """A symbolic link."""
        return cls(name, _LINK | 0o777, target.encode())


def initrd() -> Path:
    """The compressed initramfs with the guest as `/init`, compiled now if it has to be.

    Raises:
        ContendedError: no compiler, no static C library, an error in the C, or a cache that cannot
            be written.
    """
    return _packed(None)


def shell_initrd() -> Path:
    """The same with busybox and its commands, and the guest as `/ct`, for a reader to look around.

    Raises:
        ContendedError: as `initrd`, or busybox is not installed.
    """
    return _packed(find_busybox())


def find_busybox() -> Path:
    """A statically linked busybox.

    Raises:
        ContendedError: there is none.
    """
    wanted = [os.environ.get("CONTENDED_BUSYBOX", ""), *BUSYBOX, shutil.which("busybox") or ""]
    for name in filter(None, wanted):
        place = Path(name)
        if place.is_file() and cc.is_static(place.read_bytes()):
            return place
    raise ContendedError("a shell in the guest needs busybox: apt-get install busybox-static")


def archive(entries: Iterable[Entry]) -> bytes:
    """A cpio archive in the "newc" format that the kernel unpacks; it has no times and no owners.

    The format is so simple that writing it beats depending on cpio(1), whose archives hold the
    inode numbers of a temporary folder and so differ each time.
    """
    parts = []
    for number, entry in enumerate([*entries, Entry("TRAILER!!!", 0)], 1):
        name = entry.name.encode() + b"\0"
        links = 2 if entry.mode & _FOLDER == _FOLDER else 1
        # inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name, checksum
        fields = (number, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        parts += [_padded(header + name), _padded(entry.content)]
    return b"".join(parts)


def compress(content: bytes) -> bytes:
    """Gzip without a time in it."""
    return gzip.compress(content, 9, mtime=0)


def compile_static(sources: Sequence[Path], program: Path, *flags: str) -> None:
    """Compile C files into one static program, as the guest's are.

    Raises:
        ContendedError: it does not compile; the compiler's words are attached as a note.
    """
    with _explained():
        cc.compile_(sources, (*FLAGS, *flags), program, what=_WHAT)


@contextmanager
def _explained() -> Iterator[None]:
    """With what to do about a C library that cannot be linked statically."""
    try:
        yield
    except cc.CompileError as error:
        if re.search(r"cannot find -l|error:.*stdio\.h", error.output):
            raise cc.CompileError(_WHAT, error.output, _STATIC) from None
        raise


def _sources() -> list[Path]:
    place = tree.home() / "csrc" / "guest"
    found = sorted([*place.glob("*.c"), *place.glob("*.h")])
    if not found:
        raise ContendedError(f"no guest in {place}: set CONTENDED_HOME to a whole clone")
    return found


def _packed(busybox: Path | None) -> Path:
    sources = _sources()
    with _explained():
        program = cc.compiled("kernel/guest", "init", sources, FLAGS, what=_WHAT)
    name = "lab"
    if busybox is not None:
        name = f"shell-{hashlib.sha256(busybox.read_bytes()).hexdigest()[:32]}"
    place = program.parent / f"{name}.cpio.gz"
    if place.exists():
        return place
    try:
        with tempfile.TemporaryDirectory(dir=place.parent) as work:
            made = Path(work) / place.name
            made.write_bytes(compress(archive(_entries(program.read_bytes(), busybox))))
            made.replace(place)  # the rename publishes it: nobody ever boots half an archive
    except OSError as error:
        raise ContendedError(f"cannot write {place}: {error.strerror}") from error
    return place


def _entries(program: bytes, busybox: Path | None) -> list[Entry]:
    entries = [Entry.program("init", program)]
    if busybox is None:
        return entries
    entries += [Entry.link("ct", "init")]
    entries += [Entry.folder(name) for name in ("bin", "proc", "root", "sys", "tmp")]
    entries += [Entry.program("bin/busybox", busybox.read_bytes())]
    run = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=False)
    commands = {name for name in run.stdout.split() if re.fullmatch(r"[\w.\[-]+", name)}
    entries += [Entry.link(f"bin/{name}", "busybox") for name in sorted(commands - {"busybox"})]
    return entries


def _padded(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)
