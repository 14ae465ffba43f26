# SPDX-License-Identifier: MIT
"""What bpftrace, perf, pahole and others print, as the numbers that tell two kernels apart.

`count(WORD)`, `median(WORD)` and `ratio(WORD, OTHER)` are of bpftrace's maps, of entries with the
word in their key, and so is `spread(WORD)`, how many times the 90th percentile of a histogram is
its 5th; `share(WORD)` is of lines of `perf report`, in percent; `number(WORDS)` is the first one
behind these words; `together(MEMBER, OTHER)` is 1 if both are on one line of a struct.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from contended.errors import ContendedError, UsageError

LINE = 64  # bytes of a cache line
_MAP = re.compile(r"^@\w*(?:\[([^\]]*)\])?: ?(\d+)?\s*\n((?:\[[^\n]*\n)*)", re.M)
_BUCKET = re.compile(r"^\[(\d+)([KMG]?)(?:, [^)\]]*[)\]]|\])\s+(\d+)", re.M)
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def read(metric: str, said: str) -> float:
    """A metric's number; UsageError if there is no such metric, ContendedError if none is said."""
    found = re.fullmatch(r"(\w+)\((.*)\)", metric)
    if not found or found[1] not in _METRICS:
        raise UsageError(f"no metric {metric!r}; there are: {', '.join(_METRICS)}")
    try:
        return _METRICS[found[1]](said, *found[2].split(", "))
    except (LookupError, ZeroDivisionError):
        last = next((line for line in reversed(said.splitlines()) if line.strip()), "nothing")
        raise ContendedError(f"{metric} cannot be read; the last that was said: {last}") from None
    except TypeError:
        raise UsageError(f"{metric}: not the words that {found[1]} takes") from None


def _buckets(said: str, word: str) -> list[tuple[int, int]]:
    """Of all histograms with the word in their key: the lower bounds and counts, in order."""
    return sorted(
        (int(low) * _SIZES[unit], int(n))
        for key, _, histogram in _MAP.findall(said)
        if word in key
        for low, unit, n in _BUCKET.findall(histogram)
    )


def _count(said: str, word: str) -> float:
    plain = sum(int(n or 0) for key, n, _ in _MAP.findall(said) if word in key)
    return plain + sum(n for _, n in _buckets(said, word))


def _median(said: str, word: str) -> float:
    each = [low for low, n in _buckets(said, word) for _ in range(n)]
    return float(each[len(each) // 2])


def _spread(said: str, word: str) -> float:
    each = [max(low, 1) for low, n in _buckets(said, word) for _ in range(n)]
    return each[len(each) * 9 // 10] / each[len(each) // 20]


def _ratio(said: str, word: str, other: str) -> float:
    return _count(said, word) / _count(said, other)


def _share(said: str, word: str) -> float:
    found = re.findall(rf"^\s*([\d.]+)%.*\b{re.escape(word)}\b", said, re.M)
    if not found and "%" not in said:
        raise LookupError(word)
    return sum(map(float, found))


def _number(said: str, words: str) -> float:
    return float(re.findall(rf"{re.escape(words)}\D*?(\d+)", said)[0])


def _together(said: str, member: str, other: str) -> float:
    lines = []
    for name in (member, other):
        found = re.findall(rf"\b{name}\b[^;\n]*;\s*/\*\s*(\d+)\s+(\d+)", said)
        offset, size = map(int, found[0])
        lines.append(range(offset // LINE, (offset + size - 1) // LINE + 1))
    return float(bool(set(lines[0]) & set(lines[1])))


_METRICS: dict[str, Callable[..., float]] = {
    "count": _count,
    "median": _median,
    "spread": _spread,
    "ratio": _ratio,
    "share": _share,
    "number": _number,
    "together": _together,
}
