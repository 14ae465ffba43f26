# SPDX-License-Identifier: MIT
"""Locks as steps for the simulator: the spin locks of `csrc/locks.h`, and `lib/lockref.c`'s."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from contended.errors import UsageError
from contended.simulate.program import FLAG, SELF, VALUE, ZERO, Memory, Program, Word

Kind = Literal["test-and-set", "ticket", "queued"]
KINDS: tuple[Kind, ...] = get_args(Kind)

LOCK = 0xFFFFFFFF  # the lock's half of a lockref
_HELD = 0xFFFF  # a queued lock's owner; a ticket lock's "now served"
_TAIL = 0xFFFF0000
_ONE_REFERENCE = 1 << 32
RETRIES = 100  # as in lib/lockref.c

# Registers that locks use for themselves; a program that takes locks keeps off them.
_OLD, _NEW, _TRIES, _A, _B, _C = 6, 7, 8, 9, 10, 11
_LOOKS = _B  # before a lock takes that register for itself


@dataclass(slots=True)
class Lock:
    """A spin lock in the lower half of a word; a queue's places are laid out in `memory`.

    "test-and-set" goes to whoever is first, "ticket" and "queued" are served in turn; with
    "queued" each waiter watches a line of its own.
    """

    kind: Kind
    memory: Memory
    word: Word
    _places: list[Word] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"no lock {self.kind!r}: choose from {', '.join(KINDS)}")

    def acquire(self, p: Program) -> None:
        """Put down the steps that take the lock."""
        if self.kind == "queued":
            self._acquire_queued(p)
        elif self.kind == "ticket":
            p.add(self.word, 1 << 16, to=_A, mask=LOCK)
            p.alu("shr", _A, number=16)
            p.alu("and", _A, number=_HELD)
            p.spin(self.word, "==", _A, mask=_HELD)
        else:
            again, got = p.fresh(2)
            p.alu("set", _B, number=1)
            p.label(again)
            p.swap(self.word, _B, to=_A, mask=LOCK)
            p.branch(_A, "==", 0, got, mask=LOCK)
            p.spin(self.word, "==", mask=LOCK)
            p.jump(again)
            p.label(got)

    def release(self, p: Program) -> None:
        """Put down the steps that give it back."""
        if self.kind == "ticket":
            p.add(self.word, 1, mask=_HELD)
        else:
            p.write(self.word, ZERO, mask=_HELD if self.kind == "queued" else LOCK)

    def _acquire_queued(self, p: Program) -> None:
        # One place for each CPU, whatever number of locks and call sites: it waits for one at most.
        self._places = self._places or self.memory.own(2)
        following, granted = self._places
        got, first = p.fresh(2)
        p.alu("set", _A)
        p.alu("set", _B, number=1)
        p.cas(self.word, _A, _B, mask=LOCK)
        p.branch(FLAG, "==", 1, got)

        p.write(following, ZERO)
        p.write(granted, ZERO)
        p.alu("copy", _C, SELF)
        p.alu("add", _C, number=1)
        p.alu("copy", _B, _C)
        p.alu("shl", _B, number=16)
        p.swap(self.word, _B, to=_A, mask=_TAIL)
        p.alu("shr", _A, number=16)
        p.alu("and", _A, number=_HELD)
        p.branch(_A, "==", 0, first)
        # Tell the one before, and watch a line of our own.
        p.alu("add", _A, number=-1)
        p.write(Word(following.base, following.stride, _A), _C)
        p.spin(granted, "!=")

        # First in the queue: wait for the owner, then take its place.
        p.label(first)
        p.spin(self.word, "==", mask=_HELD)
        p.alu("copy", _A, _B)
        p.alu("set", _C, number=1)
        p.cas(self.word, _A, _C, mask=LOCK)
        p.branch(FLAG, "==", 1, got)  # nobody behind
        p.swap(self.word, _C, to=_A, mask=_HELD)
        p.spin(following, "!=")
        p.alu("copy", _A, VALUE)
        p.alu("add", _A, number=-1)
        p.write(Word(granted.base, granted.stride, _A), _C)
        p.label(got)


LOCKREF_COUNTERS = {"fast": 0, "slow": 1, "retried": 2}
"""What a `Lockref` counts, by the numbers that it has if no others are given."""


@dataclass(frozen=True, slots=True)
class Lockref:
    """A lock and, above it in the same word, a reference count.

    One compare-and-exchange changes the count as long as nobody holds the lock. Of three of the
    program's counters, from `counter` on, the first counts changes by compare-and-exchange, the
    second those under the lock, and the third the exchanges that failed. With `looks` a change has
    so many in all, however often it has to wait, and a failed exchange is one of them: linux-next's
    loop had one budget for both. With `pause` a failed exchange is followed by a pause.
    """

    lock: Lock
    looks: int = 0  # at a held lock, for each change; 0 as in released kernels
    hold_ns: float = 0.0  # what a holder of the lock does besides changing the count
    counter: int = 0
    pause: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.looks <= 1_000_000:
            raise UsageError(f"looks is {self.looks}: choose 0 to 1000000")
        if self.looks and self.lock.kind == "ticket":
            raise UsageError("a lockref that waits for the release is not made for ticket locks")

    def change(self, p: Program, by: int) -> None:
        """Put down the steps that add `by` references."""
        word = self.lock.word
        again, free, locked, slow, end, retry = p.fresh(6)
        p.alu("set", _TRIES, number=RETRIES)
        if self.looks:
            p.alu("set", _LOOKS, number=self.looks)
        p.read(word, to=_OLD)
        p.label(again)
        if self.lock.kind == "ticket":  # free if all tickets were served
            p.alu("copy", _A, _OLD)
            p.alu("shr", _A, number=16)
            p.alu("minus", _A, _OLD)
            p.branch(_A, "==", 0, free, mask=_HELD)
        else:
            p.branch(_OLD, "==", 0, free, mask=LOCK)
        p.jump(locked)
        p.label(free)
        p.alu("copy", _NEW, _OLD)
        p.alu("add", _NEW, number=by * _ONE_REFERENCE)
        p.cas(word, _OLD, _NEW)
        p.branch(FLAG, "==", 0, retry)
        p.count(self.counter)
        p.jump(end)
        p.label(retry)
        p.count(self.counter + 2)
        p.alu("add", _TRIES, number=-1)
        if self.looks:
            p.alu("add", _LOOKS, number=-1)
        p.branch(_TRIES, "<", 1, slow)
        if self.pause:
            p.pause()
        p.jump(again)

        p.label(locked)
        if self.looks:
            p.spin(word, "==", mask=LOCK, budget=_LOOKS, tired=slow)
            p.alu("copy", _OLD, VALUE)
            p.jump(free)
        p.label(slow)
        p.count(self.counter + 1)
        self.locked(p, by)
        p.label(end)

    def locked(self, p: Program, by: int) -> None:
        """Put down the steps that add `by` references under the lock, whatever its state."""
        word = self.lock.word
        self.lock.acquire(p)
        if by:
            p.read(word, to=_OLD)
            p.alu("add", _OLD, number=by * _ONE_REFERENCE)
            p.write(word, _OLD, mask=~LOCK)
        if self.hold_ns:
            p.think(self.hold_ns)
        self.lock.release(p)
