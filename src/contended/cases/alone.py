# SPDX-License-Identifier: MIT
"""What one cost at a time makes of a number: of `contended kernel time --each-cost` and `--cost`.

The label of a region says which cost was changed in its boot, and to what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from contended import stats
from contended.kernel import prices, times
from contended.simulate import machines

_CHANGE = re.compile(r"(?:(?P<label>.*) )?(?P<change>[a-z_]+=[-+.e\d]+)")
NEAREST = 3  #: So many of the changes that reach what is published are named.


@dataclass(frozen=True, slots=True)
class Alone:
    """A number with each cost as it is stated, and by what is changed, as "near=24"."""

    stated: float
    changed: Mapping[str, float]
    boots: int = 1  # of each, of which a number is the middle
    doubtful: int = 0  # how many regions of all these `contended kernel time` marks
    outdated: bool = False  # whether some were made by other rules than those of today

    def reach(self, published: tuple[float, float]) -> list[str]:
        """The changes that bring it to what is published or past it, the nearest first.

        None if it is there without them.
        """
        low, high = published
        if low <= self.stated <= high:
            return []
        there = {
            change: value
            for change, value in self.changed.items()
            if (value >= low if self.stated < low else value <= high)
        }
        return sorted(there, key=lambda change: _away(there[change], published))

    def said(self, published: tuple[float, float], number: Callable[[float], str]) -> str:
        """The same as a sentence, with each `number` as it is shown."""
        begins = f"With each cost as stated it is {number(self.stated)}"
        if published[0] <= self.stated <= published[1]:
            return f"{begins}, as published."
        each = f"{self.boots} boots each" if self.boots > 1 else "a boot each"
        if self.doubtful:
            each += f" ({self.doubtful} regions doubtful)"
        if self.outdated:
            each += f" ({times.OUTDATED})"
        begins += f"; of {len(self.changed)} changes of one cost alone, {each},"
        if there := self.reach(published):
            first = ", ".join(f"{one} ({number(self.changed[one])})" for one in there[:NEAREST])
            many = f", and {len(there) - NEAREST} more" * (len(there) > NEAREST)
            return f"{begins} what is published is reached or passed with {first}{many}."
        nearest = min(self.changed, key=lambda one: _away(self.changed[one], published))
        value = number(self.changed[nearest])
        return f"{begins} none reaches what is published, the nearest is {nearest} ({value})."


def read(
    regions: Sequence[Mapping[str, Any]], value: Callable[[list[dict[str, Any]]], Sequence[float]]
) -> Alone | None:
    """The middle over a change's seeds of a `value` of regions, whose labels are without it there.

    What so many CPUs cannot tell is left out, and what has no value. None if there is no value
    where nothing is changed.
    """
    by: dict[str, list[dict[str, Any]]] = {}
    for region in regions:
        found = _CHANGE.fullmatch(region["label"])
        label, change = (found["label"] or "", found["change"]) if found else (region["label"], "")
        if change.partition("=")[0] not in unseen(region["machine"], region["cpus"]):
            by.setdefault(change, []).append({**region, "label": label})
    values = {change: list(value(same)) for change, same in by.items()}
    middles = {change: stats.median(seeds) for change, seeds in values.items() if seeds}
    stated = middles.pop("", None)
    return Alone(stated, middles, len(values[""])) if stated is not None and middles else None


@cache
def unseen(machine: str, cpus: int) -> set[str]:
    """The costs that so many CPUs of a machine of that name cannot tell."""
    return prices.unseen(machines.get(machine), cpus)


def _away(value: float, published: tuple[float, float]) -> float:
    low, high = published
    return max(low - value, value - high, 0.0)
