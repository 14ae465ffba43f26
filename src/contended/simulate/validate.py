# SPDX-License-Identifier: MIT
"""The simulator against the C models, at one and two threads, on the machine at hand.

Each C model's operation is put down as the lines that it touches, with no work of its own: what the
models do besides overlaps with waiting on a real processor. The machine's costs come from the
ping-pong and from one counter (`machines.here`); nothing is taken from the models compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contended import stats
from contended.measure.results import Measurement
from contended.simulate import machines
from contended.simulate.caches import Phase, simulate
from contended.simulate.machines import Machine
from contended.simulate.program import SELF, Memory, Program

if TYPE_CHECKING:
    import pandas as pd

Operation = Callable[[Program, Memory], None]
TOLERANCE = 0.25
_LENGTH_NS = 200_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A C model's variant beside its simulation.

    Attributes:
        model: Slug of the model.
        variant: Its variant.
        threads: 1 or 2.
        phase: Of the measurement.
        measured: Nanoseconds from one operation to the next, of all threads together.
        simulated: The same.
        transfers_per_op: Simulated.
        retried_per_op: Simulated compare-and-exchanges that failed.
        why: What explains the difference, if it is more than 25%.
    """

    model: str
    variant: str
    threads: int
    phase: str
    measured: float
    simulated: float
    transfers_per_op: float
    retried_per_op: float
    why: str

    @property
    def off(self) -> float:
        """Simulated over measured, less 1."""
        return self.simulated / self.measured - 1

    @property
    def fits(self) -> bool:
        """Is it within 25%?"""
        return abs(self.off) <= TOLERANCE


@dataclass(frozen=True, slots=True)
class Modelled:
    """A C model's variant as the lines that it touches.

    Attributes:
        model: Slug of the model.
        variant: Its variant.
        phase: Of the measurement.
        run: Name of the reference run.
        operation: Puts down the steps.
    """

    model: str
    variant: str
    phase: str
    run: str
    operation: Operation


def _counter(p: Program, memory: Memory) -> None:
    p.add(memory.word(), 1)


def _handover(p: Program, memory: Memory) -> None:
    """Wait for one's turn, write the other's."""
    turn = memory.word()
    p.spin(turn, "==", SELF)
    p.alu("set", 0, number=1)
    p.alu("minus", 0, SELF)
    p.write(turn, 0)


#: The models that belong to no case: what the machine's costs are taken from comes out again.
OWN = (
    Modelled("pingpong", "0-1", "run", "pingpong/handover", _handover),
    Modelled("measuring", "shared", "run", "measuring/atomics", _counter),
)
_LATER = (
    "a real processor starts the next operation before the last one's line has come, and hides "
    "part of the way"
)
_ALONE = "a thread alone pays for instructions that the simulation leaves out"


def run(operation: Operation, machine: Machine, threads: int, *, seed: int = 0) -> Phase:
    """Simulate an operation, repeated by each thread without a pause."""
    memory, p = Memory(threads), Program()
    p.label("go")
    operation(p, memory)
    p.done()
    p.jump("go")
    return simulate(
        p,
        memory,
        machine.topology(threads),
        machine.costs,
        start=["go"] * threads,
        phases_ns=[_LENGTH_NS],
        seed=seed,
        counters={"retried": 2},
    )[0]


def against_models(
    modelled: Sequence[Modelled] = (),
    measured: Mapping[str, Measurement] | None = None,
    machine: Machine | None = None,
) -> list[Compared]:
    """Put each C model beside its simulation.

    Args:
        modelled: The cases' models, see `contended.cases.modelled`, beside `OWN`.
        measured: By the name of a reference run, what was measured instead; default the recorded
            ones.
        machine: What to simulate; default `machines.here()` of the recorded ping-pong.

    Raises:
        ContendedError: a reference run is missing.
    """
    box = machine or machines.here()
    found = []
    for each in (*OWN, *modelled):
        record = (measured or {}).get(each.run) or machines.recorded(each.run)
        for threads in (1, 2):
            values = record.values(each.variant, threads=threads, phase=each.phase)
            if not values:
                continue
            middle = stats.median(values)
            # the ping-pong's value is a time, the others' a rate
            ns = middle if record.unit == "ns" else 1e9 / middle
            seen = run(each.operation, box, threads)
            row = Compared(
                model=each.model,
                variant=each.variant,
                threads=threads,
                phase=each.phase,
                measured=ns,
                simulated=seen.ns_per_op,
                transfers_per_op=seen.transfers / seen.counts["ops"],
                retried_per_op=seen.per_op("retried"),
                why=_ALONE if threads == 1 else _LATER,
            )
            found.append(row)
    return found


def frame(rows: list[Compared]) -> pd.DataFrame:
    """The comparison as a table: the attributes of Compared, `off`, and `why` where it is off."""
    import pandas as pd  # slow to import

    return pd.DataFrame(
        [
            {
                "model": row.model,
                "variant": row.variant,
                "threads": row.threads,
                "phase": row.phase,
                "measured_ns": row.measured,
                "simulated_ns": row.simulated,
                "off": row.off,
                "fits": row.fits,
                "transfers_per_op": row.transfers_per_op,
                "retried_per_op": row.retried_per_op,
                "why": "" if row.fits else row.why,
            }
            for row in rows
        ]
    )
