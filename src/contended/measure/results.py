# SPDX-License-Identifier: MIT
"""Typed results of measurements: what was seen, and on what machine, as JSON.

A file that was edited by hand, cut short or written by another version is refused on load.
"""

import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contended import __version__, machine, records, state, stats
from contended.errors import ContendedError
from contended.records import Record
from contended.state import Check

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The machine, software and circumstances that a number belongs to.

    `state` is what `contended.state` found just before and, of stolen time, while it was measured;
    older records have none.
    """

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
    state: list[Check] = field(default_factory=list)

    @property
    def disturbed(self) -> list[str]:
        """What of the machine's state may have spoiled the numbers, a line each."""
        return [str(check) for check in self.state if not check.ok]


def begin(compiler: str, compiler_flags: str) -> Callable[[Sequence[str]], Provenance]:
    """Note time and the machine's state; what it returns gives the provenance."""
    seen, ticks, load = state.checks(), state.now(), machine.load_1min()
    started, clock = machine.now(), time.monotonic()

    def provenance(schedulers: Sequence[str]) -> Provenance:
        seconds = round(time.monotonic() - clock, 3)
        return Provenance(
            cpu=machine.cpu_model(),
            cpus_allowed=machine.allowed_cpus(),
            kernel=platform.release(),
            compiler=compiler,
            compiler_flags=compiler_flags,
            python=platform.python_version(),
            contended=__version__,
            commit=machine.commit(),
            governor=machine.governor(),
            virtualized=machine.hypervisor(),
            load_1min=load,
            scheduler=statistics.mode(schedulers or ["nothing ran"]),
            started=started,
            seconds=seconds,
            state=[*seen, state.steal(ticks, state.now(), "while it was measured")],
        )

    return provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One phase ("run" in a model without any) of one run of one variant.

    Ratios pair those with the same `threads`, `repeat` and `phase`: they were taken back to back.
    `value` is the median over the timed slices, in the measurement's unit, `low` and `high` are the
    extremes. `pingpong_ns` is the one-way cost, just before, of handing a cache line between the
    first two CPUs used. The skews are between the first and the last thread; `runq_wait_ns`, of
    threads that were runnable but not running, and the counts ("ops" and the model's own) are sums.
    `latency_ns` has "p50", "p90", "p99" and "max" of what the model timed itself, within 3%.
    `first_touch` is the CPU that wrote the shared lines first: what a hand-over costs may depend on
    it. It is the first of those used, unless threads were not pinned; older records have none.
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
    first_touch: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that gave no sample, and why; `late` is as in `runner.RunFailed`."""

    variant: str
    threads: int
    repeat: int
    reason: str
    late: bool = False


@dataclass(frozen=True, slots=True)
class VariantResult:
    """All samples of one variant; `counts` sums the samples' counts."""

    samples: list[Sample] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
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
    """Interleaved repeats of a case's variants, in the order asked for.

    `metric` ("ops_per_s") is what `Sample.value` is, `unit` ("operations/s") stands on an axis.
    `ratio` is keyed "after/before": every later variant over the first one. It is `recorded` if it
    was loaded rather than measured just now.
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
        rows = self.variants[variant].samples
        return [s for s in rows if threads in (None, s.threads) and phase in (None, s.phase)]

    def values(self, variant: str, **at: Any) -> list[float]:
        """`Sample.value` of `samples()`, in the measurement's unit."""
        return [s.value for s in self.samples(variant, **at)]

    def count(self, variant: str, counter: str, **at: Any) -> int:
        """A counter summed over `samples()`."""
        return sum(s.counts[counter] for s in self.samples(variant, **at))

    def share(self, variant: str, counter: str, of: Sequence[str], **at: Any) -> float:
        """What part of the counters `of`, summed, is `counter`: 0 to 1, or NaN of nothing."""
        total = sum(self.count(variant, name, **at) for name in of)
        return self.count(variant, counter, **at) / total if total else float("nan")

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


def build(*, samples: Mapping[str, list[Sample]], ratios: bool = True, **about: Any) -> Measurement:
    """A measurement of samples and its other fields; no ratio is taken over a base of 0."""
    variants = {}
    for name, rows in samples.items():
        counts: Counter[str] = Counter()
        for row in rows:
            counts.update(row.counts)
        variants[name] = VariantResult(rows, dict(counts))
    base, *others = samples
    ratio = {f"{name}/{base}": _ratios(samples[name], samples[base]) for name in others if ratios}
    return Measurement(variants=variants, ratio=ratio, **about)


def load(path: Path) -> Measurement:
    """Read a saved measurement; `recorded` is set."""
    found = records.load(Measurement, path, "results", SCHEMA, "measure again")
    return replace(found, recorded=True)


def number(value: float, digits: int = 4) -> str:
    """Significant digits with thousands separators: 13,270,000 or 24.31 or 0.0054."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.{digits}g}"


def _ratios(top: Sequence[Sample], base: Sequence[Sample]) -> list[RatioAt]:
    below = {(s.threads, s.phase, s.repeat): s.value for s in base}
    pairs: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for s in top:
        both = pairs.setdefault((s.threads, s.phase), [])
        if under := below.get((s.threads, s.phase, s.repeat)):
            both.append((s.value, under))
    rows = []
    for (threads, phase), both in pairs.items():
        if both:
            span = stats.paired_ratio(*zip(*both, strict=True))
            rows.append(RatioAt(threads, phase, span.median, span.low, span.high, len(both)))
    return rows
