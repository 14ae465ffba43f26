# SPDX-License-Identifier: MIT
"""What cache lines did in a region: the profiler's counts, with names to them.

The plugin (`csrc/qemu/coherence.c`) counts, in an idealised machine with infinite caches,
sequential consistency and one level of distance between CPUs:

- a *HITM*: a load or store that finds the line modified in another CPU's cache;
- an *invalidation*: a store that finds the line unmodified in other CPUs' caches.

A `Profile` is one region of one variant; `Profiles` are all regions of all variants of one run of a
case, what `contended c2c` prints and `--json` saves. `coherence_text` makes tables of them,
`coherence_plot` figures, `coherence_metrics` the numbers that outcomes are about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from contended import records
from contended.errors import ContendedError, UsageError
from contended.profile import plugin
from contended.profile.dwarf import Frame
from contended.profile.lines import Thing
from contended.records import Record

if TYPE_CHECKING:
    import pandas

SCHEMA = 1
# Asking the waiting guest what a line is, or the debug information where an instruction comes from,
# takes milliseconds. Thousands of lines are touched once or twice, as when processes start and end:
# these many of the worst are looked up, of the others' instructions only the function's name is.
RESOLVED_LINES = 400
RESOLVED_PCS = 400


class NoRegion(ContendedError):
    """The workload never reached its measured region, or did nothing in it."""


class WrongKernel(ContendedError):
    """The debug information is of another build than what ran."""


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
        import pandas

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


_EVENTS = fields(Counts)
_Frames = Callable[[Iterable[int]], Mapping[int, tuple[Frame, ...]]]
_COLUMNS = [
    *("variant", "label", "line", "offset", "pc", "kernel", "symbol", "source", "inlined"),
    *("what", "struct", "field", "role"),
    *(f.name for f in fields(Counts)),
    *("hitm", "hitm_per_op"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles(Record):
    """All regions of the variants of a case.

    Attributes:
        case: The slug.
        run: The run's name in `variants.toml`; "user" for C models.
        mode: "system" (a kernel) or "user" (a program).
        profiles: In the order they were made.
        schema: Of the JSON.
        recorded: Whether they were loaded rather than made just now.
    """

    case: str
    run: str
    mode: str
    profiles: tuple[Profile, ...]
    schema: int = SCHEMA
    recorded: bool = field(default=False)

    @property
    def variants(self) -> list[str]:
        """The variants' names in order."""
        return list(dict.fromkeys(p.variant for p in self.profiles))

    @property
    def labels(self) -> list[str]:
        """The regions' labels in order."""
        return list(dict.fromkeys(p.label for p in self.profiles))

    def of(self, variant: str, label: str | None = None) -> Profile:
        """The profile of a variant; the first of its regions unless a label is given.

        Raises:
            UsageError: there is none.
        """
        for profile in self.profiles:
            if profile.variant == variant and label in (None, profile.label):
                return profile
        there = "; ".join(p.name for p in self.profiles) or "none"
        raise UsageError(f"no profile of {variant!r}, {label or 'any region'}; there are: {there}")

    def frame(self) -> pandas.DataFrame:
        """`Profile.frame` of all, one below the other."""
        import pandas

        return pandas.concat([p.frame() for p in self.profiles], ignore_index=True)

    def trimmed(self, top: int = 20) -> Profiles:
        """With only the worst lines of each profile, for keeping; the totals stay whole."""
        return replace(self, profiles=tuple(replace(p, lines=p.lines[:top]) for p in self.profiles))

    def _repr_html_(self) -> str:
        from contended.profile import tables

        return tables.html(self)

    def __str__(self) -> str:
        from contended.profile import tables

        return tables.text(self)


def load(path: Path) -> Profiles:
    """Read saved profiles; `recorded` is set.

    Raises:
        ContendedError: the file is missing, is not JSON, or does not fit the schema.
    """
    found = records.load(Profiles, path, "profiles", SCHEMA, "profile again", strict=False)
    return replace(found, recorded=True)


def check_build(build_id: str, booted: str) -> None:
    """Make sure that the debug information is of what ran.

    Args:
        build_id: Of the file with the debug information.
        booted: What the guest said of itself.

    Raises:
        WrongKernel: it is not.
    """
    if not booted:
        raise WrongKernel("the guest did not say which kernel it runs: no table is better than one")
    if build_id.lower() != booted.lower():
        raise WrongKernel(
            f"the guest runs build {booted[:12]}, the vmlinux is build {build_id[:12]}: "
            "names would be wrong; build the kernel again"
        )


def totals(cpus: Sequence[plugin.Cpu], kernel: bool) -> Mode:
    """What user or kernel code did on all CPUs."""
    side = "kernel" if kernel else "user"
    return Mode(
        instructions=sum(getattr(cpu.instructions, side) for cpu in cpus),
        counts=Counts(
            **{f.name: sum(getattr(getattr(cpu, f.name), side) for cpu in cpus) for f in _EVENTS}
        ),
    )


def assemble(
    region: plugin.Region,
    *,
    variant: str,
    label: str,
    size: int,
    provenance: Provenance,
    frames: _Frames,
    names: _Frames,
    resolve: Callable[[int, int], Thing] | None,
    watched: Mapping[int, str] | None = None,
) -> Profile:
    """Give names to what the plugin counted in a region.

    Args:
        region: One of the plugin's regions.
        variant: The variant's name.
        label: Which of the run's results it is.
        size: The result's size.
        provenance: How it came to be; `waits` and `escapes` are filled in here.
        frames: Symbolizes addresses, with inlined functions and lines.
        names: Symbolizes addresses quickly, by the function's name alone.
        resolve: Says what is at an address of the line table, given that and a virtual address;
            None if nobody can be asked.
        watched: The names of watched addresses.

    Raises:
        NoRegion: the region was not finished, or no operation was done in it.
    """
    if not region.complete:
        raise NoRegion(f"{variant}: the workload ended within its measured region: no table")
    if not region.ops:
        raise NoRegion(f"{variant}: no operation was marked in the measured region: no table")
    weight: dict[int, tuple[int, int]] = {}
    by_line: dict[int, list[plugin.Site]] = {}
    for site in region.sites:
        by_line.setdefault(site.line, []).append(site)
        hitm, more = weight.get(site.pc, (0, 0))
        weight[site.pc] = hitm + _counts(site).hitm, more + site.invalidations
    worst = sorted(weight, key=lambda pc: (weight[pc], -pc), reverse=True)
    known = {**frames(worst[:RESOLVED_PCS]), **names(worst[RESOLVED_PCS:])}
    rows = sorted(
        enumerate(region.lines),
        key=lambda row: (-_counts(row[1]).hitm, -row[1].invalidations, row[1].address),
    )
    lines = []
    for rank, (index, row) in enumerate(rows):
        ask = resolve if rank < RESOLVED_LINES else None
        sites = [_site(site, row, known, ask) for site in by_line.get(index, [])]
        sites.sort(key=lambda s: (-s.counts.hitm, -s.counts.invalidations, s.offset, s.pc))
        lines.append(Line(row.address, row.vaddr, _counts(row), tuple(sites)))
    return Profile(
        variant=variant,
        label=label,
        size=size,
        ops=region.ops,
        kernel=totals(region.cpus, True),
        user=totals(region.cpus, False),
        lines=tuple(lines),
        calls=_calls(region, watched or {}),
        provenance=replace(
            provenance,
            waits=sum(cpu.waits for cpu in region.cpus),
            escapes=sum(cpu.escapes for cpu in region.cpus),
        ),
    )


def _calls(region: plugin.Region, watched: Mapping[int, str]) -> dict[str, int]:
    """Executions by name: several addresses, such as all calls from f to g, may share one."""
    found = dict.fromkeys(watched.values(), 0)
    for row in region.pcs:
        if row.pc in watched:
            found[watched[row.pc]] += row.executions
    return found


def _site(
    site: plugin.Site,
    line: plugin.Line,
    known: Mapping[int, tuple[Frame, ...]],
    resolve: Callable[[int, int], Thing] | None,
) -> Site:
    thing = resolve(line.address + site.offset, line.vaddr + site.offset) if resolve else None
    frames = known.get(site.pc, ())
    return Site(site.offset, site.pc, site.kernel, _counts(site), frames, thing)


def _counts(row: plugin.Line | plugin.Site) -> Counts:
    return Counts(**{f.name: getattr(row, f.name) for f in _EVENTS})
