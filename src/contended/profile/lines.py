# SPDX-License-Identifier: MIT
"""What a byte of a kernel's memory is: the member of which struct, which variable, what page.

While the guest waits, its memory is read as its kernel would: an address in the kernel's image is a
variable, one in a CPU's area a per-cpu variable; any other has a `struct page`, which says whether
it is of a slab, and of which cache, and the debug information gives the member. Only macros of the
kernel's headers are named below. Without `slab_nomerge` caches of one size would share a name.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, cached_property, partial
from typing import NamedTuple

from contended.errors import UsageError
from contended.profile.coherence import Thing
from contended.profile.dwarf import Image
from contended.profile.entries import Type
from contended.profile.memory import CACHES, NEAR, GuestMemory, Structs, Unmapped

_KERNEL_MAP = 0xFFFFFFFF80000000  # __START_KERNEL_map
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
_TYPED = 0xF0000000
_TYPES = {"page table": 0x200, "free": 0x80}

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

    def __init__(self, image: Image, memory: GuestMemory, vcpus: int) -> None:
        self._image = image
        self._guest = Structs(image, memory)
        self._vcpus = vcpus
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

    # The kernel's image

    def _variable(self, physical: int) -> Thing | None:
        address = physical - self._guest.base("phys_base", 0) + _KERNEL_MAP
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
        size = end = image.symbol("__per_cpu_end").address
        if image.has("pcpu_unit_size"):
            size = self._guest.number(image.symbol("pcpu_unit_size").address, 4)
        for cpu, base in enumerate(self._areas):
            offset = physical + self._guest.direct - base
            if 0 <= offset < size:
                label = f"of CPU {cpu}"
                found = image.thing_at(offset, "per-cpu", label) if offset < end else None
                return found or Thing("per-cpu", "per-cpu memory", "", offset, "", base, label)
        return None

    @cached_property
    def _areas(self) -> list[int]:
        table = self._image.symbol("__per_cpu_offset").address
        areas = [self._guest.number(table + 8 * cpu) for cpu in range(self._vcpus)]
        # of a CPU that never came up the entry still points at the initial data
        return [area for area in areas if area < _KERNEL_MAP]

    # Places in the kernel's address space: Documentation/x86/x86_64/mm.rst

    def _by_place(self, virtual: int) -> Thing | None:
        vmemmap = self._guest.base("vmemmap_base", _VMEMMAP)
        vmalloc = self._guest.base("vmalloc_base", _VMALLOC)
        layout = self._guest.type("page")
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
        return self._owner(physical + self._guest.direct) or _by_page(kind, physical)

    def _read_page(self, number: int) -> tuple[str, int, int]:
        """Its kind; of a slab the physical address of its first page, and the struct kmem_cache."""
        size = self._guest.type("page").size
        head = own = self._map(number // _SECTION_PAGES) + number * size
        link = self._guest.member("page", own, "compound_head")
        if link & 1:
            head = link - 1
        if self._guest.member("page", head, "flags") >> self._image.enumerator("PG_slab") & 1:
            first = number - (own - head) // size
            return "slab", first * _PAGE, self._guest.member("slab", head, "slab_cache")
        typed = self._guest.member("page", head, "page_type")
        for kind, bit in _TYPES.items():
            if typed & (_TYPED | bit) == _TYPED:
                return kind, 0, 0
        mapping = self._guest.member("page", head, "mapping")
        return "user" if mapping & 1 else "page cache" if mapping else "kernel page", 0, 0

    def _map(self, section: int) -> int:
        """Where page 0 would be described if a section's array of struct page went back to it.

        That is the start of vmemmap where the kernel has it: one array for all sections. In
        smaller kernels each section has its own, and the section's entry says where.
        """
        table = self._image.symbol("mem_section") if self._image.has("mem_section") else None
        if table is None or table.size != 8:
            return self._guest.base("vmemmap_base", _VMEMMAP)
        size = self._guest.type("mem_section").size
        root, index = divmod(section, _PAGE // size)
        entries = self._guest.number(self._guest.number(table.address) + 8 * root)
        entry = self._guest.member("mem_section", entries + index * size, "section_mem_map")
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
        address = physical - offset + self._guest.direct
        struct = slab.type.name if slab.type else ""
        if not 0 <= offset < slab.object_size:
            return Thing("slab", slab.name, "", offset, "", address, "between objects")
        if slab.type is None:
            owner = self._owner(physical + self._guest.direct)
            return owner or Thing("slab", slab.name, "", offset, "", address)
        where = struct, offset, slab.type.at(offset), address
        with suppress(Unmapped, UsageError):
            return Thing("slab", slab.name, *where, *self._label(struct, address))
        return Thing("slab", slab.name, *where)

    def _read_cache(self, address: int) -> _Cache:
        read = partial(self._guest.member, "kmem_cache", address)
        name, red_zone, known = self._guest.text(read("name")), 0, None
        with suppress(UsageError):  # only with CONFIG_SLUB_DEBUG
            red_zone = read("red_left_pad")
        if not name.startswith("kmalloc"):
            with suppress(UsageError):
                known = self._image.type(*CACHES.get(name, (name, NEAR)))
        return _Cache(name, read("size"), read("object_size"), red_zone, known)

    # Things without a slab cache of their own, found from those that point at them

    def _owner(self, address: int) -> Thing | None:
        for start, struct, label in self._owned:
            layout = self._guest.type(struct)
            offset = address - start
            if 0 <= offset < layout.size:
                return Thing("slab", "kmalloc", struct, offset, layout.at(offset), start, label)
        return None

    @cached_property
    def _owned(self) -> list[tuple[int, str, str]]:
        """Super blocks and what file systems hang on them: address, struct, file system."""
        found = []
        for block in self._guest.super_blocks():
            with suppress(Unmapped):
                kind = self._guest.kind_of(block)
                private = self._guest.member("super_block", block, "s_fs_info")
                found.append((block, "super_block", kind))
                if private and kind in _PRIVATE:
                    with suppress(UsageError):  # the kernel has no such struct
                        self._guest.type(_PRIVATE[kind])
                        found.append((private, _PRIVATE[kind], kind))
        return found

    @cached_property
    def _roles(self) -> dict[int, str]:
        """Objects with a role, by address: of processes' root directories, of overlayfs."""
        roles: dict[int, str] = {}
        with suppress(Unmapped, UsageError):
            for task in self._guest.tasks():
                roles |= dict.fromkeys(self._guest.root_of(task), "root")
        with suppress(Unmapped, UsageError):
            for start, struct, _ in self._owned:
                if struct == "ovl_fs":
                    roles[self._guest.member(struct, start, "creator_cred")] = "overlay"
        return roles

    def _read_label(self, struct: str, address: int) -> tuple[str, str]:
        """Which of its kind an object is, and its role."""
        guest, role = self._guest, self._roles.get(address, "")
        if struct == "dentry":
            kind = guest.kind_of(guest.member("dentry", address, "d_sb"))
            return f'"{guest.dentry_name(address)}" of {kind}', role
        if struct == "mount":
            where = guest.dentry_name(guest.member("mount", address, "mnt_mountpoint"))
            return f'mounted on "{where}"', role
        if struct == "cred":
            return "kept by overlayfs" if role == "overlay" else "", role
        if struct == "file":
            return f'"{guest.dentry_name(guest.member("file", address, "f_path.dentry"))}"', ""
        if struct == "task_struct":
            return guest.text(address + guest.type(struct).field("comm").offset), ""
        if struct != "inode":
            address += self._image.type(struct).field("vfs_inode").offset
        number = guest.member("inode", address, "i_ino")
        kind = guest.kind_of(guest.member("inode", address, "i_sb"))
        return f"inode {number} of {kind}", self._roles.get(address, "")


def _by_page(kind: str, address: int) -> Thing:
    return Thing(kind, offset=address % _PAGE, object=address - address % _PAGE)
