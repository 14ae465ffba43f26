# SPDX-License-Identifier: MIT
"""A case's kernels in virtual time: how fast they are on a machine with more CPUs than this one.

The plugin (`csrc/qemu/clock.h`) keeps a clock for each vCPU: instructions take a time, and so does
each cache line that comes from another CPU, by the distances of a machine of the simulators. The
result is that of the real kernel's code and its real races, whatever the host does meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contended import machine as host
from contended.errors import UsageError, check_range
from contended.kernel import build, c2c, history, prices, releases, source, variants
from contended.kernel.make import Progress
from contended.kernel.source import KernelSource
from contended.kernel.times import Clock, Timed, Times, measured
from contended.kernel.variants import GuestRun, KernelCase, Variant
from contended.simulate import machines
from contended.simulate.caches import Policy
from contended.simulate.machines import MachineModel

MACHINE = "2x20-smt"
CPUS = (1, 4, 16)
WINDOW_NS = 200.0
DEADLINE_S = 900.0  # of a boot; longer in proportion with more CPUs than `FEW`, on a busy host
FEW = 64
LINES = 24  # that are named, those waited for longest
TRIES = 3  # of a boot, until its processes have worked at the same time


def time(
    slug: str,
    *,
    machine: str = MACHINE,
    cpus: Sequence[int] = CPUS,
    wanted: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    run: str | None = None,
    changed: Mapping[str, str] | None = None,
    windows: Sequence[float] = (WINDOW_NS,),
    seeds: int = 1,
    drawn: bool = False,
    instruction: tuple[float, float] | None = None,
    ahead: float | None = None,
    costs: Sequence[tuple[str, float]] = (),
    each_cost: bool = False,
    kept: Clock = "region",
    policy: Policy = "chance",
    source_path: Path | None = None,
    progress: Progress | None = None,
) -> Times:
    """Time variants of a case: before and after, or all if it lacks these, or those `wanted`.

    With `names` of releases it is the unpatched kernel of each, or what is `wanted` of each, got
    and built if need be, and the name says of which. The run is the first with `profile = true`
    unless one is named; `changed` are parameters of its workload, over its own. Each number of CPUs
    is as many processes, pinned to the first CPUs of the machine as Linux numbers them, and one
    boot for each seed, with the machine's costs or, if they are `drawn`, with others for each seed,
    the same for all variants. What an `instruction` takes, least and most nanoseconds, can be that
    with which one process is as fast as a published one, and how many nanoseconds `ahead` of its
    instruction a load may begin; and who is next for a line, another `policy` of `prices.POLICIES`
    than chance. With several `windows`, by which a CPU may be ahead of the others, it is all of
    these for each. Each of some `costs` is changed alone, too, in boots of its own, whose label
    names it: what a result depends on; with `each_cost`, `prices.halves` of all. With the clock
    `kept` by the guest there may be more processes than CPUs, and sleep is in that time. More CPUs
    than a run's kernels know are those of configuration `many`. Raises UsageError for more than
    these, or the machine, have, an unknown machine or cost, a window that is none, for processes
    without a CPU on the region's clock or CPUs without a process, for who is next said twice, and
    for what the case lacks.
    """
    case, box = variants.load(slug), machines.get(machine)
    check_range("--seeds", seeds, 1, 100)
    for window_ns in windows:
        if not 1 <= window_ns <= 100_000:
            raise UsageError(f"a window of {window_ns:g} ns: give 1 to 100000")
    if instruction and not prices.LEAST["instruction"] <= instruction[0] <= instruction[1] <= 10:
        raise UsageError("--instruction: give one nanosecond figure, or two, from 0.001 to 10")
    if ahead is not None and not 0 <= ahead <= 1000:
        raise UsageError(f"--ahead {ahead:g}: give 0 to 1000 nanoseconds")
    how = c2c.choose_run(case, run)
    for n in cpus:
        check_range("--cpus", n, 1, min(box.cpus, how.of_many().workers))
    how = replace(how, args={**how.args, **(changed or {})}, watch=(), calls=())
    procs = str(how.args.get("procs", ""))
    if procs.isdecimal() and not int(procs):
        raise UsageError(f"procs={procs}: give 1 or more")
    if kept == "region" and str(how.args.get("loose", "")) == "1":
        raise UsageError("loose=1: the scheduler may leave a CPU empty, so give --clock guest")
    if kept == "region" and procs.isdecimal():
        if int(procs) > min(cpus):
            raise UsageError(
                f"{procs} processes on {min(cpus)} CPUs: who waits for a CPU sleeps, so give "
                "--clock guest"
            )
        if int(procs) < max(cpus):
            raise UsageError(
                f"{procs} processes on {max(cpus)} CPUs: each CPU has one here, so give "
                f"--cpus {procs}"
            )
    instruction = instruction or prices.instruction(how.config)
    told = {} if ahead is None else {"ahead": ahead}
    if policy != "chance":
        if any(name == "grouped" for name, _ in costs):
            raise UsageError(f"--cost grouped says who is next, and so does --policy {policy}")
        told["grouped"] = float(policy == "grouped")
    one = {"instruction": sum(instruction) / 2} if instruction else {}
    if drawn and (costs or each_cost):
        raise UsageError(
            "a cost is changed alone where the others are as stated: leave out --drawn"
        )
    drawn_costs = prices.draws(box, seeds, instruction, told) if drawn else None
    priced = {}
    for n in sorted(set(cpus)):
        halves = prices.halves(box, prices.costs(box, told | one), n) if each_cost else []
        if policy != "chance":
            halves = [(name, value) for name, value in halves if name != "grouped"]
        priced[n] = [
            (_label(change), seed, price)
            for change in prices.apart(box, [*costs, *halves], told | one)
            for seed, price in enumerate(
                drawn_costs or [prices.costs(box, told | one | change)] * seeds, 1
            )
        ]
    chosen = _chosen(case, wanted, names, source_path, progress)
    sizes = [(n, window) for n in priced for window in sorted(set(windows))]
    plan = [
        (each, n, window, price) for each in chosen for n, window in sizes for price in priced[n]
    ]
    found: list[Timed] = []
    for at, ((variant, tree), n, window_ns, (label, seed, price)) in enumerate(plan):
        fits = how if n <= how.workers else how.of_many()
        kernel = build.build(variant, fits.config, tree, progress)
        if progress:
            progress(f"time {variant.name} on {n} CPUs", at, len(plan))
        met = _met(kernel, variant, fits, box, n, seed, price, window_ns, kept, policy)
        found += [replace(each, label=f"{each.label} {label}".strip()) for each in met]
    order = [variant.name for variant, _ in chosen]
    found.sort(key=lambda t: (order.index(t.variant), t.label, t.cpus, t.window_ns, t.seed))
    return Times(
        *(slug, how.name, how.args, tuple(found)),
        cpu=host.cpu_model(),
        commit=host.commit(),
    )


def _label(change: Mapping[str, float]) -> str:
    return "".join(f"{name}={value:g}" for name, value in change.items())


def _chosen(
    case: KernelCase,
    wanted: Sequence[str] | None,
    names: Sequence[str] | None,
    source_path: Path | None,
    progress: Progress | None,
) -> list[tuple[Variant, KernelSource]]:
    if not names:
        here = c2c.choose_variants(case, wanted)
        tree = source.find(source_path)
        return [(variant, tree) for variant in here]
    if source_path:
        raise UsageError("--releases gets Debian's sources: leave out --source")
    several = [releases.get(name) for name in dict.fromkeys(names)]
    plain, tell = history.unpatched(case.slug), progress or (lambda *_: None)
    kernels = case.pick(wanted) if wanted else [plain]
    trees = [source.obtain(None, lambda what: tell(what, 0, 0), release) for release in several]
    return [
        # How its structs lie is said of the book's release.
        (replace(one, name=f"{one.name} {release}" if wanted else release.name, layout={}), tree)
        for one in kernels
        for release, tree in zip(several, trees, strict=True)
    ]


def _met(*how: Any) -> list[Timed]:
    """As `_timed`, booted again where the processes never worked at the same time."""
    for _ in range(TRIES):
        seen = _timed(*how)
        if all(each.together_ns for each in seen):
            break
    return seen


def _timed(
    kernel: build.Kernel,
    variant: Variant,
    run: GuestRun,
    box: MachineModel,
    cpus: int,
    seed: int,
    price: Mapping[str, float],
    window_ns: float,
    kept: Clock = "region",
    policy: Policy = "chance",
) -> list[Timed]:
    seen = c2c.profile_kernel(
        kernel,
        variant,
        run,
        vcpus=cpus,
        quantum=round(window_ns * 1000),
        time=prices.settings(box, seed, price, int(kept == "region"), cpus, policy),
        lines=LINES,
        guest=kept == "guest",
        deadline_s=DEADLINE_S * max(1.0, cpus / FEW),
    )
    place: dict[str, Any] = {
        "machine": box.name,
        "cpus": cpus,
        "seed": seed,
        "window_ns": window_ns,
        "clock": kept,
        "policy": policy,
    }
    found = [measured(*each, costs=price, **place) for each in seen]
    for each in found:
        if kept == "region" and len(each.rates) != cpus:
            raise UsageError(
                f"{len(each.rates)} of {cpus} CPUs did two operations or more: give as many --cpus "
                "as the workload has processes (some have one), or more operations (--set ops=N)"
            )
    return found
