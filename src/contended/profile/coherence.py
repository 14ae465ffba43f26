# SPDX-License-Identifier: MIT
"""What cache lines did in a region: the profiler's counts, with names to them.

The plugin (`csrc/qemu/coherence.c`) counts, in an idealised machine with infinite caches,
sequential consistency and one level of distance between CPUs:

- a *HITM*: a load or store that finds the line modified in another CPU's cache;
- an *invalidation*: a store that finds the line unmodified in other CPUs' caches.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Annotated

from pydantic import Field

from contended.profile.units import Frame

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

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Side:
    """What user or kernel code did in the region, over all CPUs."""

    instructions: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class Thing:
    """What a byte of memory is.

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


@dataclass(frozen=True, slots=True)
class Site:
    """The instruction at `pc`, `offset` bytes into a line; `thing` is None if nobody looked.

    Its `frames` are its place in the source, innermost first; the last is the function it is in.
    """

    offset: int
    pc: int
    kernel: bool
    counts: Counts
    frames: tuple[Frame, ...]
    thing: Thing | None

    @property
    def symbol(self) -> str:
        """The function that the instruction is in, whatever was inlined into it."""
        return self.frames[-1].function if self.frames else f"{self.pc:#x}"

    @property
    def source(self) -> str:
        """File and line of the innermost source."""
        return self.frames[0].place if self.frames else "?"

    @property
    def inlined(self) -> list[str]:
        """The functions whose code this is, from the innermost, less the one it is in."""
        return [frame.function for frame in self.frames[:-1]]


@dataclass(frozen=True, slots=True)
class CacheLine:
    """A cache line that CPUs took from each other; its sites are ranked, the worst first.

    The address is physical (in user mode virtual); `virtual` is one that it was seen at.
    """

    address: int
    virtual: int
    counts: Counts
    sites: tuple[Site, ...]

    @property
    def things(self) -> tuple[Thing, ...]:
        """What lies in it, each once, the most contended first."""
        return tuple(dict.fromkeys(s.thing for s in self.sites if s.thing))


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How a profile came to be.

    Attributes:
        qemu: Its version as it says it itself.
        kernel: The guest's version, or the model's file in user mode.
        build_id: Of the kernel or program.
        vcpus: CPUs, or threads in user mode.
        quantum: Instructions that a CPU may be ahead of the slowest.
        line: Bytes in a cache line.
        workload: What ran, with its parameters.
        waits: How often a CPU waited for the slowest one.
        escapes: How often it went on without: above some thousandths of `waits`, counts vary.
    """

    qemu: str
    kernel: str
    build_id: str
    vcpus: int
    quantum: int
    line: int
    workload: str
    waits: int = 0
    escapes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One region of one variant.

    Attributes:
        variant: Its name.
        label: Which of the run's results this is; "" if there is one.
        size: The result's size, for slopes; 0 if it has none.
        ops: Operations of all CPUs.
        kernel: What the kernel did.
        user: What programs did.
        lines: Those that were taken from another CPU, the worst first.
        calls: How often watched functions ("f") and calls in them ("f>g") were executed.
        provenance: How it came to be.
    """

    variant: str
    label: str
    size: int
    ops: int
    kernel: Side
    user: Side
    lines: tuple[CacheLine, ...]
    calls: dict[str, int]
    provenance: Origin

    @property
    def counts(self) -> Counts:
        """Kernel and user together."""
        return self.kernel.counts + self.user.counts

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
