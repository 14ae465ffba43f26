# SPDX-License-Identifier: MIT
"""Programs for simulated CPUs: steps on words, and the cache lines that the words lie on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from contended.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_CPUS = 512
PS = 1000  # picoseconds in a nanosecond
MAX_NS = 10_000_000_000  # the longest cost or think time, and the longest simulated phase
COUNTERS = 8

# Steps. The engine's own copies of these are literals of the compiled code.
_THINK, _READ, _ADD, _CAS, _SWAP, _WRITE, _SPIN, _BRANCH, _ALU, _COUNT, _DONE, _HALT = range(12)
_COMPARE = ("==", "!=", "<", ">=")
_CALCULATE = ("set", "copy", "add", "plus", "minus", "shl", "shr", "and", "random", "phase", "now")
FIXED, EXPONENTIAL, UNIFORM, _PAUSE = range(4)
FULL = -1

# Registers: 0 to 11 are the program's own.
VALUE, FLAG, ZERO, SELF = 12, 13, 14, 15
_FOUND = 40  # as in the engine


class Word(NamedTuple):
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
        line = self.line_of[beside.base] if beside is not None else None
        return Word(self._lay(1, value, line))

    def array(self, size: int, register: int, value: int = 0) -> Word:
        """Words that all CPUs share, each on a line of its own; the register says which."""
        first, *_ = [self.word(value).base for _ in range(size)]
        return Word(first, 1, register)

    def own(self, words: int = 1) -> list[Word]:
        """Words of which each CPU has its own, on a line of its own; other CPUs reach them too."""
        first, *_ = [self._lay(words) for _ in range(self.cpus)]
        return [Word(first + i, words, SELF) for i in range(words)]

    def _lay(self, words: int, value: int = 0, line: int | None = None) -> int:
        if line is None:
            line, self.lines = self.lines, self.lines + 1
        self.line_of += [line] * words
        self.initial += [value] * words
        return len(self.line_of) - words


class Program:
    """Steps with labels, put down one after the other; every CPU starts at a label of its own.

    Registers hold whole numbers of 64 bits. A `mask` selects the bits of a word that a step sees or
    changes: half a lockref, for example.
    """

    def __init__(self) -> None:
        self._steps: list[list[int]] = []
        self._labels: dict[str, int] = {}
        self._jumps: dict[int, str] = {}
        self._names = 0

    def label(self, name: str) -> None:
        """Name this place."""
        if name in self._labels:
            raise UsageError(f"label {name!r} is there twice")
        self._labels[name] = len(self._steps)

    def fresh(self, names: int) -> list[str]:
        """So many names that no label has, for places that come later."""
        self._names += names
        return [f".{self._names - i}" for i in range(names)]

    def think(self, ns: float, kind: int = FIXED) -> None:
        """Private work of up to 10 s: FIXED, or EXPONENTIAL or UNIFORM (half to 1.5 times)."""
        check_ns("think time", ns)
        self._step(_THINK, x=round(ns * PS), y=kind)

    def pause(self) -> None:
        """Wait for one of the machine's pauses."""
        self._step(_THINK, y=_PAUSE)

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
        budget: int = -1,
        tired: str = "",
    ) -> None:
        """Read until a comparison with a register holds; VALUE gets what was read last.

        The word is read again when somebody has changed its line; a look in vain costs a pause.
        The register `budget`, if any, says how many looks there may be, and afterwards how many are
        left: without any, go on at `tired`.
        """
        if (budget < 0) != (not tired):
            raise UsageError("a bounded spin needs both its bound and a label to go on at")
        if tired:
            self.branch(budget, "<", 1, tired)
            self._jumps[len(self._steps)] = tired
        self._step(_SPIN, word, x=reference, y=budget, z=mask, w=_COMPARE.index(compare))

    def branch(self, register: int, compare: str, value: int, to: str, mask: int = FULL) -> None:
        """Go on at a label if a register's masked bits compare with a number; takes no time."""
        self._jumps[len(self._steps)] = to
        self._step(_BRANCH, x=register, y=value, z=mask, w=_COMPARE.index(compare))

    def jump(self, to: str) -> None:
        """Go on at a label; takes no time."""
        self.branch(ZERO, "==", 0, to)

    def alu(self, what: str, to: int, register: int = ZERO, number: int = 0) -> None:
        """Calculate in registers; takes no time.

        `to` gets the result: "set" or "random" (below) a number, "copy" a register, "phase", or
        "now", the CPU's time in picoseconds; or is changed: "add", "shl", "shr", "and" by a number,
        "plus" or "minus" by a register.
        """
        self._step(_ALU, x=to, y=register, z=number, w=_CALCULATE.index(what))

    def count(self, counter: int, register: int = -1) -> None:
        """Add 1, or a register, to one of the program's own counters; takes no time."""
        _check_counter(counter)
        self._step(_COUNT, x=counter, y=register)

    def found(self, counter: int) -> None:
        """Have the last step count how often another core had its line modified.

        That is a HITM, unless the line was only exclusive there: the two are one state here. Raises
        UsageError for a step that is no single access, and for a counter that does not exist.
        """
        if not self._steps or not _READ <= self._steps[-1][0] <= _WRITE:
            raise UsageError("only a read or a change of a word finds a line: put one down first")
        _check_counter(counter)
        self._steps[-1][7] = counter + 1 << _FOUND

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

    def assemble(self) -> NDArray[np.int64]:
        """The steps as numbers, eight for each, with labels resolved; shape (8 * steps,)."""
        import numpy as np

        steps = [list(step) for step in self._steps]
        for at, label in self._jumps.items():
            steps[at][7] |= 8 * self.place(label) << 8
        return np.array(steps, dtype=np.int64).reshape(-1)

    def _step(
        self, op: int, word: Word | None = None, x: int = 0, y: int = 0, z: int = 0, w: int = 0
    ) -> None:
        base, stride, register = (word.base, word.stride, word.register) if word else (0, 0, ZERO)
        self._steps.append([op, base, stride, register, x, y, z, w])


def check_ns(name: str, ns: float, *, positive: bool = False) -> None:
    """Refuse a time, by a UsageError, that is no number of nanoseconds from 0 to 10 s."""
    if not 0 <= ns <= MAX_NS or (positive and ns == 0):
        least = "more than 0" if positive else "0"
        raise UsageError(f"{name} is {ns:g} ns: choose {least} to {MAX_NS:g} ns")


def _check_counter(counter: int) -> None:
    if not 0 <= counter < COUNTERS:
        raise UsageError(f"counter {counter}: choose 0 to {COUNTERS - 1}")


def check_cpus(cpus: int) -> None:
    """Refuse a number of CPUs, by a UsageError, that is out of range."""
    if not 1 <= cpus <= MAX_CPUS:
        raise UsageError(f"{cpus} CPUs: choose 1 to {MAX_CPUS}")
