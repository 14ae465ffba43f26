# SPDX-License-Identifier: MIT
"""What a figure shows in words and rounded numbers, for those who cannot see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contended import stats

Series = Mapping[str, Sequence[Sequence[float]]]
"""By name, the repeats at each of several places."""


def short(value: float) -> str:
    """Three significant digits, for where there is little room: 8.4M, 0.0213, 160."""
    return _scaled(value, ("G", "M", "k"))


def worded(value: float) -> str:
    """Three significant digits and a word, for a screen reader: 8.4 million."""
    return _scaled(value, (" billion", " million", " thousand"))


def _scaled(value: float, words: Sequence[str]) -> str:
    rounded = float(f"{value:.3g}")
    for word, size in zip(words, (1e9, 1e6, 1e3), strict=True):
        if abs(rounded) >= size:
            return f"{rounded / size:g}{word}"
    return f"{rounded:g}"


def say(series: Series, places: Sequence[str], unit: str) -> list[str]:
    """Each series in words: its name, and at each place the median and the range."""
    unit = unit if unit in ("%", "") else f" {unit}"
    lines = []
    for name, rows in series.items():
        said = []
        for place, row in zip(places, rows, strict=True):
            words = "no sample"
            if row:
                middle, low, high = map(worded, (stats.median(row), min(row), max(row)))
                words = f"median {middle}{unit} ({low} to {high})"
            said.append(f"{place} {words}".lstrip())
        lines.append(f"{name}: {', '.join(said)}")
    return lines


def alt(title: str, subtitle: str, lines: Sequence[str]) -> str:
    """The alternative text."""
    return f"{join(title, subtitle)}. {'. '.join(lines)}."


def join(*parts: str) -> str:
    """What is not empty, with commas."""
    return ", ".join(filter(None, parts))


def in_threads(n: float) -> str:
    """A number of threads in words."""
    return f"{n:g} thread" if n == 1 else f"{n:g} threads"
