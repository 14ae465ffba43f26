# SPDX-License-Identifier: MIT
"""Chapter 11's hunt: calls that share nothing, ranked by how they scale, and a line it found.

The kernels' times are records of `contended kernel time hunt`; the model is of one line, which each
rename writes and every walk of a path reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from contended import stats
from contended.cases import timed
from contended.errors import ContendedError
from contended.kernel import times
from contended.measure.results import number
from contended.show.canvas import Plot
from contended.show.table import Table
from contended.simulate import machines
from contended.simulate.chart import chart
from contended.simulate.machines import Parameter
from contended.simulate.program import SELF, UNIFORM, ZERO, Memory, Program
from contended.simulate.workload import MS, Scenario, Setup, Work

SLUG = "hunt"
PLACES = 3  #: Of a call's, the worst ones that are shown.
MACHINE = "2x20-smt"
SEEDS = 3  #: Of the model.

_ALONE = "one process of contended kernel time hunt, Linux 7.2, results/hunt/time.json"
_HELD = "d_move() puts a dentry into another chain and swaps two names"


def _walks(setup: Setup, p: Program, memory: Memory) -> None:
    """CPU 0 renames for ever, the others walk paths that have nothing to do with it."""
    lock = memory.word()
    rename, end = p.fresh(2)
    held = setup.work["held"]
    p.branch(SELF, "==", 0, rename)
    if setup.variant == "before":
        p.spin(lock, "==", ZERO, mask=1)
    p.think(setup.work["stat"], UNIFORM)
    p.done()
    p.jump(end)
    p.label(rename)
    p.think(setup.work["rename"] - held, UNIFORM)
    p.add(lock, 1)
    p.think(held)
    p.add(lock, 1)
    p.label(end)


WALKS = Scenario(
    name=SLUG,
    variants={
        "before": "each walk of a path reads rename_lock, and waits while a rename is at work",
        "after": "only walks that must not leave a directory do",
    },
    phases={"start": 0.1 * MS, "run": 1 * MS},
    works={
        "stat": Work(630, Parameter("measured", _ALONE, 530, 730)),
        "rename": Work(2070, Parameter("measured", _ALONE, 1750, 2390)),
        "held": Work(100, Parameter("assumed", _HELD, 50, 200)),
    },
    build=_walks,
)


def scaling() -> dict[str, float]:
    """Of each call, the worst first: the rate of all CPUs of the record over that of one.

    Raises ContendedError if there is no record, or none of one CPU.
    """
    kept = timed.record(SLUG)
    return {label: many / one for label, one, many in _alone_and_together(kept)}


def ranked() -> Table:
    """The calls by what many CPUs make of them, the worst first, and where they wait."""
    kept = timed.record(SLUG)
    first, most = kept.regions[0], max(each["cpus"] for each in kept.regions)
    rows = []
    for label, one, many in _alone_and_together(kept):
        seen = [*kept.of(first["variant"], most, label).values()]
        worst = max(seen, key=lambda each: float(each["stalled_ns"]))
        rows.append(
            (
                label,
                f"{number(1e6 / one, 3)} µs",
                f"{number(many / one, 3)} times{' !' * any(map(times.doubtful, seen))}",
                number(stats.median([each["transfers"] for each in seen]), 3),
                "; ".join(
                    f"{place['function']}: {place['thing']} ({number(place['ns'], 3)} ns)"
                    for place in worst["places"][:PLACES]
                ),
            )
        )
    head = ("call", "alone", f"{most} CPUs over 1", "lines a call", "where it waits longest")
    box = machines.get(first["machine"]).title
    mark = "! Doubtful: more than a hundredth of it was timer ticks, or not all worked at one time."
    notes = [mark] if any(" !" in row[2] for row in rows) else []
    notes += _old([each for each in kept.regions if each["cpus"] == most])
    return Table(f"Calls that share nothing, Linux {first['variant']}, {box}", head, rows, notes)


def _old(shown: Sequence[timed.Region]) -> list[str]:
    old = sum(map(times.outdated, shown))
    return [f"{old} of these {len(shown)} boots are {times.OUTDATED}."] if old else []


def _alone_and_together(kept: timed.Record) -> list[tuple[str, float, float]]:
    variant, most = kept.regions[0]["variant"], max(each["cpus"] for each in kept.regions)
    found = []
    for label in dict.fromkeys(each["label"] for each in kept.regions):
        both = [[*kept.rates(variant, cpus, label).values()] for cpus in (1, most)]
        if not all(both):
            raise ContendedError(f"results/{SLUG} has no {label} on 1 and on {most} CPUs")
        found.append((label, stats.median(both[0]), stats.median(both[1])))
    return sorted(found, key=lambda each: each[2] / each[1])


def stats_beside() -> dict[str, dict[float, list[float]]]:
    """By kernel, by CPUs: stats a second of all processes but the first, which renames.

    Boots are left out in which the kernel stopped all CPUs meanwhile, as to change its clock: so
    short a run is slower for it than a line makes it.
    """

    def stopped(region: timed.Region) -> bool:
        return any(place["function"] == "multi_cpu_stop" for place in region["places"])

    kept = timed.record(SLUG, "time-beside").regions
    regions = [region for region in kept if not stopped(region)]
    return timed.curves(regions, lambda r: str(r["variant"]), lambda r: sum(r["rates"][1:]))


def beside(title: str) -> Plot:
    """Stats beside one that renames: the real kernels in virtual time, and the model."""
    kernels = stats_beside()
    lines = {f"{name}, kernel": curve for name, curve in kernels.items()}
    for variant in WALKS.variants:
        lines[f"{variant}, model"] = {
            n: [WALKS.run(variant, MACHINE, int(n), seed=s)["run"].ops_per_s for s in range(SEEDS)]
            for n in sorted({n for curve in kernels.values() for n in curve})
        }
    box = machines.get(MACHINE).title
    note = [f"real kernel in virtual time, and simulated: {box}"]
    return chart(
        title,
        lines,
        xlabel="CPUs, of which one renames",
        ylabel="stats/s, all CPUs",
        note="; ".join(note + _old(timed.record(SLUG, "time-beside").regions)).rstrip("."),
    )
