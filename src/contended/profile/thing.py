# SPDX-License-Identifier: MIT
"""What a byte of memory is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thing:
    """What a byte is.

    Attributes:
        kind: "slab", "variable", "per-cpu", "struct page", "vmalloc" (with it kernel stacks),
            "entry area" (of a CPU, for exceptions), "user", "page cache", "page table", "free",
            "kernel page" or "unknown"; "heap" is a C model's.
        name: The slab cache, or the symbol.
        struct: The struct's name, without the word; "" if it is none, or unknown.
        offset: Bytes from the object's or the variable's start.
        field: The member, as in "d_lockref.count"; "" if unknown.
        object: Where it starts: the same number is the same object.
        label: Which of its kind it is, in words: '"f" of tmpfs'; "" if unknown.
        role: "root" for what belongs to the root directory of the processes (dentry, inode,
            mount), "overlay" for the credentials that overlayfs keeps, otherwise "".
    """

    kind: str
    name: str = ""
    struct: str = ""
    offset: int = 0
    field: str = ""
    object: int = 0
    label: str = ""
    role: str = ""

    def __str__(self) -> str:
        if self.struct and self.kind in ("slab", "struct page", "heap"):
            text = f"struct {self.struct} + {self.offset}"
        elif self.name:
            text = f"{self.name} + {self.offset}" if self.offset else self.name
        else:
            text = self.kind
        text += f": {self.field}" if self.field else ""
        return text + (f" ({self.label})" if self.label else "")
