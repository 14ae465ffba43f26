# SPDX-License-Identifier: MIT
"""The guest's whole world: one static program, compiled from `csrc/guest`, in an initramfs.

It is a function of what went into it, byte for byte, so a digest of that is its name in the cache.
For who looks at a kernel from outside there are busybox and programs of this system beside it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from contended import cc, child, tree
from contended.errors import ContendedError
from contended.kernel import store

FLAGS = ("-static", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
_WHAT = "the kernel lab's guest"
_STATIC = " (the static C library is missing: apt-get install libc6-dev)"
BUSYBOX = ("/bin/busybox", "/usr/bin/busybox", "/bin/busybox.static")
#: Modes, as stat(2) has them, of what everybody may enter, execute, read and follow.
FOLDER, PROGRAM, FILE, LINK = 0o040755, 0o100755, 0o100644, 0o120777
DISK_BYTES = 8 << 20
_UUID = "c0de0000-0000-4000-8000-000000000001"
_FEATURES = (
    *("has_journal", "ext_attr", "resize_inode", "dir_index", "filetype", "extent", "64bit"),
    *("flex_bg", "sparse_super", "large_file", "huge_file", "dir_nlink", "extra_isize"),
    "metadata_csum",
)
_EXT4 = (
    *("-b", "1024", "-I", "256", "-U", _UUID, "-O", ",".join(("none", *_FEATURES))),
    *("-E", f"hash_seed={_UUID},lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"),
)
Entry = tuple[str, int, bytes]  #: A name without its first slash, a mode, and what is in it.


def initrd() -> Path:
    """The compressed initramfs with the guest as `/init`, compiled now if it has to be."""
    return _packed("lab")


def disk_initrd() -> Path:
    """The same with an image of an empty ext4 as `/disk.img`."""
    return _packed("disk", [("disk.img", FILE, _disk())])


def shell_initrd() -> Path:
    """The same with busybox and its commands, and the guest as `/ct`, for a reader to look at."""
    return _packed("shell", _with_commands(find_busybox()))


@contextmanager
def tools_initrd(
    programs: Sequence[Path], script: str, more: Sequence[Entry] = ()
) -> Iterator[Path]:
    """That with programs of this system, their libraries, and a shell's script as `/script`.

    The programs are some hundred megabytes, kept in the cache; the script, and `more` files, are of
    one boot. Nothing is compressed, with no programs either: an emulated machine copies faster than
    it unpacks, and a plain archive's length is a multiple of four, where the next must begin.
    """
    files = {file for each in programs for file in (each, *libraries(each))}
    read = ((str(file)[1:], PROGRAM, file.read_bytes()) for file in sorted(files))
    beside = _with_commands(find_busybox())
    tools = _packed("tools", [*beside, *_with_folders(read)], archive)
    try:
        with child.scratch(tools.parent) as work:
            file = work / "tools.cpio"
            shutil.copyfile(tools, file)
            with file.open("ab") as stream:  # the kernel unpacks one archive after the other
                stream.write(archive(_with_folders([*more, ("script", PROGRAM, script.encode())])))
            yield file
    except OSError as error:
        raise ContendedError(f"cannot write to {tools.parent}: {error.strerror}") from error


def libraries(program: Path) -> list[Path]:
    """What the loader maps for a program, and the loader, as ldd(1) lists them."""
    said = store.ask(["ldd", program]).stdout
    found = re.findall(r"(?:=>\s+|^\s+)(/\S+) \(0x", said, re.M)
    return [Path(os.path.normpath(each)) for each in found]


def library_path(*programs: Path) -> str:
    """The folders of the libraries of some programs, as LD_LIBRARY_PATH has them."""
    return ":".join(
        dict.fromkeys(str(file.parent) for each in programs for file in libraries(each))
    )


def find_busybox() -> Path:
    """A statically linked busybox; raises ContendedError if there is none."""
    wanted = [os.environ.get("CONTENDED_BUSYBOX", ""), *BUSYBOX, shutil.which("busybox") or ""]
    for place in map(Path, filter(None, wanted)):
        if place.is_file() and cc.is_static(place.read_bytes()):
            return place
    raise ContendedError("a shell in the guest needs busybox: apt-get install busybox-static")


def packed(entries: Iterable[Entry]) -> bytes:
    """The archive of these, compressed."""
    return gzip.compress(archive(entries), 9, mtime=0)


def archive(entries: Iterable[Entry]) -> bytes:
    """Names, modes and contents (of a link: its target) as a cpio archive.

    Writing the "newc" format, here without times and owners, is simpler than to have cpio(1) do it,
    whose archives hold the inode numbers of a temporary folder and so differ each time.
    """
    parts: list[bytes] = []
    for inode, (file, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        name = file.encode() + b"\0"
        links = 2 if mode == FOLDER else 1
        # inode, mode, uid, gid, links, mtime, size, device (2), special device (2), name, checksum
        fields = (inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name), 0)
        for part in (b"070701" + b"".join(b"%08X" % field for field in fields) + name, content):
            parts.append(part + b"\0" * (-len(part) % 4))
    return b"".join(parts)


def _packed(
    kind: str, more: Sequence[Entry] = (), pack: Callable[[Iterable[Entry]], bytes] = packed
) -> Path:
    place = tree.home() / "csrc" / "guest"
    sources = sorted([*place.glob("*.c"), *place.glob("*.h")])
    if not sources:
        raise ContendedError(f"no guest in {place}: set CONTENDED_HOME to a whole clone")
    try:
        program = cc.compiled(
            "kernel/guest", "init", sources, FLAGS, headers=place.parent.glob("*.h"), what=_WHAT
        )
    except cc.CompileError as error:
        if re.search(r"cannot find -l|error:.*stdio\.h", error.output):
            raise cc.CompileError(_WHAT, error.output, _STATIC) from None
        raise
    digest = hashlib.sha256()
    for entry in more:
        digest.update(repr(entry[:2]).encode() + entry[2])
    name = f"{kind}-{digest.hexdigest()[:32]}" if more else kind
    file = program.parent / (name + (".cpio.gz" if pack is packed else ".cpio"))
    if file.exists():
        return file
    try:
        with child.scratch(file.parent) as work:
            made = work / file.name
            made.write_bytes(pack([("init", PROGRAM, program.read_bytes()), *more]))
            made.replace(file)  # the rename publishes it: nobody ever boots half an archive
    except OSError as error:
        raise ContendedError(f"cannot write {file}: {error.strerror}") from error
    return file


def _disk() -> bytes:
    """An empty ext4 as Debian 12 makes it, the same bytes each time."""
    program = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        raise ContendedError("a file system on a disk needs mkfs.ext4: apt-get install e2fsprogs")
    fixed = {"E2FSPROGS_FAKE_TIME": "1", "MKE2FS_CONFIG": os.devnull}
    with child.scratch() as work:
        file = work / "disk.img"
        asked = (program, "-q", "-F", *_EXT4, file, f"{DISK_BYTES >> 10}k")
        made = store.ask(asked, env={**os.environ, "LC_ALL": "C", **fixed})
        if made.returncode:
            raise ContendedError(f"{program} fails: {made.stderr.strip()}")
        return file.read_bytes()


def _with_folders(entries: Iterable[Entry]) -> list[Entry]:
    """After the folders that they are in, but for those that are there already."""
    entries = list(entries)
    folders = {folder for name, *_ in entries for folder in Path(name).parents}
    made = [(str(each), FOLDER, b"") for each in sorted(folders - {Path(), Path("bin")})]
    return [*made, *entries]


def _with_commands(busybox: Path) -> list[Entry]:
    said = store.ask([busybox, "--list"], env=None).stdout
    commands = {name for name in said.split() if re.fullmatch(r"[\w.\[-]+", name)} - {"busybox"}
    return [
        ("ct", LINK, b"init"),
        *((name, FOLDER, b"") for name in ("bin", "proc", "root", "sys", "tmp")),
        ("bin/busybox", PROGRAM, busybox.read_bytes()),
        *((f"bin/{name}", LINK, b"busybox") for name in sorted(commands)),
    ]
