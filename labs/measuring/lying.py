# SPDX-License-Identifier: MIT
"""A benchmark with five lies in it. Each pair of functions tells one."""

from __future__ import annotations

from typing import Any

from box import MULTIPLY, OWN, SHARED, ask


def work_plan() -> list[dict[str, Any]]:
    """What sixteen multiplications cost: the runs to make."""
    return [ask(16 * [MULTIPLY])]


def work_ns(results: list[dict[str, Any]]) -> float:
    """What sixteen multiplications cost, in nanoseconds."""
    return results[0]["ns"] / results[0]["ops"]


def sharing_plan(cpus: list[int]) -> list[dict[str, Any]]:
    """How many times slower a counter is if two threads share it: the runs to make."""
    return [ask([OWN], threads=2), ask([SHARED], threads=2)]


def sharing_factor(results: list[dict[str, Any]]) -> float:
    """How many times slower a shared counter is."""
    return results[1]["ns"] / results[0]["ns"]


def think_plan(cpus: list[int]) -> list[dict[str, Any]]:
    """The same for programs that do something in between: the runs to make."""
    return [
        ask([OWN], threads=2, cpus=cpus[:2]),
        ask([SHARED], threads=2, cpus=cpus[:2]),
    ]


def think_curve(results: list[dict[str, Any]]) -> list[list[float]]:
    """Pairs of a think time in nanoseconds and the factor that sharing costs with it."""
    return [
        [think, results[1]["ns"] / results[0]["ns"]]
        for think in (0, 100, 1000)
    ]


def compare_plan(
    old: list[str], new: list[str], cpu: int
) -> list[dict[str, Any]]:
    """Is the new code faster than the old? The runs to make."""
    first = [ask(old, label="old", cpus=[cpu]) for _ in range(10)]
    return first + [ask(new, label="new", cpus=[cpu]) for _ in range(10)]


def speed_up(results: list[dict[str, Any]]) -> float:
    """How many times as fast the new code is."""
    old = sum(r["ns"] for r in results if r["label"] == "old")
    return old / sum(r["ns"] for r in results if r["label"] == "new")


def predict(points: list[list[float]], threads: int) -> list[float]:
    """The least and the greatest throughput to expect, from points of [threads, throughput]."""
    (n1, x1), (n2, x2) = points[0], points[-1]
    guess = x1 + (x2 - x1) * (threads - n1) / (n2 - n1)
    return [guess, guess]
