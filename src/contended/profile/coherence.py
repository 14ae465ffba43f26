# SPDX-License-Identifier: MIT
"""What cache lines did in a region: the profiler's counts, with names to them.

The plugin (`csrc/qemu/coherence.c`) counts, in an idealised machine with infinite caches,
sequential consistency and one level of distance between CPUs:

- a *HITM*: a load or store that finds the line modified in another CPU's cache;
- an *invalidation*: a store that finds the line unmodified in other CPUs' caches.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from operator import add
from typing import Annotated

from pydantic import Field

from contended.profile.entries import Frame

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class Counts:
    """How often something happened: loads and stores, and of these HITMs and invalidations."""

    loads: Count
    stores: Count
    hitm_loads: Count
    hitm_stores: Count
    invalidations: Count

    @property
    def hitm(self) -> int:
        """Loads and stores that found the line modified by another CPU."""
        return self.hitm_loads + self.hitm_stores


@dataclass(frozen=True, slots=True)
class Side:
    """What user or kernel code did in the region, over all CPUs."""

    instructions: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class Thing:
    """What a byte of memory is; what is unknown of it is empty.

    The kind is "slab", "variable", "per-cpu", "struct page", "vmalloc" (with it kernel stacks),
    "entry area" (of a CPU, for exceptions), "user", "page cache", "page table", "free", "kernel
    page" or "unknown"; "heap" is a C model's. The role is "root" for what belongs to the root
    directory of the processes (dentry, inode, mount), "overlay" for the credentials that overlayfs
    keeps.
    """

    kind: str
    name: str = ""  # the slab cache, or the symbol
    struct: str = ""  # without the word
    offset: int = 0  # bytes from the object's or the variable's start
    field: str = ""  # as in "d_lockref.count"
    object: int = 0  # where it starts: the same number is the same object
    label: str = ""  # which of its kind it is, in words: '"f" of tmpfs'
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


@dataclass(frozen=True, slots=True)
class Site:
    """An instruction, as far as it touches one place of a line."""

    offset: int  # bytes from the line's start
    pc: int
    kernel: bool
    counts: Counts
    frames: tuple[Frame, ...]  # innermost first; the last is the function it is in
    thing: Thing | None  # None if nobody looked

    @property
    def symbol(self) -> str:
        """The function that the instruction is in, whatever was inlined into it."""
        return self.frames[-1].function if self.frames else f"{self.pc:#x}"

    @property
    def source(self) -> str:
        """File and line of the innermost source."""
        return self.frames[0].place if self.frames else "?"


@dataclass(frozen=True, slots=True)
class CacheLine:
    """A cache line that CPUs took from each other."""

    address: int  # physical; in user mode virtual
    virtual: int  # one that it was seen at
    counts: Counts
    sites: tuple[Site, ...]  # the worst first

    @property
    def things(self) -> tuple[Thing, ...]:
        """What lies in it, each once, the most contended first."""
        return tuple(dict.fromkeys(s.thing for s in self.sites if s.thing))


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How a profile came to be."""

    qemu: str
    kernel: str  # the guest's version, or the model's file in user mode
    build_id: str  # of the kernel or program
    vcpus: int  # threads in user mode
    quantum: int  # instructions that a CPU may be ahead of the slowest
    line: int  # bytes
    workload: str  # with its parameters
    waits: int = 0  # how often a CPU waited for the slowest one
    escapes: int = 0  # how often it went on: above some thousandths of the waits, counts vary


@dataclass(frozen=True, slots=True)
class Profile:
    """One region of one variant."""

    variant: str
    label: str  # which of the run's results this is; "" if there is one
    size: int  # of the result, for slopes; 0 if it has none
    ops: int  # of all CPUs
    kernel: Side
    user: Side
    lines: tuple[CacheLine, ...]  # that were taken from another CPU, the worst first
    calls: dict[str, int]  # executions of watched functions ("f") and of calls in them ("f>g")
    provenance: Origin

    @property
    def counts(self) -> Counts:
        """Kernel and user together."""
        return Counts(*map(add, astuple(self.kernel.counts), astuple(self.user.counts)))

    @property
    def name(self) -> str:
        """The variant and, if there are several, the label."""
        return f"{self.variant}, {self.label}" if self.label else self.variant

    def sites(self) -> list[tuple[CacheLine, Site]]:
        """All sites with their lines."""
        return [(line, site) for line in self.lines for site in line.sites]

    def per_op(self, count: float) -> float:
        """A count divided by the operations."""
        return count / self.ops

    @property
    def named_share(self) -> float:
        """The part of all HITMs whose line's meaning is known, 0 to 1; 1 if there are none."""
        total = self.counts.hitm
        known = sum(s.counts.hitm for _, s in self.sites() if s.thing and s.thing.kind != "unknown")
        return known / total if total else 1.0
