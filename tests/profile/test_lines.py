# SPDX-License-Identifier: MIT
"""What a byte of a kernel is, asked of a made-up kernel and a made-up memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ctools import C, execute

from contended import cc
from contended.errors import ContendedError
from contended.profile import lines
from contended.profile.coherence import Thing
from contended.profile.dwarf import Image
from contended.profile.lines import Resolver
from contended.profile.memory import Monitor, Unmapped

KERNEL_MAP = 0xFFFFFFFF80000000
DIRECT = 0xFF11000000000000
VMEMMAP = 0xFFD4000000000000
VMALLOC = 0xFFA0000000000000
PHYS_BASE = 0x200000
PAGE = 4096
SECTION = 1 << 27
# Where sections have arrays of struct page of their own: far from what tests lay out.
ARRAYS = DIRECT + 0x40000000


class Memory:
    """Bytes by address, and an error for whatever nobody has put there."""

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}

    def put(self, address: int, data: bytes) -> None:
        self.bytes |= {address + i: byte for i, byte in enumerate(data)}

    def read(self, address: int, size: int) -> bytes:
        try:
            return bytes(self.bytes[address + i] for i in range(size))
        except KeyError:
            raise Unmapped(f"nothing at {address:#x}") from None


class Guest:
    """Lays out objects in a memory by the debug information's own offsets."""

    def __init__(self, image: Image, vmemmap: bool = True) -> None:
        self.image = image
        self.vmemmap = vmemmap
        self.memory = Memory()
        self.next = 0x3000000
        for name, value in (
            ("page_offset_base", DIRECT),
            ("vmemmap_base", VMEMMAP),
            ("vmalloc_base", VMALLOC),
            ("phys_base", PHYS_BASE),
        ):
            self.word(image.symbol(name).address, value)
        self.memory.put(image.symbol("pcpu_unit_size").address, (0x4000).to_bytes(4, "little"))
        for cpu in range(4):
            # CPU 3 never came up
            area = DIRECT + 0x2000000 + cpu * 0x4000 if cpu < 3 else KERNEL_MAP + 0x1000000
            self.word(image.symbol("__per_cpu_offset").address + 8 * cpu, area)
        head = image.symbol("super_blocks").address
        self.word(head, head)
        self.sections(0, 1)

    def sections(self, *present: int) -> None:
        """The table of sections: pages of 256 entries; only the first page is there."""
        roots, entries = DIRECT + self.next, DIRECT + self.next + 4096
        self.next += 3 * 4096
        self.word(self.image.symbol("mem_section").address, roots)
        self.word(roots, entries)
        self.memory.put(entries, bytes(4096))
        for section in present:
            self.word(entries + 16 * section, self.map(section) | 0xB)

    def map(self, section: int) -> int:
        return VMEMMAP if self.vmemmap else ARRAYS + section * 0x10000000

    def described(self, physical: int) -> int:
        """Where the struct page is."""
        size = self.image.type("page").size
        return self.map(physical // SECTION) + physical // PAGE * size

    def word(self, address: int, value: int) -> None:
        self.memory.put(address, value.to_bytes(8, "little"))

    def struct(self, name: str, address: int, /, **members: int) -> int:
        layout = self.image.type(name)
        self.memory.put(address, bytes(layout.size))
        for path, value in members.items():
            field = layout.field(path.replace("__", "."))
            self.memory.put(address + field.offset, value.to_bytes(field.size, "little"))
        return address

    def text(self, text: str) -> int:
        at = DIRECT + self.next
        self.memory.put(at, text.encode().ljust(lines._TEXT + 1, b"\0"))
        self.next += 256
        return at

    def page(self, physical: int, /, **members: int) -> None:
        at = self.described(physical)
        self.struct("page", at)
        layout = self.image.type("page")
        for name, value in members.items():
            field = layout.field(name)
            self.memory.put(at + field.offset, value.to_bytes(field.size, "little"))

    def slab(self, cache: str, physical: int, size: int, *, pages: int = 1, red: int = 0) -> None:
        name = self.text(cache)
        at = self.struct(
            "kmem_cache",
            DIRECT + self.next,
            name=name,
            size=size + red,
            object_size=size,
            red_left_pad=red,
        )
        self.next += 4096
        flag = 1 << self.image.enumerator("PG_slab")
        self.page(physical, flags=flag)
        head = self.described(physical)
        layout = self.image.type("slab")
        self.word(head + layout.field("slab_cache").offset, at)
        # slab_cache lies where page has mapping; the link of the head page is no link
        for i in range(1, pages):
            self.page(physical + i * PAGE, compound_head=head + 1)

    def super_block(self, kind: str, private: int = 0) -> int:
        at = DIRECT + 0x5000000 + self.next
        self.next += 4096
        of = self.struct("file_system_type", at + 2048, name=self.text(kind))
        head = self.image.symbol("super_blocks").address
        first = int.from_bytes(self.memory.read(head, 8), "little")
        self.struct("super_block", at, s_list__next=first, s_type=of, s_fs_info=private)
        self.word(head, at)
        return at


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("small") / "vmlinux"
    symbols = {
        "_text": KERNEL_MAP + 0x1000000,
        "__per_cpu_end": 0x2000,
    }
    done = execute(
        *(cc.compiler().command, "-ffreestanding", "-fno-pie", "-no-pie", "-nostdlib"),
        *("-static", "-mcmodel=kernel", "-g", "-Wl,--build-id", "-Wl,-e,0"),
        *(f"-Wl,-Ttext-segment={KERNEL_MAP + 0x1000000:#x}",),
        *("-Wl,--section-start=percpu_area=0x1000",),
        *(f"-Wl,--defsym={name}={value:#x}" for name, value in symbols.items()),
        *("-o", out, C / "small_kernel.c"),
    )
    if "code model" in done.stderr or "mcmodel" in done.stderr:
        pytest.skip("this compiler does not compile for x86-64")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(params=[True, False], ids=["vmemmap", "sections"])
def guest(small: Path, request: pytest.FixtureRequest) -> Iterator[Guest]:
    with Image(small) as image:
        yield Guest(image, vmemmap=request.param)


def resolver(guest: Guest) -> Resolver:
    return Resolver(guest.image, guest.memory, 4)


def physical_of(guest: Guest, symbol: str) -> int:
    return guest.image.symbol(symbol).address - KERNEL_MAP + PHYS_BASE


def test_a_variable_of_the_kernel(guest: Guest) -> None:
    at = physical_of(guest, "init_cred")
    thing = resolver(guest).at(at + 4)
    assert (thing.kind, thing.name, thing.field, thing.offset) == (
        "variable", "init_cred", "uid", 4,
    )  # fmt: skip
    assert str(thing) == "init_cred + 4: uid"
    assert thing.struct == "cred"


def test_a_per_cpu_variable(guest: Guest) -> None:
    place = guest.image.symbol("runqueues").address
    thing = resolver(guest).at(0x2000000 + 2 * 0x4000 + place + 4)
    assert (thing.kind, thing.name, thing.field) == ("per-cpu", "runqueues", "running")
    assert str(thing) == "runqueues + 4: running (of CPU 2)"
    other = resolver(guest).at(0x2000000 + 0x4000 + 0x3000)
    assert (other.kind, other.label) == ("per-cpu", "of CPU 1")
    # CPU 3 has none: its entry points at the initial data
    assert resolver(guest).at(0x2000000 + 3 * 0x4000 + place).kind != "per-cpu"


@pytest.mark.parametrize("red", [0, 64])
def test_an_object_of_a_slab(guest: Guest, red: int) -> None:
    layout = guest.image.type("dentry")
    guest.slab("dentry", 0x400000, layout.size, pages=4, red=red)
    inside = layout.field("d_lockref.count").offset
    block = guest.super_block("tmpfs")
    for number in (0, 3, 100):
        start = 0x400000 + number * (layout.size + red) + red
        guest.struct("dentry", DIRECT + start, d_sb=block, d_name__name=guest.text(f"file{number}"))
        thing = resolver(guest).at(start + inside)
        assert str(thing) == f'struct dentry + {inside}: d_lockref.count ("file{number}" of tmpfs)'
        assert (thing.kind, thing.name, thing.object) == ("slab", "dentry", DIRECT + start)
        assert thing.role == ""
        if red:
            assert resolver(guest).at(start - 8).label == "between objects"


def test_an_inode_in_the_struct_that_contains_it(guest: Guest) -> None:
    layout = guest.image.type("shmem_inode_info")
    inner = layout.field("vfs_inode").offset
    guest.slab("shmem_inode_cache", 0x500000, layout.size)
    at = DIRECT + 0x500000 + layout.size
    guest.struct(
        "shmem_inode_info", at, vfs_inode__i_ino=77, vfs_inode__i_sb=guest.super_block("tmpfs")
    )
    thing = resolver(guest).at(0x500000 + layout.size + inner)
    assert str(thing) == f"struct shmem_inode_info + {inner}: vfs_inode.i_ino (inode 77 of tmpfs)"


def test_the_processes_root_and_what_overlayfs_keeps_have_a_role(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = guest.image
    dentry, mount, cred = (image.type(name) for name in ("dentry", "mount", "cred"))
    guest.slab("dentry", 0x400000, dentry.size)
    guest.slab("mnt_cache", 0x401000, mount.size)
    guest.slab("cred_jar", 0x402000, cred.size)
    block = guest.super_block("rootfs")
    root = guest.struct(
        "dentry", DIRECT + 0x400000, d_sb=block, d_name__name=guest.text("/"), d_inode=4096
    )
    where = guest.struct("mount", DIRECT + 0x401000, mnt_mountpoint=root)
    fs = guest.struct(
        "fs_struct",
        DIRECT + 0x600000,
        root__dentry=root,
        root__mnt=where + mount.field("mnt").offset,
    )
    task = guest.struct("task_struct", DIRECT + 0x601000, fs=fs)
    link = image.type("task_struct").field("tasks").offset
    guest.word(image.symbol("init_task").address + link, task + link)
    kept = guest.struct("cred", DIRECT + 0x402000 + 2 * cred.size)
    overlay = guest.struct("ovl_fs", DIRECT + 0x700000, creator_cred=kept)
    guest.super_block("overlay", overlay)
    look = resolver(guest)
    assert look.at(0x400000).role == "root"
    assert look.at(0x400000).label == '"/" of rootfs'
    assert look.at(0x401000).role == "root"
    thing = look.at(0x402000 + 2 * cred.size)
    assert (thing.role, str(thing)) == ("overlay", "struct cred + 0: usage (kept by overlayfs)")
    other = look.at(0x402000 + cred.size)
    assert (other.role, str(other)) == ("", "struct cred + 0: usage")
    look.check()
    # the same memory, read as if page types were what they are later: nothing is a slab's
    with pytest.raises(ContendedError, match=r"memory of Linux 6\.12\.117 is not understood"):
        Resolver(guest.image, guest.memory, 4, "6.12.117").check()
    guest.slab("kmalloc-192", 0x402000, cred.size)
    with pytest.raises(ContendedError, match="not what overlayfs keeps was found in it"):
        resolver(guest).check()
    with monkeypatch.context() as patch:
        patch.setitem(lines._PRIVATE, "overlay", "no_such_struct")
        with pytest.raises(ContendedError, match="not what hangs on an overlay's super block"):
            resolver(guest).check()


def test_a_guest_without_a_root_is_not_understood(guest: Guest) -> None:
    with pytest.raises(ContendedError, match=r"Linux 6\.1 is not understood: no root directory"):
        resolver(guest).check()


def test_from_6_12_the_top_byte_is_the_pages_type(guest: Guest) -> None:
    def type_of(physical: int, value: int) -> None:
        field = guest.image.type("page").field("page_type")
        at = guest.described(physical) + field.offset
        guest.memory.put(at, value.to_bytes(field.size, "little"))

    guest.slab("cred_jar", 0x402000, guest.image.type("cred").size)
    type_of(0x402000, 0xF5000000)
    guest.page(0x800000)
    look = partial(Resolver, guest.image, guest.memory, 4)
    for value, kind, old in (
        (0xF0FFFFFF, "free", "kernel page"),
        (0xF2FFFFFF, "page table", "kernel page"),
        (0xFFFFFFFF, "kernel page", "kernel page"),
    ):
        type_of(0x800000, value)
        assert look("6.12.117").at(0x800040).kind == kind
        assert look("6.9").at(0x800040).kind == old
    assert look("6.12.117").at(0x402000).struct == "cred"
    type_of(0x402000, 0xF4000000)
    assert look("6.12.117").at(0x402000).struct == ""
    assert look("6.1").at(0x402000).struct == "cred"


def test_a_super_block_has_no_cache_of_its_own(guest: Guest) -> None:
    block = guest.super_block("tmpfs")
    guest.slab("kmalloc-2k", (block - DIRECT) & ~(PAGE - 1), 2048)
    offset = guest.image.type("super_block").field("s_count").offset
    thing = resolver(guest).at(block - DIRECT + offset)
    assert str(thing) == f"struct super_block + {offset}: s_count (tmpfs)"
    unknown = resolver(guest).at(block - DIRECT + 2048 + 64)
    assert str(unknown) == "kmalloc-2k + 64"


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({"page_type": 0xFFFFFDFF}, "page table"),
        ({"page_type": 0xFFFFFF7F}, "free"),
        ({"page_type": 0xFFFFFFFF, "mapping": 0xFF11000000000001}, "user"),
        ({"page_type": 0xFFFFFFFF, "mapping": 0xFF11000000000000}, "page cache"),
        ({"page_type": 0xFFFFFFFF}, "kernel page"),
    ],
)
def test_other_pages(guest: Guest, members: dict[str, int], kind: str) -> None:
    guest.page(0x800000, **members)
    thing = resolver(guest).at(0x800040)
    assert (thing.kind, thing.offset, thing.object) == (kind, 0x40, 0x800000)


def test_the_virtual_address_tells_what_a_kernel_page_is_for(guest: Guest) -> None:
    guest.page(0x800000, page_type=0xFFFFFFFF)
    guest.page(0x123000, page_type=0xFFFFFF7F)
    look = resolver(guest)
    assert look.at(0x800010, VMALLOC + 0x5010).kind == "vmalloc"
    assert look.at(0x800010, 0xFFFFFE0000001000).kind == "entry area"
    thing = look.at(0x800010, guest.described(0x123000) + 16)
    assert str(thing) == "struct page + 16: mapping (of a free)"
    assert look.at(0x800010, 0x7FFF00000010).kind == "kernel page"


def test_a_page_of_another_section(guest: Guest) -> None:
    size = guest.image.type("cred").size
    guest.slab("cred_jar", SECTION + 0x3000, size, pages=2)
    thing = resolver(guest).at(SECTION + 0x4000 // size * size)
    assert str(thing) == "struct cred + 0: usage"
    guest.page(SECTION + 0x9000, page_type=0xFFFFFFFF)
    described = resolver(guest).at(0x5000, guest.described(SECTION + 0x9000))
    assert (described.kind, described.label) == ("struct page", "of a kernel page")


def test_where_there_is_no_memory_nothing_is_known(guest: Guest) -> None:
    for section in (2, 300):
        assert resolver(guest).at(section * SECTION + 0x3000) == Thing("unknown")


def test_what_cannot_be_read_is_unknown(guest: Guest) -> None:
    assert resolver(guest).at(0x900000) == Thing("unknown")
    assert str(Thing("unknown")) == "unknown"


def test_the_monitor_reads_words_and_asks_once() -> None:
    asked = []

    def qmp(command: str, **arguments: Any) -> str:
        assert command == "human-monitor-command"
        asked.append(arguments["command-line"])
        start = int(arguments["command-line"].split()[-1], 16)
        rows = []
        for at in range(start, start + 256, 16):
            rows.append(f"{at:016x}: 0x{at:016x} 0x{at + 8:016x}\r\n")
        return "".join(rows)

    memory = Monitor(qmp)
    base = 0xFFFF888000001000
    assert memory.read(base + 8, 8) == (base + 8).to_bytes(8, "little")
    assert memory.read(base + 4, 8) == (
        base.to_bytes(8, "little")[4:] + (base + 8).to_bytes(8, "little")[:4]
    )
    assert memory.read(base + 250, 12)[6:] == (base + 256).to_bytes(8, "little")[:6]
    assert asked == [f"x /32gx {base:#x}", f"x /32gx {base + 256:#x}"]


@pytest.mark.parametrize(
    "answer", ["Cannot access memory\r\n", "", "ffff888000001000: 0x0000000000000001\r\n"]
)
def test_the_monitor_does_not_guess(answer: str) -> None:
    with pytest.raises(Unmapped, match="cannot read the guest's memory at 0xffff888000001000"):
        Monitor(lambda command, **arguments: answer).read(0xFFFF888000001000, 8)
