# SPDX-License-Identifier: MIT
"""The simulator against the C models, at one and two threads, on the machine at hand.

Each C model's operation is put down as the lines that it touches, with no work of its own: what the
models do besides overlaps with waiting on a real processor. The machine's costs come from the
ping-pong and from one counter (`machines.here`); nothing is taken from the models compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contended import stats
from contended.measure.results import Measurement
from contended.simulate import cases, machines
from contended.simulate.caches import Phase, simulate
from contended.simulate.locks import Lock, Lockref
from contended.simulate.machines import Machine
from contended.simulate.program import SELF, Memory, Program

if TYPE_CHECKING:
    import pandas as pd

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


def counter(p: Program, memory: Memory) -> None:
    """The model "measuring", variant shared."""
    p.add(memory.word(), 1)


def handover(p: Program, memory: Memory) -> None:
    """The model "pingpong", variant store: wait for one's turn, write the other's."""
    turn = memory.word()
    p.spin(turn, "==", SELF)
    p.alu("set", 0, number=1)
    p.alu("minus", 0, SELF)
    p.write(turn, 0)


def lockref(p: Program, memory: Memory) -> None:
    """The model "lockref-degrade", calm: a get and a put."""
    ref = Lockref(Lock("queued", memory, memory.word(1 << 32)))
    ref.change(p, 1)
    ref.change(p, -1)


def dentry(p: Program, memory: Memory) -> None:
    """The model "dentry-false-sharing", before, mixed: look the name up, get, put."""
    word = memory.word(1 << 32)
    ref = Lockref(Lock("queued", memory, word))
    p.read(memory.word(beside=word))
    ref.change(p, 1)
    ref.change(p, -1)


def creds(p: Program, memory: Memory) -> None:
    """The model "overlay-creds", before: take, look at the ids beside the count, drop."""
    word = memory.word(1)
    p.add(word, 1)
    p.read(memory.word(beside=word))
    p.add(word, -1)


Operation = Callable[[Program, Memory], None]

_LATER = (
    "a real processor starts the next operation before the last one's line has come, and hides "
    "part of the way"
)
_ALONE = "a thread alone pays for instructions that the simulation leaves out"
_TABLE: tuple[tuple[str, str, str, str, Operation], ...] = (
    ("pingpong", "0-1", "run", "pingpong/handover", handover),
    ("measuring", "shared", "run", "measuring/atomics", counter),
    ("overlay-creds", "before", "run", "overlay-creds/run", creds),
    ("lockref-degrade", "before", "calm", "lockref-degrade/phases", lockref),
    ("dentry-false-sharing", "before", "run", "dentry-false-sharing/mixed", dentry),
)


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
    measured: Mapping[str, Measurement] | None = None, machine: Machine | None = None
) -> list[Compared]:
    """Put each C model beside its simulation.

    Args:
        measured: By the name of a reference run, what was measured instead; default the recorded
            ones.
        machine: What to simulate; default `machines.here()` of the recorded ping-pong.

    Raises:
        ContendedError: a reference run is missing.
    """
    box = machine or machines.here()
    found = []
    for model, variant, phase, name, operation in _TABLE:
        record = (measured or {}).get(name) or machines.recorded(name)
        for threads in (1, 2):
            values = record.values(variant, threads=threads, phase=phase)
            if not values:
                continue
            middle = stats.median(values)
            # the ping-pong's value is a time, the others' a rate
            ns = middle if record.unit == "ns" else 1e9 / middle
            seen = run(operation, box, threads)
            row = Compared(
                model=model,
                variant=variant,
                threads=threads,
                phase=phase,
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
    pandas = cases.require_pandas()
    shown: pd.DataFrame = pandas.DataFrame(
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
    return shown
