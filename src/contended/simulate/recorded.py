# SPDX-License-Identifier: MIT
"""Operations of the real kernel, access by access, and programs for the simulator from them.

`contended kernel steps` records which lines an operation comes to, in its order, and how many
instructions lie between. What it does there is told by the function: lockrefs and locks become the
simulator's, which may fail, wait and try again; the rest is loads, stores and atomic changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

from contended import records, tree
from contended.errors import ContendedError, UsageError
from contended.records import Record
from contended.show.table import Table, columns
from contended.simulate import locks
from contended.simulate.locks import Lock, Lockref
from contended.simulate.program import UNIFORM, ZERO, Memory, Program, Word

SCHEMA = 1
Kind = Literal["load", "store", "atomic"]

#: What changes a lockref's count, and by how much: `lib/lockref.c`.
LOCKREFS = {
    "lockref_get": 1,
    "lockref_get_not_dead": 1,
    "lockref_get_not_zero": 1,
    "lockref_put_return": -1,
    "lockref_put_not_zero": -1,
    "lockref_put_or_lock": -1,
}
#: What takes a lock by an atomic access. Writers of a semaphore are taken to spin.
TAKES = ("_raw_spin_lock", "_raw_spin_trylock", "_raw_spin_lock_irqsave", "down_write")
_BEGAN, _TOOK = 4, 5  # registers
_FREE = 1 << 32  # a lockref that nobody has locked, with a reference
_Place = tuple[int, int]  # line, offset


@dataclass(frozen=True, slots=True)
class Access:
    """One access to a line that operations of several CPUs write."""

    at: int  # instructions after the operation's begin
    function: str
    kind: Kind
    line: int  # the same number is the same line
    offset: int  # bytes from its start
    thing: str  # what lies there


@dataclass(frozen=True, slots=True)
class Operation:
    """What an operation of a variant does, in its order."""

    variant: str
    label: str  # which of the run's results this is; "" if there is one
    instructions: int  # in all
    alike: float  # the part of the operations looked at that took the same steps
    accesses: tuple[Access, ...]

    def __str__(self) -> str:
        table = self.table()
        name = f"{self.variant}, {self.label}" if self.label else self.variant
        return (
            f"{name}: {self.instructions} instructions; {self.alike:.0%} of the operations took "
            f"these steps\n{columns([[str(c) for c in row] for row in (table.head, *table.rows)])}"
        )

    def line(self, thing: str) -> int:
        """The first line with something that is called so; raises ContendedError without it."""
        for access in self.accesses:
            if thing in access.thing:
                return access.line
        raise ContendedError(f"{self.variant}: no recorded step comes to {thing!r}: record it anew")

    def table(self, caption: str = "") -> Table:
        """A row for each access."""
        rows = [(a.at, a.line, a.kind, a.function, a.thing) for a in self.accesses]
        return Table(caption, ("instructions", "line", "access", "function", "what"), rows)

    def without(self, things: Sequence[str]) -> Operation:
        """The same, if it never came to what begins like that; its instructions stay."""
        kept = (each for each in self.accesses if not each.thing.startswith(tuple(things)))
        return replace(self, accesses=tuple(kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations(Record):
    """What `contended kernel steps` found, and with what."""

    case: str
    run: str
    args: dict[str, int | str]  # of the run's workload
    source: str  # the version of Linux
    qemu: str
    vcpus: int
    commit: str | None
    operations: tuple[Operation, ...]
    schema: int = SCHEMA

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.operations))

    def of(self, variant: str) -> Operation:
        """That of a variant; raises ContendedError if there is none."""
        found = {each.variant: each for each in self.operations}
        if variant not in found:
            raise ContendedError(f"{self.case}: no steps of {variant!r} are recorded")
        return found[variant]


def load(slug: str, run: str = "") -> Operations:
    """A case's record, `results/<slug>/steps.json`, or with a run `steps-<run>.json`.

    Raises ContendedError without one.
    """
    name = f"steps-{run}" if run else "steps"
    return _load(tree.home() / "results" / slug / f"{name}.json")


@cache
def _load(path: Path) -> Operations:
    remedy = "docs/simulators.md has the command that makes it"
    return records.load(Operations, path, "steps", SCHEMA, remedy, strict=False)


@dataclass(slots=True)
class Replay:
    """A recorded operation as steps of a program.

    `lines` says where some of the operation's lines lie, if not on one line for all CPUs; what
    begins like `apart` has a line of its own. Of the lockrefs of some lines the `counters` begin at
    a number of their own; with `looks` they wait for a holder, and with `pause` after a failed
    exchange, see `Lockref`. How long the recorded accesses of the functions of `timed` take, in
    picoseconds, with all waits and with the lock behind a lockref, is added to the program's
    counters of these numbers, by registers 4 and 5. How often those of `found`, which are neither
    lockrefs nor locks, had their line from another core that had it modified is counted by these.
    Raises UsageError for a lockref's number, one that is given twice, and a lock's function.
    """

    operation: Operation
    lock: locks.Kind = "queued"
    looks: int = 0
    lines: Mapping[int, Word] = field(default_factory=dict)
    apart: str = ""
    counters: Mapping[int, int] = field(default_factory=dict)
    pause: bool = False
    timed: Mapping[str, int] = field(default_factory=dict)
    found: Mapping[str, int] = field(default_factory=dict)
    _words: dict[_Place, Word] = field(default_factory=dict)
    _first: dict[int, Word] = field(default_factory=dict)
    _locks: dict[_Place, Lock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = {first + n for first in (0, *self.counters.values()) for n in range(3)}
        timed, found = {*self.timed.values()}, {*self.found.values()}
        if both := taken & (timed | found):
            raise UsageError(f"counter {min(both)} is a lockref's: choose another for a function")
        if both := timed & found:
            raise UsageError(f"counter {min(both)} is of times and of lines found: choose another")
        if locked := self.found.keys() & {*LOCKREFS, *TAKES}:
            raise UsageError(f"{min(locked)} is a lock's, of which what it finds is not counted")

    def put(self, p: Program, memory: Memory, ns: float) -> None:
        """Put the operation down; its instructions take so many nanoseconds, each the same."""
        held: set[_Place] = set()
        before = 0
        for access in self.operation.accesses:
            self._think(p, ns, access.at - before)
            before = access.at
            counter = self.timed.get(access.function)
            if counter is not None:
                p.alu("now", _BEGAN)
            self._access(p, memory, access, held)
            if counter is not None:
                p.alu("now", _TOOK)
                p.alu("minus", _TOOK, _BEGAN)
                p.count(counter, _TOOK)
        self._think(p, ns, self.operation.instructions - before)
        p.done()

    def lock_of(self, thing: str) -> Lock:
        """The lock of what was put down and is called so; raises ContendedError without it."""
        line = self.operation.line(thing)
        return next(lock for place, lock in self._locks.items() if place[0] == line)

    def _think(self, p: Program, ns: float, instructions: int) -> None:
        if instructions > 0:
            p.think(ns * instructions / self.operation.instructions, UNIFORM)

    def _access(self, p: Program, memory: Memory, access: Access, held: set[_Place]) -> None:
        place, writes = (access.line, access.offset), access.kind != "load"
        word = self._word(memory, place, access.thing)
        if word is None:
            return
        if access.function in LOCKREFS:
            if writes:  # its load is part of the change
                counter = self.counters.get(access.line, 0)
                lock = self._lock(memory, place, word)
                ref = Lockref(lock, self.looks, counter=counter, pause=self.pause)
                ref.change(p, LOCKREFS[access.function])
        elif writes and place in held:
            held.remove(place)
            self._lock(memory, place, word).release(p)
        elif access.function in TAKES and access.kind == "atomic":
            held.add(place)
            self._lock(memory, place, word).acquire(p)
        else:
            self._plain(p, access, word)

    def _plain(self, p: Program, access: Access, word: Word) -> None:
        if access.kind == "atomic":
            p.add(word, 0)
        elif access.kind == "load":
            p.read(word)
        else:
            p.write(word, ZERO)
        if access.function in self.found:
            p.found(self.found[access.function])

    def _word(self, memory: Memory, place: _Place, thing: str) -> Word | None:
        """Where a place of the kernel's lies; None beside the one word of a line of each CPU's."""
        if place not in self._words:
            beside = self._first.get(place[0])
            if self.apart and thing.startswith(self.apart):
                self._words[place] = memory.word(_FREE)
            elif beside is None:
                self._words[place] = self.lines.get(place[0]) or memory.word(_FREE)
                self._first[place[0]] = self._words[place]
            elif beside.stride:
                return None
            else:
                self._words[place] = memory.word(_FREE, beside=beside)
        return self._words[place]

    def _lock(self, memory: Memory, place: _Place, word: Word) -> Lock:
        return self._locks.setdefault(place, Lock(self.lock, memory, word))
