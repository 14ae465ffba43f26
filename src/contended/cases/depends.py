# SPDX-License-Identifier: MIT
"""Which of the costs that were drawn a timed value depends on, by rank over the draws.

If a prediction that misses, or says little, moves with one cost more than chance would have it,
that is where to look. If with none, no single cost decides it, or there are too few draws to tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHUFFLES = 1000
RARE = 0.05  #: Of the shuffles, as many may have one cost that a shuffled value moves so much with.
FEWEST = 8  #: With fewer draws there is nothing to tell.
#: What the costs of `contended.kernel.prices` are, in words.
WORDS = {
    "instruction": "an instruction's time",
    "rmw_hit": "an atomic instruction's time",
    "pause": "a pause's time",
    "core": "the way within a core",
    "near": "the way to a neighbour",
    "cross": "the way to another group",
    "far": "the way to another socket",
    "fill": "the way from memory",
    "share": "a copy's time",
    "request": "how long a holder goes on",
    "smt": "what two threads of a core cost each other",
    "turbo": "how far clocks fall",
    "clocked": "how much of a way is of a core's clock",
    "take": "whether a load takes its line",
    "grouped": "how many requests for a line another group sends",
    "ahead": "how early a load begins",
}


@dataclass(frozen=True, slots=True)
class Dependence:
    """A cost's name, and Spearman's correlation with it."""

    cost: str
    rank: float

    def __str__(self) -> str:
        return f"{WORDS.get(self.cost, self.cost)} ({self.rank:+.2f})"


def depends(
    costs: Sequence[Mapping[str, float]], values: Sequence[float]
) -> tuple[Dependence, ...] | None:
    """The costs that values follow more than shuffled ones follow any, the strongest first.

    One value for each draw of costs. None if there are too few draws, or nothing in them differs.
    """
    import numpy as np

    names = [name for name in costs[0] if len({each[name] for each in costs}) > 1] if costs else []
    if len(values) < FEWEST or not names or len(set(values)) < 2:
        return None
    moved = np.array([_ranks([each[name] for each in costs]) for name in names])
    value = _ranks(values)
    random = np.random.default_rng(len(values))
    shuffled = np.array([random.permutation(value) for _ in range(SHUFFLES)])
    least = np.quantile(np.abs(moved @ shuffled.T).max(axis=0), 1 - RARE)
    found = [Dependence(*each) for each in zip(names, (moved @ value).tolist(), strict=True)]
    strong = [each for each in found if abs(each.rank) > least]
    return tuple(sorted(strong, key=lambda each: -abs(each.rank)))


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks, ties in the middle of theirs, about zero and of length one."""
    import numpy as np

    _, place, many = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(many) - (many - 1) / 2)[place]
    centred = ranks - ranks.mean()
    return np.asarray(centred / np.linalg.norm(centred))
