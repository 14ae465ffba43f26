# SPDX-License-Identifier: MIT
"""A table of which one process was fitted: lockref's loop with a pause in it, and without.

Linux f5fe24ef17b5 names what two of will-it-scale's tests make of one file, with 1 to 96 processes.
With one of them what an instruction takes was found, and nothing by the others. Of the case
`lockref-degrade`, which is about the same loop. The simulator has the calls of the real kernel,
step by step; how long one takes without contention is the table's own one process again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from contended import register, stats
from contended.cases import timed
from contended.cases.evidence import Evidence
from contended.register import Case
from contended.show.table import Table
from contended.simulate import recorded
from contended.simulate.locks import LOCKREF_COUNTERS
from contended.simulate.machines import Parameter
from contended.simulate.predict import Ground, Predicted, span
from contended.simulate.program import Memory, Program
from contended.simulate.verdict import between, gap, judge, told
from contended.simulate.workload import MS, Scenario, Setup, Work

SLUG = "lockref-degrade"
SIZES = (2, 8, 24, 48, 96)
CALLS = ("fstat", "open")
_SAID = {
    8: " Booted with one cost changed at a time, none brings all four numbers within a tenth. What "
    "moves the quotient of fstat is whether a load takes its line, and what is published lies "
    "between: 1.16 times it if each load does, 0.81 times if none.",
    48: " If a socket sends all its requests for a line at once, lines cross so often that all but "
    "open without the pause is too slow; if it sends one at a time, most is too fast. Which it is "
    "is not known, and drawn; chapter 4's seconds are nearer to the former.",
    96: " Whether a socket sends one request for a line at a time is drawn as with 48. If it does, "
    "all but fstat without a pause is too fast, mostly by about twice; if it does not, what has a "
    "pause is too fast by little, and fstat without one too slow.",
}
"""Of some sizes: what is known of the misses; docs/published-table.md says how, and
docs/experiments.md."""
_ON_DISK = (2, 8, 24, 48)  # processes whose file is on ext4 in the record
MACHINE = "2x24-smt"
_VARIANTS = {
    "pause": "a failed exchange is followed by a pause, as until January 2023",
    "no-pause": "it is tried again at once",
}


def _scenario(call: str, test: str, work: Work) -> Scenario:
    """All CPUs make one call on one file, as will-it-scale's test of that name."""

    def build(setup: Setup, p: Program, memory: Memory) -> None:
        # what one that does not fail does is the same with the pause
        operation = recorded.load("will-it-scale", f"{call}-disk").of("no-pause")
        replay = recorded.Replay(operation, setup.lock, pause=setup.variant == "pause")
        replay.put(p, memory, setup.work[test])

    return Scenario(
        name=f"will-it-scale-{call}",
        variants=_VARIANTS,
        phases={"start": 0.5 * MS, "run": 2 * MS},
        counters=LOCKREF_COUNTERS,
        works={test: work},
        build=build,
    )


_ALONE = "linuxf5fe24ef17b5: what one process makes there, less the lines that it has"
FSTAT = _scenario("fstat", "fstat2", Work(314, Parameter("cited", _ALONE, 312, 316)))
OPEN = _scenario("open", "open3", Work(1124, Parameter("cited", _ALONE, 1117, 1131)))
_SCENARIOS = dict(zip(CALLS, (FSTAT, OPEN), strict=True))
_WHY = "the calls' steps, their time by the same table's one process"


def figure(workers: int) -> str:
    """The id of the figure of so many processes."""
    return f"pause-{workers}"


def names(call: str) -> tuple[str, str]:
    """The published values of a call: with the pause, and without."""
    return f"{call}-pause", f"{call}-no-pause"


def predictions(case: Case) -> Iterator[Predicted]:
    """Rows for all of them, and for what the pause is worth."""
    for workers in SIZES:
        published = case.figure(figure(workers))
        for call in CALLS:
            here = Ground(_SCENARIOS[call], MACHINE, workers)
            both, rates = names(call), (here.rate("pause"), here.rate("no-pause"))
            for name, rate in zip(both, rates, strict=True):
                yield here.value(published, name, rate, _WHY)
            yield here.ratio(published, *both, rates, _WHY)


def evidence() -> dict[str, Evidence]:
    """What was timed beside each, by the figure's id."""
    return {figure(workers): _of(workers) for workers in SIZES}


def table() -> Table:
    """A row for each call, variant and quotient, a column for each number of processes.

    A cell is what was published, the 5th to the 95th percentile of the draws, and the verdict; "!"
    if some of the draws are to be doubted.
    """
    rows: dict[str, list[str]] = {}
    for row in _values():
        values = row.timing.values
        ends = stats.percentiles(values)
        unit = 1e6 if row.unit != "ratio" else 1.0
        published, ours = (span(low / unit, high / unit) for low, high in (row.published, ends))
        factor = gap(ends, row.published, row.unit)
        apart = between(values, row.published)
        verdict = told(judge(ends, row.published, row.unit), factor, apart=apart)
        mark = " !" if row.timing.doubtful else ""
        rows.setdefault(row.name, []).append(f"{published} → {ours}{mark}: {verdict}")
    return Table(
        "One file, by will-it-scale: published → in virtual time, millions a second or a quotient; "
        "!: some draws are doubtful (ticks, or waits given up)",
        ("", *(f"{workers} processes" for workers in SIZES)),
        [(said(name), *cells) for name, cells in rows.items()],
    )


def said(name: str) -> str:
    """A value's name in words: what was timed, and of the quotient what it is."""
    call, _, what = name.partition("-")
    return f"{call}, {'the one over the other' if '/' in what else what.replace('-', ' ')}"


def held(*, quotients: bool) -> tuple[int, int]:
    """How many of the numbers, or of the quotients, held, and of how many."""
    verdicts = [
        judge(stats.percentiles(row.timing.values), row.published, row.unit)
        for row in _values()
        if (row.unit == "ratio") == quotients
    ]
    return verdicts.count("held"), len(verdicts)


def middles(name: str) -> dict[int, float]:
    """By the number of processes: a value's middle over what was published."""
    return {
        row.workers: stats.median(row.timing.values) / published(name, row.workers)
        for row in _values()
        if row.name == name
    }


def published(name: str, workers: int) -> float:
    """A rate of the table, operations a second, or what the pause leaves of one."""
    of, (over, _, under) = register.get(SLUG).figure(figure(workers)), name.partition("/")
    return of.ratio(over, under)[0] if under else of.value(name).middle


def by_requests(name: str, workers: int) -> tuple[list[float], list[float]]:
    """A value's draws: those where a socket sends all requests for a line, and one at a time."""
    return timed.load(SLUG, evidence()[figure(workers)].timed)[name].either("grouped")


class _Seen(NamedTuple):
    workers: int
    name: str
    published: tuple[float, float]
    timing: timed.Timing

    @property
    def unit(self) -> str:
        return "ratio" if "/" in self.name else "operations/s"


def _values() -> Iterator[_Seen]:
    """Each row's published range, and what was timed for it."""
    about, case = evidence(), register.get(SLUG)
    for workers in SIZES:
        id_ = figure(workers)
        for name, timing in timed.load(SLUG, about[id_].timed).items():
            yield _Seen(workers, name, case.figure(id_).range(name), timing)


def _of(workers: int) -> Evidence:
    rows: list[timed.Time] = []
    for call in CALLS:
        both, on_disk = names(call), "disk-" if workers in _ON_DISK else ""
        # `contended kernel time will-it-scale --run CALL-disk --drawn`, or CALL-distribution
        file = f"../will-it-scale/time-drawn-{on_disk}{call}"
        variants = "pause", "no-pause"
        rows += [
            timed.rate(name, variant, workers, file=file)
            for name, variant in zip(both, variants, strict=True)
        ]
        rows.append(timed.ratio("/".join(both), *variants, workers, file=file))
    return Evidence(
        no_userspace="The model has one loop, without a pause.",
        no_kernel="How fast it is needs a clock, and the lab's machine has none to trust.",
        timed=tuple(rows),
        note="What an instruction takes was chosen by the same table's one process; nothing else "
        "was fitted to it, though parts of it had been seen when some choices were made. With 96 "
        "processes two share a core. The kernel does in each call what a distribution's does, as "
        "its author's did."
        + (" The file is on ext4, as his were later." if workers in _ON_DISK else "")
        + _SAID.get(workers, ""),
    )
