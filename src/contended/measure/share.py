# SPDX-License-Identifier: MIT
"""What a machine's owner gives to be compared with other machines: one small record, checked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from contended import machine, records, register, stats, tree
from contended.errors import ContendedError
from contended.measure import native
from contended.measure.measurement import TooFewCpus, measure, pingpong
from contended.measure.results import Measurement, Provenance, RatioAt
from contended.records import Record

SCHEMA = 1
REPEATS = 5


@dataclass(frozen=True, slots=True)
class Handover:
    """What it costs to hand a cache line between two CPUs, one way, nanoseconds."""

    a: int
    b: int
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Point:
    """Operations per second of one variant, all threads together."""

    variant: str
    threads: int
    phase: str
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Case:
    """A model at its initial parameters; `ratio` is as in a Measurement."""

    points: list[Point]
    ratio: dict[str, list[RatioAt]]

    def knee(self, variant: str, phase: str) -> int:
        """The number of threads beyond which more of them do less: where the most is done."""
        rows = [p for p in self.points if (p.variant, p.phase) == (variant, phase)]
        return max(rows, key=lambda p: p.median).threads

    def widest(self) -> tuple[str, RatioAt]:
        """The fix over what was before, at the most threads, in the phase where it brings most."""
        names = [pair for pair in self.ratio if pair.startswith("after/")] or list(self.ratio)
        rows = self.ratio[names[0]]
        most = max(row.threads for row in rows)
        return names[0], max((r for r in rows if r.threads == most), key=lambda r: r.median)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Record):
    """One machine's numbers; `lacking` says of each case without any why."""

    title: str
    provenance: Provenance
    handovers: list[Handover]
    cases: dict[str, Case]
    lacking: dict[str, str]
    schema: int = SCHEMA


def take(title: str = "", progress: Callable[[str, int, int], None] | None = None) -> Machine:
    """Measure what is shared: a minute on two CPUs, some more on many.

    Up to eight CPUs hand a line to each other: the first four, and others evenly from the rest.
    Raises TooFewCpus on a machine with one CPU.
    """
    places = machine.allowed_cpus()
    last = len(places) - 1
    some = sorted({*range(min(4, last + 1)), *(last * n // 4 for n in range(1, 5))})
    slugs = [slug for slug in register.slugs() if slug in native.available()]

    def bar(name: str) -> Callable[[int, int], None] | None:
        return (lambda done, planned: progress(name, done, planned)) if progress else None

    line = pingpong([places[n] for n in some], progress=bar("pingpong"))
    cases: dict[str, Measurement] = {}
    lacking: dict[str, str] = {}
    for slug in slugs:
        try:
            done = measure(slug, repeats=REPEATS, progress=bar(slug))
        except (TooFewCpus, native.MissingPackage) as error:
            lacking[slug] = str(error)
            continue
        if any(done.ratio.values()):
            cases[slug] = done
        else:
            lacking[slug] = "; ".join(failed.reason for failed in done.failures)
    return assemble(title, line, cases, lacking)


def assemble(
    title: str, line: Measurement, runs: Mapping[str, Measurement], lacking: Mapping[str, str]
) -> Machine:
    """A machine's record of a ping-pong and of each case's measurement; raises ContendedError."""
    cases = {
        slug: Case(list(_points(run)), {pair: rows for pair, rows in run.ratio.items() if rows})
        for slug, run in runs.items()
    }
    handovers = []
    for pair, found in line.variants.items():
        a, b = map(int, pair.split("-"))
        values = [s.value for s in found.samples]
        handovers.append(Handover(a, b, stats.median(values), min(values), max(values)))
    # a quota's cgroup may have the user's name in its path
    state = [replace(c, detail=re.sub(r" \(/[^)]*\)", "", c.detail)) for c in line.provenance.state]
    made = Machine(
        title=title or line.provenance.cpu,
        provenance=replace(line.provenance, state=state),
        handovers=handovers,
        cases=cases,
        lacking=dict(lacking),
    )
    check(made, "what was measured")
    return made


def _points(done: Measurement) -> Iterator[Point]:
    for variant in done.variants:
        for threads in done.thread_counts:
            for phase in done.phases:
                if values := done.values(variant, threads=threads, phase=phase):
                    spread = stats.median(values), min(values), max(values)
                    yield Point(variant, threads, phase, *spread)


def check(found: Machine, where: str) -> None:
    """Raise ContendedError if numbers cannot be those of one machine; types are right already."""
    cpus = found.provenance.cpus_allowed

    def need(holds: bool, what: str) -> None:
        if not holds:
            raise ContendedError(f"{where}: {what}: measure again (contended measure --share)")

    need(bool(found.title.strip()) and len(found.title) <= 80, "title is empty or over 80 letters")
    need(bool(found.handovers), "no hand-over between two CPUs")
    for h in found.handovers:
        need({h.a, h.b} <= set(cpus) and h.a != h.b, f"CPUs {h.a}-{h.b} are not of this machine")
        need(0 < h.low <= h.median <= h.high < 1e5, f"hand-over {h.a}-{h.b} is out of order")
    for slug in (*found.cases, *found.lacking):
        need(slug in register.slugs(), f"there is no case {slug!r}")
    for slug, case in found.cases.items():
        names = {p.variant for p in case.points}
        need(bool(case.ratio) and all(case.ratio.values()), f"{slug} compares nothing")
        for p in case.points:
            most = max(len(cpus), 2)
            need(1 <= p.threads <= most, f"{slug} has {p.threads} threads on {len(cpus)} CPUs")
            fit = 0 < p.low <= p.median <= p.high < math.inf
            need(fit, f"{slug}, {p.variant}, {p.threads} threads: out of order")
        for pair, rows in case.ratio.items():
            need(set(pair.split("/")) <= names, f"{slug} compares {pair}, and has not both")
            for r in rows:
                need(0 < r.low <= r.median <= r.high, f"{slug}, {pair}: the ratio is out of order")


def load(path: Path) -> Machine:
    """Read and check a shared machine; raises ContendedError, in one line, if anything is wrong."""
    remedy = "make it again with contended measure --share"
    found = records.load(Machine, path, "machine", SCHEMA, remedy)
    check(found, str(path))
    return found


def recorded() -> list[Machine]:
    """The machines that others gave: `results/machines/*.json`, by file name."""
    return [load(path) for path in sorted((tree.home() / "results" / "machines").glob("*.json"))]
