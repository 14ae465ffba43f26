# SPDX-License-Identifier: MIT
"""A published number with the simulated one beside it, and whether it held: see `verdict`.

All cited and assumed parameters are drawn together, each over its own range (a Latin hypercube),
and each draw is simulated in full with a seed of its own. A prediction is the median and the 5th
and 95th percentile of these. Beside it stands what one would guess who knows of no cache lines: N
CPUs do N times what one does, and no variant is faster than another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from contended import stats
from contended.measure.results import number
from contended.register import Published
from contended.simulate import machines
from contended.simulate.caches import Costs, Phase
from contended.simulate.draws import latin, priced
from contended.simulate.verdict import Kind, Range, Verdict, gap, judge, told
from contended.simulate.workload import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A published value and its simulated counterpart, over the ranges of the parameters."""

    figure: str
    name: str  # of the value, or "a/b" for the ratio of two
    unit: str  # of all numbers here
    published: Range
    simulated: float | None = None  # the median; None, as `low` and `high`, if it cannot say
    low: float | None = None  # the 5th percentile
    high: float | None = None  # and the 95th
    guess: float | None = None  # the median of the naive guess; None if there is nothing to guess
    naive: Range | None = None  # and the same percentiles of it
    machine: str = ""  # none
    cpus: int = 0  # none ran
    kind: Kind = "predicted"
    why: str  # or why not; one sentence

    @property
    def range(self) -> Range | None:
        """What is judged; None if nothing was simulated."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def verdict(self) -> Verdict:
        """By the rule."""
        return judge(self.range, self.published, self.unit, self.kind)

    @property
    def told(self) -> str:
        """The verdict in words, with the factor by which it differs."""
        return told(self.verdict, gap(self.range, self.published, self.unit) if self.range else 1)

    @property
    def factor(self) -> float:
        """Simulated over published (the middle of its range); NaN without a simulation."""
        middle = sum(self.published) / 2
        return float("nan") if self.simulated is None or not middle else self.simulated / middle

    def sentence(self) -> str:
        """The numbers, in Markdown; only of what was simulated."""
        assert self.simulated is not None
        assert self.range is not None
        unit = "" if self.unit in ("ratio", "part") else f" {self.unit}"
        place = f" on {self.machine}" if self.machine else ""
        return (
            f"**{self.figure}, {self.name}:** published {span(*self.published)}{unit}, simulated "
            f"{number(self.simulated, 3)}{unit} ({span(*self.range)} over the parameters' "
            f"ranges; {self.cpus} CPUs{place}): {self.told}."
        )


def span(low: float, high: float) -> str:
    """A range in words, or one number where the two read the same."""
    return " to ".join(dict.fromkeys((number(low, 3), number(high, 3))))


@dataclass(frozen=True, slots=True)
class CasePrediction:
    """What simulation says of a case's published values, in the register's order, and of ratios."""

    rows: tuple[Predicted, ...]

    @property
    def text(self) -> str:
        """A sentence for each simulated row, Markdown; without any, why there is none."""
        said = [row.sentence() for row in self.rows if row.simulated is not None]
        why = "; ".join(dict.fromkeys(row.why for row in self.rows))
        return "\n\n".join(said) or f"Nothing of this case is simulated: {why}."

    def row(self, figure: str, name: str) -> Predicted:
        """The row of a figure's value; raises KeyError if there is none."""
        return {(row.figure, row.name): row for row in self.rows}[figure, name]


@dataclass(frozen=True, slots=True)
class Draw:
    """What one simulation is made with: costs, private work, a seed."""

    costs: Costs
    work: tuple[tuple[str, float], ...]
    seed: int
    alone: bool = False  # with one CPU, for the guess


Value = Callable[[Draw], float]
"""What a simulation gives with a draw."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where predictions are made: a scenario with so many CPUs of a machine."""

    scenario: Scenario
    machine: str
    cpus: int

    def draws(self) -> list[Draw]:
        """The same for all variants, so that a ratio is one of two simulations of a machine."""
        box, works = machines.get(self.machine), self.scenario.all_works
        if both := box.parameters.keys() & works.keys():
            raise AssertionError(f"costs and work of one name: {both}")
        ranges = {name: (p.low, p.high) for name, p in box.parameters.items()}
        ranges |= {name: (work.where.low, work.where.high) for name, work in works.items()}
        found = []
        for seed, drawn in enumerate(latin(ranges)):
            work = tuple((name, drawn[name]) for name in works)
            found.append(Draw(priced(box, drawn), work, seed))
        return found

    def phase(self, variant: str, phase: str, draw: Draw) -> Phase:
        """A phase of a simulation."""
        return _phases(self, variant, draw)[phase]

    def rate(self, variant: str, phase: str = "run") -> Value:
        """Operations a second in a phase; of one CPU alone, times as many as there are."""
        return lambda draw: (
            self.phase(variant, phase, draw).ops_per_s * (self.cpus if draw.alone else 1)
        )

    def value(
        self,
        figure: Published,
        name: str,
        value: Value,
        why: str,
        *,
        naive: Value | None = None,
        published: Range | None = None,
        unit: str = "",
    ) -> Predicted:
        """The row of a published value, or of another, see `said`, that follows from some.

        The `naive` guess is the same value of one CPU alone, unless another is given.
        """
        draws = self.draws()
        guess = naive or (lambda draw: value(replace(draw, alone=True)))
        guesses = [guess(draw) for draw in draws]
        seen, place = [value(draw) for draw in draws], (self.machine, self.cpus)
        return said(figure, name, seen, guesses, why, place, published=published, unit=unit)

    def compared(self, figure: Published, why: str) -> Iterator[Predicted]:
        """The rows of the rates before and after, and of the quotient of the two."""
        after, before = self.rate("after"), self.rate("before")
        yield self.value(figure, "before", before, why)
        yield self.value(figure, "after", after, why)
        yield self.ratio(figure, "after", "before", (after, before), why)

    def ratio(
        self, figure: Published, top: str, base: str, values: tuple[Value, Value], why: str
    ) -> Predicted:
        """The row of one published value over another; the guess is 1, as uncertain as it is."""
        draws, quotient = self.draws(), over(*values)
        seen = [quotient(draw) for draw in draws]
        middle = stats.median(seen)
        contradicted = figure.value(top).contradicted or figure.value(base).contradicted
        return said(
            figure,
            f"{top}/{base}",
            seen,
            [each / middle for each in seen],
            why,
            (self.machine, self.cpus),
            published=figure.ratio(top, base, spread=True),
            unit="ratio",
            kind="contradicted" if contradicted else "predicted",
        )


@cache
def _phases(here: Ground, variant: str, draw: Draw) -> dict[str, Phase]:
    box = replace(machines.get(here.machine), costs=draw.costs)
    cpus = 1 if draw.alone else here.cpus
    return here.scenario.run(variant, box, cpus, work=dict(draw.work), seed=draw.seed)


def over(top: Value, base: Value) -> Value:
    """One value divided by another."""
    return lambda draw: top(draw) / base(draw)


def said(
    figure: Published,
    name: str,
    seen: Sequence[float],
    guesses: Sequence[float],
    why: str,
    place: tuple[str, int],
    *,
    published: Range | None = None,
    unit: str = "",
    kind: Kind = "predicted",
) -> Predicted:
    """The row of a value: what was seen, and what would have been guessed, draw by draw.

    The place is a machine's name, or "", and how many CPUs. What is `published`, and its unit, are
    the value's of that name, unless it follows from others.
    """
    if published is None:
        known = figure.value(name)
        published = known.spread
        kind = "contradicted" if known.contradicted else kind
    low, high = stats.percentiles(seen)
    return Predicted(
        figure=figure.id,
        name=name,
        unit=unit or figure.unit,
        published=published,
        simulated=stats.median(seen),
        low=low,
        high=high,
        guess=stats.median(guesses) if guesses else None,
        naive=stats.percentiles(guesses) if guesses else None,
        machine=place[0],
        cpus=place[1],
        kind=kind,
        why=why,
    )


def cannot(figure: Published, why: str, *names: str) -> Iterator[Predicted]:
    """The rows of values, by default all, of which a simulation cannot say anything.

    A ratio's name is "a/b".
    """
    for name in names or [value.name for value in figure.values]:
        top, is_ratio, base = name.partition("/")
        values = [figure.value(each) for each in (top, base) if each]
        yield Predicted(
            figure=figure.id,
            name=name,
            unit="ratio" if is_ratio else figure.unit,
            published=figure.range(name),
            kind="contradicted" if any(each.contradicted for each in values) else "predicted",
            why=why,
        )
