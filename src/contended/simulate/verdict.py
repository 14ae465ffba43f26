# SPDX-License-Identifier: MIT
"""Whether what was predicted agrees with what was published: one rule for all, made not to flatter.

A prediction is the range from the 5th to the 95th percentile of what came out, a published number
its spread, or a point. They agree only if the ranges overlap, and that means something only if the
prediction is narrow; so a model that allows everything holds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Verdict = Literal["held", "consistent", "differs", "counted", "inconsistent", "cannot"]
Kind = Literal["predicted", "fitted", "counted", "contradicted"]
"""Of a row: its number was drawn; it went into a parameter; it is a count and has no spread; or
the source itself contradicts it."""
Range = tuple[float, float]

DRAWS = 10  # how many draws a prediction has that can be held
NARROW = 2.0  # the ends of a prediction that can be held
EXPONENT = 0.15  # a counted exponent is as near as this
COUNT = 1.1  # and any other count as this, a factor
NEAR = 1.25  # a middle without a range
SHOWN: dict[Verdict, str] = {
    "held": "held",
    "consistent": "consistent, says little",
    "differs": "differs",
    "counted": "counted",
    "inconsistent": "source inconsistent",
    "cannot": "cannot be shown here",
}


def judge(
    ours: Range | None,
    published: Range,
    unit: str = "",
    kind: Kind = "predicted",
    draws: int = DRAWS,
) -> Verdict:
    """The verdict over a range of ours, None where there is none, beside a published one.

    Both are in the same unit; "%" is a change, and judged as the ratio that it is. The range is
    that of so many draws: of a few it is narrow by chance, and holds nothing.
    """
    if kind == "contradicted":
        return "inconsistent"
    if ours is None:
        return "cannot"
    if kind == "counted":
        low, high = published
        if unit.startswith("exponent"):
            low, high = low - EXPONENT, high + EXPONENT
        else:
            low, high = low / COUNT, high * COUNT
        return "counted" if low <= ours[0] and ours[1] <= high else "differs"
    if gap(ours, published, unit) > 1:
        return "differs"
    low, high = _plain(ours, unit)
    narrow = low > 0 and high <= NARROW * low and draws >= DRAWS
    return "held" if narrow and kind != "fitted" else "consistent"


def gap(ours: Range, published: Range, unit: str = "") -> float:
    """By what factor two ranges miss each other: 1 if they overlap, infinite across zero."""
    (_, high), (least, _) = sorted((_plain(ours, unit), _plain(published, unit)))
    if least <= high:
        return 1.0
    return least / high if high > 0 else float("inf")


def near(values: Sequence[float], published: Range, unit: str = "") -> bool:
    """Whether the middle of what came out is within a quarter of what was published.

    A verdict is on a range, so a wide one is held more easily; a middle has no width. Of an even
    number of values both in the middle have to be: between two groups there is no value.
    """
    ordered, n = sorted(values), len(values)
    both = (ordered[(n - 1) // 2], ordered[n // 2])
    return all(gap((value, value), published, unit) <= NEAR for value in both)


def between(values: Sequence[float], published: Range) -> bool:
    """Whether what was published lies between two groups of what came out.

    None of the values is as published, and the nearest on its two sides are farther from each other
    than half of the way from the least to the most. Something unknown is then one way or the other,
    and neither fits, although a range from the one to the other does.
    """
    low, high = published
    below, above = ([v for v in values if side(v)] for side in (low.__gt__, high.__lt__))
    if not below or not above or len(below) + len(above) < len(values):
        return False
    return min(above) - max(below) > (max(values) - min(values)) / 2


def told(verdict: Verdict, factor: float = 1.0, *, apart: bool = False) -> str:
    """A verdict in words; what differs, by what factor; what holds, whether it is so `between`."""
    if verdict == "held" and apart:
        return f"{SHOWN[verdict]}, between two groups"
    if verdict != "differs" or not 1 < factor < float("inf"):
        return SHOWN[verdict]
    return f"{SHOWN[verdict]}, {f'{factor:.3g}' if factor >= 1.005 else 'under 1.01'} times"


def _plain(ends: Range, unit: str) -> Range:
    low, high = ends
    return (1 + low / 100, 1 + high / 100) if unit == "%" else (low, high)
