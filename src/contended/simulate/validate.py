# SPDX-License-Identifier: MIT
"""The simulator against the C models, at one and two threads, on the machine at hand.

Each C model's operation is put down as the lines that it touches, with no work of its own: what the
models do besides overlaps with waiting on a real processor. The machine's costs come from the
ping-pong and from one counter (`machines.here`); nothing is taken from the models compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from contended import stats
from contended.simulate import machines
from contended.simulate.caches import Phase, simulate
from contended.simulate.machines import MachineModel
from contended.simulate.program import SELF, Memory, Program

if TYPE_CHECKING:
    import pandas as pd

Operation = Callable[[Program, Memory], None]
TOLERANCE = 0.25
_LENGTH_NS = 200_000.0
_WHY = {
    1: "a thread alone pays for instructions that the simulation leaves out",
    2: "a real processor starts the next operation before the last one's line has come, and hides "
    "part of the way",
}


class Modelled(NamedTuple):
    """A C model's variant, in a phase of a reference run, as the lines that it touches."""

    model: str
    variant: str
    phase: str
    run: str
    operation: Operation


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
    Modelled(
        "measuring", "shared", "run", "measuring/atomics", lambda p, memory: p.add(memory.word(), 1)
    ),
)


def run(operation: Operation, machine: MachineModel, threads: int) -> Phase:
    """Simulate an operation, repeated by each thread without a pause."""
    memory, p = Memory(threads), Program()
    p.label("go")
    operation(p, memory)
    p.done()
    p.jump("go")
    start, place = ["go"] * threads, machine.topology(threads)
    how: dict[str, Any] = {"phases_ns": [_LENGTH_NS], "counters": {"retried": 2}}
    return simulate(p, memory, place, machine.costs, start=start, **how)[0]


def against_models(modelled: Sequence[Modelled] = ()) -> pd.DataFrame:
    """`OWN` models and the cases', see `contended.cases.modelled`, beside their simulations.

    Nanoseconds are from one operation to the next, of all threads together; `off` is simulated over
    measured, less 1, and `why` explains it where it is more than 25%. Raises ContendedError if a
    reference run is missing.
    """
    import pandas as pd  # slow to import

    here = machines.here()
    found = []
    for each, threads in product((*OWN, *modelled), (1, 2)):
        record = machines.recorded(each.run)
        values = record.values(each.variant, threads=threads, phase=each.phase)
        if not values:
            continue
        # the ping-pong's value is a time, the others' a rate
        ns = stats.median(values) if record.unit == "ns" else 1e9 / stats.median(values)
        seen = run(each.operation, here, threads)
        off = seen.ns_per_op / ns - 1
        found.append(
            {
                "model": each.model,
                "variant": each.variant,
                "threads": threads,
                "phase": each.phase,
                "measured_ns": ns,
                "simulated_ns": seen.ns_per_op,
                "off": off,
                "fits": abs(off) <= TOLERANCE,
                "transfers_per_op": seen.per_op("transfers"),
                "retried_per_op": seen.per_op("retried"),
                "why": "" if abs(off) <= TOLERANCE else _WHY[threads],
            }
        )
    return pd.DataFrame(found)
