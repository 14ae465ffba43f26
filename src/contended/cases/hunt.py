# SPDX-License-Identifier: MIT
"""Chapter 11's hunt: calls that share nothing, ranked by how they scale, and a line it found.

The kernels' times are records of `contended kernel time hunt`; the model is of one line, which each
rename writes and every walk of a path reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from contended import stats
from contended.cases import timed
from contended.cases.timed import Region
from contended.errors import ContendedError
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
        "stat": Work(490, Parameter("measured", _ALONE, 400, 600)),
        "rename": Work(1620, Parameter("measured", _ALONE, 1300, 2000)),
        "held": Work(100, Parameter("assumed", _HELD, 50, 200)),
    },
    build=_walks,
)


def rates(regions: Sequence[Region], label: str, cpus: int, variant: str) -> list[float]:
    """Operations a second of a call, all CPUs, by seed; ContendedError if it was not timed."""
    wanted = {"label": label, "cpus": cpus, "variant": variant}
    found = [each["per_second"] for each in regions if wanted.items() <= each.items()]
    if not found:
        raise ContendedError(f"results/{SLUG} has no {label} on {cpus} CPUs of {variant}")
    return found


def scaling(file: str = "time") -> dict[str, float]:
    """Of each call, the worst first: the rate of all CPUs of the record over that of one."""
    regions = timed.record(SLUG, file).regions
    variant, most = regions[0]["variant"], max(each["cpus"] for each in regions)
    found = {
        label: stats.median(rates(regions, label, most, variant))
        / stats.median(rates(regions, label, 1, variant))
        for label in dict.fromkeys(each["label"] for each in regions)
    }
    return dict(sorted(found.items(), key=lambda item: item[1]))


def ranked(file: str = "time") -> Table:
    """The calls by what many CPUs make of them, the worst first, and where they wait.

    Raises ContendedError if there is no record.
    """
    regions = timed.record(SLUG, file).regions
    most = max(each["cpus"] for each in regions)
    rows = []
    for label, times in scaling(file).items():
        (one, *_) = rates(regions, label, 1, regions[0]["variant"])
        seen = [each for each in regions if each["label"] == label and each["cpus"] == most]
        worst = max(seen, key=lambda each: float(each["stalled_ns"]))
        rows.append(
            (
                label,
                f"{number(1e6 / one, 3)} µs",
                f"{number(times, 3)} times{' !' * any(map(timed.doubtful, seen))}",
                number(stats.median([each["transfers"] for each in seen]), 3),
                "; ".join(
                    f"{place['function']}: {place['thing']} ({number(place['ns'], 3)} ns)"
                    for place in worst["places"][:PLACES]
                ),
            )
        )
    head = ("call", "alone", f"{most} CPUs over 1", "lines a call", "where it waits longest")
    box = machines.get(regions[0]["machine"]).title
    title = f"Calls that share nothing, Linux {regions[0]['variant']}, {box}"
    mark = "! Doubtful: more than a hundredth of it was timer ticks, or not all worked at one time."
    return Table(title, head, rows, [mark])


def beside(title: str, file: str = "time-beside", seeds: int = 3) -> Plot:
    """Stats beside one that renames: the real kernels in virtual time, and the model.

    Raises ContendedError if there is no record.
    """
    regions = timed.record(SLUG, file).regions
    # The first worker is the one that renames.
    lines = timed.curves(
        regions, lambda r: f"{r['variant']}, kernel", lambda r: sum(r["rates"][1:])
    )
    sizes = sorted({each["cpus"] for each in regions})
    for variant, cpus in product(WALKS.variants, sizes):
        seen = [
            WALKS.run(variant, MACHINE, cpus, seed=seed)["run"].ops_per_s for seed in range(seeds)
        ]
        lines.setdefault(f"{variant}, model", {})[cpus] = seen
    return chart(
        title,
        lines,
        xlabel="CPUs, of which one renames",
        ylabel="stats/s, all CPUs",
        note=f"real kernel in virtual time, and simulated: {machines.get(MACHINE).title}",
    )
