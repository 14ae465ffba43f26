# SPDX-License-Identifier: MIT
"""Typed results of measurements: what was seen, and on what machine, as JSON.

This module knows nothing of how a measurement is made. A file that was edited by hand, cut short
or written by another version is refused on load with a message that names the first wrong field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from contended import records, stats
from contended.errors import ContendedError
from contended.records import Record

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The machine, software and circumstances that a number belongs to."""

    cpu: str
    cpus_allowed: list[int]
    kernel: str
    compiler: str
    compiler_flags: str
    python: str
    contended: str
    commit: str | None
    governor: str | None
    virtualized: str | None
    load_1min: float
    scheduler: str
    started: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One phase of one run of one variant.

    Attributes:
        threads: How many pinned threads ran the operation.
        repeat: Which repeat this is; samples with the same `threads`, `repeat` and `phase` were
            taken back to back, so a ratio between variants pairs them.
        phase: The phase's name; a model without phases has one, "run".
        value: Median over the timed slices of the phase, in the measurement's unit.
        low: The lowest slice.
        high: The highest slice.
        pingpong_ns: One-way cost of handing a cache line between the first two CPUs used,
            measured just before this run; None with fewer than two CPUs.
        start_skew_ns: Between the first and the last thread's start of the run.
        stop_skew_ns: Between the first and the last thread's end of the run.
        runq_wait_ns: Time that the run's threads were runnable but not running, summed.
        counts: Operations ("ops") and the model's own counters in this phase, summed over threads.
        latency_ns: Percentiles "p50", "p90", "p99" and the maximum "max" of what the model timed
            itself, within 3%; empty if it times nothing.
    """

    threads: int
    repeat: int
    phase: str
    value: float
    low: float
    high: float
    pingpong_ns: float | None
    start_skew_ns: float
    stop_skew_ns: float
    runq_wait_ns: float
    counts: dict[str, int]
    latency_ns: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A run that gave no sample, and why: a crash, a deadline, a broken invariant.

    Attributes:
        late: A busy machine may be to blame: it used up its time, or a thread did not get its CPU.
    """

    variant: str
    threads: int
    repeat: int
    reason: str
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """All samples of one variant; `counts` sums the samples' counts."""

    samples: list[Sample] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioAt:
    """A paired ratio between two variants at one thread count and phase."""

    threads: int
    phase: str
    median: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Record):
    """Interleaved repeats of a case's variants.

    Attributes:
        case: The case's slug.
        metric: What `Sample.value` is, with its unit in the name, e.g. "ops_per_s".
        unit: The unit as it stands on an axis, e.g. "operations/s".
        params: The model's parameters as they were set.
        variants: By name, in the order asked for.
        ratio: Keyed "after/before": every later variant over the first one. Above 1 means that
            the later variant's value is larger.
        failures: The runs that gave no sample.
        provenance: Where and how.
        recorded: True for a reference run that was loaded rather than measured just now.
    """

    case: str
    metric: str
    unit: str
    params: dict[str, int]
    variants: dict[str, VariantResult]
    ratio: dict[str, list[RatioAt]]
    failures: list[Failure]
    provenance: Provenance
    schema: int = SCHEMA
    recorded: bool = False

    def samples(
        self, variant: str, *, threads: int | None = None, phase: str | None = None
    ) -> list[Sample]:
        """The variant's samples, optionally of one thread count and one phase only."""
        return [
            s
            for s in self.variants[variant].samples
            if threads in (None, s.threads) and phase in (None, s.phase)
        ]

    def values(
        self, variant: str, *, threads: int | None = None, phase: str | None = None
    ) -> list[float]:
        """`Sample.value` of `samples()`, in the measurement's unit."""
        return [s.value for s in self.samples(variant, threads=threads, phase=phase)]

    def count(
        self, variant: str, counter: str, *, threads: int | None = None, phase: str | None = None
    ) -> int:
        """A counter summed over `samples()`."""
        return sum(s.counts[counter] for s in self.samples(variant, threads=threads, phase=phase))

    def share(
        self,
        variant: str,
        counter: str,
        of: Sequence[str],
        *,
        threads: int | None = None,
        phase: str | None = None,
    ) -> float:
        """What part of the counters `of`, summed, is `counter`: 0 to 1, or NaN of nothing."""
        total = sum(self.count(variant, name, threads=threads, phase=phase) for name in of)
        part = self.count(variant, counter, threads=threads, phase=phase)
        return part / total if total else float("nan")

    def ratio_at(self, variant: str, *, threads: int, phase: str = "run") -> RatioAt:
        """The paired ratio of `variant` over the first variant."""
        base = next(iter(self.variants))
        for row in self.ratio.get(f"{variant}/{base}", []):
            if row.threads == threads and row.phase == phase:
                return row
        raise ContendedError(f"no ratio {variant}/{base} at {threads} threads in phase {phase!r}")

    @property
    def thread_counts(self) -> list[int]:
        """The thread counts that were measured, ascending."""
        return sorted({s.threads for v in self.variants.values() for s in v.samples})

    @property
    def phases(self) -> list[str]:
        """The phases in the order they ran."""
        return list(dict.fromkeys(s.phase for v in self.variants.values() for s in v.samples))


def build(
    *,
    case: str,
    metric: str,
    unit: str,
    params: dict[str, int],
    samples: dict[str, list[Sample]],
    failures: list[Failure],
    provenance: Provenance,
    ratios: bool = True,
) -> Measurement:
    """Assemble a measurement: sum the counts and pair the ratios (first variant is the base).

    A pair whose base is 0 has no ratio and is left out; `RatioAt.pairs` says how many there were.
    """
    variants = {
        name: VariantResult(samples=rows, counts=_sum_counts(rows))
        for name, rows in samples.items()
    }
    base, *others = samples
    return Measurement(
        case=case,
        metric=metric,
        unit=unit,
        params=params,
        variants=variants,
        ratio={
            f"{name}/{base}": _ratios(samples[name], samples[base]) for name in others if ratios
        },
        failures=failures,
        provenance=provenance,
    )


def load(path: Path) -> Measurement:
    """Read a saved measurement; `recorded` is set.

    Raises:
        ContendedError: the file is missing, is not JSON, or does not fit the schema.
    """
    return replace(
        records.load(Measurement, path, "results", SCHEMA, "measure again"), recorded=True
    )


def number(value: float, digits: int = 4) -> str:
    """Significant digits with thousands separators: 13,270,000 or 24.31 or 0.0054."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.{digits}g}"


def _sum_counts(samples: Iterable[Sample]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for sample in samples:
        total.update(sample.counts)
    return dict(total)


def _ratios(top: Sequence[Sample], base: Sequence[Sample]) -> list[RatioAt]:
    rows = []
    below = {(s.threads, s.phase, s.repeat): s.value for s in base}
    places = dict.fromkeys((s.threads, s.phase) for s in top)
    for threads, phase in places:
        pairs = [
            (s.value, below[threads, phase, s.repeat])
            for s in top
            if (s.threads, s.phase) == (threads, phase) and below.get((threads, phase, s.repeat))
        ]
        if pairs:
            ratio = stats.paired_ratio([a for a, _ in pairs], [b for _, b in pairs])
            rows.append(
                RatioAt(
                    threads=threads,
                    phase=phase,
                    median=ratio.median,
                    low=ratio.low,
                    high=ratio.high,
                    pairs=len(pairs),
                )
            )
    return rows
