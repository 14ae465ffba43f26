# SPDX-License-Identifier: MIT
"""Measure C models: interleaved, pinned, repeated, with what the machine did beside each number.

The machine drifts: its clock, its neighbours, the cost of moving a cache line. So the variants of a
case take turns within each repeat, back to back, and are compared pair by pair.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Literal

from contended import cc, machine
from contended.errors import ContendedError, UsageError, check_range
from contended.measure import models, native, results
from contended.measure.models import Model
from contended.measure.provenance import provenance
from contended.measure.results import Failure, Measurement, Provenance, Sample
from contended.measure.runner import GRACE_S, Config, Run, RunFailed, Runner

Sched = Literal["auto", "fifo", "other"]
Order = Literal["interleaved", "blocked"]
Progress = Callable[[int, int], None]

SCHEDS: dict[Sched, int] = {"auto": 0, "fifo": 1, "other": 2}
# A run whose threads waited longer than this for a CPU, as a share of their time, is taken again.
WAIT_SHARE = 0.02
ATTEMPTS = 3
# The usual deadline of a run that ends after a number of operations, seconds.
UNPLANNED_S = 60.0
PINGPONG_TURNS = 2000
MAX_REPEATS = 1000
MAX_THINK_NS = 1_000_000_000


class TooFewCpus(ContendedError):
    """The measurement needs more CPUs than this process may use."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run to make: a variant at a thread count, in a repeat."""

    variant: str
    threads: int
    repeat: int


def measure(
    model: str | Path,
    *,
    variants: Sequence[str] | None = None,
    threads: Sequence[int] | None = None,
    repeats: int = 7,
    params: Mapping[str, int] | None = None,
    think_ns: int = 0,
    slices: int = 5,
    slice_ms: float = 12.0,
    warmup_ms: float = 20.0,
    ops: int = 0,
    sched: Sched = "auto",
    pin: bool = True,
    cpus: Sequence[int] | None = None,
    order: Order = "interleaved",
    retry: bool = True,
    metric: str = "ops_per_s",
    deadline_s: float | None = None,
    progress: Progress | None = None,
) -> Measurement:
    """Measure a model's variants on this machine.

    Args:
        model: A slug, or the path of a C file.
        variants: Which, the base of the ratios first; default all.
        threads: Thread counts; default 1, 2, 4, ... and all CPUs that this process may use.
        repeats: How often each variant is run at each thread count.
        params: The model's parameters that differ from their initial values.
        think_ns: Private work after each operation, nanoseconds.
        slices: Timed samples in each phase of a run (at most 64).
        slice_ms: Length of a slice, milliseconds.
        warmup_ms: Length of the warm-up, milliseconds.
        ops: Operations of each thread in each slice; 0 for slices of `slice_ms`.
        sched: "auto" takes SCHED_FIFO where it is allowed and safe; "fifo" insists; "other" never.
        pin: False only to show what goes wrong without.
        cpus: The CPU of thread 0, 1, ...; default the allowed ones in ascending order.
        order: "interleaved" runs the variants of a repeat back to back, forwards and backwards in
            turn; "blocked" runs all repeats of a variant before the next, to show what goes wrong.
        retry: Take a run again, up to twice, if its threads had to wait for a CPU; False to show
            what happens without.
        metric: What a sample's value is: "ops_per_s", all threads together; "ns_per_op", in each
            thread; "latency_us", the median of what the model times itself; or, for a counter X
            of the model, "X_per_op".
        deadline_s: A run that takes longer is stopped, and is a failure; default three times what
            it plans, and some seconds for a busy machine; a minute with `ops`.
        progress: Called with the runs done and the runs planned.

    Returns:
        The chosen metric, with counts. A variant that failed once is not run again, and is in
        `failures`.

    Raises:
        UsageError: an unknown name or a value out of range.
        TooFewCpus: more threads than CPUs: threads that preempt each other are another subject.
        ContendedError: the model does not compile, or "fifo" is refused.
    """
    with Runner() as runner:
        about = models.describe(model, runner)
        names = list(dict.fromkeys(variants or (v.name for v in about.variants)))
        indices = {name: about.variant_index(name) for name in names}
        values = about.param_values(params or {})
        places = list(cpus) if cpus is not None else machine.allowed_cpus()
        counts = _thread_counts(about, threads, places)
        unit = _unit(about, metric)
        check_range("repeats", repeats, 1, MAX_REPEATS)
        check_range("slices", slices, 1, 64)
        check_range("think", think_ns, 0, MAX_THINK_NS)
        check_range("slice_ms", slice_ms, 0.1, 10_000)
        check_range("warmup_ms", warmup_ms, 0, 10_000)
        check_range("ops", ops, 0, 10**12)
        if deadline_s is not None:
            check_range("deadline_s", deadline_s, 0.1, 3600)

        started, clock, load = machine.now(), time.monotonic(), machine.load_1min()
        samples: dict[str, list[Sample]] = {name: [] for name in names}
        failures: list[Failure] = []
        schedulers: Counter[str] = Counter()
        jobs = list(_jobs(names, counts, repeats, order))
        for done, job in enumerate(jobs):
            if progress:
                progress(done, len(jobs))
            if any(failure.variant == job.variant for failure in failures):
                continue
            config = Config(
                variant=indices[job.variant],
                threads=job.threads,
                cpus=places[: job.threads],
                params=list(values.values()),
                slices=slices,
                sched=SCHEDS[sched],
                pin=pin,
                think_ns=think_ns,
                warmup_ns=int(warmup_ms * 1e6),
                slice_ns=0 if ops else int(slice_ms * 1e6),
                ops=ops,
            )
            try:
                handover = _handover_ns(runner, config.cpus)
                run = _undisturbed(runner, about, config, ATTEMPTS if retry else 1, deadline_s)
            except RunFailed as failed:
                if sched == "fifo" and str(failed).startswith("SCHED_FIFO"):
                    raise ContendedError(f"{failed}; use --sched auto or other") from failed
                failures.append(
                    Failure(
                        variant=job.variant,
                        threads=job.threads,
                        repeat=job.repeat,
                        reason=str(failed),
                        late=failed.late,
                    )
                )
                continue
            schedulers[run.sched] += 1
            samples[job.variant].extend(
                _valued(sample, metric) for sample in _samples(about, job, run, handover)
            )
        if progress:
            progress(len(jobs), len(jobs))

    return results.build(
        case=about.slug,
        metric=metric,
        unit=unit,
        params={**values, "think_ns": think_ns},
        samples={
            name: sorted(rows, key=lambda s: (s.threads, s.repeat))
            for name, rows in samples.items()
        },
        failures=failures,
        provenance=_provenance(schedulers, started, time.monotonic() - clock, load),
    )


def pingpong(
    cpus: Sequence[int] | None = None,
    *,
    variant: Literal["store", "swap"] = "store",
    repeats: int = 9,
    progress: Progress | None = None,
) -> Measurement:
    """The cost of handing a cache line between each pair of CPUs.

    Args:
        cpus: Which; default all that this process may use.
        variant: "store" hands over by plain stores, "swap" by compare-and-exchange.
        repeats: Samples of each pair.
        progress: Called with the pairs done and the pairs there are.

    Returns:
        A measurement with a variant "A-B" for each pair of CPUs; its samples are the one-way
        cost in nanoseconds.

    Raises:
        TooFewCpus: fewer than two CPUs.
    """
    places = list(cpus) if cpus is not None else machine.allowed_cpus()
    if len(places) < 2:
        raise TooFewCpus(
            f"a cache line travels between two CPUs; this process may use only {places}"
        )
    started, clock, load = machine.now(), time.monotonic(), machine.load_1min()
    samples: dict[str, list[Sample]] = {}
    schedulers: Counter[str] = Counter()
    pairs = list(combinations(places, 2))
    with Runner() as runner:
        about = models.describe("pingpong", runner)
        base = _pingpong_config([0, 0], about.variant_index(variant))
        samples = {f"{a}-{b}": [] for a, b in pairs}
        for repeat in range(repeats):
            for done, (a, b) in enumerate(pairs):
                if progress:
                    progress(repeat * len(pairs) + done, repeats * len(pairs))
                run = runner.run(about.library, replace(base, cpus=[a, b]), deadline_s=GRACE_S)
                schedulers[run.sched] += 1
                job = Job(f"{a}-{b}", 2, repeat)
                samples[job.variant] += [
                    replace(s, value=1e9 / s.value, low=1e9 / s.high, high=1e9 / s.low)
                    for s in _samples(about, job, run, 1e9 / run.phases[0].rate_median)
                ]
    return results.build(
        case=about.slug,
        metric="handover_ns",
        unit="ns",
        params={},
        samples=samples,
        failures=[],
        provenance=_provenance(schedulers, started, time.monotonic() - clock, load),
        ratios=False,
    )


def _unit(about: Model, metric: str) -> str:
    """The unit of a metric of this model, as it stands on an axis."""
    units = {"ops_per_s": "operations/s", "ns_per_op": "ns/operation", "latency_us": "µs"}
    units |= {f"{c.name}_per_op": f"{c.name}/operation" for c in about.counters}
    if metric not in units:
        raise UsageError(f"{about.slug} has no metric {metric!r}; it has: {', '.join(units)}")
    return units[metric]


def _valued(sample: Sample, metric: str) -> Sample:
    """The sample with the metric's value instead of operations per second."""
    if metric == "ops_per_s":
        return sample
    if metric == "ns_per_op":
        cost = 1e9 * sample.threads
        return replace(
            sample, value=cost / sample.value, low=cost / sample.high, high=cost / sample.low
        )
    if metric == "latency_us":
        if not sample.latency_ns:
            raise UsageError("this model times nothing itself; choose another metric")
        value = sample.latency_ns["p50"] / 1000
    else:
        value = sample.counts[metric.removesuffix("_per_op")] / sample.counts["ops"]
    return replace(sample, value=value, low=value, high=value)


def _thread_counts(about: Model, wanted: Sequence[int] | None, cpus: Sequence[int]) -> list[int]:
    have = len(cpus)
    if not have:
        raise UsageError("cpus is empty: name at least one CPU, or leave it out")
    if not wanted:
        if about.max_threads == 1:
            return [1]
        if have < 2:
            raise TooFewCpus(
                f"contention needs two CPUs, and this process may use only CPU {cpus[0]}: "
                "allow it more (taskset, cpuset), or ask for --threads 1 to see the cost without"
            )
        powers = {1 << k for k in range(have.bit_length()) if 1 << k <= have} | {have}
        fit = [n for n in sorted(powers) if about.min_threads <= n <= (about.max_threads or have)]
        return fit or [about.min_threads]
    for n in wanted:
        if n < about.min_threads or n > (about.max_threads or n):
            most = f" to {about.max_threads}" if about.max_threads else " or more"
            raise UsageError(f"{about.slug} runs with {about.min_threads}{most} threads, not {n}")
        if n > have:
            listed = ",".join(map(str, cpus))
            raise TooFewCpus(
                f"{n} threads need {n} CPUs, and this process may use {have} ({listed}): "
                "ask for fewer threads, or allow it more CPUs (taskset, cpuset)"
            )
    return sorted(set(wanted))


def _jobs(names: Sequence[str], counts: Sequence[int], repeats: int, order: Order) -> Iterator[Job]:
    if order == "blocked":
        for name in names:
            for n in counts:
                for repeat in range(repeats):
                    yield Job(name, n, repeat)
        return
    for repeat in range(repeats):
        for n in counts:
            # There and back again, so that a drift favours nobody.
            for name in names if repeat % 2 == 0 else reversed(names):
                yield Job(name, n, repeat)


def _undisturbed(
    runner: Runner, about: Model, config: Config, attempts: int, deadline_s: float | None
) -> Run:
    """The run, or the calmest of a few if its threads had to wait for a CPU."""
    best: Run | None = None
    planned = config.warmup_ns + config.slice_ns * config.slices * len(about.phases)
    # how long a number of operations takes is not planned
    usual = UNPLANNED_S if config.ops else 3 * planned / 1e9 + GRACE_S
    for _ in range(attempts):
        run = runner.run(about.library, config, deadline_s=deadline_s or usual)
        if run.sched == "SCHED_FIFO":
            # Leave the rest of the machine its share, before the kernel does it by force.
            time.sleep(0.1 * planned / 1e9)
        if best is None or run.runq_wait_ns < best.runq_wait_ns:
            best = run
        if (
            config.ops
            or not config.pin
            or run.runq_wait_ns <= WAIT_SHARE * planned * config.threads
        ):
            break
    assert best is not None
    return best


def _pingpong_config(cpus: list[int], variant: int = 0) -> Config:
    return Config(
        variant=variant,
        threads=2,
        cpus=cpus,
        params=[],
        slices=5,
        sched=SCHEDS["auto"],
        pin=True,
        think_ns=0,
        warmup_ns=0,
        slice_ns=0,
        ops=PINGPONG_TURNS,
    )


def _handover_ns(runner: Runner, cpus: Sequence[int]) -> float | None:
    if len(set(cpus)) < 2:
        return None
    library = native.build("pingpong")
    run = runner.run(library, _pingpong_config(list(cpus[:2])), deadline_s=GRACE_S)
    # Both threads' turns are in the rate, and each turn is one hand-over.
    return 1e9 / run.phases[0].rate_median


def _samples(about: Model, job: Job, run: Run, handover: float | None) -> list[Sample]:
    return [
        Sample(
            threads=job.threads,
            repeat=job.repeat,
            phase=name,
            value=phase.rate_median,
            low=phase.rate_min,
            high=phase.rate_max,
            pingpong_ns=handover,
            start_skew_ns=run.start_skew_ns,
            stop_skew_ns=run.stop_skew_ns,
            runq_wait_ns=run.runq_wait_ns,
            latency_ns=phase.latency_ns,
            counts={
                "ops": phase.ops,
                "cpu_changes": phase.cpu_changes,
                **dict(zip((c.name for c in about.counters), phase.counts, strict=True)),
            },
        )
        for name, phase in zip(about.phases, run.phases, strict=True)
    ]


def _provenance(schedulers: Counter[str], started: str, seconds: float, load: float) -> Provenance:
    usual = schedulers.most_common(1)
    return provenance(
        started,
        seconds,
        load,
        scheduler=usual[0][0] if usual else "nothing ran",
        compiler=cc.compiler().version,
        compiler_flags=" ".join(native.FLAGS),
    )
