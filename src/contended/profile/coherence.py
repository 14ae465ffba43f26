# SPDX-License-Identifier: MIT
"""What cache lines did in a region: the profiler's counts, with names to them.

The plugin (`csrc/qemu/coherence.c`) counts, in an idealised machine with infinite caches,
sequential consistency and one level of distance between CPUs:

- a *HITM*: a load or store that finds the line modified in another CPU's cache;
- an *invalidation*: a store that finds the line unmodified in other CPUs' caches.

A `Profile` is one region of one variant.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from contended.profile.thing import Thing
from contended.profile.units import Frame

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class Counts:
    """How often something happened.

    Attributes:
        loads: All loads.
        stores: All stores.
        hitm_loads: Loads that found the line modified by another CPU.
        hitm_stores: Stores that did.
        invalidations: Stores that took a line away from CPUs that had only read it.
    """

    loads: int = 0
    stores: int = 0
    hitm_loads: int = 0
    hitm_stores: int = 0
    invalidations: int = 0

    @property
    def hitm(self) -> int:
        """Loads and stores that found the line modified by another CPU."""
        return self.hitm_loads + self.hitm_stores

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What user or kernel code did in the region, over all CPUs."""

    instructions: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class Site:
    """One instruction at one offset of a line.

    Attributes:
        offset: Bytes from the line's start.
        pc: The instruction's address.
        kernel: Whether it is the kernel's.
        counts: What happened there.
        frames: Its place in the source, innermost first; the last is the function it is in.
        thing: What lies at that byte; None if nobody looked.
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
    def inlined(self) -> tuple[Frame, ...]:
        """The functions whose code this is, from the innermost, less the one it is in."""
        return self.frames[:-1]


@dataclass(frozen=True, slots=True)
class Line:
    """A cache line that CPUs took from each other.

    Attributes:
        address: Its physical address (in user mode, its virtual one).
        virtual: A virtual address that it was seen at.
        counts: What happened to it.
        sites: By instruction and offset, the worst first.
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
class Provenance:
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
    waits: int
    escapes: int


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
    kernel: Mode
    user: Mode
    lines: tuple[Line, ...]
    calls: dict[str, int]
    provenance: Provenance

    @property
    def counts(self) -> Counts:
        """Kernel and user together."""
        return self.kernel.counts + self.user.counts

    @property
    def name(self) -> str:
        """The variant and, if there are several, the label."""
        return f"{self.variant}, {self.label}" if self.label else self.variant

    def sites(self) -> list[tuple[Line, Site]]:
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

    def frame(self) -> pandas.DataFrame:
        """A row for each line, offset and instruction; `*_per_op` columns are per operation."""
        import pandas  # half a second, for those who ask for a frame

        rows = [
            {
                "variant": self.variant,
                "label": self.label,
                "line": line.address,
                "offset": site.offset,
                "pc": site.pc,
                "kernel": site.kernel,
                "symbol": site.symbol,
                "source": site.source,
                "inlined": " < ".join(f.function for f in site.inlined),
                "what": str(site.thing) if site.thing else "",
                "struct": site.thing.struct if site.thing else "",
                "field": site.thing.field if site.thing else "",
                "role": site.thing.role if site.thing else "",
                **{f.name: getattr(site.counts, f.name) for f in fields(Counts)},
                "hitm": site.counts.hitm,
                "hitm_per_op": self.per_op(site.counts.hitm),
            }
            for line, site in self.sites()
        ]
        return pandas.DataFrame(rows, columns=_COLUMNS)


_COLUMNS = [
    *("variant", "label", "line", "offset", "pc", "kernel", "symbol", "source", "inlined"),
    *("what", "struct", "field", "role"),
    *(f.name for f in fields(Counts)),
    *("hitm", "hitm_per_op"),
]
