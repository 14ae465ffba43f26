# SPDX-License-Identifier: MIT
"""A measurement as text for a terminal, and as a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contended import stats
from contended.measure.results import Measurement, Sample, number
from contended.show.table import Table, columns


def measurement_table(measurement: Measurement) -> Table:
    """Medians with their spread, and what failed or was not run."""
    rows: list[list[Any]] = []
    for name in measurement.variants:
        found: list[list[Any]] = []
        for _, threads, phase, samples in _cells(measurement, name):
            middle, low, high = _spread(samples)
            found.append([name, threads, phase, middle, f"{low} to {high}", len(samples)])
        for failure in measurement.failures:
            if failure.variant == name:
                found.append([name, failure.threads, f"failed: {failure.reason}"])
        rows += found or [[name, "not run"]]
    what = "recorded reference run" if measurement.recorded else "measured now"
    return Table(
        f"{measurement.case}: {measurement.unit} ({what}; {_where(measurement)})",
        ("variant", "threads", "phase", "median", "lowest to highest", "repeats"),
        rows,
    )


def ratio_table(measurement: Measurement) -> Table:
    """The paired ratios."""
    head, *rows = _ratios(measurement)
    return Table(f"{measurement.case}: how much faster, pair by pair", head, rows)


def measurement_text(measurement: Measurement) -> str:
    """A measurement as tables: values with spread and counts, latencies, paired ratios."""
    parts = [columns(_values(measurement))]
    parts += [columns(t) for t in (_latencies(measurement), _ratios(measurement)) if len(t) > 1]
    parts += [
        f"FAILED {f.variant} with {f.threads} threads: {f.reason}" for f in measurement.failures
    ]
    parts += [f"The machine: {line}." for line in measurement.provenance.disturbed]
    parts.append(f"{_where(measurement)}, {measurement.provenance.seconds:.1f} s")
    return "\n\n".join(parts)


def _where(measurement: Measurement) -> str:
    where = measurement.provenance
    return f"{where.cpu}, Linux {where.kernel}, {where.scheduler}"


def _cells(measurement: Measurement, *names: str) -> Iterator[tuple[str, int, str, list[Sample]]]:
    """The samples of each variant (default: all), thread count and phase that has some."""
    for name in names or measurement.variants:
        for threads in measurement.thread_counts:
            for phase in measurement.phases:
                if samples := measurement.samples(name, threads=threads, phase=phase):
                    yield name, threads, phase, samples


def _spread(samples: list[Sample]) -> list[str]:
    values = [s.value for s in samples]
    return [number(value) for value in (stats.median(values), min(values), max(values))]


def _values(measurement: Measurement) -> list[list[str]]:
    every = next((list(v.counts) for v in measurement.variants.values() if v.counts), [])
    counters = [c for c in every if c not in ("ops", "cpu_changes")]
    heads = ["variant", "threads", "phase", measurement.unit, "lowest", "highest", "n"]
    rows = [heads + [f"{c}/op" for c in counters]]
    for name, threads, phase, samples in _cells(measurement):
        ops = sum(s.counts["ops"] for s in samples)
        per_op = [f"{sum(s.counts[c] for s in samples) / ops:.4g}" for c in counters]
        rows.append([name, str(threads), phase, *_spread(samples), str(len(samples)), *per_op])
    return rows


def _latencies(measurement: Measurement) -> list[list[str]]:
    """What the model timed itself; a heading alone if it times nothing."""
    wanted = ("p50", "p90", "p99", "max")
    rows = [["latency (us)", "threads", "phase", *wanted]]
    for name, threads, phase, samples in _cells(measurement):
        if found := [s.latency_ns for s in samples if s.latency_ns]:
            middle = [stats.median([f[p] for f in found]) for p in wanted[:-1]]
            worst = max(f["max"] for f in found)
            rows.append([name, str(threads), phase] + [f"{t / 1e3:,.4g}" for t in (*middle, worst)])
    return rows


def _ratios(measurement: Measurement) -> list[list[str]]:
    rows = [["paired ratio", "threads", "phase", "median", "95% interval", "pairs"]]
    for pair, places in measurement.ratio.items():
        for r in places:
            interval = f"{r.low:.3g} to {r.high:.3g}"
            rows.append([pair, str(r.threads), r.phase, f"{r.median:.3g}", interval, str(r.pairs)])
    return rows
