# SPDX-License-Identifier: MIT
"""Readings of the real kernel in virtual time: what `contended kernel time --json` left in results.

A probe names a published value and how a number of the same kind follows from a record,
`results/<slug>/time*.json`. Where there is none, or it lacks that size, nothing was timed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from contended.cases import alone
from contended.cases.alone import Alone
from contended.cases.depends import Dependence, depends
from contended.errors import ContendedError
from contended.kernel import times
from contended.show import lesson
from contended.simulate import machines

DRAWN = "time-drawn"
"""The record of seeds with costs of their own, which a prediction's range is taken of."""
Region = dict[str, Any]
"""A region of one boot, as `contended.kernel.times.Times.to_json` writes it."""
Which = Callable[[Region], bool]
"""Which of the regions that were asked for count."""
Read = Callable[["Record"], list[float]]
"""What to make of a record: a number for each seed; none if it lacks what is asked for."""


@dataclass(frozen=True, slots=True)
class Record:
    """The regions of one record, and those that were asked for."""

    regions: tuple[Region, ...]
    used: list[Region] = field(default_factory=list)

    def of(self, variant: str, cpus: int, label: str = "") -> dict[int, Region]:
        """Those of a variant with so many CPUs, by seed; `label` names one of the run's results."""
        wanted = {"variant": variant, "cpus": cpus, "label": label}
        same = [region for region in self.regions if wanted.items() <= region.items()]
        self.used.extend(same)
        return {region["seed"]: region for region in same}

    def rates(
        self, variant: str, cpus: int, label: str = "", which: Which | None = None
    ) -> dict[int, float]:
        """Operations a second by seed."""
        found = self.of(variant, cpus, label).items()
        return {seed: r["per_second"] for seed, r in found if which is None or which(r)}


@dataclass(frozen=True, slots=True)
class Time:
    """What to read from the record of a name, in words, and of which published value or ratio.

    `guess` is what one CPU alone lets expect; without it the guess is 1. `file` is one of the
    case's records, or another case's: "../SLUG/NAME". `each` is how many numbers a seed has.
    """

    of: str
    read: Read
    guess: Read | None = None
    file: str = DRAWN
    each: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What was read: the numbers of all seeds, the guesses, where from, and what to distrust."""

    values: tuple[float, ...]
    seeds: int
    guesses: tuple[float, ...]
    source: str  # the file, below the tree's root
    machine: str
    clock: str  # what kept time
    doubtful: int  # how many of what was read `contended kernel time` marks
    outdated: bool  # whether some of it was made by other rules than those of today
    drawn: bool  # whether each seed had costs of its own
    draws: tuple[tuple[Mapping[str, float], float], ...]  # of each that made one value: its costs
    alone: Alone | None = None  # what one cost at a time makes of it, if that was asked

    def depends(self) -> tuple[Dependence, ...] | None:
        """On which of the drawn costs the values depend; None if that cannot be told."""
        return depends([costs for costs, _ in self.draws], [value for _, value in self.draws])

    def either(self, choice: str) -> tuple[list[float], list[float]]:
        """The draws' values where a choice among the costs is 0, and where it is 1."""
        found: tuple[list[float], list[float]] = [], []
        for costs, value in self.draws:
            found[bool(costs[choice])].append(value)
        return found


def queueing(region: Region) -> bool:
    """Whether most operations queued for a lock: a line moved in the slow path of one, for each."""
    return queued(region) >= 1


def queued(region: Region, lock: str = "") -> float:
    """How often, in an operation, a line moves among those who queue; `lock`: part of its name."""
    slow = [p for p in region["places"] if p["function"] == "queued_spin_lock_slowpath"]
    return sum(float(p["hitm"]) for p in slow if lock in p["thing"])


def rate(
    of: str,
    variant: str,
    cpus: int,
    *,
    label: str = "",
    total: float = 0.0,
    file: str = DRAWN,
    which: Which | None = None,
) -> Time:
    """Operations a second of all CPUs; with a `total` of operations, the seconds they take."""

    def seen(n: int, factor: int) -> Read:
        def read(record: Record) -> list[float]:
            rates = [each * factor for each in record.rates(variant, n, label, which).values()]
            return [total / each for each in rates] if total else rates

        return read

    return Time(of, seen(cpus, 1), seen(1, cpus), file)


def ratio(
    of: str,
    top: str,
    base: str,
    cpus: int,
    *,
    labels: tuple[str, str] = ("", ""),
    file: str = DRAWN,
    which: Which | None = None,
) -> Time:
    """The rate of one variant over that of another, seed by seed; `labels` in the same order.

    `which` is of the other one's regions.
    """

    def read(record: Record) -> list[float]:
        above = record.rates(top, cpus, labels[0])
        below = record.rates(base, cpus, labels[1], which)
        return [above[seed] / below[seed] for seed in above.keys() & below.keys()]

    return Time(of, read, file=file)


def compared(after: str, before: str, cpus: int, *, file: str = DRAWN) -> tuple[Time, ...]:
    """The rates of two variants, called before and after, and what the change is worth."""
    return (
        rate("before", before, cpus, file=file),
        rate("after", after, cpus, file=file),
        ratio("after/before", after, before, cpus, file=file),
    )


_MOMENTS = 10


def falling(
    of: str, variant: str, cpus: int, labels: tuple[str, str], which: Which, *, file: str = DRAWN
) -> Time:
    """Operations in an interval in which the rate falls from the first label's to the second's.

    How much of it has passed by then is not known: every tenth is taken for each seed. `which` is
    of the second label's regions.
    """

    def read(record: Record) -> list[float]:
        high, low = (
            record.rates(variant, cpus, labels[0]),
            record.rates(variant, cpus, labels[1], which),
        )
        both = [(high[seed], low[seed]) for seed in high.keys() & low.keys()]
        return [
            after + (k + 0.5) / _MOMENTS * (before - after)
            for before, after in both
            for k in range(_MOMENTS)
        ]

    return Time(of, read, rate(of, variant, cpus, label=labels[0]).guess, file, _MOMENTS)


def change(of: str, top: str, base: str, cpus: int, *, file: str = DRAWN) -> Time:
    """By how many per cent the rate of one variant differs from that of another; the guess is 0."""
    over = ratio(of, top, base, cpus).read
    return Time(of, lambda kept: [100 * (r - 1) for r in over(kept)], lambda _: [0.0], file)


def waiting(of: str, variant: str, cpus: int, functions: Sequence[str]) -> Time:
    """The part of the CPUs' time, in per cent, that functions wait for lines."""

    def read(record: Record) -> list[float]:
        found = []
        for region in record.of(variant, cpus).values():
            ns = sum(p["ns"] for p in region["places"] if p["function"] in functions)
            found.append(100 * ns * region["per_second"] / (cpus * 1e9))
        return found

    return Time(of, read, guess=lambda _: [])


def remote(of: str, variant: str, cpus: int, thing: str) -> Time:
    """Of the HITM on what matches `thing`, a regular expression: the part of another socket.

    The guess is that they come from any other CPU.
    """

    def read(record: Record) -> list[float]:
        return [
            sum(p["far"] for p in here) / sum(p["hitm"] for p in here)
            for here in _moved(record, variant, cpus, thing)
        ]

    return Time(of, read, guess=_from_any(cpus))


def all_remote(of: str, variant: str, cpus: int, *, label: str = "", file: str = DRAWN) -> Time:
    """The same of all HITM of a region."""

    def read(record: Record) -> list[float]:
        return [r["far"] / r["hitm"] for r in record.of(variant, cpus, label).values()]

    return Time(of, read, guess=_from_any(cpus), file=file)


def _from_any(cpus: int) -> Read:
    return lambda record: [elsewhere(record.regions[0]["machine"], cpus)]


def elsewhere(machine: str, cpus: int) -> float:
    """Of a machine's so many CPUs, without the first: the part that is not on its socket."""
    socket = machines.get(machine).topology(cpus).socket
    return sum(each != socket[0] for each in socket) / (cpus - 1)


def by(of: str, variant: str, cpus: int, thing: str, function: str) -> Time:
    """Of the HITM on what matches `thing`: the part, in per cent, that a function has."""

    def read(record: Record) -> list[float]:
        return [
            100
            * sum(p["hitm"] for p in here if p["function"] == function)
            / sum(p["hitm"] for p in here)
            for here in _moved(record, variant, cpus, thing)
        ]

    return Time(of, read, guess=lambda _: [])


def _moved(record: Record, variant: str, cpus: int, thing: str) -> list[list[dict[str, Any]]]:
    """By seed, the places in what matches."""
    regions = record.of(variant, cpus).values()
    return [[p for p in region["places"] if re.search(thing, p["thing"])] for region in regions]


def curves(
    regions: Sequence[Region],
    name: Callable[[Region], str],
    value: Callable[[Region], float] = itemgetter("per_second"),
) -> dict[str, dict[float, list[float]]]:
    """By a region's name, by CPUs: a value of each seed, operations a second by default."""
    found: dict[str, dict[float, list[float]]] = {}
    for each in regions:
        found.setdefault(name(each), {}).setdefault(each["cpus"], []).append(value(each))
    return found


def record(slug: str, file: str = "time") -> Record:
    """A case's record; raises ContendedError if it is missing or damaged."""
    path = lesson.reference(f"{slug}/{file}")
    try:
        now = path.stat()
        return Record(_regions(path, (now.st_mtime_ns, now.st_size)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ContendedError(f"{path} is no record of kernel time: {error!r}") from error


@lru_cache(maxsize=8)
def _regions(path: Path, _now: tuple[int, int]) -> tuple[Region, ...]:
    """Of a file as it is now: a table's rows are of one or two, of megabytes."""
    return tuple(json.loads(path.read_text(encoding="utf-8"))["results"])


def load(slug: str, probes: Sequence[Time]) -> dict[str, Timing]:
    """What probes read, by the published value; raises ContendedError on a damaged record."""
    found = {}
    for probe in probes:
        path = lesson.reference(f"{slug}/{probe.file}")
        if not path.is_file():
            continue
        try:
            known = record(slug, probe.file)
            if values := tuple(probe.read(known)):
                guesses = tuple(probe.guess(Record(known.regions))) if probe.guess else (1.0,)
                found[probe.of] = Timing(
                    values=values,
                    seeds=len(values) // probe.each,
                    guesses=guesses,
                    source=f"results/{path.parent.name}/{path.name}",
                    machine=known.used[0]["machine"],
                    clock=known.used[0]["clock"],
                    doubtful=sum(map(times.doubtful, known.used)),
                    outdated=any(map(times.outdated, known.used)),
                    drawn=len({str(region.get("costs")) for region in known.used}) > 1,
                    draws=_draws(probe, known.used),
                    alone=_alone(slug, probe),
                )
        except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
            raise ContendedError(f"{path} is no record of kernel time: {error!r}") from error
    return found


def _draws(probe: Time, used: Sequence[Region]) -> tuple[tuple[Mapping[str, float], float], ...]:
    """A value and the costs that it can depend on, of each seed."""
    seeds: dict[int, list[Region]] = {}
    for region in used:
        seeds.setdefault(region["seed"], []).append(region)
    drawn = [here for here in seeds.values() if here[0].get("costs")]
    found = [(_told(here), probe.read(Record(tuple(here)))) for here in drawn]
    return tuple((costs, values[0]) for costs, values in found if len(values) == 1)


def _told(regions: Sequence[Region]) -> dict[str, float]:
    """A boot's costs without those that none of its CPUs can tell."""
    untold = set.intersection(*(alone.unseen(each["machine"], each["cpus"]) for each in regions))
    return {name: cost for name, cost in regions[0]["costs"].items() if name not in untold}


def _alone(slug: str, probe: Time) -> Alone | None:
    """What one cost at a time makes of it: `contended kernel time --each-cost`, beside its file."""
    file = f"{probe.file}-alone"
    if not lesson.reference(f"{slug}/{file}").is_file():
        return None
    used: list[Region] = []

    def value(some: Sequence[Region]) -> list[float]:
        return probe.read(Record(tuple(some), used))

    found = alone.read(record(slug, file).regions, value)
    if found is None:
        return None
    old = any(map(times.outdated, used))
    return replace(found, doubtful=sum(map(times.doubtful, used)), outdated=old)
