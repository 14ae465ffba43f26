# SPDX-License-Identifier: MIT
"""What a byte of a kernel's memory is: the member of which struct, which variable, what page.

While the guest waits, its memory is read as its kernel would: an address in the kernel's image is a
variable, one in a CPU's area a per-cpu variable; any other has a `struct page`, which says whether
it is of a slab, and of which cache, and the debug information gives the member. Only macros of the
kernel's headers are named below. Without `slab_nomerge` caches of one size would share a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property, partial
from typing import NamedTuple

from contended.errors import ContendedError, UsageError
from contended.profile import moved
from contended.profile.coherence import Thing
from contended.profile.dwarf import Image
from contended.profile.entries import Type
from contended.profile.memory import GuestMemory, Unmapped

_KERNEL_MAP = 0xFFFFFFFF80000000  # __START_KERNEL_map
_PAGE_OFFSET = 0xFFFF888000000000  # where the variables of a 5-level kernel do not say otherwise
_VMEMMAP = 0xFFFFEA0000000000
_VMEMMAP_SIZE = 1 << 40
_VMALLOC = 0xFFFFC90000000000
_ENTRY, _ENTRY_END = 0xFFFFFE0000000000, 0xFFFFFE8000000000
_PAGE = 4096
# arch/x86/include/asm/sparsemem.h: a section is 128 MiB. Its word holds flags below the address.
_SECTION_PAGES = (1 << 27) // _PAGE
_SECTION_FLAGS, _HAS_MAP = 0x3F, 0x2
_SECTIONS = 64  # of these is looked which have an array of struct page: 8 GiB
# include/linux/page-flags.h: a page has a type if the top bits are set and the type's bit is not.
# From 6.12 on the top byte is the type, and a slab is one of them.
_TYPED = 0xF0000000
_TYPES = {"page table": (0x200, 0xF2), "free": (0x80, 0xF0)}
_BY_TOP_BYTE = (6, 12)

_LISTED = 4096  # a guard: lists are the guest's
_TEXT = 64  # bytes of a name that are read

#: Which struct the objects of a slab cache are, where the cache is not called like it, and a
#: function in a file that defines it.
CACHES: Mapping[str, tuple[str, str]] = {
    "bdev_cache": ("bdev_inode", "bdev_cache_init"),
    "cred_jar": ("cred", "prepare_creds"),
    "dentry": ("dentry", "d_alloc"),
    "ext4_inode_cache": ("ext4_inode_info", "ext4_iget"),
    "files_cache": ("files_struct", "dup_fd"),
    "filp": ("file", "d_alloc"),
    "fs_cache": ("fs_struct", "copy_fs_struct"),
    "inode_cache": ("inode", "d_alloc"),
    "kernfs_node_cache": ("kernfs_node", "kernfs_get"),
    "key_jar": ("key", "key_put"),
    "mnt_cache": ("mount", "mntput"),
    "ovl_inode": ("ovl_inode", "ovl_permission"),
    "pid": ("pid", "alloc_pid"),
    "proc_inode_cache": ("proc_inode", "proc_get_inode"),
    "radix_tree_node": ("xa_node", "xas_store"),
    "romfs_inode_cache": ("romfs_inode_info", "romfs_iget"),
    "shmem_inode_cache": ("shmem_inode_info", "shmem_get_inode"),
    "sighand_cache": ("sighand_struct", "copy_fs_struct"),
    "signal_cache": ("signal_struct", "copy_fs_struct"),
    "sock_inode_cache": ("socket_alloc", "sock_alloc"),
    "uid_cache": ("user_struct", "alloc_uid"),
}
NEAR = "kmem_cache_alloc"
# Functions in files that define structs which are found slowly otherwise.
_NEAR = {"dentry": "d_alloc", "super_block": "d_alloc", "fs_struct": "d_alloc", "mount": "mntput"}
_NEAR["ovl_fs"] = "ovl_permission"
# What the super block of a file system points at with s_fs_info.
_PRIVATE = {"tmpfs": "shmem_sb_info", "rootfs": "shmem_sb_info", "overlay": "ovl_fs"}


class _Cache(NamedTuple):
    name: str
    size: int  # bytes from object to object
    object_size: int
    red_zone: int  # bytes before each object
    type: Type | None


class Resolver:
    """Tells what physical addresses of a waiting guest with so many CPUs are."""

    def __init__(self, image: Image, memory: GuestMemory, vcpus: int, version: str = "6.1") -> None:
        self._image, self._memory, self._vcpus, self._version = image, memory, vcpus, version
        self._page = cache(self._read_page)
        self._cache = cache(self._read_cache)
        self._label = cache(self._read_label)

    def at(self, physical: int, virtual: int = 0) -> Thing:
        """What the byte at a physical address is; kind "unknown" if it cannot be told.

        A virtual address at which it was seen tells what pages of the kernel are for.
        """
        try:
            known = self._variable(physical) or self._per_cpu(physical)
            return known or self._by_place(virtual) or self._in_page(physical)
        except (Unmapped, UsageError):
            return Thing("unknown")

    def check(self) -> None:
        """Raise ContendedError unless the memory of this release is understood.

        What is there in any guest is looked for: a root directory. Without this, all that is
        contended in a kernel whose structs have changed would have no name, and count as nothing.
        """
        found = [self.at(at - self._direct) for at, role in self._roles.items() if role == "root"]
        if not any((thing.struct, thing.role) == ("dentry", "root") for thing in found):
            self._not_understood("no root directory")
        owners = {(struct, kind) for _, struct, kind in self._owned}
        if ("super_block", "overlay") in owners and ("ovl_fs", "overlay") not in owners:
            self._not_understood("not what hangs on an overlay's super block")
        for start, struct, _ in self._owned:
            if struct == "ovl_fs":
                kept = self.at(self._member(struct, start, "creator_cred") - self._direct)
                if (kept.struct, kept.role) != ("cred", "overlay"):
                    self._not_understood("not what overlayfs keeps")

    def _not_understood(self, lacks: str) -> None:
        what = f"the memory of Linux {self._version} is not understood"
        raise ContendedError(f"{what}: {lacks} was found in it")

    # The kernel's image

    def _variable(self, physical: int) -> Thing | None:
        address = physical - self._base("phys_base", 0) + _KERNEL_MAP
        # what the kernel needed only to start was given away since
        away = self._image.has("__init_end") and self._within("__init_begin", address, "__init_end")
        if away or not self._within("_text", address, "_end"):
            return None
        # between the sections are pages that the kernel has given away as well
        return self._image.thing_at(address)

    def _within(self, start: str, address: int, end: str) -> bool:
        return self._image.symbol(start).address <= address < self._image.symbol(end).address

    def _per_cpu(self, physical: int) -> Thing | None:
        image = self._image
        if not image.has("__per_cpu_end"):
            return None  # a kernel for one CPU
        # Up to 6.14 a variable's address is its place in the area.
        start = image.symbol("__per_cpu_start").address if image.has("__per_cpu_start") else 0
        size = end = image.symbol("__per_cpu_end").address - start
        if image.has("pcpu_unit_size"):
            size = self._number(image.symbol("pcpu_unit_size").address, 4)
        for cpu in range(self._vcpus):
            base = self._number(image.symbol("__per_cpu_offset").address + 8 * cpu)
            offset = (physical + self._direct - base - start) % (1 << 64)
            # of a CPU that never came up the entry still points at the initial data
            if base < _KERNEL_MAP and offset < size:
                label = f"of CPU {cpu}"
                found = image.thing_at(start + offset, "per-cpu", label) if offset < end else None
                return found or Thing("per-cpu", "per-cpu memory", "", offset, "", base, label)
        return None

    # Places in the kernel's address space: Documentation/x86/x86_64/mm.rst

    def _by_place(self, virtual: int) -> Thing | None:
        vmemmap = self._base("vmemmap_base", _VMEMMAP)
        vmalloc = self._base("vmalloc_base", _VMALLOC)
        layout = self._type("page")
        arrays = [(first, base, _SECTION_PAGES) for first, base in self._maps]
        for first, base, pages in [*arrays, (0, vmemmap, _VMEMMAP_SIZE // layout.size)]:
            number, offset = divmod(virtual - base, layout.size)
            if first <= number < first + pages:
                field, label = layout.at(offset), f"of a {self._page(number)[0]}"
                return Thing("struct page", "page", "page", offset, field, virtual - offset, label)
        if vmalloc <= virtual < vmemmap:
            return _by_page("vmalloc", virtual)
        return _by_page("entry area", virtual) if _ENTRY <= virtual < _ENTRY_END else None

    # Pages

    def _in_page(self, physical: int) -> Thing:
        kind, first, slab_cache = self._page(physical // _PAGE)
        if slab_cache:
            return self._slab(physical, physical - first, self._cache(slab_cache))
        return self._owner(physical + self._direct) or _by_page(kind, physical)

    def _read_page(self, number: int) -> tuple[str, int, int]:
        """Its kind; of a slab the physical address of its first page, and the struct kmem_cache."""
        size = self._type("page").size
        head = own = self._map(number // _SECTION_PAGES) + number * size
        link = self._member("page", own, "compound_head")
        if link & 1:
            head = link - 1
        typed = self._member("page", head, "page_type")
        if by_top_byte := moved.key(self._version) >= _BY_TOP_BYTE:
            is_slab = typed >> 24 == self._image.enumerator("PGTY_slab")
        else:
            flag = self._image.enumerator("PG_slab")
            is_slab = bool(self._member("page", head, "flags") >> flag & 1)
        if is_slab:
            first = number - (own - head) // size
            return "slab", first * _PAGE, self._member("slab", head, "slab_cache")
        for kind, (bit, top) in _TYPES.items():
            if typed >> 24 == top if by_top_byte else typed & (_TYPED | bit) == _TYPED:
                return kind, 0, 0
        mapping = self._member("page", head, "mapping")
        return "user" if mapping & 1 else "page cache" if mapping else "kernel page", 0, 0

    def _map(self, section: int) -> int:
        """Where page 0 would be described if a section's array of struct page went back to it.

        That is the start of vmemmap where the kernel has it: one array for all sections. In
        smaller kernels each section has its own, and the section's entry says where.
        """
        table = self._image.symbol("mem_section") if self._image.has("mem_section") else None
        if table is None or table.size != 8:
            return self._base("vmemmap_base", _VMEMMAP)
        size = self._type("mem_section").size
        root, index = divmod(section, _PAGE // size)
        entries = self._number(self._number(table.address) + 8 * root)
        entry = self._member("mem_section", entries + index * size, "section_mem_map")
        if not entry & _HAS_MAP:
            raise Unmapped(f"there is no memory in section {section}")
        return entry & ~_SECTION_FLAGS

    @cached_property
    def _maps(self) -> list[tuple[int, int]]:
        """The first page of each section, and its `_map`."""
        found = []
        for section in range(_SECTIONS):
            with suppress(Unmapped):
                found.append((section * _SECTION_PAGES, self._map(section)))
        return found

    def _slab(self, physical: int, inside: int, slab: _Cache) -> Thing:
        offset = inside % slab.size - slab.red_zone
        address = physical - offset + self._direct
        struct = slab.type.name if slab.type else ""
        if not 0 <= offset < slab.object_size:
            return Thing("slab", slab.name, "", offset, "", address, "between objects")
        if slab.type is None:
            owner = self._owner(physical + self._direct)
            return owner or Thing("slab", slab.name, "", offset, "", address)
        where = struct, offset, slab.type.at(offset), address
        with suppress(Unmapped, UsageError):
            return Thing("slab", slab.name, *where, *self._label(struct, address))
        return Thing("slab", slab.name, *where)

    def _read_cache(self, address: int) -> _Cache:
        read = partial(self._member, "kmem_cache", address)
        name, red_zone, known = self._text(read("name")), 0, None
        with suppress(UsageError):  # only with CONFIG_SLUB_DEBUG
            red_zone = read("red_left_pad")
        if not name.startswith("kmalloc"):
            with suppress(UsageError):
                known = self._image.type(*CACHES.get(name, (name, NEAR)))
        return _Cache(name, read("size"), read("object_size"), red_zone, known)

    # Things without a slab cache of their own, found from those that point at them

    def _owner(self, address: int) -> Thing | None:
        for start, struct, label in self._owned:
            layout = self._type(struct)
            offset = address - start
            if 0 <= offset < layout.size:
                return Thing("slab", "kmalloc", struct, offset, layout.at(offset), start, label)
        return None

    @cached_property
    def _owned(self) -> list[tuple[int, str, str]]:
        """Super blocks and what file systems hang on them: address, struct, file system."""
        found: list[tuple[int, str, str]] = []
        if not self._image.has("super_blocks"):
            return found
        link = self._type("super_block").field("s_list").offset
        head = self._image.symbol("super_blocks").address
        with suppress(Unmapped):
            for block in self._listed(head, link):
                with suppress(Unmapped, UsageError):
                    kind = self._kind_of(block)
                    private = self._member("super_block", block, "s_fs_info")
                    found.append((block, "super_block", kind))
                    if private and kind in _PRIVATE:
                        self._type(_PRIVATE[kind])  # unless the kernel has no such struct
                        found.append((private, _PRIVATE[kind], kind))
        return found

    @cached_property
    def _roles(self) -> dict[int, str]:
        """Objects with a role, by address: of processes' root directories, of overlayfs."""
        roles: dict[int, str] = {}
        with suppress(Unmapped, UsageError):
            link = self._type("task_struct").field("tasks").offset
            for task in self._listed(self._image.symbol("init_task").address + link, link):
                if fs := self._member("task_struct", task, "fs"):  # else it is ending
                    dentry = self._member("fs_struct", fs, "root.dentry")
                    mount = self._member("fs_struct", fs, "root.mnt")
                    mount -= self._type("mount").field("mnt").offset
                    inode = self._member("dentry", dentry, "d_inode")
                    roles |= dict.fromkeys((dentry, mount, inode), "root")
        with suppress(Unmapped, UsageError):
            for start, struct, _ in self._owned:
                if struct == "ovl_fs":
                    roles[self._member(struct, start, "creator_cred")] = "overlay"
        return roles

    def _read_label(self, struct: str, address: int) -> tuple[str, str]:
        """Which of its kind an object is, and its role."""
        role = self._roles.get(address, "")
        if struct == "dentry":
            kind = self._kind_of(self._member("dentry", address, "d_sb"))
            return f"{self._dentry(address)} of {kind}", role
        if struct == "mount":
            where = self._member("mount", address, "mnt_mountpoint")
            return f"mounted on {self._dentry(where)}", role
        if struct == "cred":
            return "kept by overlayfs" if role == "overlay" else "", role
        if struct == "file":
            return self._dentry(self._member("file", address, "f_path.dentry")), ""
        if struct == "task_struct":
            return self._text(address + self._type(struct).field("comm").offset), ""
        if struct != "inode":
            address += self._image.type(struct).field("vfs_inode").offset
        number = self._member("inode", address, "i_ino")
        kind = self._kind_of(self._member("inode", address, "i_sb"))
        return f"inode {number} of {kind}", self._roles.get(address, "")

    # The memory, as the kernel's own code would read it

    def _listed(self, head: int, link: int) -> Iterator[int]:
        """The structs of a list, which are chained up by what lies `link` bytes into each."""
        at = self._number(head)
        for _ in range(_LISTED):
            if at == head:
                return
            yield at - link
            at = self._number(at)

    def _dentry(self, address: int) -> str:
        return f'"{self._text(self._member("dentry", address, "d_name.name"))}"'

    def _kind_of(self, super_block: int) -> str:
        kind = self._member("super_block", super_block, "s_type")
        return self._text(self._member("file_system_type", kind, "name"))

    def _type(self, name: str) -> Type:
        return self._image.type(name, _NEAR.get(name, NEAR))

    @property
    def _direct(self) -> int:
        """Where all of the physical memory is mapped."""
        return self._base("page_offset_base", _PAGE_OFFSET)

    def _base(self, variable: str, otherwise: int) -> int:
        """What a variable of the kernel holds; `otherwise` if there is no such variable."""
        known = self._image.has(variable)
        return self._number(self._image.symbol(variable).address) if known else otherwise

    def _member(self, struct: str, address: int, path: str) -> int:
        """The value of a member, as in "root.dentry", of the struct at an address."""
        struct, _, path = moved.called(f"{struct}.{path}", self._version).partition(".")
        field = self._type(struct).field(path)
        return self._number(address + field.offset, field.size)

    def _number(self, address: int, size: int = 8) -> int:
        return int.from_bytes(self._memory.read(address, size), "little")

    def _text(self, address: int) -> str:
        """A text, what cannot be printed as "?"."""
        raw = self._memory.read(address, _TEXT).split(b"\0")[0]
        return "".join(chr(c) if 32 <= c < 127 else "?" for c in raw)


def _by_page(kind: str, address: int) -> Thing:
    return Thing(kind, offset=address % _PAGE, object=address - address % _PAGE)
