# SPDX-License-Identifier: MIT
"""A published number with the simulated one beside it, and whether it held.

Each assumed or cited cost is set to both ends of its own range, one at a time, for a row's range.
It is "held" by its central value alone: a number within a factor of 1.5; a ratio between variants
within a tenth of the published one, or within a factor of two and its logarithm, too, so that it
points the same way. Otherwise it "differs"; where a simulation has nothing to say, it "cannot".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from contended.measure.results import number
from contended.register import Published
from contended.simulate import machines
from contended.simulate.caches import Costs, Phase
from contended.simulate.machines import MachineModel
from contended.simulate.workload import Scenario

Verdict = Literal["held", "differs", "cannot"]
Range = tuple[float, float]

NEAR = 1.1
NEAR_ENOUGH = 1.5
NEAR_ENOUGH_RATIO = 2.0  # also for its logarithm, see _logarithm_is_near
SHORTER = 0.4  # of a phase is enough to see which way a parameter pulls


@dataclass(frozen=True, slots=True)
class Predicted:
    """A published value and its simulated counterpart, with the range of the parameters."""

    figure: str
    name: str  # of the value, or "a/b" for the ratio of two
    unit: str  # of all numbers here
    published: Range
    simulated: float | None  # with central parameters; None, as `low` and `high`, if it cannot say
    low: float | None
    high: float | None
    machine: str  # "" if there is none
    cpus: int  # 0 if none ran
    verdict: Verdict
    why: str  # or why not; one sentence

    @property
    def factor(self) -> float:
        """Simulated over published (the middle of its range); NaN without a simulation."""
        middle = sum(self.published) / 2
        return float("nan") if self.simulated is None or not middle else self.simulated / middle

    def sentence(self) -> str:
        """The numbers, in Markdown; only of what was simulated."""
        assert self.simulated is not None
        assert self.low is not None
        assert self.high is not None
        unit = "" if self.unit in ("ratio", "part") else f" {self.unit}"
        place = f" on {self.machine}" if self.machine else ""
        return (
            f"**{self.figure}, {self.name}:** published {span(*self.published)}{unit}, simulated "
            f"{number(self.simulated, 3)}{unit} ({span(self.low, self.high)} over the parameters' "
            f"ranges; {self.cpus} CPUs{place}): {self.verdict}."
        )


def span(low: float, high: float) -> str:
    """A range in words, or one number where the two read the same."""
    return " to ".join(dict.fromkeys((number(low, 3), number(high, 3))))


def holds(simulated: float, published: Range, unit: str) -> bool:
    """Is a simulated value near enough to a published range? See the module for what that is.

    The unit "ratio" is a ratio between variants, "%" a change against one.
    """
    low, high = published
    if unit == "%":
        simulated, low, high = (1 + value / 100 for value in (simulated, low, high))
    if low <= simulated <= high:
        return True
    if simulated <= 0 or low <= 0:
        return False

    def within(factor: float) -> bool:
        return low / factor <= simulated <= high * factor

    if unit not in ("ratio", "%"):
        return within(NEAR_ENOUGH)
    alike = any(_logarithm_is_near(simulated, end) for end in (low, high) if end != 1)
    return within(NEAR) or (within(NEAR_ENOUGH_RATIO) and alike)


def _logarithm_is_near(a: float, b: float) -> bool:
    # Within a factor of two, by squares: libraries round a logarithm's last digit as they like.
    return b <= a * a and a <= b * b if b > 1 else b * b <= a and a * a <= b


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


Value = Callable[[MachineModel, dict[str, float]], float]
"""What a simulation gives on a machine with some private work changed."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where predictions are made: a scenario with so many CPUs of a machine."""

    scenario: Scenario
    machine: str
    cpus: int

    def phase(self, variant: str, phase: str, box: MachineModel, work: dict[str, float]) -> Phase:
        """A phase of a simulation, with the costs of `box`."""
        return _phases(self, variant, box.costs, tuple(work.items()))[phase]

    def rate(self, variant: str, phase: str = "run") -> Value:
        """Operations a second in a phase."""
        return lambda box, work: self.phase(variant, phase, box, work).ops_per_s

    def value(
        self, figure: Published, name: str, value: Value, why: str, **known: Any
    ) -> Predicted:
        """The row of a published value, or of another, see `said`, that follows from some."""
        box = machines.get(self.machine)
        middle = value(box, {})
        seen = []
        for cost, where in box.parameters.items():
            # one group a socket: the two ways are one
            same = ("near", "cross") if box.groups == 1 and cost in ("near", "cross") else (cost,)
            for end in {where.low, where.high} - {getattr(box.costs, cost)}:
                costs = replace(box.costs, **dict.fromkeys(same, end))
                seen.append(value(replace(box, costs=costs), {}))
        for work, each in self.scenario.all_works.items():
            seen += [value(box, {work: end}) for end in (each.where.low, each.where.high)]
        return said(figure, name, middle, seen, why, (self.machine, self.cpus), **known)

    def ratio(
        self, figure: Published, top: str, base: str, values: tuple[Value, Value], why: str
    ) -> Predicted:
        """The row of one published value over another."""
        known = {"published": figure.ratio(top, base), "unit": "ratio"}
        return self.value(figure, f"{top}/{base}", over(*values), why, **known)


@cache
def _phases(
    here: Ground, variant: str, costs: Costs, work: tuple[tuple[str, float], ...]
) -> dict[str, Phase]:
    usual = machines.get(here.machine)
    box = replace(usual, costs=costs)
    length = 1.0 if costs == usual.costs and not work else SHORTER
    return here.scenario.run(variant, box, here.cpus, work=dict(work), length=length)


def over(top: Value, base: Value) -> Value:
    """One value divided by another."""
    return lambda box, work: top(box, work) / base(box, work)


def said(
    figure: Published,
    name: str,
    simulated: float,
    seen: Sequence[float],
    why: str,
    place: tuple[str, int],
    *,
    published: Range | None = None,
    unit: str = "",
) -> Predicted:
    """The row of a value: simulated with central parameters, and seen over their ranges.

    The place is a machine's name, or "", and how many CPUs. What is `published`, and its unit, are
    the value's of that name, unless it follows from others.
    """
    if published is None:
        known = figure.value(name)
        spread = known.plus_minus or 0.0
        published = known.low - spread, known.high + spread
    unit = unit or figure.unit
    ends = min(simulated, *seen), max(simulated, *seen)
    verdict: Verdict = "held" if holds(simulated, published, unit) else "differs"
    return Predicted(figure.id, name, unit, published, simulated, *ends, *place, verdict, why)


def cannot(figure: Published, why: str, *names: str) -> Iterator[Predicted]:
    """The rows of values, by default all, of which a simulation cannot say anything."""
    for name in names or [value.name for value in figure.values]:
        known = figure.value(name)
        row = figure.id, name, figure.unit, (known.low, known.high)
        yield Predicted(*row, None, None, None, "", 0, "cannot", why)
