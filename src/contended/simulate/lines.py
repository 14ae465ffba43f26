# SPDX-License-Identifier: MIT
"""What the engine does to lines, queues and chance: a row of `lines` is a line, of `cpu` a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

# Columns of a line.
OWNER, BUSY, DEPART, FREE, LAST, OVERTAKEN, SHARERS, HOME = range(8)
# Columns of a CPU.
PC, STAGE, WANT, SINCE, LEFT, ASKED, PREEMPT = range(7)
# What a CPU is doing: running, waiting in a line's queue, about to get its line, watching a word
# that it has, or about to look again at one that it no longer has.
RUN, QUEUED, COMING, WATCHING, AGAIN = range(5)
# Costs.
CORE, NEAR, CROSS, FAR, READ_HIT, RMW_HIT, PAUSE, FILL, SHARE, INVALIDATE, REQUEST = range(11)
# Counts.
OPS, EVENTS, BY_CORE, BY_NEAR, BY_CROSS, BY_FAR, UPGRADES, INVALIDATED, FILLS, WAIT = range(10)
FIRST, FIRST_FAR, OWN, ROW = 10, 11, 12, 20

VALUE, FLAG, ZERO, SELF = 12, 13, 14, 15

# Policies that are not a number of overtakes.
CHANCE, FIFO, GROUPED = 0, -1, -2

NEVER = np.int64(0x7FFFFFFFFFFFFFFF)
LOW9 = np.int64(511)
ONE, NONE = np.uint64(1), np.uint64(0)
GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX1 = np.uint64(0xBF58476D1CE4E5B9)
MIX2 = np.uint64(0x94D049BB133111EB)
U30, U27, U31, U11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
U16, U8, U4, U2 = np.uint64(16), np.uint64(8), np.uint64(4), np.uint64(2)
U63, U32, U6 = np.uint64(63), np.uint64(32), np.int64(6)


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return builder.inttoptr(args[0], context.get_value_type(signature.return_type))


def _as_ints(typing: Any, address: Any) -> Any:  # noqa: ARG001
    return _types.CPointer(_types.int64)(_types.intp), _pointer


def _as_sets(typing: Any, address: Any) -> Any:  # noqa: ARG001
    return _types.CPointer(_types.uint64)(_types.intp), _pointer


def _count(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001
    return builder.ctpop(args[0])


def _as_many(typing: Any, members: Any) -> Any:  # noqa: ARG001
    return _types.uint64(_types.uint64), _count


# Pointers to int64 and to uint64 from addresses: see `run`.
_types: Any = types
ints: Any = intrinsic(_as_ints)
sets: Any = intrinsic(_as_sets)
many_of: Any = intrinsic(_as_many)  # how many are in a word of a set: one instruction


@njit(cache=True)
def random_bits(state: Any, c: Any) -> Any:
    """The next 64 of a CPU."""
    # splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014
    state[c] += GAMMA
    z = state[c]
    z = (z ^ (z >> U30)) * MIX1
    z = (z ^ (z >> U27)) * MIX2
    return z ^ (z >> U31)


@njit(cache=True)
def one_of(state: Any, c: Any, size: Any) -> Any:
    """A number below `size`."""
    return np.int64(((random_bits(state, c) >> U32) * np.uint64(size)) >> U32)


@njit(cache=True)
def scaled(mean: Any, part: Any) -> Any:
    """That part of a mean."""
    # mean * part / 2**53 in integers that do not overflow
    if mean < np.int64(1) << np.int64(30):
        return (mean * np.int64(part >> np.uint64(21))) >> np.int64(32)
    return (mean * np.int64(part >> np.uint64(34))) >> np.int64(19)


@njit(cache=True)
def exponential(state: Any, c: Any, mean: Any) -> Any:
    """A draw with this mean."""
    # von Neumann's way, by comparisons alone: no logarithm that machines might round differently
    # (J. von Neumann, "Various techniques used in connection with random digits", 1951).
    whole = np.int64(0)
    while True:
        first = random_bits(state, c) >> U11
        last = first
        n = 1
        while True:
            u = random_bits(state, c) >> U11
            if u > last:
                break
            last = u
            n += 1
        if n & 1:
            return whole * mean + scaled(mean, first)
        whole += 1


@njit(cache=True)
def set_key(tree: Any, leaves: Any, c: Any, key: Any) -> None:
    """Set when a CPU's next event is."""
    # unsigned, so that numba need not look for negative indices
    i = np.uint64(leaves + c)
    tree[i] = key
    while i > ONE:
        key = min(key, tree[i ^ ONE])
        i >>= ONE
        tree[i] = key


@njit(cache=True)
def lower_key(tree: Any, leaves: Any, c: Any, key: Any) -> None:
    """As `set_key`, for a key that is lower than the one before."""
    i = np.uint64(leaves + c)
    while i > NONE and tree[i] > key:
        tree[i] = key
        i >>= ONE


@njit(cache=True)
def others(tree: Any, leaves: Any, c: Any) -> Any:
    """The earliest event of everybody but c."""
    i = np.uint64(leaves + c)
    least = NEVER
    while i > ONE:
        least = min(least, tree[i ^ ONE])
        i >>= ONE
    return least


@njit(cache=True)
def between(place: Any, a: Any, b: Any) -> Any:
    """How far apart two CPUs are."""
    a8, b8 = 8 * a, 8 * b
    if place[a8 + 2] != place[b8 + 2]:
        return FAR
    if place[a8 + 1] != place[b8 + 1]:
        return CROSS
    if place[a8] != place[b8]:
        return NEAR
    return CORE


@njit(cache=True)
def _distances(bits: Any, near: Any, size: Any, at: Any, c: Any, words: Any) -> Any:
    # to the nearest copy and to the farthest that other CPUs have
    core, group, socket = near + 8 * c, near + 8 * (size + c), near + 8 * (2 * size + c)
    twin = NONE
    inside = NONE
    beside = NONE
    away = NONE
    for k in range(words):
        these = bits[at + k]
        if k == c >> U6:
            these &= ~(ONE << (np.uint64(c) & U63))
        twin |= these & bits[core + k]
        inside |= these & bits[group + k] & ~bits[core + k]
        beside |= these & bits[socket + k] & ~bits[group + k]
        away |= these & ~bits[socket + k]
    near = NEAR if inside != NONE else CROSS if beside != NONE else FAR
    far = CROSS if beside != NONE else NEAR if inside != NONE else CORE
    return CORE if twin != NONE else near, FAR if away != NONE else far


@njit(cache=True)
def begin(at: Any, c: Any, t: Any, world: Any, row: Any) -> Any:
    """Start the transfer that c asks for; the key that c then has is returned."""
    lines, bits, near, size, cpu, place, cost, tree, leaves, words, counts = world
    start = max(t, lines[at + FREE])
    owner = lines[at + OWNER]
    copies = lines[at + SHARERS]
    wants = cpu[8 * c + WANT] != 0
    cpu[8 * c + STAGE] = COMING
    counts[row + WAIT] += start - cpu[8 * c + ASKED]
    alone = True
    if owner >= 0:
        kind = between(place, c, owner)
        latency = cost[kind]
        moved = BY_CORE + kind
    elif copies == 0:
        latency = cost[FILL]
        moved = FILLS
    else:
        nearest, farthest = _distances(bits, near, size, at, c, words)
        bit = ONE << (np.uint64(c) & U63)
        mine = bits[at + (c >> U6)] & bit
        if wants:
            latency = cost[farthest]
            others = copies
            moved = BY_CORE + farthest
            if mine:
                others -= 1
                moved = UPGRADES
            counts[row + INVALIDATED] += others
            latency += others * cost[INVALIDATE]
        else:
            alone = False
            latency = cost[nearest]
            moved = BY_CORE + nearest
            # A write that comes later must find and invalidate this copy, even on its way.
            if not mine:
                bits[at + (c >> U6)] |= bit
                lines[at + SHARERS] = copies + 1
            lines[at + FREE] = start + cost[SHARE]
    counts[row + moved] += 1
    if at == 0 and moved != FILLS and moved != BY_CORE:
        counts[row + FIRST] += 1
        if moved == BY_FAR:
            counts[row + FIRST_FAR] += 1
    if alone:
        lines[at + BUSY] = c
        lines[at + DEPART] = start + (latency * cost[REQUEST] >> 20)
    key = ((start + latency) << 9) | c
    lower_key(tree, leaves, c, key)
    return key


@njit(cache=True)
def enqueue(at: Any, c: Any, lines: Any, cpu: Any, queues: Any, waiting: Any, size: Any) -> None:
    """Have a CPU wait for a line."""
    cpu[8 * c + STAGE] = QUEUED
    lines[at + LAST] += 1
    queues[(at >> 3) * size + lines[at + LAST]] = c
    waiting[at + (c >> U6)] |= ONE << (np.uint64(c) & U63)


@njit(cache=True)
def shuffle(at: Any, first: Any, lines: Any, queues: Any, size: Any, state: Any) -> None:
    """Put those who wait in an order of chance, from the place `first` on."""
    line = (at >> 3) * size
    for i in range(lines[at + LAST], first, -1):
        j = first + one_of(state, size, i - first + 1)
        queues[line + i], queues[line + j] = queues[line + j], queues[line + i]


@njit(cache=True)
def _many(waiting: Any, at: Any, bits: Any, here: Any, words: Any) -> Any:
    # how many of those who wait are in a set
    found = NONE
    for k in range(words):
        found += many_of(waiting[at + k] & bits[here + k])
    return np.int64(found)


@njit(cache=True)
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


@njit(cache=True)
def _likely(cost: Any, kind: Any) -> Any:
    # Who finds the line on its way asks again a way later. Nobody is nearer than a neighbour.
    near = max(cost[NEAR], np.int64(1))
    return (near << np.int64(20)) // max(cost[kind], near)


@njit(cache=True)
def draw(at: Any, waiting: Any, world: Any, state: Any) -> Any:
    """The next to be served by chance, taken out of those who wait; they are in no order.

    The nearer to who had the line last the more likely, by the time that a way takes. It is by sets
    of CPUs, so as long for many who wait as for few.
    """
    lines, bits, near, size, _, _, cost, _, _, words, _ = world
    core, group, socket = near, near + 8 * size, near + 16 * size
    everybody, nobody = near + 24 * size, near + 24 * size + 8
    home, wait = lines[at + HOME], lines[at + LAST] + 1
    here, but, passed, n = everybody, nobody, False, np.int64(0)
    # A core's other thread needs no request for what came to the core, as often as it fits.
    if home >= 0:
        if (lines[at + OVERTAKEN] + 1) * cost[CORE] <= cost[NEAR] * cost[REQUEST] >> 20:
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
                in_all = inside * _likely(cost, NEAR)
                in_ours = in_all + beside * _likely(cost, CROSS)
                drawn = one_of(state, size, in_ours + (wait - inside - beside) * _likely(cost, FAR))
                if drawn < in_all:
                    here, wait = mine, inside
                elif drawn < in_ours:
                    here, but, wait = ours, mine, beside
                else:
                    but, wait = ours, wait - inside - beside
    if wait > 1:
        n = one_of(state, size, wait)
    chosen = _nth(waiting, at, bits, here, but, n)
    waiting[at + (chosen >> U6)] &= ~(ONE << (np.uint64(chosen) & U63))
    lines[at + LAST] -= 1
    lines[at + OVERTAKEN] = lines[at + OVERTAKEN] + 1 if passed else 0
    return chosen


@njit(cache=True)
def _chance(place: Any, cost: Any, queues: Any, line: Any, i: Any, home: Any) -> Any:
    # as `draw`, but of another group the first to ask is the only one who may be next
    a = queues[line + i]
    kind = between(place, a, home)
    if kind > NEAR:
        for j in range(i):
            if between(place, a, queues[line + j]) <= NEAR:
                return np.int64(0)
    return _likely(cost, kind)


@njit(cache=True)
def _twin(at: Any, lines: Any, place: Any, queues: Any, size: Any) -> Any:
    # where in the queue the other thread of the core is that has the line; -1 if it is not
    home = lines[at + HOME]
    if home >= 0:
        for i in range(lines[at + LAST] + 1):
            if between(place, queues[(at >> 3) * size + i], home) == CORE:
                return i
    return -1


@njit(cache=True)
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


@njit(cache=True)
def take(
    at: Any, lines: Any, place: Any, cost: Any, overtakes: Any, queues: Any, size: Any, state: Any
) -> Any:
    """The next to be served by the order of asking, taken out of those who wait: not by chance."""
    line = (at >> 3) * size
    last = lines[at + LAST]
    best: Any = np.int64(0)
    passed = False
    if overtakes == GROUPED:
        twin = np.int64(-1)
        if (lines[at + OVERTAKEN] + 1) * cost[CORE] <= cost[NEAR] * cost[REQUEST] >> 20:
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
    for i in range(best, last):
        queues[line + i] = queues[line + i + 1]
    lines[at + LAST] = last - 1
    return chosen


@njit(cache=True)
def holds(op: Any, a: Any, b: Any) -> Any:
    """Whether a comparison of a program does."""
    if op == 0:
        return a == b
    if op == 1:
        return a != b
    if op == 2:
        return a < b
    return a >= b


@njit(cache=True)
def calculate(program: Any, pc: Any, reg: Any, mine: Any, state: Any, c: Any, phase: Any) -> None:
    """A step on registers alone."""
    x, number, what = program[pc + 4], program[pc + 6], program[pc + 7]
    other = reg[mine + program[pc + 5]]
    if what == 0:
        reg[mine + x] = number
    elif what == 1:
        reg[mine + x] = other
    elif what == 2:
        reg[mine + x] += number
    elif what == 3:
        reg[mine + x] += other
    elif what == 4:
        reg[mine + x] -= other
    elif what == 5:
        reg[mine + x] <<= number
    elif what == 6:
        reg[mine + x] >>= number
    elif what == 7:
        reg[mine + x] &= number
    elif what == 8:
        reg[mine + x] = np.int64(random_bits(state, c) >> ONE) % number
    else:
        reg[mine + x] = phase
