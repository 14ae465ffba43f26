# SPDX-License-Identifier: MIT
"""What a figure shows in words and rounded numbers, for those who cannot see it."""

from __future__ import annotations

from collections.abc import Sequence

from contended import stats


def short(value: float) -> str:
    """Three significant digits, for where there is little room: 8.4M, 0.0213, 160."""
    return _scaled(value, (("G", 1e9), ("M", 1e6), ("k", 1e3)))


def worded(value: float) -> str:
    """Three significant digits and a word, for a screen reader: 8.4 million."""
    return _scaled(value, ((" billion", 1e9), (" million", 1e6), (" thousand", 1e3)))


def _scaled(value: float, scales: Sequence[tuple[str, float]]) -> str:
    rounded = float(f"{value:.3g}")
    for word, size in scales:
        if abs(rounded) >= size:
            return f"{rounded / size:g}{word}"
    return f"{rounded:g}"


def say(name: str, rows: Sequence[tuple[str, Sequence[float]]], unit: str) -> str:
    """A series in words: its name, and at each place the median and the range."""
    said = []
    for place, row in rows:
        at = f"{place} " if place else ""
        if not row:
            said.append(f"{at}no sample")
        else:
            amount = _join_unit(worded(stats.median(row)), unit)
            said.append(f"{at}median {amount} ({worded(min(row))} to {worded(max(row))})")
    return f"{name}: {', '.join(said)}"


def _join_unit(amount: str, unit: str) -> str:
    return f"{amount}{unit}" if unit == "%" else f"{amount} {unit}".rstrip()


def alt(title: str, subtitle: str, lines: Sequence[str]) -> str:
    """The alternative text."""
    return f"{join(title, subtitle)}. {'. '.join(lines)}."


def join(*parts: str) -> str:
    """What is not empty, with commas."""
    return ", ".join(part for part in parts if part)


def in_threads(n: float) -> str:
    """A number of threads in words."""
    return f"{n:g} thread" if n == 1 else f"{n:g} threads"
