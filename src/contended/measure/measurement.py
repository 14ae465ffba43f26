# SPDX-License-Identifier: MIT
"""Measure C models: interleaved, pinned, repeated, with what the machine did beside each number.

The machine drifts: its clock, its neighbours, the cost of moving a cache line. So the variants of a
case take turns within each repeat, back to back, and are compared pair by pair.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

from contended import cc, machine
from contended.errors import ContendedError, UsageError, check_range, pick
from contended.measure import models, native, results
from contended.measure.models import Model
from contended.measure.results import Failure, Measurement, Sample
from contended.measure.runner import GRACE_S, Config, RunFailed, Runner, RunResult

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
_PINGPONG = Config(variant=0, threads=2, cpus=[], ops=PINGPONG_TURNS)


class TooFewCpus(ContendedError):
    """The measurement needs more CPUs than this process may use."""


def measure(
    model: str | Path,
    *,
    variants: Sequence[str] | None = None,
    beside: Mapping[str, tuple[Path, str]] | None = None,
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
    """Measure a model, a slug or a C file, on this machine.

    Its variants (all, or those named; the first is the base of the ratios) take turns in each
    repeat, at each of the thread counts: by default 1, 2, 4, ... and all CPUs that this process may
    use. Thread i runs on `cpus[i]`. A variant that failed once is not run again. `beside` adds
    variants of other files, under names of their own: each a C file that differs from the model in
    what its functions do, and its variant.

    A run has up to 64 slices in each phase, of `slice_ms` or of so many `ops` of each thread, which
    does `think_ns` of private work after each operation. `sched` "auto" takes SCHED_FIFO where it
    is allowed and safe, "fifo" insists, "other" never does. A run whose threads had to wait for a
    CPU is taken again, up to twice. One that takes longer than `deadline_s` is stopped, and failed;
    by default that is three times what it plans, and some seconds for a busy machine, or a minute
    with `ops`. What goes wrong without is shown by `pin=False`, `retry=False` and `order="blocked"`
    (all repeats of a variant before the next).

    `metric` is what a sample's value is: "ops_per_s", all threads together; "ns_per_op", in each
    thread; "latency_us", the median of what the model times itself; or "X_per_op" for a counter X
    of the model. `progress` is called with the runs done and the runs planned.

    Raises UsageError for an unknown name and a value out of range, TooFewCpus for more threads than
    CPUs (threads that preempt each other are another subject), ContendedError if the model does
    not compile, or "fifo" is refused.
    """
    with Runner() as runner:
        about = models.describe(model, runner)
        names = list(dict.fromkeys(variants or (v.name for v in about.variants)))
        which = {name: (about.library, about.variant_index(name)) for name in names}
        for name, (file, variant) in (beside or {}).items():
            other = models.describe(file, runner)
            if replace(other, library=about.library, variants=about.variants) != about:
                raise UsageError(f"{file.name} describes itself otherwise than {about.slug} does")
            which[name] = (other.library, other.variant_index(variant))
        names = list(which)
        values = about.param_values(params or {})
        places = list(cpus) if cpus is not None else machine.allowed_cpus()
        counts = _thread_counts(about, threads, places)
        units = {"ops_per_s": "operations/s", "ns_per_op": "ns/operation", "latency_us": "µs"}
        units |= {f"{c.name}_per_op": f"{c.name}/operation" for c in about.counters}
        unit = pick(units, metric, f"{about.slug} has no metric")
        check_range("repeats", repeats, 1, 1000)
        check_range("slices", slices, 1, 64)
        check_range("think", think_ns, 0, 1e9)
        check_range("slice_ms", slice_ms, 0.1, 10_000)
        check_range("warmup_ms", warmup_ms, 0, 10_000)
        check_range("ops", ops, 0, 10**12)
        check_range("deadline_s", 1 if deadline_s is None else deadline_s, 0.1, 3600)

        ended = results.begin(cc.compiler().version, " ".join(native.FLAGS))
        samples: dict[str, list[Sample]] = {name: [] for name in names}
        failures: dict[str, Failure] = {}
        schedulers: list[str] = []
        tries = ATTEMPTS if retry else 1
        jobs = list(product(names, counts, range(repeats)))
        if order == "interleaved":
            # There and back again, so that a drift favours nobody.
            jobs.sort(key=lambda job: (job[2], job[1], names.index(job[0]) * (-1) ** job[2]))
        for done, (name, n, repeat) in enumerate(jobs):
            if progress:
                progress(done, len(jobs))
            if name in failures:
                continue
            config = Config(
                variant=which[name][1],
                threads=n,
                cpus=places[:n],
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
                run = _undisturbed(
                    runner, replace(about, library=which[name][0]), config, tries, deadline_s
                )
            except RunFailed as failed:
                if sched == "fifo" and str(failed).startswith("SCHED_FIFO"):
                    raise ContendedError(f"{failed}; use --sched auto or other") from failed
                failures[name] = Failure(name, n, repeat, str(failed), failed.late)
                continue
            schedulers.append(run.sched)
            samples[name] += _samples(about, metric, n, repeat, run, handover)
        if progress:
            progress(len(jobs), len(jobs))

    for rows in samples.values():
        rows.sort(key=lambda s: (s.threads, s.repeat))
    what: dict[str, Any] = {"case": about.slug, "metric": metric, "unit": unit}
    what |= {"params": {**values, "think_ns": think_ns}, "failures": list(failures.values())}
    return results.build(samples=samples, provenance=ended(schedulers), **what)


def pingpong(
    cpus: Sequence[int] | None = None,
    *,
    variant: Literal["store", "swap"] = "store",
    repeats: int = 9,
    progress: Progress | None = None,
) -> Measurement:
    """The cost of handing a cache line between each pair of CPUs, one way, in nanoseconds.

    There is a variant "A-B" for each pair of the CPUs, by default of all that this process may use;
    "store" hands over by plain stores, "swap" by compare-and-exchange.
    """
    places = machine.allowed_cpus() if cpus is None else cpus
    if len(places) < 2:
        have = f"this process may use only {places}"
        raise TooFewCpus(f"a cache line travels between two CPUs; {have}")
    ended = results.begin(cc.compiler().version, " ".join(native.FLAGS))
    schedulers: list[str] = []
    pairs = list(combinations(places, 2))
    samples: dict[str, list[Sample]] = {f"{a}-{b}": [] for a, b in pairs}
    with Runner() as runner:
        about = models.describe("pingpong", runner)
        index = about.variant_index(variant)
        for done, (repeat, pair) in enumerate(product(range(repeats), pairs)):
            if progress:
                progress(done, repeats * len(pairs))
            config = replace(_PINGPONG, variant=index, cpus=list(pair))
            run = runner.run(about.library, config, deadline_s=GRACE_S)
            schedulers.append(run.sched)
            cost = 1e9 / run.phases[0].rate_median
            rows = samples[f"{pair[0]}-{pair[1]}"]
            rows += _samples(about, "handover_ns", 2, repeat, run, cost)
    what: dict[str, Any] = {"case": about.slug, "params": {}, "failures": []}
    what |= {"metric": "handover_ns", "unit": "ns"}
    return results.build(samples=samples, ratios=False, provenance=ended(schedulers), **what)


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
        powers = {1 << k for k in range(have.bit_length())} | {have}
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


def _undisturbed(
    runner: Runner, about: Model, config: Config, attempts: int, deadline_s: float | None
) -> RunResult:
    """The run, or the calmest of a few if its threads had to wait for a CPU."""
    planned = config.warmup_ns + config.slice_ns * config.slices * len(about.phases)
    # how long a number of operations takes is not planned
    usual = UNPLANNED_S if config.ops else 3 * planned / 1e9 + GRACE_S
    taken: list[RunResult] = []
    for _ in range(attempts):
        run = runner.run(about.library, config, deadline_s=deadline_s or usual)
        taken.append(run)
        if run.sched == "SCHED_FIFO":
            # Leave the rest of the machine its share, before the kernel does it by force.
            time.sleep(0.1 * planned / 1e9)
        calm = run.runq_wait_ns <= WAIT_SHARE * planned * config.threads
        if calm or config.ops or not config.pin:
            break
    return min(taken, key=lambda run: run.runq_wait_ns)


def _handover_ns(runner: Runner, cpus: Sequence[int]) -> float | None:
    if len(set(cpus)) < 2:
        return None
    config = replace(_PINGPONG, cpus=list(cpus[:2]))
    run = runner.run(native.build("pingpong"), config, deadline_s=GRACE_S)
    # Both threads' turns are in the rate, and each turn is one hand-over.
    return 1e9 / run.phases[0].rate_median


def _samples(
    about: Model, metric: str, threads: int, repeat: int, run: RunResult, handover: float | None
) -> list[Sample]:
    rows = []
    waits = {name: getattr(run, name) for name in ("start_skew_ns", "stop_skew_ns", "runq_wait_ns")}
    for name, phase in zip(about.phases, run.phases, strict=True):
        own = dict(zip((c.name for c in about.counters), phase.counts, strict=True))
        value, low, high = phase.rate_median, phase.rate_min, phase.rate_max
        if metric in ("ns_per_op", "handover_ns"):
            cost = 1e9 * (threads if metric == "ns_per_op" else 1)
            value, low, high = cost / value, cost / high, cost / low
        elif metric == "latency_us":
            if not phase.latency_ns:
                raise UsageError("this model times nothing itself; choose another metric")
            value = low = high = phase.latency_ns["p50"] / 1000
        elif metric != "ops_per_s":
            value = low = high = own[metric.removesuffix("_per_op")] / phase.ops
        rows.append(
            Sample(
                threads=threads,
                repeat=repeat,
                phase=name,
                value=value,
                low=low,
                high=high,
                pingpong_ns=handover,
                latency_ns=phase.latency_ns,
                first_touch=run.first_touch,
                counts={"ops": phase.ops, "cpu_changes": phase.cpu_changes, **own},
                **waits,
            )
        )
    return rows
