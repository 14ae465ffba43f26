# SPDX-License-Identifier: MIT
"""Who of those that wait for a line is next, for the engine: by chance, or in some order.

By chance those who wait are a set, and in an order a queue; `lines` has the rows and columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from contended.simulate.lines import (
    CHANCE,
    CORE,
    CROSS,
    FAR,
    GROUPED,
    HOME,
    LAST,
    LINE,
    NEAR,
    NEXT,
    NONE,
    ONE,
    OVERTAKEN,
    OWNER,
    QUEUED,
    REQUEST,
    STAGE,
    U2,
    U4,
    U6,
    U8,
    U16,
    U32,
    U63,
    WANT,
    between,
    many_of,
    one_of,
)


@njit
def enqueue(
    at: Any, c: Any, lines: Any, cpu: Any, policy: Any, queues: Any, waiting: Any, size: Any
) -> None:
    """Have a CPU wait for a line: by chance among a set, else at a queue's end."""
    cpu[8 * c + STAGE] = QUEUED
    cpu[8 * c + LINE] = at
    lines[at + LAST] += 1
    if policy == CHANCE:
        waiting[at + (c >> U6)] |= ONE << (np.uint64(c) & U63)
    else:
        queues[(at >> 3) * size + lines[at + LAST]] = c


@njit
def shuffle(at: Any, first: Any, lines: Any, queues: Any, size: Any, state: Any) -> None:
    """Put those who wait in an order of chance, from the place `first` on."""
    line = (at >> 3) * size
    for i in range(lines[at + LAST], first, -1):
        j = first + one_of(state, size, i - first + 1)
        queues[line + i], queues[line + j] = queues[line + j], queues[line + i]


@njit
def leave(at: Any, c: Any, lines: Any, policy: Any, queues: Any, waiting: Any, size: Any) -> None:
    """Have a CPU wait for a line no longer."""
    last = lines[at + LAST]
    if policy == CHANCE:
        waiting[at + (c >> U6)] &= ~(ONE << (np.uint64(c) & U63))
    else:
        line, i = (at >> 3) * size, np.int64(0)
        while queues[line + i] != c:
            i += 1
        for j in range(i, last):
            queues[line + j] = queues[line + j + 1]
    lines[at + LAST] = last - 1


@njit
def reader_beside(at: Any, c: Any, cpu: Any, place: Any) -> Any:
    """The core's other thread, if it waits to read the line, else c."""
    b = place[8 * c + NEXT]
    while b != c:
        if cpu[8 * b + STAGE] == QUEUED and cpu[8 * b + LINE] == at and cpu[8 * b + WANT] == 0:
            break
        b = place[8 * b + NEXT]
    return b


@njit
def _many(waiting: Any, at: Any, bits: Any, here: Any, words: Any) -> Any:
    # how many of those who wait are in a set
    found = NONE
    for k in range(words):
        found += many_of(waiting[at + k] & bits[here + k])
    return np.int64(found)


@njit
def _nth(waiting: Any, at: Any, bits: Any, here: Any, but: Any, n: Any) -> Any:
    # of those who wait, and are in one set and not in another, the one before whom there are n
    k = np.int64(0)
    while True:
        these = waiting[at + k] & bits[here + k] & ~bits[but + k]
        many = np.int64(many_of(these))
        if n < many:
            break
        n -= many
        k += 1
    left, bit = np.uint64(n), NONE
    for half in (U32, U16, U8, U4, U2, ONE):
        low = many_of(these & ((ONE << half) - ONE))
        if left >= low:
            left -= low
            these >>= half
            bit += half
    return (k << U6) + np.int64(bit)


@njit
def _likely(cost: Any, kind: Any) -> Any:
    # Who finds the line on its way asks again a way later. Nobody is nearer than a neighbour.
    near = max(cost[NEAR], np.int64(1))
    return (near << np.int64(20)) // max(cost[kind], near)


@njit
def _stays(at: Any, lines: Any, cost: Any) -> Any:
    # A core's other thread needs no request for what came to the core, as often as it fits.
    return (lines[at + OVERTAKEN] + 1) * cost[CORE] <= cost[NEAR] * cost[REQUEST] >> 20


@njit
def draw(at: Any, queues: Any, waiting: Any, world: Any, state: Any) -> Any:
    """The next to be served by chance, taken out of those who wait; they are in no order.

    The nearer to who had the line last the more likely, by the time that a way takes. It is by sets
    of CPUs, so as long for many who wait as for few.
    """
    lines, bits, near, size, _, _, cost, _, _, words, _, _ = world
    core, group, socket = near, near + 8 * size, near + 16 * size
    everybody, nobody = near + 24 * size, near + 24 * size + 8
    home, wait = lines[at + HOME], lines[at + LAST] + 1
    here, but, passed, n = everybody, nobody, False, np.int64(0)
    if home >= 0:
        if _stays(at, lines, cost):
            twins = _many(waiting, at, bits, core + 8 * home, words)
            passed = bool(twins > 0)
        if passed:
            here, wait = core + 8 * home, twins
        elif wait > 1:
            mine, ours = group + 8 * home, socket + 8 * home
            inside = _many(waiting, at, bits, mine, words)
            if inside == wait:
                here = mine
            else:
                beside = _many(waiting, at, bits, ours, words) - inside
                in_mine = inside * _likely(cost, NEAR)
                in_ours = in_mine + beside * _likely(cost, CROSS)
                drawn = one_of(state, size, in_ours + (wait - inside - beside) * _likely(cost, FAR))
                if drawn < in_mine:
                    here, wait = mine, inside
                elif drawn < in_ours:
                    here, but, wait = ours, mine, beside
                else:
                    but, wait = ours, wait - inside - beside
    if wait > 1:
        n = one_of(state, size, wait)
    chosen = _nth(waiting, at, bits, here, but, n)
    leave(at, chosen, lines, CHANCE, queues, waiting, size)
    lines[at + OVERTAKEN] = lines[at + OVERTAKEN] + 1 if passed else 0
    return chosen


@njit
def _chance(place: Any, cost: Any, queues: Any, line: Any, i: Any, home: Any) -> Any:
    # as `draw`, but of another group the first to ask is the only one who may be next
    a = queues[line + i]
    kind = between(place, a, home)
    if kind > NEAR:
        for j in range(i):
            if between(place, a, queues[line + j]) <= NEAR:
                return np.int64(0)
    return _likely(cost, kind)


@njit
def _twin(at: Any, lines: Any, place: Any, queues: Any, size: Any) -> Any:
    # where in the queue the other thread of the core is that has the line; -1 if it is not
    home = lines[at + HOME]
    if home >= 0:
        for i in range(lines[at + LAST] + 1):
            if between(place, queues[(at >> 3) * size + i], home) == CORE:
                return i
    return -1


@njit
def _grouped(at: Any, lines: Any, place: Any, cost: Any, queues: Any, size: Any, state: Any) -> Any:
    line, home, last = (at >> 3) * size, lines[at + HOME], lines[at + LAST]
    if home < 0:
        return one_of(state, size, last + 1)
    total = np.int64(0)
    for i in range(last + 1):
        total += _chance(place, cost, queues, line, i, home)
    drawn = one_of(state, size, total)
    best = np.int64(0)
    while best < last:
        drawn -= _chance(place, cost, queues, line, best, home)
        if drawn < 0:
            break
        best += 1
    return best


@njit
def take(
    at: Any,
    lines: Any,
    place: Any,
    cost: Any,
    overtakes: Any,
    queues: Any,
    waiting: Any,
    size: Any,
    state: Any,
) -> Any:
    """The next to be served by the order of asking, taken out of those who wait: not by chance."""
    line = (at >> 3) * size
    last = lines[at + LAST]
    best: Any = np.int64(0)
    passed = False
    if overtakes == GROUPED:
        twin = np.int64(-1)
        if _stays(at, lines, cost):
            twin = _twin(at, lines, place, queues, size)
        passed = bool(twin >= 0)
        if passed:
            best = twin
        elif last > 0:
            best = _grouped(at, lines, place, cost, queues, size, state)
    elif overtakes > 0 and lines[at + OWNER] >= 0 and lines[at + OVERTAKEN] < overtakes:
        nearest = between(place, queues[line], lines[at + OWNER])
        for i in range(1, last + 1):
            kind = between(place, queues[line + i], lines[at + OWNER])
            if kind < nearest:
                nearest, best, passed = kind, i, True
    lines[at + OVERTAKEN] = lines[at + OVERTAKEN] + 1 if passed else 0
    chosen = queues[line + best]
    leave(at, chosen, lines, overtakes, queues, waiting, size)
    return chosen
