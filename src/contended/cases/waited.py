# SPDX-License-Identifier: MIT
"""Readings of waits in the guest's own time: what `contended kernel waits --json` left in results.

Probes as those of `timed`, for milliseconds that a call takes instead of operations a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from contended.cases.timed import Record, Region, Time


def waits(
    of: str,
    variant: str,
    label: str,
    runs: Sequence[str],
    cpus: Sequence[int],
    *,
    rest_ms: float = 0.0,
    file: str = "waits-several",
) -> Time:
    """The mean wait of each boot of all these runs, milliseconds, in the guest's own time.

    `rest_ms` is what else is in the published value; the record is of `contended kernel waits`. The
    range is that over the runs' configurations and the numbers of CPUs: without one there is none.
    """

    def read(record: Record) -> list[float]:
        found = _waited(record, variant, label, runs, cpus)
        return [r["mean_ns"] / 1e6 + rest_ms for r in found]

    return Time(of, read, lambda _: [], file)


def more_cpus(
    of: str, variant: str, label: str, runs: Sequence[str], cpus: tuple[int, int], *, file: str
) -> Time:
    """The wait with the first number of CPUs over that with the second, boot by boot; it guesses 1.

    Each run is compared with itself: what the kernel's configuration does to both drops out.
    """

    def read(record: Record) -> list[float]:
        above, below = (_waited(record, variant, label, runs, [n]) for n in cpus)
        return _quotients(above, below)

    return Time(of, read, lambda _: [1.0], file)


def other_wait(
    of: str,
    top: str,
    base: str,
    label: str,
    runs: Sequence[str],
    cpus: Sequence[int],
    *,
    rest_ms: float = 0.0,
    file: str = "waits-several",
) -> Time:
    """The wait of one variant over that of another, boot by boot as `more_cpus`; it guesses 1.

    `rest_ms` is what else is in both of the published values.
    """

    def read(record: Record) -> list[float]:
        found: list[float] = []
        for n in cpus:
            above, below = (_waited(record, each, label, runs, [n]) for each in (top, base))
            found += _quotients(above, below, rest_ms)
        return found

    return Time(of, read, lambda _: [1.0], file)


def _quotients(above: list[Region], below: list[Region], rest_ms: float = 0.0) -> list[float]:
    """What waits have in the same run and boot, each with what else was published in it."""
    sides = [
        {(r["run"], r["seed"]): r["mean_ns"] / 1e6 + rest_ms for r in side}
        for side in (above, below)
    ]
    return [sides[0][boot] / sides[1][boot] for boot in sides[0].keys() & sides[1].keys()]


def _waited(
    record: Record, variant: str, label: str, runs: Sequence[str], cpus: Sequence[int]
) -> list[Region]:
    wanted = {"variant": variant, "label": label}
    here = [r for r in record.regions if wanted.items() <= r.items()]
    found = [r for r in here if r["run"] in runs and r["cpus"] in cpus]
    if {(r["run"], r["cpus"]) for r in found} != set(product(runs, cpus)):
        return []
    record.used.extend(found)
    return found
