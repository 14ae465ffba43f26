# SPDX-License-Identifier: MIT
"""Whether the running kernel has a case's bug: by its types and symbols, live controls, release.

They are asked in this order, and the first that knows decides: a vendor's kernel with a fix put
back into it says so itself, whatever its release. Each case's module has its own `Host`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

from contended import machine, stats, tree
from contended.errors import ContendedError
from contended.measure import TooFewCpus, sampling, today, tracing
from contended.measure.results import Measurement, number
from contended.measure.runner import RunFailed
from contended.measure.running import Running, version
from contended.profile import saved
from contended.profile.coherence import Site
from contended.register import Case

Verdict = Literal["has it", "cannot have it", "cannot tell without root"]
# A paired ratio is seen if its whole interval is on the far side of this.
SEEN = 0.9
CROWD = 32  # processes at most
PLACES = 6  # of those that perf c2c samples


@dataclass(frozen=True, slots=True)
class Seen:
    """What speaks for the bug (`has`), against it, or, if None, neither; and what it costs here."""

    has: bool | None
    why: str
    cost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What root can count: calls of a function for each of another while something is done.

    From `sick` on the bug is there, up to `healthy` it is not. `operation` takes a second or less.
    """

    calls: str
    per: str
    operation: Callable[[Running], object]
    sick: float
    healthy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """How to find a case on a running kernel.

    `command` would tell as root; `traced` is what is counted if we are root. `size` says from what
    size or number of CPUs on one feels it; by default that is how many workers the reports had.
    `fixed` is whether there is a release with it.
    """

    command: str
    structure: Callable[[Running], Seen] | None = None
    control: Callable[[Running], Seen] | None = None
    traced: Traced | None = None
    size: str = ""
    fixed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A case on this machine; `ask_root` is the command that tells, or tells more, as root.

    `sampled` are the rows of `sampled()`, if anybody asked for them.
    """

    slug: str
    verdict: Verdict
    why: tuple[str, ...]
    cost: str
    size: str
    gone: str
    chapter: str
    ask_root: str
    sampled: tuple[str, ...] = ()


def find(case: Case, host: Host | None, kernel: Running, *, controls: bool = True) -> Finding:
    """Look for a case on this machine, in some seconds; nothing is changed."""
    seen: list[Seen] = []
    if host is None:
        seen.append(Seen(None, "nobody has written a check of this case"))
    else:
        if host.structure:
            seen.append(host.structure(kernel))
        if host.traced and controls and os.geteuid() == 0:
            seen.append(_controlled(partial(counted, host.traced), kernel))
        if host.control and controls:
            seen.append(_controlled(host.control, kernel))
        if host.fixed:
            seen.append(released(case, kernel))
    has = next((one.has for one in seen if one.has is not None), None)
    words: dict[bool | None, Verdict] = {True: "has it", False: "cannot have it"}
    return Finding(
        slug=case.slug,
        verdict=words.get(has, "cannot tell without root"),
        why=tuple(one.why for one in seen if one.why),
        cost=next((one.cost for one in seen if one.cost), "not measured"),
        size=(host.size if host else "") or _published(case),
        gone=gone(case) if host is None or host.fixed else "no release: " + case.outcome.status,
        chapter=f"notebooks/{case.notebook}.ipynb",
        ask_root=host.command if host else "",
    )


def _controlled(control: Callable[[Running], Seen], kernel: Running) -> Seen:
    try:
        return control(kernel)
    except RunFailed as late:
        return Seen(None, f"the control did not end in time: {late}")
    except (today.NotAllowed, TooFewCpus) as refused:
        return Seen(None, f"the control was not run: {refused}")
    except ContendedError as error:
        return Seen(None, f"the control failed: {error}")


def counted(traced: Traced, kernel: Running) -> Seen:
    """What root counts, or why nothing is counted."""
    try:
        with tracing.counting((traced.calls, traced.per)) as calls:
            traced.operation(kernel)
    except tracing.NotCounted as refused:
        return Seen(None, f"as root: {refused}")
    made, whole = calls[traced.calls], calls[traced.per]
    if not whole:
        return Seen(None, f"as root: {traced.per} was not called")
    each = made / whole
    has = True if each >= traced.sick else False if each <= traced.healthy else None
    return Seen(
        has,
        f"counted as root: {number(each, 3)} calls of {traced.calls} for each of {traced.per} "
        f"({made} and {whole}); with the bug {number(traced.sick)} or more, without it "
        f"{number(traced.healthy)} or fewer",
    )


def sampled(slug: str, host: Host, kernel: Running) -> tuple[str, ...]:
    """What `perf c2c` sees during the control as root, if there is a processor's counter to ask.

    A row for each of the worst places: a function, and the byte of a line that another CPU had
    modified. Beside it stands what the emulator counted of that function on Linux 6.1 with the bug,
    and of which member. It takes as long as the control; no rows if there is nothing to compare.
    """
    if not (host.control and os.geteuid() == 0 and machine.hardware_counters()):
        return ()
    counted: dict[str, list[Site]] = {}
    try:
        record = tree.home() / "results" / slug / "c2c.json"
        if not record.exists():
            return ()
        for _, site in saved.load(record).of("before").sites():
            counted.setdefault(site.symbol, []).append(site)
        found = sampling.taken(partial(_controlled, host.control, kernel))
    except ContendedError as why:
        return (str(why),)
    here = sum(one.hitm for one in found)
    there = sum(site.counts.hitm_loads for sites in counted.values() for site in sites)
    rows = [f"{here} of the sampled loads found a line that another CPU had modified"]
    for one in found[:PLACES]:
        beside = "no such load"
        if sites := counted.get(one.symbol):
            worst = max(sites, key=lambda site: site.counts.hitm_loads)
            share = sum(site.counts.hitm_loads for site in sites) / max(there, 1)
            beside = f"{share:.0%}, most of them byte {worst.offset}, {worst.thing or 'unknown'}"
        share = one.hitm / here
        rows.append(f"{share:.0%} {one.symbol}, byte {one.offset}; in the emulator {beside}")
    return tuple(rows)


def released(case: Case, kernel: Running) -> Seen:
    """What the release says: that of mainline only, so that an older one says nothing."""
    first, here = version(gone(case)), kernel.version
    if first is None or here is None:
        return Seen(None, f"the release, {kernel.release}, says nothing")
    if here >= first:
        return Seen(False, f"{kernel.release} is not older than {gone(case)}, which has the fix")
    return Seen(None, f"{kernel.release} is older than {gone(case)}: fixed only if a vendor did it")


def gone(case: Case) -> str:
    """The first release without the bug, by the register; one that is verified if there is one."""
    steps = [step for step in case.outcome.steps if step.version]
    for step in sorted(steps, key=lambda step: step.unverified):
        return f"{step.version}{' (unverified)' if step.unverified else ''}"
    return "no release"


def _published(case: Case) -> str:
    for figure in case.published:
        if workers := figure.workers or figure.cpus:
            return f"reported with {workers} workers or CPUs ({figure.source})"
    return f"the reports do not say ({case.seed.key})"


@dataclass(frozen=True, slots=True)
class Bind:
    """What the next bind mount costs among so many, and how many mounts it makes; 0: not known."""

    mounts: int
    us: float
    allocated: float

    @property
    def text(self) -> str:
        """The time, with its unit."""
        return f"{number(self.us, 3)} µs"


def binds(kind: str) -> tuple[Bind, Bind]:
    """Binds, "shared" or "private", among few and among many; measured once."""
    seen = _binds()
    found = []
    for phase in seen.phases:
        counts = [sample.counts for sample in seen.samples(kind, phase=phase)]
        made, stay = (sum(c.get(name, 0) for c in counts) for name in ("allocated", "ops"))
        found.append(Bind(int(phase), stats.median(seen.values(kind, phase=phase)), made / stay))
    return found[0], found[-1]


@cache
def _binds() -> Measurement:
    return today.bind_cost([250, 2000])


def crowd() -> int:
    """How many processes the controls start; raises TooFewCpus if contention has no CPUs."""
    if len(cpus := machine.allowed_cpus()) < 2:
        raise TooFewCpus(f"contention needs two CPUs, and this process may use only {cpus}")
    return min(len(cpus), CROWD)


def slower(measurement: Measurement, variant: str, what: str, than: str) -> Seen:
    """Whether the whole interval of a paired ratio of rates, over the first variant, is below.

    A machine that others load says nothing.
    """
    ratio = measurement.ratio_at(variant, threads=measurement.thread_counts[-1])
    cost = (
        f"{what}: {number(ratio.median, 3)} times as fast as {than} "
        f"({number(ratio.low, 3)} to {number(ratio.high, 3)}, {ratio.pairs} pairs, "
        f"{ratio.threads} CPUs)"
    )
    for check in measurement.provenance.state:
        if check.name in ("other load", "steal") and not check.ok:
            return Seen(None, f"control: not to be trusted now, {check.detail}", cost)
    told = "is slower" if ratio.high < SEEN else f"is not clearly slower on {ratio.threads} CPUs"
    return Seen(True if ratio.high < SEEN else None, f"control: {what} {told}", cost)
