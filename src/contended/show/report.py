# SPDX-License-Identifier: MIT
"""Results as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from contended import stats
from contended.measure.results import Measurement, number


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text as aligned columns, two spaces apart."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
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


def _values(measurement: Measurement) -> str:
    counters = [c for c in _counters(measurement) if c not in ("ops", "cpu_changes")]
    rows = [
        ["variant", "threads", "phase", measurement.unit, "lowest", "highest", "n"]
        + [f"{c}/op" for c in counters]
    ]
    for name in measurement.variants:
        for threads in measurement.thread_counts:
            for phase in measurement.phases:
                samples = measurement.samples(name, threads=threads, phase=phase)
                if not samples:
                    continue
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
    for name in measurement.variants:
        for threads in measurement.thread_counts:
            for phase in measurement.phases:
                samples = measurement.samples(name, threads=threads, phase=phase)
                found = [s.latency_ns for s in samples if s.latency_ns]
                if not found:
                    continue
                middle = [stats.median([f[p] for f in found]) for p in wanted[:-1]]
                worst = max(f["max"] for f in found)
                cells = [f"{ns / 1e3:,.4g}" for ns in (*middle, worst)]
                rows.append([name, str(threads), phase, *cells])
    return [columns(rows)] if len(rows) > 1 else []


def _counters(measurement: Measurement) -> list[str]:
    return next((list(v.counts) for v in measurement.variants.values() if v.counts), [])


def _ratios(measurement: Measurement) -> str:
    rows = [["paired ratio", "threads", "phase", "median", "95% interval", "pairs"]]
    for pair, places in measurement.ratio.items():
        for r in places:
            interval = f"{r.low:.3g} to {r.high:.3g}"
            rows.append([pair, str(r.threads), r.phase, f"{r.median:.3g}", interval, str(r.pairs)])
    return columns(rows)
