# SPDX-License-Identifier: MIT
"""What a byte of a kernel's memory is: the member of which struct, which variable, what page.

The profiler knows physical addresses. While the guest waits, this module reads its memory as the
kernel itself would: an address in the kernel's image is a variable, one in a CPU's area a per-cpu
variable; any other has a `struct page`, which says whether the page is a slab, and then of which
cache, so that address, object size and debug information give the member: "struct dentry + 88:
d_lockref". All offsets and constants come from the debug information of the very kernel, except
those that are macros in its headers and named below.

A guest that is to be read is booted with `slab_nomerge`, or caches of one size share a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from contended.errors import UsageError
from contended.profile.dwarf import Image
from contended.profile.layouts import Type
from contended.profile.memory import CACHES, NEAR, Memory, Structs, Unreadable
from contended.profile.thing import Thing

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
_TYPED, _BUDDY, _TABLE = 0xF0000000, 0x80, 0x200

# What the super block of a file system points at with s_fs_info.
_PRIVATE = {"tmpfs": "shmem_sb_info", "rootfs": "shmem_sb_info", "overlay": "ovl_fs"}


class Resolver:
    """Tells what physical addresses of a waiting guest are.

    Args:
        image: The kernel that it runs.
        memory: Its memory.
        vcpus: How many CPUs it has.
    """

    def __init__(self, image: Image, memory: Memory, vcpus: int) -> None:
        self._image = image
        self._guest = Structs(image, memory)
        self._vcpus = vcpus
        self._pages: dict[int, _Page] = {}
        self._caches: dict[int, _Cache] = {}
        self._labels: dict[int, tuple[str, str]] = {}

    def at(self, physical: int, virtual: int = 0) -> Thing:
        """What the byte at a physical address is; kind "unknown" if it cannot be told.

        Args:
            physical: The address.
            virtual: One at which it was seen, which tells what pages of the kernel are for.
        """
        try:
            return (
                self._variable(physical)
                or self._per_cpu(physical)
                or self._by_place(virtual)
                or self._in_page(physical)
            )
        except (Unreadable, UsageError):
            return Thing("unknown")

    # The kernel's image

    def _variable(self, physical: int) -> Thing | None:
        address = physical - self._guest.base("phys_base", 0) + _KERNEL_MAP
        image = self._image
        if not image.symbol("_text").address <= address < image.symbol("_end").address:
            return None
        # what the kernel needed only to start was given away since
        if image.has("__init_end") and (
            image.symbol("__init_begin").address <= address < image.symbol("__init_end").address
        ):
            return None
        # between the sections are pages that the kernel has given away as well
        return self._symbol(address, "variable", "")

    def _symbol(self, address: int, kind: str, label: str) -> Thing | None:
        symbol = self._image.symbol_at(address)
        if symbol is None:
            return None
        offset = address - symbol.address
        layout = self._image.variable(symbol.name)
        field = layout.at(offset) if layout and offset < layout.size else ""
        struct = layout.name if layout else ""
        return Thing(kind, symbol.name, struct, offset, field, symbol.address, label)

    def _per_cpu(self, physical: int) -> Thing | None:
        image = self._image
        if not image.has("__per_cpu_end"):
            return None  # a kernel for one CPU
        direct = physical + self._guest.direct
        for cpu, base in enumerate(self._areas):
            offset = direct - base
            if 0 <= offset < self._area_size:
                where = f"of CPU {cpu}"
                if offset < image.symbol("__per_cpu_end").address:
                    found = self._symbol(offset, "per-cpu", where)
                    if found:
                        return found
                return Thing("per-cpu", "per-cpu memory", offset=offset, object=base, label=where)
        return None

    @cached_property
    def _areas(self) -> list[int]:
        table = self._image.symbol("__per_cpu_offset").address
        areas = [self._guest.word(table + 8 * cpu) for cpu in range(self._vcpus)]
        # of a CPU that never came up the entry still points at the initial data
        return [area for area in areas if area < _KERNEL_MAP]

    @cached_property
    def _area_size(self) -> int:
        if self._image.has("pcpu_unit_size"):
            return self._guest.number(self._image.symbol("pcpu_unit_size").address, 4)
        return self._image.symbol("__per_cpu_end").address

    # Places in the kernel's address space: Documentation/x86/x86_64/mm.rst

    def _by_place(self, virtual: int) -> Thing | None:
        described = self._described(virtual)
        if described is not None:
            layout = self._guest.type("page")
            number, offset = described
            kind = self._look(number).kind
            start = virtual - offset
            return Thing(
                "struct page", "page", "page", offset, layout.at(offset), start, f"of a {kind}"
            )
        vmemmap = self._guest.base("vmemmap_base", _VMEMMAP)
        vmalloc = self._guest.base("vmalloc_base", _VMALLOC)
        if vmalloc <= virtual < vmemmap:
            return Thing("vmalloc", offset=virtual % _PAGE, object=virtual & ~(_PAGE - 1))
        if _ENTRY <= virtual < _ENTRY_END:
            return Thing("entry area", offset=virtual % _PAGE, object=virtual & ~(_PAGE - 1))
        return None

    # Pages

    def _in_page(self, physical: int) -> Thing:
        page = self._page(physical)
        if page.cache:
            return self._slab(physical, page)
        owner = self._owner(physical + self._guest.direct)
        return owner or Thing(page.kind, offset=physical % _PAGE, object=physical & ~(_PAGE - 1))

    def _page(self, physical: int) -> _Page:
        number = physical // _PAGE
        if number not in self._pages:
            self._pages[number] = self._look(number)
        return self._pages[number]

    def _look(self, number: int) -> _Page:
        layout = self._guest.type("page")
        head = own = self._map(number // _SECTION_PAGES) + number * layout.size
        link = self._guest.member(own, layout, "compound_head")
        if link & 1:
            head = link - 1
        first = number - (own - head) // layout.size
        if self._guest.member(head, layout, "flags") >> self._image.enumerator("PG_slab") & 1:
            cache = self._guest.member(head, self._guest.type("slab"), "slab_cache")
            return _Page("slab", first * _PAGE, cache)
        kind = self._guest.member(head, layout, "page_type")
        mapping = self._guest.member(head, layout, "mapping")
        if kind & (_TYPED | _TABLE) == _TYPED:
            return _Page("page table", first * _PAGE)
        if kind & (_TYPED | _BUDDY) == _TYPED:
            return _Page("free", first * _PAGE)
        if mapping & 1:
            return _Page("user", first * _PAGE)
        return _Page("page cache" if mapping else "kernel page", first * _PAGE)

    def _map(self, section: int) -> int:
        """Where page 0 would be described if a section's array of struct page went back to it.

        That is the start of vmemmap where the kernel has it: one array for all sections. In
        smaller kernels each section has its own, and the section's entry says where.
        """
        table = self._image.symbol("mem_section") if self._image.has("mem_section") else None
        if table is None or table.size != 8:
            return self._guest.base("vmemmap_base", _VMEMMAP)
        layout = self._guest.type("mem_section")
        root, index = divmod(section, _PAGE // layout.size)
        entries = self._guest.word(self._guest.word(table.address) + 8 * root)
        entry = self._guest.member(entries + index * layout.size, layout, "section_mem_map")
        if not entry & _HAS_MAP:
            raise Unreadable(f"there is no memory in section {section}")
        return entry & ~_SECTION_FLAGS

    @cached_property
    def _maps(self) -> list[tuple[int, int]]:
        """The first page of each section, and its `_map`."""
        found = []
        for section in range(_SECTIONS):
            try:
                found.append((section * _SECTION_PAGES, self._map(section)))
            except Unreadable:
                continue
        return found

    def _described(self, virtual: int) -> tuple[int, int] | None:
        """The number of the page whose struct page is at an address, and the offset in that."""
        size = self._guest.type("page").size
        for first, base in self._maps:
            number, offset = divmod(virtual - base, size)
            if first <= number < first + _SECTION_PAGES:
                return number, offset
        vmemmap = self._guest.base("vmemmap_base", _VMEMMAP)
        if vmemmap <= virtual < vmemmap + _VMEMMAP_SIZE:
            return divmod(virtual - vmemmap, size)
        return None

    def _slab(self, physical: int, page: _Page) -> Thing:
        cache = self._cache(page.cache)
        inside = physical - page.start
        offset = inside % cache.size - cache.red_zone
        address = physical - offset + self._guest.direct
        struct = cache.type.name if cache.type else ""
        if not 0 <= offset < cache.object_size:
            return Thing("slab", cache.name, "", offset, "", address, "between objects")
        if cache.type is None:
            owner = self._owner(physical + self._guest.direct)
            return owner or Thing("slab", cache.name, "", offset, "", address)
        field = cache.type.at(offset)
        label, role = self._label(struct, address)
        return Thing("slab", cache.name, struct, offset, field, address, label, role)

    def _cache(self, address: int) -> _Cache:
        if address not in self._caches:
            layout = self._guest.type("kmem_cache")
            name = self._guest.text(self._guest.member(address, layout, "name"))
            try:
                red_zone = self._guest.member(address, layout, "red_left_pad")
            except UsageError:  # only with CONFIG_SLUB_DEBUG
                red_zone = 0
            struct, near = CACHES.get(name, (name, NEAR))
            try:
                known = None if name.startswith("kmalloc") else self._image.type(struct, near)
            except UsageError:
                known = None
            self._caches[address] = _Cache(
                name=name,
                size=self._guest.member(address, layout, "size"),
                object_size=self._guest.member(address, layout, "object_size"),
                red_zone=red_zone,
                type=known,
            )
        return self._caches[address]

    # Things without a slab cache of their own, found from those that point at them

    def _owner(self, address: int) -> Thing | None:
        for start, struct, label, role in self._owned:
            layout = self._image.type(struct, "d_alloc")
            if start <= address < start + layout.size:
                offset = address - start
                return Thing(
                    "slab", "kmalloc", struct, offset, layout.at(offset), start, label, role
                )
        return None

    @cached_property
    def _owned(self) -> list[tuple[int, str, str, str]]:
        """Super blocks and what file systems hang on them: address, struct, label, role."""
        found = []
        for block in self._guest.super_blocks():
            try:
                kind = self._guest.kind_of(block)
                private = self._guest.member(block, self._guest.type("super_block"), "s_fs_info")
            except Unreadable:
                continue
            found.append((block, "super_block", kind, ""))
            struct = _PRIVATE.get(kind, "")
            if private and struct and self._guest.has_type(struct):
                found.append((private, struct, kind, ""))
        return found

    @cached_property
    def _roots(self) -> dict[int, str]:
        """Objects with a role, by address: of processes' root directories, of overlayfs."""
        roles: dict[int, str] = {}
        try:
            for task in self._guest.tasks():
                roles |= dict.fromkeys(self._guest.root_of(task), "root")
        except (Unreadable, UsageError):
            pass
        try:
            for start, struct, _, _ in self._owned:
                if struct == "ovl_fs":
                    kept = self._guest.member(start, self._guest.type("ovl_fs"), "creator_cred")
                    roles[kept] = "overlay"
        except (Unreadable, UsageError):
            pass
        return roles

    def _label(self, struct: str, address: int) -> tuple[str, str]:
        if address not in self._labels:
            try:
                self._labels[address] = self._describe(struct, address)
            except (Unreadable, UsageError):
                self._labels[address] = "", ""
        return self._labels[address]

    def _describe(self, struct: str, address: int) -> tuple[str, str]:
        role = self._roots.get(address, "")
        if struct == "dentry":
            layout = self._guest.type("dentry")
            kind = self._guest.kind_of(self._guest.member(address, layout, "d_sb"))
            return f'"{self._guest.dentry_name(address)}" of {kind}', role
        if struct == "mount":
            where = self._guest.member(address, self._guest.mount, "mnt_mountpoint")
            return f'mounted on "{self._guest.dentry_name(where)}"', role
        if struct == "cred":
            return "kept by overlayfs" if role == "overlay" else "", role
        if struct == "file":
            path = self._guest.member(address, self._guest.type("file"), "f_path.dentry")
            return f'"{self._guest.dentry_name(path)}"', ""
        if struct == "task_struct":
            name = self._guest.type("task_struct").field("comm").offset
            return self._guest.text(address + name), ""
        layout = self._image.type(struct)
        inode = next((f.offset for f in layout.fields() if f.name == "vfs_inode"), None)
        if struct == "inode":
            inode = 0
        if inode is None:
            return "", ""
        own = self._guest.type("inode")
        number = self._guest.member(address + inode, own, "i_ino")
        kind = self._guest.kind_of(self._guest.member(address + inode, own, "i_sb"))
        return f"inode {number} of {kind}", self._roots.get(address + inode, "")


@dataclass(frozen=True, slots=True)
class _Page:
    kind: str
    start: int  # physical address of its first page
    cache: int = 0  # of a slab: the address of its struct kmem_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cache:
    name: str
    size: int  # bytes from object to object
    object_size: int
    red_zone: int  # bytes before each object
    type: Type | None
