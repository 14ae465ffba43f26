# SPDX-License-Identifier: MIT
"""What one boot in virtual time shows, and a table of many: `contended.kernel.clock` boots them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from operator import add
from typing import Any, Literal, get_args

from contended import stats
from contended.measure.results import number
from contended.profile import plugin
from contended.profile.coherence import Profile
from contended.show.table import columns
from contended.simulate import machines
from contended.simulate.caches import Policy

Clock = Literal["region", "guest"]
CLOCKS: tuple[Clock, ...] = get_args(Clock)
"""What keeps time. Beside the region's clock timers and sleep follow the host's; with the guest's
they follow it, too, and no CPU is kept apart from the guest's chores."""
DOUBT = 0.01  # the part of waits given up, or of instructions in ticks, that marks a result
RULES = 3
"""Which rules of virtual time boots are made by; docs/virtual-time.md has what changed."""
OUTDATED = "from before virtual time was mended"
"""What is said of boots that are `outdated`."""
MISLED = 0.04  # waits in error, of the lines that move: with more, foresight was decisive
AGREE = 1.15  # two rates do if neither is more than this many times the other
QUARTERS = 4


@dataclass(frozen=True, slots=True)
class Place:
    """Where operations wait: a function, what lies in the line, and what is of one operation."""

    function: str
    thing: str
    ns: float
    hitm: float  # accesses that found the line modified by another CPU
    far: float  # of these, by one of another socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One region of one boot."""

    variant: str
    label: str  # which of the run's results this is; "" if there is one
    machine: str
    cpus: int
    seed: int
    window_ns: float
    clock: Clock
    policy: Policy = "chance"  # who is next for a line, as asked; see `grouped` of the costs
    costs: Mapping[str, float]  # nanoseconds, but parts and choices, and times for `smt`
    ops: int
    rates: tuple[float, ...]  # operations a second of each worker, while all of them work
    p50_ns: float  # how long an operation takes, of all workers while all of them work
    p99_ns: float
    ns: float  # from the region's begin to its last operation
    together_ns: float  # of that, while all work; 0: never, and rates are of each one's own time
    quarters: tuple[float, ...] = ()  # all workers' operations a second in each quarter of that
    stalled_ns: float  # an operation's wait for lines; all these are of a worker
    queued_ns: float  # of that, until they began to move
    transfers: float  # lines that came from another CPU, an operation
    fills: float  # copies of lines that several share, or from memory, an operation
    hitm: float  # accesses that found their line modified by another CPU, an operation
    far: float  # of these, by one of another socket
    escaped: float  # waits that were given up (see pace.h), of them all, or of operations if more
    ticks: float  # the part of instructions that timer ticks were
    late: float  # lines not foreseen, an operation: the access was before its line had come
    misled: float  # waits in error, an operation, which were undone
    places: tuple[Place, ...]  # the worst first
    kernel: str  # its version
    build_id: str
    qemu: str
    rules: int = RULES

    @property
    def per_second(self) -> float:
        """Operations a second, all workers together while all of them work."""
        return sum(self.rates)

    @property
    def suspect(self) -> bool:
        """Whether it is to be doubted, see `doubtful`."""
        return doubtful(asdict(self))


@dataclass(frozen=True, slots=True)
class Times:
    """What `time` found, for all variants, numbers of CPUs and seeds."""

    slug: str
    run: str
    args: Mapping[str, int | str]  # of the run's workload
    found: tuple[Timed, ...]
    cpu: str  # the host's
    commit: str | None

    @property
    def regions(self) -> list[dict[str, Any]]:
        """The regions as a record has them."""
        return [{"per_second": each.per_second, **asdict(each)} for each in self.found]

    def to_json(self) -> str:
        """As JSON, with everything that the table leaves out."""
        what: dict[str, Any] = {"case": self.slug, "run": self.run, "args": dict(self.args)}
        what |= {"cpu": self.cpu, "commit": self.commit}
        return json.dumps({**what, "results": self.regions}, indent=2) + "\n"

    def __str__(self) -> str:
        windows = sorted({each.window_ns for each in self.found})
        ahead = ["window"] if len(windows) > 1 else []
        last = "operations/s", "latency", "waits", "lines", "where it waits"
        rows = [["variant", "", "CPUs", *ahead, *last]]
        for (variant, label, cpus, window), group in groupby(self.found, _of):
            seeds = list(group)
            rates = [each.per_second / 1e6 for each in seeds]
            spread = f" ({number(min(rates), 3)} to {number(max(rates), 3)})"
            mark = " !" if any(each.suspect for each in seeds) else ""
            worst = max(seeds, key=lambda each: each.stalled_ns).places[:2]
            rows.append(
                [
                    *(variant, label, f"{cpus}", *(f"{window:g} ns" for _ in ahead)),
                    f"{number(stats.median(rates), 3)} M{spread if len(seeds) > 1 else ''}{mark}",
                    f"{_middle(seeds, 'p50_ns')} ({_middle(seeds, 'p99_ns')}) ns",
                    f"{_middle(seeds, 'stalled_ns')} ns",
                    f"{stats.median([each.transfers for each in seeds]):.2f}",
                    "; ".join(f"{p.function} {number(p.ns, 2)} ns ({p.thing})" for p in worst),
                ]
            )
        first = self.found[0]
        box = machines.get(first.machine)
        who = "" if first.policy == "chance" else f", {first.policy}: who is next for a line"
        head = (
            f"{self.slug}, {self.run}, in virtual time on {box.title}; windows of "
            f"{' and '.join(f'{each:g}' for each in windows)} ns, the {first.clock}'s clock{who}. "
            "latency (99 % are below that in brackets), waits and lines: of an operation.\n"
        )
        alike = {_of(t): t.costs for t in self.found}
        if any(t.costs != alike[_of(t)] for t in self.found):
            head += "Each seed has costs of its own, drawn from the ranges of what is not known.\n"
        if any(t.suspect for t in self.found):
            head += (
                f"! more than {DOUBT:.0%} of the waits or operations were given up, or of the "
                "instructions were timer ticks (leave the machine alone and try again), or the "
                "processes did not work at the same time (give more operations): do not trust it\n"
            )
        said = [*self.torn(), *self.unsettled()]
        return head + "".join(f"! {each}\n" for each in said) + columns(rows)

    def unsettled(self) -> list[str]:
        """Where boots have not settled: in words, one for each kernel, size and window."""
        said = []
        for (variant, label, cpus, _), group in groupby(self.found, _of):
            boots = [asdict(each) for each in group]
            if off := [second_half(each) for each in boots if not settled(each)]:
                worst = max(off, key=lambda part: abs(part - 0.5))
                said.append(
                    f"{' '.join(filter(None, (variant, label)))} by {cpus} has not settled in "
                    f"{len(off)} of {len(boots)} boots: {worst:.0%} of the operations are in the "
                    "second half of the time" + " of one" * (len(boots) > 1)
                )
        return said

    def torn(self) -> list[str]:
        """Where two windows make more of a difference than `AGREE`: in words, one for each."""
        by: dict[tuple[str, str, int], dict[float, float]] = {}
        for (variant, label, cpus, window), group in groupby(self.found, _of):
            rates = by.setdefault((variant, label, cpus), {})
            rates[window] = stats.median([each.per_second for each in group])
        found = []
        for (variant, label, cpus), rates in by.items():
            least, most = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
            if rates[least] and (apart := rates[most] / rates[least]) > AGREE:
                found.append(
                    f"{' '.join(filter(None, (variant, label)))} by {cpus} depends on the window: "
                    f"{apart:.2f} times as much with {most:g} ns as with {least:g}"
                )
        return found


def _middle(seeds: Sequence[Timed], name: str) -> str:
    return number(stats.median([getattr(each, name) for each in seeds]), 3)


def _of(found: Timed) -> tuple[str, str, int, float]:
    return found.variant, found.label, found.cpus, found.window_ns


def doubtful(region: Mapping[str, Any]) -> bool:
    """Whether waits were given up, there were many ticks, or no time in which all worked.

    Of a region as a record has it, of `contended kernel time` or `waits`, which has no ticks. A
    tick takes no time itself, but another CPU that waits for what it holds does.
    """
    ticks = region.get("ticks", 0.0) if region.get("cpus", 1) > 1 else 0.0
    lost = max(region.get("escaped", 0.0), ticks) > DOUBT
    return bool(lost or not region.get("together_ns", True))


def outdated(region: Mapping[str, Any]) -> bool:
    """Whether a region, as a record has it, was made by rules that have changed for it since.

    With the second, what two threads of a core do with a line; with the third, how well it is
    foreseen which line an instruction wants, where waits in error tell that it mattered.
    `contended kernel waits`, whose regions have no window, is of waits for ticks.
    """
    rules = region.get("rules", 1)
    if "window_ns" not in region:
        return False
    if rules < 2 and machines.get(region["machine"]).shares(region["cpus"]):
        return True
    moved = region["transfers"] + region.get("fills", 0)  # the first records lack it
    return bool(rules < 3 and region.get("misled", 0) > MISLED * moved)


def second_half(region: Mapping[str, Any]) -> float:
    """The part of a region's operations that were done in the second half of the time.

    Half of them where all goes on as it began, and where it is not known.
    """
    quarters = region.get("quarters", ())
    both = sum(quarters)
    return sum(quarters[QUARTERS // 2 :]) / both if both else 0.5


def settled(region: Mapping[str, Any]) -> bool:
    """Whether its halves are as near to each other as two windows have to be.

    Each worker may have done one operation just before the middle or just behind it.
    """
    least, most = sorted((later := second_half(region), 1 - later))
    ops = sum(region["rates"]) * region["together_ns"] / 1e9
    return bool(most <= AGREE * least or (most - least) * ops <= len(region["rates"]))


def measured(region: plugin.Region, profile: Profile, **how: Any) -> Timed:
    """What a region of a boot shows; `how` are the fields that say how it was booted."""
    workers = [(cpu, cpu.clock) for cpu in region.cpus if cpu.ops > 1 and cpu.clock]
    clocks = [clock for _, clock in workers]
    done = [clock.done for clock in clocks]
    begin, end, rates = _while_all_work(done)
    took = sorted(_took(done, begin, end))
    waits = sum(clock.transfers + clock.fills for clock in clocks)
    ops = region.ops
    return Timed(
        variant=profile.variant,
        label=profile.label,
        **how,
        ops=ops,
        rates=rates,
        p50_ns=_rank(took, 0.5) / 1000,
        p99_ns=_rank(took, 0.99) / 1000,
        ns=max((clock.done[-1] for clock in clocks), default=0) / 1000,
        together_ns=max(end - begin, 0) / 1000,
        quarters=_quarters(done, begin, end),
        stalled_ns=sum(clock.stalled for clock in clocks) / ops / 1000,
        queued_ns=sum(clock.queued for clock in clocks) / ops / 1000,
        transfers=sum(clock.transfers for clock in clocks) / ops,
        fills=sum(clock.fills for clock in clocks) / ops,
        hitm=sum(cpu.hitm_loads.total + cpu.hitm_stores.total for cpu, _ in workers) / ops,
        far=sum(clock.far for clock in clocks) / ops,
        escaped=sum(cpu.escapes for cpu, _ in workers) / max(waits, ops),
        ticks=sum(clock.ticks for clock in clocks)
        / max(sum(cpu.instructions.total for cpu, _ in workers), 1),
        late=sum(clock.late for clock in clocks) / ops,
        misled=sum(clock.misled for clock in clocks) / ops,
        places=_places(region, profile),
        kernel=profile.provenance.kernel,
        build_id=profile.provenance.build_id,
        qemu=profile.provenance.qemu,
    )


def _while_all_work(done: Sequence[Sequence[int]]) -> tuple[int, int, tuple[float, ...]]:
    """From the last one's first operation to the first one's last: picoseconds, and rates.

    Who is lucky is through while others wait: each one's rate over its own time would be of a load
    that is not there. Where they never work together there is nothing better.
    """
    begin, end = max((d[0] for d in done), default=0), min((d[-1] for d in done), default=0)
    if end > begin:
        counts = [sum(begin < at <= end for at in d) for d in done]
        return begin, end, tuple(n / (end - begin) * 1e12 for n in counts)
    return 0, 0, tuple((len(d) - 1) / (d[-1] - d[0]) * 1e12 for d in done)


def _quarters(done: Sequence[Sequence[int]], begin: int, end: int) -> tuple[float, ...]:
    """Operations a second of all of them, in each quarter of that time; none if there is none."""
    if end <= begin:
        return ()
    counts = [0] * QUARTERS
    for at in (at for each in done for at in each if begin < at <= end):
        counts[(at - begin - 1) * QUARTERS // (end - begin)] += 1
    return tuple(n * QUARTERS / (end - begin) * 1e12 for n in counts)


def _took(done: Sequence[Sequence[int]], begin: int, end: int) -> list[int]:
    """How long operations took that ended while all work, or ever if they never did: picoseconds.

    A worker begins one where it ended the one before it, so a first one is not among them.
    """
    apart = [pair for each in done for pair in pairwise(each)]
    return [at - before for before, at in apart if begin >= end or begin < at <= end]


def _rank(ordered: Sequence[int], part: float) -> int:
    """The least value that at least this part of them does not exceed; 0 if there are none."""
    return ordered[math.ceil(part * len(ordered)) - 1] if ordered else 0


def _places(region: plugin.Region, profile: Profile) -> tuple[Place, ...]:
    named = {
        (line.address, site.offset, site.pc): (site.symbol, str(site.thing or "?"))
        for line, site in profile.sites()
    }
    found: dict[tuple[str, str], list[int]] = {}
    for site in region.sites:
        where = region.lines[site.line].address, site.offset, site.pc
        sums = found.setdefault(named[where], [0, 0, 0])
        counts = site.stalled, site.hitm_loads + site.hitm_stores, site.far
        sums[:] = map(add, sums, counts)
    worst = sorted(found.items(), key=lambda item: -item[1][0])
    ops = region.ops
    return tuple(
        Place(*name, ps / ops / 1000, hitm / ops, far / ops)
        for name, (ps, hitm, far) in worst
        if ps or hitm
    )
