# SPDX-License-Identifier: MIT
"""A waiting guest's memory, read as its kernel would read it: structs, lists, names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol

from contended.errors import ContendedError
from contended.profile.dwarf import Image
from contended.profile.entries import Type

_PAGE_OFFSET = 0xFFFF888000000000  # where the variables of a 5-level kernel do not say otherwise
_LISTED = 4096  # a guard: lists are the guest's
_TEXT = 64  # bytes of a name that are read
_BLOCK = 256  # bytes that are asked for at a time; never across a page

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
_NEAR = {
    **dict.fromkeys(("dentry", "super_block", "fs_struct"), "d_alloc"),
    "mount": "mntput",
    "ovl_fs": "ovl_permission",
}


class Unmapped(ContendedError):
    """An address of the guest that is not mapped."""


class GuestMemory(Protocol):
    """A guest's memory by kernel virtual address."""

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes; raises Unmapped if nothing is mapped there."""


class Monitor:
    """A guest's memory through QEMU's monitor, asked with `qmp`, as `Machine.qmp` is.

    A question takes a millisecond and the guest waits, so what was read once is remembered: make
    a new one after the guest has run again.
    """

    def __init__(self, qmp: Callable[..., Any]) -> None:
        self._qmp = qmp
        self._blocks: dict[int, bytes] = {}

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes."""
        first = address - address % _BLOCK
        data = b"".join(map(self._block, range(first, address + size, _BLOCK)))
        return data[address - first :][:size]

    def _block(self, address: int) -> bytes:
        if address not in self._blocks:
            line = f"x /{_BLOCK // 8}gx {address:#x}"
            answer = self._qmp("human-monitor-command", **{"command-line": line})
            text = answer.get("return", "") if isinstance(answer, dict) else answer
            # "ffff888000000000: 0x0000000000000001 0x0000000000000002", two words in a line
            words = re.findall(r" 0x([0-9a-f]{16})\b", str(text))
            if len(words) != _BLOCK // 8:
                raise Unmapped(f"cannot read the guest's memory at {address:#x}")
            self._blocks[address] = b"".join(int(w, 16).to_bytes(8, "little") for w in words)
        return self._blocks[address]


class Structs:
    """The structs in the memory of a guest that runs the kernel `image`."""

    def __init__(self, image: Image, memory: GuestMemory) -> None:
        self._image = image
        self._memory = memory

    def super_blocks(self) -> Iterator[int]:
        """The addresses of all super blocks."""
        if self._image.has("super_blocks"):
            link = self.type("super_block").field("s_list").offset
            with suppress(Unmapped):
                yield from self._listed(self._image.symbol("super_blocks").address, link)

    def tasks(self) -> Iterator[int]:
        """Processes, from the first on."""
        link = self.type("task_struct").field("tasks").offset
        yield from self._listed(self._image.symbol("init_task").address + link, link)

    def _listed(self, head: int, link: int) -> Iterator[int]:
        """The structs of a list, which are chained up by what lies `link` bytes into each."""
        at = self.number(head)
        for _ in range(_LISTED):
            if at == head:
                return
            yield at - link
            at = self.number(at)

    def root_of(self, task: int) -> tuple[int, ...]:
        """A process's root: dentry, mount and inode. It may differ by mount namespace."""
        fs = self.member("task_struct", task, "fs")
        if not fs:
            return ()  # it is ending
        dentry = self.member("fs_struct", fs, "root.dentry")
        mount = self.member("fs_struct", fs, "root.mnt") - self.type("mount").field("mnt").offset
        return dentry, mount, self.member("dentry", dentry, "d_inode")

    def dentry_name(self, address: int) -> str:
        """The name of the dentry at an address."""
        return self.text(self.member("dentry", address, "d_name.name"))

    def kind_of(self, super_block: int) -> str:
        """The file system's type of the super block at an address."""
        kind = self.member("super_block", super_block, "s_type")
        return self.text(self.member("file_system_type", kind, "name"))

    def type(self, name: str) -> Type:
        """A struct of the kernel, found fast: beside a function that uses it."""
        return self._image.type(name, _NEAR.get(name, NEAR))

    @property
    def direct(self) -> int:
        """Where all of the physical memory is mapped."""
        return self.base("page_offset_base", _PAGE_OFFSET)

    def base(self, variable: str, otherwise: int) -> int:
        """What a variable of the kernel holds; `otherwise` if there is no such variable."""
        known = self._image.has(variable)
        return self.number(self._image.symbol(variable).address) if known else otherwise

    def member(self, struct: str, address: int, path: str) -> int:
        """The value of a member, as in "root.dentry", of the struct at an address."""
        field = self.type(struct).field(path)
        return self.number(address + field.offset, field.size)

    def number(self, address: int, size: int = 8) -> int:
        """An unsigned number of `size` bytes."""
        return int.from_bytes(self._memory.read(address, size), "little")

    def text(self, address: int) -> str:
        """A text, what cannot be printed as "?"."""
        raw = self._memory.read(address, _TEXT).split(b"\0")[0]
        return "".join(chr(c) if 32 <= c < 127 else "?" for c in raw)
