# SPDX-License-Identifier: MIT
"""All that a slider can show, simulated beforehand: a page of the book has nobody to simulate."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from contended import __version__, records
from contended.errors import ContendedError
from contended.records import Record
from contended.simulate import machines
from contended.simulate.curves import LIVE_CPUS, Curve, Sweep

_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Grid(Record):
    """A sweep's values, in its unit, over machines, a knob's settings, lines and CPUs."""

    schema: int
    contended: str  # the version that simulated it
    workload: str
    unit: str
    amounts: tuple[float, ...]
    lines: tuple[str, ...]
    cpus: tuple[int, ...]
    # by machine, for each amount, for each line, for each number of CPUs; three significant digits
    values: dict[str, tuple[tuple[tuple[float, ...], ...], ...]]

    def to_json(self) -> str:
        """The record as JSON text, without a space in it: it goes into a page."""
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"

    def at(self, machine: str, amount: float) -> tuple[tuple[float, ...], ...]:
        """The values of each line, for each number of CPUs."""
        return self.values[machine][self.amounts.index(amount)]


def values(curve: Curve) -> tuple[tuple[float, ...], ...]:
    """A live curve's values of each line, for each number of CPUs, to three digits."""
    return tuple(
        tuple(float(f"{curve.at(line.label, n):.3g}") for n in curve.cpus)
        for line in curve.sweep.lines
    )


def _empty(sweep: Sweep) -> Grid:
    # "here" is another machine for each reader, and who reads a page has no record of theirs
    places = [name for name in machines.names() if name != machines.HERE]
    places = places if sweep.knob.machine else [sweep.machine]
    lines = tuple(line.label for line in sweep.knob.lines or sweep.lines)
    made = _SCHEMA, __version__, sweep.workload.name, sweep.unit
    return Grid(*made, sweep.knob.amounts, lines, LIVE_CPUS, dict.fromkeys(places, ()))


def record(sweep: Sweep, progress: Callable[[int, int], None] = lambda *_: None) -> Grid:
    """Simulate all that a sweep's knobs can show; takes up to six minutes."""
    grid = _empty(sweep)
    planned = len(grid.values) * len(grid.amounts)
    for place in grid.values:
        for amount in grid.amounts:
            curve = sweep.now(grid.cpus, machine=place, amount=amount)
            grid.values[place] += (values(curve),)
            progress(sum(map(len, grid.values.values())), planned)
    return grid


def load(path: Path, sweep: Sweep, remedy: str) -> Grid:
    """A sweep's recorded grid; the error if it is missing, bad or another's tells a remedy."""
    grid = records.load(Grid, path, "grid", _SCHEMA, remedy)
    wanted = _empty(sweep)
    for name in ("workload", "unit", "amounts", "lines", "cpus"):
        if getattr(grid, name) != getattr(wanted, name):
            raise ContendedError(f"{path} has other {name} than the chapter's slider: {remedy}")
    if set(grid.values) != set(wanted.values):
        raise ContendedError(f"{path} has other machines than the simulator: {remedy}")
    shape = len(grid.amounts), len(grid.lines), len(grid.cpus)
    whole = all(
        len(box) == shape[0]
        and all(len(setting) == shape[1] for setting in box)
        and all(len(line) == shape[2] for setting in box for line in setting)
        and all(0 < value < math.inf for setting in box for line in setting for value in line)
        for box in grid.values.values()
    )
    if not whole:
        raise ContendedError(f"{path} lacks settings or numbers: {remedy}")
    return grid
