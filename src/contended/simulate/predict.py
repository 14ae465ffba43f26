# SPDX-License-Identifier: MIT
"""Every published number that a simulation can speak to, with the simulated one beside it.

A prediction comes with the range that its parameters leave it: each assumed or cited cost is set to
both ends of its own range, one at a time. It is "held" by its central value alone: a number within
a factor of 1.5; a ratio between variants if it is within a tenth of the published one, or within a
factor of two and its logarithm is, too, so that it points the same way. Otherwise it "differs".
Where a simulation has nothing to say, it "cannot", and says why. Numbers in the discussion are put
in from the rows, never typed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from contended import register as register
from contended.measure.results import number
from contended.simulate import cases, grace, machines
from contended.simulate.caches import Costs, Phase
from contended.simulate.machines import Machine

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["held", "differs", "cannot"]

OPS_64_MOUNTS = 64 * 100 * 10_000  # opens in the report's test
NEAR = 1.1
NEAR_ENOUGH = 1.5
NEAR_ENOUGH_RATIO = 2.0  # also for its logarithm, see _logarithm_is_near
SHORTER = 0.4  # of a phase is enough to see which way a parameter pulls


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A published value and its simulated counterpart.

    Attributes:
        figure: Id of the published figure.
        name: The value's name there, or "a/b" for the ratio of two.
        unit: Of all numbers here.
        published: Lowest and highest.
        simulated: With central parameters; None if a simulation cannot say.
        low: Lowest over the ranges of the parameters; None as above.
        high: Highest.
        machine: Name of the simulated machine; "" if there is none.
        cpus: How many CPUs ran; 0 if none did.
        verdict: See the module.
        why: What to keep in mind, or why not; one sentence.
    """

    figure: str
    name: str
    unit: str
    published: tuple[float, float]
    simulated: float | None
    low: float | None
    high: float | None
    machine: str
    cpus: int
    verdict: Verdict
    why: str

    @property
    def factor(self) -> float:
        """Simulated over published (the middle of its range); NaN without a simulation."""
        low, high = self.published
        middle = (low + high) / 2
        if self.simulated is None or not middle:
            return float("nan")
        return self.simulated / middle


def holds(simulated: float, published: tuple[float, float], unit: str) -> bool:
    """Is a simulated value near enough to a published range? See the module for what that is.

    Args:
        simulated: The value.
        published: Lowest and highest.
        unit: Of both; "ratio" is a ratio between variants, "%" a change against one.
    """
    low, high = published
    if unit == "%":
        simulated, low, high = (1 + value / 100 for value in (simulated, low, high))
    if low <= simulated <= high:
        return True
    if simulated <= 0 or low <= 0:
        return False
    if unit not in ("ratio", "%"):
        return low / NEAR_ENOUGH <= simulated <= high * NEAR_ENOUGH
    if low / NEAR <= simulated <= high * NEAR:
        return True
    if not low / NEAR_ENOUGH_RATIO <= simulated <= high * NEAR_ENOUGH_RATIO:
        return False
    return any(_logarithm_is_near(simulated, end) for end in (low, high) if end != 1)


def _logarithm_is_near(a: float, b: float) -> bool:
    # Within a factor of two, by squares: libraries round a logarithm's last digit as they like.
    return b <= a * a and a <= b * b if b > 1 else b * b <= a and a * a <= b


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What simulation says of one case.

    Attributes:
        slug: The case.
        rows: A row for each published value, in the register's order, and for some ratios.
        text: A sentence for each simulated row, and the discussion, Markdown.
        discussion: The misses discussed, a paragraph each; every number in it comes from `rows`.
    """

    slug: str
    rows: tuple[Predicted, ...]
    text: str
    discussion: tuple[str, ...] = ()

    def row(self, figure: str, name: str) -> Predicted:
        """The row of a figure's value.

        Raises:
            KeyError: there is none.
        """
        for row in self.rows:
            if (row.figure, row.name) == (figure, name):
                return row
        raise KeyError(f"{figure}/{name}")

    def frame(self) -> pd.DataFrame:
        """The rows as a table, one column for each attribute of Predicted, and `factor`."""
        pandas = cases.require_pandas()
        found: pd.DataFrame = pandas.DataFrame(
            [
                {
                    "case": self.slug,
                    "figure": row.figure,
                    "value": row.name,
                    "unit": row.unit,
                    "published_low": row.published[0],
                    "published_high": row.published[1],
                    "simulated": row.simulated,
                    "simulated_low": row.low,
                    "simulated_high": row.high,
                    "factor": row.factor,
                    "verdict": row.verdict,
                    "machine": row.machine,
                    "cpus": row.cpus,
                    "why": row.why,
                }
                for row in self.rows
            ]
        )
        return found


Value = Callable[[Machine, dict[str, float]], float]


@cache
def prediction(slug: str) -> Prediction:
    """Simulate what was published of a case; takes seconds.

    Raises:
        UsageError: no such case.
    """
    case = register.get(slug)
    rows = tuple(_ROWS.get(slug, _nothing)(case))
    found = Prediction(slug=slug, rows=rows, text="")
    discussion = tuple(_DISCUSSIONS.get(slug, _no_talk)(found))
    sentences = [_sentence(row) for row in rows if row.simulated is not None]
    return replace(found, text="\n\n".join([*sentences, *discussion]), discussion=discussion)


def parameters(machine: str, scenario: str = "") -> pd.DataFrame:
    """The sources of a machine's costs, and of a scenario's private work, as a table.

    Returns:
        A row each: parameter, value, unit, low, high, basis, source (a citation's title and
        address, or in words).
    """
    pandas = cases.require_pandas()
    box = machines.get(machine)
    found = []
    for name, where in box.parameters.items():
        unit = "part" if name == "request" else "ns"
        found.append((name, getattr(box.costs, name), unit, where))
    works = cases.get(scenario).works if scenario and scenario != cases.UMOUNT else ()
    central = cases.working({}, box, 1)
    for name in works:
        unit = {"smt": "factor", "explicit": "part"}.get(name, "ns")
        found.append((f"work {name}", central[name], unit, cases.WORK[name]))
    if scenario == cases.UMOUNT:
        rcu = grace.Rcu()
        for name, where in grace.PARAMETERS.items():
            value = rcu.wait_ticks(1) if name == "wait_ticks" else getattr(rcu, name)
            unit = {"hz": "1/s", "wait_ticks": "ticks"}.get(name, "us")
            found.append((name, value, "part" if name in _PARTS else unit, where))
    cited = {**machines.SOURCES, grace.SOURCE.key: grace.SOURCE}
    shown: pd.DataFrame = pandas.DataFrame(
        [
            {
                "parameter": name,
                "value": value,
                "unit": unit,
                "low": where.low,
                "high": where.high,
                "basis": where.basis,
                "source": f"{cited[where.source].title}, {cited[where.source].url}"
                if where.source in cited
                else where.source,
            }
            for name, value, unit, where in found
        ]
    )
    return shown


_PARTS = ("busy", "reading", "underway")


@cache
def _phases(
    scenario: str,
    variant: str,
    machine: str,
    costs: Costs,
    cpus: int,
    work: tuple[tuple[str, float], ...],
) -> dict[str, Phase]:
    box = machines.get(machine)
    length = 1.0 if costs == box.costs and not work else SHORTER
    return cases.run(
        scenario, variant, replace(box, costs=costs), cpus, work=dict(work), length=length
    )


def _run(
    scenario: str, variant: str, box: Machine, cpus: int, work: dict[str, float]
) -> dict[str, Phase]:
    return _phases(scenario, variant, box.name, box.costs, cpus, tuple(work.items()))


def _span(scenario: str, machine: str, value: Value) -> tuple[float, float, float]:
    """The value with central parameters, and its lowest and highest over their ranges."""
    box = machines.get(machine)
    middle = value(box, {})
    seen = [middle]
    for name, where in box.parameters.items():
        now = getattr(box.costs, name)
        for end in {where.low, where.high} - {now}:
            changed = box.with_cost(name, end)
            # one group a socket: the two ways are one
            if box.groups == 1 and name in ("near", "cross"):
                changed = changed.with_cost("near", end).with_cost("cross", end)
            seen.append(value(changed, {}))
    for name in cases.get(scenario).works:
        where = cases.WORK[name]
        seen += [value(box, {name: end}) for end in (where.low, where.high)]
    return middle, min(seen), max(seen)


def _rate(scenario: str, variant: str, cpus: int, phase: str) -> Value:
    def value(box: Machine, work: dict[str, float]) -> float:
        return _run(scenario, variant, box, cpus, work)[phase].ops_per_s

    return value


def _over(top: Value, base: Value) -> Value:
    return lambda box, work: top(box, work) / base(box, work)


def _row(
    figure: register.Published,
    name: str,
    value: Value,
    scenario: str,
    machine: str,
    cpus: int,
    why: str,
    *,
    published: tuple[float, float] | None = None,
    unit: str = "",
) -> Predicted:
    if published is None:
        known = figure.value(name)
        spread = known.plus_minus or 0.0
        published = known.low - spread, known.high + spread
    middle, low, high = _span(scenario, machine, value)
    unit = unit or figure.unit
    return Predicted(
        figure=figure.id,
        name=name,
        unit=unit,
        published=published,
        simulated=middle,
        low=low,
        high=high,
        machine=machine,
        cpus=cpus,
        verdict="held" if holds(middle, published, unit) else "differs",
        why=why,
    )


def _cannot(figure: register.Published, name: str, why: str) -> Predicted:
    known = figure.value(name)
    return Predicted(
        figure=figure.id,
        name=name,
        unit=figure.unit,
        published=(known.low, known.high),
        simulated=None,
        low=None,
        high=None,
        machine="",
        cpus=0,
        verdict="cannot",
        why=why,
    )


def _nothing(case: register.Case) -> Iterator[Predicted]:
    for figure in case.published:
        for value in figure.values:
            yield _cannot(
                figure,
                value.name,
                "the cost is in the algorithm's steps, which the model counts; no line is fought "
                "over",
            )


def _lockref(case: register.Case) -> Iterator[Predicted]:
    slug, handle = "lockref-degrade", "lockref-handle"
    figure = case.figure("stat-collapse")
    cpus = figure.workers or 20
    calm, degraded = (_rate(slug, "before", cpus, phase) for phase in ("calm", "after"))
    box = "1x24"
    yield _row(figure, "healthy", calm, slug, box, cpus, "the machine of the report is not known")
    yield _cannot(figure, "partly-degraded", "a moment on the way down, of unknown length")
    yield _row(figure, "degraded", degraded, slug, box, cpus, "the phase after the strangers left")
    yield _row(
        figure,
        "healthy/degraded",
        _over(calm, degraded),
        slug,
        box,
        cpus,
        "how deep it falls",
        published=figure.ratio("healthy", "degraded"),
        unit="ratio",
    )
    figure = case.figure("spin-24-workers")
    cpus = figure.workers or 24
    for name in ("before", "after"):
        yield _cannot(figure, name, "how often one operation of the stressor takes a lock is open")
    run = {v: _rate(handle, v, cpus, "run") for v in ("before", "after")}
    yield _row(
        figure,
        "after/before",
        _over(run["after"], run["before"]),
        handle,
        box,
        cpus,
        "depends on how many visits take the lock for its own sake: see the text",
        published=figure.ratio("after", "before"),
        unit="ratio",
    )
    figure = case.figure("spin-192-workers")
    cpus, box = figure.workers or 192, "2x48-smt"
    for name in ("before", "spin-1", "after"):
        yield _cannot(figure, name, "how often one operation of the stressor takes a lock is open")
    base = _rate(handle, "before", cpus, "run")
    for name in ("spin-1", "after"):
        yield _row(
            figure,
            f"{name}/before",
            _over(_rate(handle, name, cpus, "run"), base),
            handle,
            box,
            cpus,
            "the shape of the machine is known, its processor is not",
            published=figure.ratio(name, "before"),
            unit="ratio",
        )
    figure = case.figure("spin-700-of-1000")
    cpus = figure.workers or 60
    for name, variant, phase in (
        ("warm-up", "after", "calm"),
        ("spin-100", "after", "after"),
        ("spin-700", "spin-700", "after"),
    ):
        yield _row(
            figure,
            name,
            _rate(slug, variant, cpus, phase),
            slug,
            box,
            cpus,
            "the same machine, which spent the time on the whole stat",
        )
    figure = case.figure("robot-regressions")
    for name in ("unixbench", "getdent"):
        yield _cannot(figure, name, "mixed with sleeping locks, which have no place here")
    cpus = figure.cpus or 64
    top, below = (_rate(handle, v, cpus, "run") for v in ("after", "before"))
    yield _row(
        figure,
        "handle",
        lambda machine, work: 100 * (top(machine, work) / below(machine, work) - 1),
        handle,
        "2x16-smt",
        cpus,
        "the robot's own machine",
    )


def _dentry(case: register.Case) -> Iterator[Predicted]:
    slug = "dentry-false-sharing"
    figure = case.figure("stat-same-file")
    cpus, box = figure.workers or 20, "1x24"
    rates = {name: _rate(slug, name, cpus, "run") for name in ("before", "after")}
    for name, value in rates.items():
        yield _row(figure, name, value, slug, box, cpus, "the machine of the report is not known")
    yield _row(
        figure,
        "after/before",
        _over(rates["after"], rates["before"]),
        slug,
        box,
        cpus,
        "what moving the count is worth",
        published=figure.ratio("after", "before"),
        unit="ratio",
    )


def _open(case: register.Case) -> Iterator[Predicted]:
    slug, box = "open-creat-unlazy", "2x20-smt"
    figure = case.figure("open-close-64-mounts")
    cpus = figure.cpus or 80
    rates = {name: _rate(slug, name, cpus, "run") for name in ("before", "after")}
    for name in rates:
        yield _row(
            figure,
            name,
            _over(lambda *_: OPS_64_MOUNTS, rates[name]),
            slug,
            box,
            cpus,
            "time for all opens at the simulated rate",
        )
    gain = _over(rates["after"], rates["before"])
    yield _row(
        figure,
        "before/after",
        gain,
        slug,
        box,
        cpus,
        "the patch's gain",
        published=figure.ratio("before", "after"),
        unit="ratio",
    )
    figure = case.figure("aim7-create-close")
    for name in ("healthy", "before"):
        yield _cannot(figure, name, "what a job consists of, and the machine, are not told")
    yield _row(
        figure,
        "healthy/before",
        gain,
        slug,
        box,
        cpus,
        "read literally; the text discusses another reading",
        published=figure.ratio("healthy", "before"),
        unit="ratio",
    )


def _creds(case: register.Case) -> Iterator[Predicted]:
    slug, box, cpus = "overlay-creds", "2x20-smt", 80
    remote, local = case.figure("remote-hitm"), case.figure("local-hitm")

    def share(machine: Machine, work: dict[str, float]) -> float:
        seen = _run(slug, "before", machine, cpus, work)["run"]
        moved = sum(seen.counts[f"transfers_{kind}"] for kind in ("core", "near", "cross", "far"))
        return seen.counts["transfers_far"] / moved

    for figure in (remote, local):
        for value in figure.values:
            yield _cannot(
                figure,
                value.name,
                "a number of samples: it depends on how long and how often they were taken",
            )
    pairs = [(remote.value("before").low, local.value("before").low)]
    published = [r / (r + near) for r, near in pairs]
    yield _row(
        remote,
        "before, remote share",
        share,
        slug,
        box,
        cpus,
        "of all HITM on the line, those that came from the other socket",
        published=(min(published), max(published)),
        unit="part",
    )
    yield _row(
        remote,
        "after, of the credentials' line",
        lambda machine, work: float(_run(slug, "after", machine, cpus, work)["run"].transfers),
        slug,
        box,
        cpus,
        "the report's figures after the fix belong to an unrelated line",
        published=(0.0, 0.0),
    )


def _umount(case: register.Case) -> Iterator[Predicted]:
    # whatever the size: the range runs from 4 to 64 CPUs
    sizes, middle = (4, 64), 8
    for figure in case.published:
        for value in figure.values:
            if value.name == "call-rcu" and figure.id == "plain-umount":
                yield _waits(figure, "call-rcu", "before", middle, sizes)
            elif value.name == "before":
                yield _waits(figure, "before", "before", middle, sizes)
            else:
                yield _cannot(
                    figure,
                    value.name,
                    "nobody waits, and what is left is the input of the simulation",
                )


def _waits(
    figure: register.Published, name: str, variant: str, cpus: int, sizes: tuple[int, int]
) -> Predicted:
    def mean(rcu: grace.Rcu, n: int) -> float:
        times = grace.umounts_ns(variant, n, rcu=rcu)
        return sum(times) / (len(times) * 10**6)

    usual = grace.Rcu()
    seen = [mean(usual, n) for n in sizes]
    for key, where in grace.PARAMETERS.items():
        if key == "wait_ticks":
            continue
        for end in (where.low, where.high):
            changed: dict[str, Any] = {key: int(end) if key == "hz" else end}
            seen.append(mean(replace(usual, **changed), cpus))
    known = figure.value(name)
    spread = known.plus_minus or 0.0
    published = known.low - spread, known.high + spread
    middle = mean(usual, cpus)
    return Predicted(
        figure=figure.id,
        name=name,
        unit=figure.unit,
        published=published,
        simulated=middle,
        low=min(middle, *seen),
        high=max(middle, *seen),
        machine="",
        cpus=cpus,
        verdict="held" if holds(middle, published, figure.unit) else "differs",
        why="the report's machine and its load are not known: 4 to 64 CPUs, idle to busy",
    )


_ROWS: dict[str, Callable[[register.Case], Iterator[Predicted]]] = {
    "lockref-degrade": _lockref,
    "dentry-false-sharing": _dentry,
    "open-creat-unlazy": _open,
    "overlay-creds": _creds,
    "umount-grace-period": _umount,
}


def crossover(
    parts: tuple[float, ...] = (0.02, 0.1, 1 / 3, 2 / 3),
    sizes: tuple[tuple[str, int], ...] = (
        ("1x24", 12),
        ("1x24", 24),
        ("2x16-smt", 64),
        ("2x48-smt", 192),
        ("2x48-smt-intel", 192),
    ),
    spins: tuple[str, ...] = ("spin-1", "after", "spin-1000"),
) -> pd.DataFrame:
    """Where waiting for a lock's release helps and where it hurts.

    Args:
        parts: How many of the visits of the lock are for its own sake.
        sizes: Machines and CPUs.
        spins: Variants that wait.

    Returns:
        A row for each: machine, cpus, explicit, variant, ratio (of its throughput to that of
        "before"; above 1 it helps), slow_before and slow (shares of changes under the lock).
    """
    pandas = cases.require_pandas()
    found = []
    for machine, cpus in sizes:
        for part in parts:
            work = {"explicit": part}
            base = cases.run("lockref-handle", "before", machine, cpus, work=work)["run"]
            for variant in spins:
                seen = cases.run("lockref-handle", variant, machine, cpus, work=work)["run"]
                found.append(
                    {
                        "machine": machine,
                        "cpus": cpus,
                        "explicit": part,
                        "variant": variant,
                        "ratio": seen.ops_per_s / base.ops_per_s,
                        "slow_before": _slow(base.counts),
                        "slow": _slow(seen.counts),
                    }
                )
    shown: pd.DataFrame = pandas.DataFrame(found)
    return shown


def _slow(counts: dict[str, int]) -> float:
    changes = counts["slow"] + counts["fast"]
    return counts["slow"] / changes if changes else float("nan")


def _no_talk(_: Prediction) -> list[str]:
    return ["Nothing of this case is simulated: its cost is in steps, not in cache lines."]


def _shown(low: float, high: float) -> str:
    if number(low, 3) == number(high, 3):
        return number(low, 3)
    return f"{number(low, 3)} to {number(high, 3)}"


def _sentence(row: Predicted) -> str:
    assert row.simulated is not None
    assert row.low is not None
    assert row.high is not None
    unit = "" if row.unit in ("ratio", "part") else f" {row.unit}"
    place = f" on {row.machine}" if row.machine else ""
    return (
        f"**{row.figure}, {row.name}:** published {_shown(*row.published)}{unit}, simulated "
        f"{number(row.simulated, 3)}{unit} ({_shown(row.low, row.high)} over the parameters' "
        f"ranges; {row.cpus} CPUs{place}): {row.verdict}."
    )


def _say(row: Predicted) -> str:
    assert row.simulated is not None
    return number(row.simulated, 3)


def _talk_lockref(p: Prediction) -> list[str]:
    healthy, degraded = p.row("stat-collapse", "healthy"), p.row("stat-collapse", "degraded")
    box = machines.get(healthy.machine)
    once = 1e9 / (2 * (box.costs.near + box.costs.rmw_hit))
    low = p.row("spin-24-workers", "after/before")
    high = p.row("spin-192-workers", "after/before")
    one = p.row("spin-192-workers", "spin-1/before")
    robot = p.row("robot-regressions", "handle")
    table = crossover(spins=("after",), sizes=(("1x24", 24), ("2x48-smt", 192)))
    few = table[table.explicit < 0.2]
    near = few[few.cpus == 24].ratio
    far = few[few.cpus == 192].ratio
    warm, at_100 = p.row("spin-700-of-1000", "warm-up"), p.row("spin-700-of-1000", "spin-100")
    return [
        f"The collapse comes out of the mechanism alone: {_say(healthy)} operations/s while all go "
        f"the short way, {_say(degraded)} for good after a few strangers. The degraded state is "
        f"{number(degraded.factor, 3)} times the published one. The healthy state is "
        f"{number(healthy.factor, 3)} times it: the simulated CPU reads the word, which makes the "
        "line shared, and then asks for it a second time in order to write. If one transfer did "
        f"for both, as on processors that hand a modified line over whole, the bound would be "
        f"{number(once, 3)} operations/s, so the truth lies between.",
        f"The crossover is there, and its place depends on how many visits take the lock for its "
        f"own sake. Where those are few (up to a tenth), waiting makes 24 CPUs "
        f"{_shown(near.min(), near.max())} times as fast, and 192 CPUs "
        f"{_shown(far.min(), far.max())} times. With the two thirds that the post-mortem quotes "
        f"for the stressor, it gives {_say(low)} and {_say(high)}: at 24 workers that misses the "
        "published gain. The quoted share is of spinning *time*, on a machine where the queue was "
        "already there; the simulation takes it as a share of *visits*, which is the nearest that "
        "can be had without fitting.",
        f"At 192 workers the direction is right and the depth is not: {_say(high)} instead of "
        f"{_shown(*high.published)}, and no end of any parameter's range reaches it. The kernel "
        f"test robot's machine tells the same: {_say(robot)} % instead of "
        f"{_shown(*robot.published)} %. In both the stressor does more than visit one lock, and "
        "the simulated lines have a way of some length but no width: requests that cross each "
        "other do not slow each other down, as they would on a real interconnect where many CPUs "
        "look at one line.",
        f"A single look costs next to nothing ({_say(one)} of the throughput without), as "
        "published: the damage is in the long wait, whose readers come back for the line at each "
        "change of it.",
        f"At 60 workers the simulated machine is faster than the published one while it is calm "
        f"({number(warm.factor, 3)} times), and with a bound of {cases.LOOKS} looks it stays so "
        f"({number(at_100.factor, 3)} times the published, degraded rate): here a stranger's hold "
        "is short, and the queue behind it is waited out. On the real machine it was not; whoever "
        "held the lock there held it for longer than is assumed.",
    ]


def _talk_dentry(p: Prediction) -> list[str]:
    gain = p.row("stat-same-file", "after/before")
    before, after = p.row("stat-same-file", "before"), p.row("stat-same-file", "after")
    return [
        f"The direction is right and the size is not: {_say(gain)} instead of "
        f"{_shown(*gain.published)}. In the simulation comparing the name costs one more transfer "
        "for each stat, beside the four of taking and dropping the reference, and one in five "
        "cannot be worth more. The state before the move is met "
        f"({number(before.factor, 3)} times the published rate), the one after it less well "
        f"({number(after.factor, 3)} times): as in the healthy state of lockref-degrade, real "
        "processors need fewer transfers for a read that is "
        "followed by a write, and then the reader that only reads weighs more. What a lookup reads "
        "a second time (the sequence count, on another line) plays no part."
    ]


def _talk_open(p: Prediction) -> list[str]:
    before, after = (p.row("open-close-64-mounts", name) for name in ("before", "after"))
    gain = p.row("open-close-64-mounts", "before/after")
    literal = p.row("aim7-create-close", "healthy/before")
    thousand = literal.published[0] / 1000
    return [
        f"The slow side is within a factor of {number(max(before.factor, 1 / before.factor), 3)}: "
        "every open takes and drops the root's reference under the root's spin lock, and that lock "
        f"is handed over from CPU to CPU. The fast side is not ({number(after.factor, 3)} times "
        "the published time): with the root out of the way the real test is limited by what is not "
        "simulated. Its 100 tasks in each mount share a directory whose lock *sleeps*, so they "
        "wait for each other's wake-ups, and all 6400 share 80 CPUs. The gain is overestimated by "
        "the same factor.",
        f"The aim7 figure, read literally, is a ratio of {_shown(*literal.published)}, and no "
        f"contended line gives that: the simulation says {_say(gain)}. But the same sentence says "
        "that the test took over an hour instead of a few minutes, a factor of some tens. A test "
        "does a fixed number of jobs, so its mean rate cannot fall by more than its time grows. "
        "Either the two figures are rates of different moments, or the unit slipped: 30 "
        f"*thousand* jobs a minute would be a ratio of {number(thousand, 3)}, which agrees with "
        "the hour and with the simulation. The source does not decide it, so the row stays as "
        "published. With "
        "32,000 tasks nothing gets worse than with one for each CPU: tasks that wait for a spin "
        "lock of the kernel are not preempted, so no more of them than there are CPUs are in the "
        "queue.",
    ]


def _talk_creds(p: Prediction) -> list[str]:
    share = p.row("remote-hitm", "before, remote share")
    nearest = cases.run("overlay-creds", "before", share.machine, share.cpus, policy="nearest")
    counts = nearest["run"].counts
    moved = sum(counts[f"transfers_{kind}"] for kind in ("core", "near", "cross", "far"))
    return [
        "Samples of a counter cannot be simulated, their proportions can. After the fix no line of "
        "the credentials moves at all, as published. Before it, requests served in the order of "
        f"their coming make {_say(share)} of all transfers remote on two sockets; published is "
        f"{number(share.published[0], 3)}. If the CPU nearest to the line is served first (but not "
        f"more than 8 times in a row), it is {number(counts['transfers_far'] / moved, 3)}. The "
        "published value between them says that the real machine favours the near ones, or that "
        "the container's threads were not spread evenly; the report does not tell."
    ]


def _talk_umount(p: Prediction) -> list[str]:
    first = p.row("lazy-umount", "before")
    slow = max((row for row in p.rows if row.simulated), key=lambda row: row.published[1])
    return [
        f"A normal grace period of an idle machine takes a few ticks whatever its size, and a "
        f"caller that comes at a bad moment waits for two: {_say(first)} ms with everything else, "
        f"where {_shown(*first.published)} were published. The simulation explains why deferring "
        "helps and why CPUs hardly matter (a normal grace period asks nobody, an expedited one "
        "interrupts each CPU), but not the whole wait. Published waits go up to "
        f"{number(slow.published[1], 3)} ms on different kernels of the same team, so the length "
        "is a property of their set-up: on a real-time kernel callbacks are run by threads that "
        "compete for the CPU, and more than one grace period may be needed. Neither is told."
    ]


_DISCUSSIONS: dict[str, Callable[[Prediction], list[str]]] = {
    "lockref-degrade": _talk_lockref,
    "dentry-false-sharing": _talk_dentry,
    "open-creat-unlazy": _talk_open,
    "overlay-creds": _talk_creds,
    "umount-grace-period": _talk_umount,
}
