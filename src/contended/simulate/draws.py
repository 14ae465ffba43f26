# SPDX-License-Identifier: MIT
"""Joint draws of parameters, each over its own range: what a prediction's range is taken of."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from contended.simulate.caches import Costs
from contended.simulate.machines import MachineModel

DRAWS = 40


def latin(ranges: Mapping[str, tuple[float, float]], draws: int = DRAWS) -> list[dict[str, float]]:
    """So many joint draws of parameters, each from a range of its own: a Latin hypercube.

    Each parameter comes once from each of as many equal parts of its range as there are draws, in
    an order that depends on its name alone; so what they do together is seen, and no end is missed.
    """
    columns = {}
    for name, (low, high) in ranges.items():
        chance = random.Random(name)
        parts = chance.sample(range(draws), draws)
        columns[name] = [low + (high - low) * (part + chance.random()) / draws for part in parts]
    return [{name: column[at] for name, column in columns.items()} for at in range(draws)]


def priced(box: MachineModel, drawn: Mapping[str, float]) -> Costs:
    """A machine's costs as they were drawn, by name; what was not is as it is."""
    found = {name: drawn.get(name, getattr(box.costs, name)) for name in box.parameters}
    if box.groups == 1 and "near" in found:  # one group a socket: the two ways are one
        found["cross"] = found["near"]
    return replace(box.costs, **found)
