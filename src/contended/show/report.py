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
        before = len(rows)
        for _, threads, phase, samples in _cells(measurement, name):
            values = [s.value for s in samples]
            spread = f"{number(min(values))} to {number(max(values))}"
            rows.append([name, threads, phase, number(stats.median(values)), spread, len(values)])
        rows += [
            [name, failure.threads, f"failed: {failure.reason}"]
            for failure in measurement.failures
            if failure.variant == name
        ]
        if len(rows) == before:
            rows.append([name, "not run"])
    what = "recorded reference run" if measurement.recorded else "measured now"
    where = measurement.provenance
    return Table(
        f"{measurement.case}: {measurement.unit} ({what}; {where.cpu}, Linux {where.kernel}, "
        f"{where.scheduler})",
        ("variant", "threads", "phase", "median", "lowest to highest", "repeats"),
        rows,
    )


def measurement_text(measurement: Measurement) -> str:
    """A measurement as tables: values with spread and counts, latencies, paired ratios."""
    parts = [_values(measurement), *_latencies(measurement)]
    if any(measurement.ratio.values()):
        parts.append(_ratios(measurement))
    parts.extend(
        f"FAILED {f.variant} with {f.threads} threads: {f.reason}" for f in measurement.failures
    )
    where = measurement.provenance
    parts.append(f"{where.cpu}, Linux {where.kernel}, {where.scheduler}, {where.seconds:.1f} s")
    return "\n\n".join(parts)


def _cells(measurement: Measurement, *names: str) -> Iterator[tuple[str, int, str, list[Sample]]]:
    """The samples of each variant (default: all), thread count and phase that has some."""
    for name in names or measurement.variants:
        for threads in measurement.thread_counts:
            for phase in measurement.phases:
                if samples := measurement.samples(name, threads=threads, phase=phase):
                    yield name, threads, phase, samples


def _values(measurement: Measurement) -> str:
    every = next((list(v.counts) for v in measurement.variants.values() if v.counts), [])
    counters = [c for c in every if c not in ("ops", "cpu_changes")]
    rows = [
        ["variant", "threads", "phase", measurement.unit, "lowest", "highest", "n"]
        + [f"{c}/op" for c in counters]
    ]
    for name, threads, phase, samples in _cells(measurement):
        values = [s.value for s in samples]
        ops = sum(s.counts["ops"] for s in samples)
        rows.append(
            [name, str(threads), phase]
            + [number(x) for x in (stats.median(values), min(values), max(values))]
            + [str(len(values))]
            + [f"{sum(s.counts[c] for s in samples) / ops:.4g}" for c in counters]
        )
    return columns(rows)


def _latencies(measurement: Measurement) -> list[str]:
    """What the model timed itself, in a table of its own; nothing if it times nothing."""
    wanted = ("p50", "p90", "p99", "max")
    rows = [["latency (us)", "threads", "phase", *wanted]]
    for name, threads, phase, samples in _cells(measurement):
        if found := [s.latency_ns for s in samples if s.latency_ns]:
            middle = [stats.median([f[p] for f in found]) for p in wanted[:-1]]
            worst = max(f["max"] for f in found)
            cells = [f"{ns / 1e3:,.4g}" for ns in (*middle, worst)]
            rows.append([name, str(threads), phase, *cells])
    return [columns(rows)] if len(rows) > 1 else []


def _ratios(measurement: Measurement) -> str:
    rows = [["paired ratio", "threads", "phase", "median", "95% interval", "pairs"]]
    for pair, places in measurement.ratio.items():
        for r in places:
            interval = f"{r.low:.3g} to {r.high:.3g}"
            rows.append([pair, str(r.threads), r.phase, f"{r.median:.3g}", interval, str(r.pairs)])
    return columns(rows)
