# SPDX-License-Identifier: MIT
"""CPUs that share cache lines, simulated event by event: deterministic, and compiled by numba.

Each CPU runs a short program of steps: read or change a word, wait for a word to become something,
think. A word lies on a line, and a line is modified in one cache, shared by several, or in none.
A step on a line that the CPU has costs next to nothing; any other has to wait for the line, which
serves one request at a time, and for its way. That is all there is: no cache is ever full, memory
is sequentially consistent, and the way between two CPUs has a length but no width.

Time is counted in whole picoseconds and chance comes from integers, so the same seed gives the
same digits on every machine.

What makes it fast: a CPU that waits has no event at all, since whoever lets it go on knows when; a
CPU goes on without asking the event queue for as long as nobody else is due before it; and the
queue is a tournament, whose update is one comparison a level, without a branch to mispredict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from contended.errors import ContendedError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MAX_CPUS = 512
PS = 1000  # picoseconds in a nanosecond
MAX_NS = 10_000_000_000  # the longest cost or think time, and the longest simulated phase
COUNTERS = 8

Policy = Literal["fifo", "nearest"]

# Steps. The engine's own copies of these are literals of the compiled code.
(
    _THINK,
    _READ,
    _ADD,
    _CAS,
    _SWAP,
    _WRITE,
    _SPIN,
    _BRANCH,
    _ALU,
    _COUNT,
    _DONE,
    _HALT,
) = range(12)
_COMPARE = {"==": 0, "!=": 1, "<": 2, ">=": 3}
_CALCULATE = {"set": 0, "copy": 1, "add": 2, "plus": 3, "minus": 4, "shl": 5, "shr": 6, "and": 7}
_CALCULATE |= {"random": 8, "phase": 9}
FIXED, EXPONENTIAL, UNIFORM = 0, 1, 2
FULL = -1

# Registers: 0 to 11 are the program's own.
VALUE, FLAG, ZERO, SELF = 12, 13, 14, 15

# What a run counts in each phase; the program's own counters follow.
COUNTS = (
    "ops",
    "events",
    "transfers_core",
    "transfers_near",
    "transfers_cross",
    "transfers_far",
    "upgrades",
    "invalidations",
    "fills",
    "wait_ps",
)


@dataclass(frozen=True, slots=True)
class Word:
    """Where a word is: number `base + stride * register`, the register being the CPU's own."""

    base: int
    stride: int = 0
    register: int = ZERO


@dataclass(slots=True)
class Memory:
    """The words of a program and the lines they lie on, laid out as they are asked for."""

    cpus: int
    line_of: list[int] = field(default_factory=list)
    initial: list[int] = field(default_factory=list)
    lines: int = 0

    def word(self, value: int = 0, *, beside: Word | None = None) -> Word:
        """One word that all CPUs share, on a line of its own or `beside` another word."""
        if beside is not None and beside.stride:
            raise UsageError("words of each CPU cannot be shared: lay them out together, by own()")
        line = self.line_of[beside.base] if beside is not None else self._line()
        self.line_of.append(line)
        self.initial.append(value)
        return Word(len(self.line_of) - 1)

    def array(self, size: int, register: int) -> Word:
        """Words that all CPUs share, each on a line of its own; the register says which."""
        first = len(self.line_of)
        for _ in range(size):
            self.word()
        return Word(first, 1, register)

    def own(self, words: int = 1) -> list[Word]:
        """Words of which each CPU has its own, on a line of its own; other CPUs reach them too."""
        first = len(self.line_of)
        for _ in range(self.cpus):
            line = self._line()
            self.line_of += [line] * words
            self.initial += [0] * words
        return [Word(first + i, words, SELF) for i in range(words)]

    def _line(self) -> int:
        self.lines += 1
        return self.lines - 1


class Program:
    """Steps with labels, put down one after the other; every CPU starts at a label of its own.

    Registers hold whole numbers of 64 bits. A `mask` selects the bits of a word that a step sees or
    changes: half a lockref, for example.
    """

    def __init__(self) -> None:
        self._steps: list[list[int]] = []
        self._labels: dict[str, int] = {}
        self._jumps: dict[int, tuple[str, int]] = {}
        self._names = 0

    def label(self, name: str = "") -> str:
        """Name this place; without a name one is made up."""
        name = name or self.fresh()
        if name in self._labels:
            raise UsageError(f"label {name!r} is there twice")
        self._labels[name] = len(self._steps)
        return name

    def fresh(self) -> str:
        """A name that no label has, for a place that comes later."""
        self._names += 1
        return f".{self._names}"

    def think(self, ns: float, kind: int = FIXED) -> None:
        """Private work: fixed, or with this mean exponential, or uniform from half to 1.5 times.

        Args:
            ns: Nanoseconds, 0 to 10 s.
            kind: FIXED, EXPONENTIAL or UNIFORM.
        """
        check_ns("think time", ns)
        self._step(_THINK, x=round(ns * PS), y=kind)

    def read(self, word: Word, to: int = VALUE) -> None:
        """Read a word."""
        self._step(_READ, word, y=to)

    def add(self, word: Word, amount: int, to: int = VALUE, mask: int = FULL) -> None:
        """Fetch and add, atomically; the value from before goes to a register."""
        self._step(_ADD, word, x=amount, y=to, z=mask)

    def cas(self, word: Word, expected: int, new: int, mask: int = FULL) -> None:
        """Compare with a register and exchange for another; FLAG says whether it was equal.

        If not, the register `expected` gets what was there (all of it, whatever the mask). The
        line is fetched for writing either way, as x86 does it.
        """
        self._step(_CAS, word, x=expected, y=new, z=mask)

    def swap(self, word: Word, new: int, to: int = VALUE, mask: int = FULL) -> None:
        """Exchange for a register, atomically; the whole word from before goes to another."""
        self._step(_SWAP, word, x=new, y=to, z=mask)

    def write(self, word: Word, value: int, mask: int = FULL) -> None:
        """Store a register."""
        self._step(_WRITE, word, x=value, z=mask)

    def spin(
        self,
        word: Word,
        compare: str,
        reference: int = ZERO,
        *,
        mask: int = FULL,
        looks: int = 0,
        tired: str = "",
    ) -> None:
        """Read until the comparison with a register holds; VALUE gets what was read last.

        Args:
            word: Where to look; it is read again when somebody has changed its line.
            compare: "==", "!=", "<" or ">=".
            reference: The register to compare with.
            mask: The bits to compare.
            looks: Give up after so many; 0 never. A look at a line that the CPU has costs a pause.
            tired: Where to go on after giving up.
        """
        if bool(looks) != bool(tired):
            raise UsageError("a bounded spin needs both its bound and a label to go on at")
        place = len(self._steps)
        self._step(_SPIN, word, x=reference, y=looks, z=mask, w=_COMPARE[compare])
        if tired:
            self._jumps[place] = (tired, _COMPARE[compare])

    def branch(self, register: int, compare: str, value: int, to: str, mask: int = FULL) -> None:
        """Go on at a label if a register's masked bits compare with a number; takes no time."""
        self._jumps[len(self._steps)] = (to, _COMPARE[compare])
        self._step(_BRANCH, x=register, y=value, z=mask)

    def jump(self, to: str) -> None:
        """Go on at a label; takes no time."""
        self.branch(ZERO, "==", 0, to)

    def alu(self, what: str, to: int, register: int = ZERO, number: int = 0) -> None:
        """Calculate in registers; takes no time.

        Args:
            what: "set" (a number), "copy", "add" (a number), "plus", "minus" (another register),
                "shl", "shr", "and" (by a number), "random" (below a number), or "phase".
            to: Register of the result, and for all but set, copy, random and phase an operand.
            register: The other operand.
            number: The number.
        """
        self._step(_ALU, x=to, y=register, z=number, w=_CALCULATE[what])

    def count(self, counter: int, register: int = -1) -> None:
        """Add 1, or a register, to one of the program's own counters; takes no time."""
        if not 0 <= counter < COUNTERS:
            raise UsageError(f"counter {counter}: choose 0 to {COUNTERS - 1}")
        self._step(_COUNT, x=counter, y=register)

    def done(self) -> None:
        """One operation is complete."""
        self._step(_DONE)

    def halt(self) -> None:
        """This CPU does nothing more."""
        self._step(_HALT)

    def place(self, label: str) -> int:
        """The number of the step behind a label."""
        if label not in self._labels:
            raise UsageError(f"no label {label!r}; there are: {', '.join(self._labels)}")
        return self._labels[label]

    def assemble(self) -> Ints:
        """The steps as numbers, eight for each, with labels resolved; shape (8 * steps,)."""
        import numpy as np

        steps = [list(step) for step in self._steps]
        for at, (label, compare) in self._jumps.items():
            steps[at][7] = 8 * self.place(label) << 8 | compare
        return np.array(steps, dtype=np.int64).reshape(-1)

    def _step(
        self, op: int, word: Word | None = None, x: int = 0, y: int = 0, z: int = 0, w: int = 0
    ) -> None:
        base, stride, register = (word.base, word.stride, word.register) if word else (0, 0, ZERO)
        self._steps.append([op, base, stride, register, x, y, z, w])


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What things take, in nanoseconds.

    Attributes:
        read_hit: A read, or a plain store, of a line that the CPU has.
        rmw_hit: An atomic read-modify-write of a line that the CPU has to itself.
        pause: The pause between two looks of a spin loop.
        core: A line from the other hardware thread of the same core.
        near: A line from a core of the same group (which shares a last-level cache).
        cross: A line from another group of the same socket; `near` where a socket is one group.
        far: A line from another socket.
        fill: A line that is in no cache.
        share: How long a line that is shared already is busy with one more reader: readers do not
            wait for each other's whole transfer, only for their turn.
        invalidate: Added to a write for each copy that it has to invalidate.
        request: The part of a transfer (0 to 1) before its owner has to let the line go: in that
            time the owner may go on using it.
    """

    read_hit: float = 1.0
    rmw_hit: float = 6.0
    pause: float = 40.0
    core: float = 8.0
    near: float = 50.0
    cross: float = 50.0
    far: float = 120.0
    fill: float = 80.0
    share: float = 10.0
    invalidate: float = 0.0
    request: float = 0.2

    def __post_init__(self) -> None:
        for name in COST_NAMES:
            check_ns(f"cost {name}", getattr(self, name))
        if not 0 <= self.request <= 1:
            raise UsageError(f"cost request is {self.request:g}: choose 0 to 1, a part of the way")

    def picoseconds(self) -> list[int]:
        """Whole picoseconds in the order of COST_NAMES, then `request` in parts of 2**20."""
        ns = [round(getattr(self, name) * PS) for name in COST_NAMES]
        return [*ns, round(self.request * (1 << 20))]


COST_NAMES = (
    "core",
    "near",
    "cross",
    "far",
    "read_hit",
    "rmw_hit",
    "pause",
    "fill",
    "share",
    "invalidate",
)


@dataclass(frozen=True, slots=True)
class Topology:
    """Which core, group and socket each CPU is in, all counted over the whole machine."""

    core: tuple[int, ...]
    group: tuple[int, ...]
    socket: tuple[int, ...]

    @property
    def cpus(self) -> int:
        """How many CPUs there are."""
        return len(self.core)


@dataclass(frozen=True, slots=True)
class Preemption:
    """CPUs are taken away from their task now and then; whoever waits for that task waits on.

    Attributes:
        every_ns: Mean time between two, exponential, nanoseconds.
        for_ns: How long each lasts, nanoseconds.
    """

    every_ns: float
    for_ns: float

    def __post_init__(self) -> None:
        check_ns("preemption every", self.every_ns, above=0.0)
        check_ns("preemption for", self.for_ns)


@dataclass(frozen=True, slots=True)
class Phase:
    """What happened in one phase of a run.

    Attributes:
        ns: How long it was, nanoseconds.
        counts: By name: COUNTS, then the program's own.
    """

    ns: float
    counts: dict[str, int]

    @property
    def ops_per_s(self) -> float:
        """Operations that were completed in each second."""
        return 1e9 * self.counts["ops"] / self.ns if self.ns else 0.0

    @property
    def ns_per_op(self) -> float:
        """Nanoseconds from one completed operation to the next, of all CPUs together."""
        return self.ns / self.counts["ops"] if self.counts["ops"] else float("inf")

    @property
    def transfers(self) -> int:
        """Lines that came out of another CPU's cache, or whose copies there were invalidated."""
        names = ("transfers_core", "transfers_near", "transfers_cross", "transfers_far", "upgrades")
        return sum(self.counts[name] for name in names)

    def per_op(self, name: str) -> float:
        """A counter for each operation, or NaN without any."""
        return self.counts[name] / self.counts["ops"] if self.counts["ops"] else float("nan")


def simulate(
    program: Program,
    memory: Memory,
    topology: Topology,
    costs: Costs,
    *,
    start: Sequence[str],
    phases_ns: Sequence[float],
    seed: int = 0,
    max_ops: int = 0,
    counters: Mapping[str, int] | None = None,
    policy: Policy = "fifo",
    overtakes: int = 8,
    preemption: Preemption | None = None,
) -> list[Phase]:
    """Run a program on CPUs that share lines.

    Args:
        program: The steps.
        memory: The words they use.
        topology: The CPUs; as many as `start` has labels.
        costs: What things take.
        start: The label where each CPU begins, shape (cpus,), 1 to 512 of them.
        phases_ns: Length of each phase, nanoseconds, at least one.
        seed: Seeds what is random.
        max_ops: Stop after so many operations; 0 only at the end of the last phase.
        counters: Names for the program's own counters, by number.
        policy: Which of those who wait for a line is next: "fifo", or the "nearest" to whoever has
            it, which overtakes at most `overtakes` times in a row.
        overtakes: See `policy`.
        preemption: Whether CPUs are taken away now and then.

    Returns:
        What happened in each phase.

    Raises:
        UsageError: a number is out of range.
        ContendedError: the program cannot go on: everybody waits, or it loops without taking time.
    """
    import numpy as np

    cpus = len(start)
    check_cpus(cpus)
    if topology.cpus < cpus:
        raise UsageError(f"{cpus} CPUs of a machine that has {topology.cpus}")
    if not phases_ns:
        raise UsageError("phases_ns is empty: give at least one phase")
    for length in phases_ns:
        check_ns("phase", length, above=0.0)
    if policy not in ("fifo", "nearest"):
        raise UsageError(f"policy {policy!r}: choose fifo or nearest")
    if not 0 <= seed < 1 << 63:
        raise UsageError(f"seed is {seed}: choose 0 to {(1 << 63) - 1}")
    if max_ops < 0:
        raise UsageError(f"max_ops is {max_ops}: choose 0 (no limit) or more")
    ends = np.cumsum([round(length * PS) for length in phases_ns]).astype(np.int64)
    counts = np.zeros((len(ends) + 1, len(COUNTS) + COUNTERS), dtype=np.int64)
    placed = np.zeros((cpus, 8), dtype=np.int64)
    for column, where in enumerate((topology.core, topology.group, topology.socket)):
        placed[:, column] = where[:cpus]
    status, now, phase = engine()(
        program.assemble(),
        np.array([program.place(label) for label in start], dtype=np.int64),
        8 * np.array(memory.line_of, dtype=np.int64),
        np.array(memory.initial, dtype=np.int64),
        max(memory.lines, 1),
        placed.reshape(-1),
        np.array(costs.picoseconds(), dtype=np.int64),
        ends,
        counts,
        np.array(
            [
                seed,
                max_ops,
                overtakes if policy == "nearest" else -1,
                round(preemption.every_ns * PS) if preemption else 0,
                round(preemption.for_ns * PS) if preemption else 0,
            ],
            dtype=np.int64,
        ),
    )
    if status == 1:
        raise ContendedError("the simulated program is stuck: every CPU waits for another")
    if status == 2:
        raise ContendedError("the simulated program loops without taking any time")
    starts = [0, *ends[:-1]]
    names = [*COUNTS, *(f"counter_{i}" for i in range(COUNTERS))]
    for name, number in (counters or {}).items():
        names[len(COUNTS) + number] = name
    used = len(COUNTS), set((counters or {}).values())
    return [
        Phase(
            ns=(min(int(ends[i]), int(now)) - int(starts[i])) / PS,
            counts={
                name: int(counts[i, k])
                for k, name in enumerate(names)
                if k < used[0] or k - used[0] in used[1]
            },
        )
        for i in range(min(int(phase) + 1, len(ends)))
    ]


def engine() -> Any:
    """The compiled simulator; the first call on a machine compiles it and keeps it on disk."""
    from contended.simulate.engine import run

    return run


def check_ns(name: str, ns: float, *, above: float | None = None) -> None:
    """Refuse a time that is no number of nanoseconds from 0 to 10 s.

    Raises:
        UsageError: with the range to choose from.
    """
    low = 0 if above is None else above
    if not (low <= ns <= MAX_NS) or (above is not None and ns <= above):
        least = "0" if above is None else f"more than {above:g}"
        raise UsageError(f"{name} is {ns:g} ns: choose {least} to {MAX_NS:g} ns")


def check_cpus(cpus: int) -> None:
    """Refuse a number of CPUs that is out of range.

    Raises:
        UsageError: with the range to choose from.
    """
    if not 1 <= cpus <= MAX_CPUS:
        raise UsageError(f"{cpus} CPUs: choose 1 to {MAX_CPUS}")
