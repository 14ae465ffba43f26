# SPDX-License-Identifier: MIT
"""A case's kernels in virtual time: how fast they are on a machine with more CPUs than this one.

The plugin (`csrc/qemu/clock.h`) keeps a clock for each vCPU: instructions take a time, and so does
each cache line that comes from another CPU, by the distances of a machine of the simulators. The
result is that of the real kernel's code and its real races, whatever the host does meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from operator import add
from pathlib import Path
from typing import Any, Literal, get_args

from contended import stats
from contended.errors import UsageError, check_range
from contended.kernel import build, c2c, history, prices, releases, source, variants
from contended.kernel.make import Progress
from contended.kernel.source import KernelSource
from contended.kernel.variants import GuestRun, KernelCase, Variant
from contended.measure.results import number
from contended.profile import plugin
from contended.profile.coherence import Profile
from contended.show.table import columns
from contended.simulate import machines
from contended.simulate.caches import Policy
from contended.simulate.machines import MachineModel

MACHINE = "2x20-smt"
CPUS = (1, 4, 16)
WINDOW_NS = 200.0
DEADLINE_S = 900.0  # of a boot; longer in proportion with more CPUs than `FEW`, on a busy host
FEW = 64
Clock = Literal["region", "guest"]
CLOCKS: tuple[Clock, ...] = get_args(Clock)
"""What keeps time. Beside the region's clock timers and sleep follow the host's; with the guest's
they follow it, too, and no CPU is kept apart from the guest's chores."""
DOUBT = 0.01  # the part of waits given up, or of instructions in ticks, that marks a result
LINES = 24  # that are named, those waited for longest
TRIES = 3  # of a boot, until its processes have worked at the same time


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
    policy: Policy = "chance"  # who is next for a line
    costs: Mapping[str, float]  # nanoseconds, but parts and choices, and times for `smt`
    ops: int
    rates: tuple[float, ...]  # operations a second of each worker, while all of them work
    ns: float  # from the region's begin to its last operation
    together_ns: float  # of that, while all work; 0: never, and rates are of each one's own time
    stalled_ns: float  # an operation's wait for lines; all these are of a worker
    queued_ns: float  # of that, until they began to move
    transfers: float  # lines that came from another CPU, an operation
    escaped: float  # waits that were given up (see pace.h), of them all, or of operations if more
    ticks: float  # the part of instructions that timer ticks were
    late: float  # lines not foreseen, an operation: the access was before its line had come
    misled: float  # waits in error, an operation, which were undone
    places: tuple[Place, ...]  # the worst first

    @property
    def per_second(self) -> float:
        """Operations a second, all workers together while all of them work."""
        return sum(self.rates)

    @property
    def suspect(self) -> bool:
        """Whether it is to be doubted, see `doubtful`."""
        return doubtful(self.cpus, self.escaped, self.ticks, self.together_ns)


@dataclass(frozen=True, slots=True)
class Times:
    """What `time` found, for all variants, numbers of CPUs and seeds."""

    slug: str
    run: str
    args: Mapping[str, int | str]  # of the run's workload
    found: tuple[Timed, ...]

    @property
    def regions(self) -> list[dict[str, Any]]:
        """The regions as a record has them."""
        return [{"per_second": each.per_second, **asdict(each)} for each in self.found]

    def to_json(self) -> str:
        """As JSON, with everything that the table leaves out."""
        what = {"case": self.slug, "run": self.run, "args": dict(self.args)}
        return json.dumps({**what, "results": self.regions}, indent=2) + "\n"

    def __str__(self) -> str:
        rows = [["variant", "", "CPUs", "operations/s", "waits", "lines", "where it waits"]]
        for (variant, label, cpus), group in groupby(self.found, _of):
            seeds = list(group)
            rates = [each.per_second / 1e6 for each in seeds]
            spread = f" ({number(min(rates), 3)} to {number(max(rates), 3)})"
            mark = " !" if any(each.suspect for each in seeds) else ""
            worst = max(seeds, key=lambda each: each.stalled_ns).places[:2]
            rows.append(
                [
                    *(variant, label, f"{cpus}"),
                    f"{number(stats.median(rates), 3)} M{spread if len(seeds) > 1 else ''}{mark}",
                    f"{number(stats.median([each.stalled_ns for each in seeds]), 3)} ns",
                    f"{stats.median([each.transfers for each in seeds]):.2f}",
                    "; ".join(f"{p.function} {number(p.ns, 2)} ns ({p.thing})" for p in worst),
                ]
            )
        first = self.found[0]
        box = machines.get(first.machine)
        who = "" if first.policy == "chance" else f", {first.policy}: who is next for a line"
        head = (
            f"{self.slug}, {self.run}, in virtual time on {box.title}; windows of "
            f"{first.window_ns:g} ns, the {first.clock}'s clock{who}. waits and lines: of an "
            "operation.\n"
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
        return head + columns(rows)


def _of(found: Timed) -> tuple[str, str, int]:
    return found.variant, found.label, found.cpus


def doubtful(cpus: int, escaped: float, ticks: float, together_ns: float) -> bool:
    """Whether waits were given up, there were many ticks, or no time in which all worked.

    A tick takes no time itself, but another CPU that waits for what it holds does.
    """
    return max(escaped, ticks if cpus > 1 else 0.0) > DOUBT or not together_ns


def time(
    slug: str,
    *,
    machine: str = MACHINE,
    cpus: Sequence[int] = CPUS,
    wanted: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    run: str | None = None,
    changed: Mapping[str, str] | None = None,
    window_ns: float = WINDOW_NS,
    seeds: int = 1,
    drawn: bool = False,
    instruction: tuple[float, float] | None = None,
    ahead: float | None = None,
    costs: Sequence[tuple[str, float]] = (),
    each_cost: bool = False,
    kept: Clock = "region",
    policy: Policy = "chance",
    source_path: Path | None = None,
    progress: Progress | None = None,
) -> Times:
    """Time variants of a case: before and after, or all if it lacks these, or those `wanted`.

    With `names` of releases it is the unpatched kernel of each, or what is `wanted` of each, got
    and built if need be, and the name says of which. The run is the first with `profile = true`
    unless one is named; `changed` are parameters of its workload, over its own. Each number of CPUs
    is as many processes, pinned to the first CPUs of the machine as Linux numbers them, and one
    boot for each seed, with the machine's costs or, if they are `drawn`, with others for each seed,
    the same for all variants. What an `instruction` takes, least and most nanoseconds, can be that
    with which one process is as fast as a published one, and how many nanoseconds `ahead` of its
    instruction a load may begin; and who is next for a line, another `policy` of `prices.POLICIES`
    than chance. Each of some `costs` is changed alone, too, in boots of its own, whose label names
    it: what a result depends on; with `each_cost`, `prices.halves` of all. With the clock `kept` by
    the guest there may be more processes than CPUs, and sleep is in that time. More CPUs than a
    run's kernels know are those of configuration `many`. Raises UsageError for more than these, or
    the machine, have, an unknown machine or cost, a window that is none, for processes without a
    CPU on the region's clock, and for what the case lacks.
    """
    case, box = variants.load(slug), machines.get(machine)
    check_range("--seeds", seeds, 1, 100)
    if not 1 <= window_ns <= 100_000:
        raise UsageError(f"a window of {window_ns:g} ns: give 1 to 100000")
    if instruction and not 0 < instruction[0] <= instruction[1] <= 10:
        raise UsageError("--instruction: give one nanosecond figure, or two, from 0 to 10")
    if ahead is not None and not 0 <= ahead <= 1000:
        raise UsageError(f"--ahead {ahead:g}: give 0 to 1000 nanoseconds")
    how = c2c.choose_run(case, run)
    for n in cpus:
        check_range("--cpus", n, 1, min(box.cpus, how.of_many().workers))
    how = replace(how, args={**how.args, **(changed or {})}, watch=(), calls=())
    procs = str(how.args.get("procs", ""))
    if kept == "region" and procs.isdecimal() and int(procs) > min(cpus):
        raise UsageError(
            f"{procs} processes on {min(cpus)} CPUs: who waits for a CPU sleeps, so give "
            "--clock guest"
        )
    instruction = instruction or prices.instruction(how.config)
    told = {} if ahead is None else {"ahead": ahead}
    one = {"instruction": sum(instruction) / 2} if instruction else {}
    if drawn and (costs or each_cost):
        raise UsageError(
            "a cost is changed alone where the others are as stated: leave out --drawn"
        )
    drawn_costs = prices.draws(box, seeds, instruction, told) if drawn else None
    priced = {}
    for n in sorted(set(cpus)):
        halves = prices.halves(box, prices.costs(box, told | one), n) if each_cost else []
        priced[n] = [
            (_label(change), seed, price)
            for change in prices.apart(box, [*costs, *halves], told | one)
            for seed, price in enumerate(
                drawn_costs or [prices.costs(box, told | one | change)] * seeds, 1
            )
        ]
    chosen = _chosen(case, wanted, names, source_path, progress)
    plan = [(each, n, price) for each in chosen for n in priced for price in priced[n]]
    found: list[Timed] = []
    for at, ((variant, tree), n, (label, seed, price)) in enumerate(plan):
        fits = how if n <= how.workers else how.of_many()
        kernel = build.build(variant, fits.config, tree, progress)
        if progress:
            progress(f"time {variant.name} on {n} CPUs", at, len(plan))
        met = _met(kernel, variant, fits, box, n, seed, price, window_ns, kept, policy)
        found += [replace(each, label=f"{each.label} {label}".strip()) for each in met]
    order = [variant.name for variant, _ in chosen]
    found.sort(key=lambda t: (order.index(t.variant), t.label, t.cpus, t.seed))
    return Times(slug, how.name, how.args, tuple(found))


def _label(change: Mapping[str, float]) -> str:
    return "".join(f"{name}={value:g}" for name, value in change.items())


def _chosen(
    case: KernelCase,
    wanted: Sequence[str] | None,
    names: Sequence[str] | None,
    source_path: Path | None,
    progress: Progress | None,
) -> list[tuple[Variant, KernelSource]]:
    if not names:
        here = c2c.choose_variants(case, wanted)
        tree = source.find(source_path)
        return [(variant, tree) for variant in here]
    if source_path:
        raise UsageError("--releases gets Debian's sources: leave out --source")
    several = [releases.get(name) for name in dict.fromkeys(names)]
    plain, tell = history.unpatched(case.slug), progress or (lambda *_: None)
    kernels = case.pick(wanted) if wanted else [plain]
    trees = [source.obtain(None, lambda what: tell(what, 0, 0), release) for release in several]
    return [
        # How its structs lie is said of the book's release.
        (replace(one, name=f"{one.name} {release}" if wanted else release.name, layout={}), tree)
        for one in kernels
        for release, tree in zip(several, trees, strict=True)
    ]


def _met(*how: Any) -> list[Timed]:
    """As `_timed`, booted again where the processes never worked at the same time."""
    for _ in range(TRIES):
        seen = _timed(*how)
        if all(each.together_ns for each in seen):
            break
    return seen


def _timed(
    kernel: build.Kernel,
    variant: Variant,
    run: GuestRun,
    box: MachineModel,
    cpus: int,
    seed: int,
    price: Mapping[str, float],
    window_ns: float,
    kept: Clock = "region",
    policy: Policy = "chance",
) -> list[Timed]:
    seen = c2c.profile_kernel(
        kernel,
        variant,
        run,
        vcpus=cpus,
        quantum=round(window_ns * 1000),
        time=prices.settings(box, seed, price, int(kept == "region"), cpus, policy),
        lines=LINES,
        guest=kept == "guest",
        deadline_s=DEADLINE_S * max(1.0, cpus / FEW),
    )
    place: dict[str, Any] = {
        "machine": box.name,
        "cpus": cpus,
        "seed": seed,
        "window_ns": window_ns,
        "clock": kept,
        "policy": policy,
    }
    return [_measured(*each, costs=price, **place) for each in seen]


def _measured(region: plugin.Region, profile: Profile, **how: Any) -> Timed:
    workers = [(cpu, cpu.clock) for cpu in region.cpus if cpu.ops > 1 and cpu.clock]
    clocks = [clock for _, clock in workers]
    begin, end, rates = _while_all_work([clock.done for clock in clocks])
    waits = sum(clock.transfers + clock.fills for clock in clocks)
    ops = region.ops
    return Timed(
        variant=profile.variant,
        label=profile.label,
        **how,
        ops=ops,
        rates=rates,
        ns=max((clock.done[-1] for clock in clocks), default=0) / 1000,
        together_ns=max(end - begin, 0) / 1000,
        stalled_ns=sum(clock.stalled for clock in clocks) / ops / 1000,
        queued_ns=sum(clock.queued for clock in clocks) / ops / 1000,
        transfers=sum(clock.transfers for clock in clocks) / ops,
        escaped=sum(cpu.escapes for cpu, _ in workers) / max(waits, ops),
        ticks=sum(clock.ticks for clock in clocks)
        / max(sum(cpu.instructions.total for cpu, _ in workers), 1),
        late=sum(clock.late for clock in clocks) / ops,
        misled=sum(clock.misled for clock in clocks) / ops,
        places=_places(region, profile),
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
