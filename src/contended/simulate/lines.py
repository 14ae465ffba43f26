# SPDX-License-Identifier: MIT
"""What the engine does to lines and with chance: a row of `lines` is a line, of `cpu` a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

# Columns of a line.
OWNER, BUSY, DEPART, FREE, LAST, OVERTAKEN, SHARERS, HOME = range(8)
# Columns of a CPU.
PC, STAGE, WANT, SINCE, LEFT, ASKED, PREEMPT, LINE = range(8)
# Where a CPU is: a core, a group, a socket, and who is next in its core, itself in the end.
NEXT = 3
# What a CPU is doing: running, waiting in a line's queue, about to get its line, watching a word
# that it has, or about to look again at one that it no longer has.
RUN, QUEUED, COMING, WATCHING, AGAIN = range(5)
# Costs.
CORE, NEAR, CROSS, FAR, READ_HIT, RMW_HIT, PAUSE, FILL, SHARE, INVALIDATE, REQUEST = range(11)
# Counts.
OPS, EVENTS, BY_CORE, BY_NEAR, BY_CROSS, BY_FAR, UPGRADES, INVALIDATED, FILLS, WAIT = range(10)
FIRST, FIRST_FAR, OWN, ROW = 10, 11, 12, 20

VALUE, FLAG, ZERO, SELF = 12, 13, 14, 15
FOUND = 40  # in a step's last number, the bit from which its own counter is, plus 1

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


@njit
def random_bits(state: Any, c: Any) -> Any:
    """The next 64 of a CPU."""
    # splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014
    state[c] += GAMMA
    z = state[c]
    z = (z ^ (z >> U30)) * MIX1
    z = (z ^ (z >> U27)) * MIX2
    return z ^ (z >> U31)


@njit
def one_of(state: Any, c: Any, size: Any) -> Any:
    """A number below `size`."""
    return np.int64(((random_bits(state, c) >> U32) * np.uint64(size)) >> U32)


@njit
def scaled(mean: Any, part: Any) -> Any:
    """That part of a mean."""
    # mean * part / 2**53 in integers that do not overflow
    if mean < np.int64(1) << np.int64(30):
        return (mean * np.int64(part >> np.uint64(21))) >> np.int64(32)
    return (mean * np.int64(part >> np.uint64(34))) >> np.int64(19)


@njit
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


@njit
def set_key(tree: Any, leaves: Any, c: Any, key: Any) -> None:
    """Set when a CPU's next event is."""
    # unsigned, so that numba need not look for negative indices
    i = np.uint64(leaves + c)
    tree[i] = key
    while i > ONE:
        key = min(key, tree[i ^ ONE])
        i >>= ONE
        tree[i] = key


@njit
def lower_key(tree: Any, leaves: Any, c: Any, key: Any) -> None:
    """As `set_key`, for a key that is lower than the one before."""
    i = np.uint64(leaves + c)
    while i > NONE and tree[i] > key:
        tree[i] = key
        i >>= ONE


@njit
def others(tree: Any, leaves: Any, c: Any) -> Any:
    """The earliest event of everybody but c."""
    i = np.uint64(leaves + c)
    least = NEVER
    while i > ONE:
        least = min(least, tree[i ^ ONE])
        i >>= ONE
    return least


@njit
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


@njit
def neighbours(bits: Any, near: Any, place: Any, n: Any, words: Any) -> None:
    """Note for each CPU who is in its core, group and socket, and who is next in its core.

    From `near` on, sets of 8 words each: a core's for each CPU, a group's, a socket's, everybody,
    and nobody.
    """
    for k in range(words):
        bits[near + 24 * n + k] = ~NONE
    for a in range(n):
        place[8 * a + NEXT] = a
        for i in range(n):
            b = (a + n - i) % n
            bit = ONE << (np.uint64(b) & U63)
            for k in range(3):
                if place[8 * a + k] == place[8 * b + k]:
                    bits[near + 8 * (k * n + a) + (b >> 6)] |= bit
            if place[8 * a] == place[8 * b]:
                place[8 * a + NEXT] = b


@njit
def _distances(bits: Any, near: Any, size: Any, at: Any, c: Any, words: Any) -> Any:
    # to the nearest copy of another core and to the farthest that other CPUs have
    core, group, socket = near + 8 * c, near + 8 * (size + c), near + 8 * (2 * size + c)
    inside = NONE
    beside = NONE
    away = NONE
    for k in range(words):
        these = bits[at + k]
        if k == c >> U6:
            these &= ~(ONE << (np.uint64(c) & U63))
        inside |= these & bits[group + k] & ~bits[core + k]
        beside |= these & bits[socket + k] & ~bits[group + k]
        away |= these & ~bits[socket + k]
    near = NEAR if inside != NONE else CROSS if beside != NONE else FAR
    far = CROSS if beside != NONE else NEAR if inside != NONE else CORE
    return near, FAR if away != NONE else far


@njit
def share(at: Any, owner: Any, c: Any, lines: Any, bits: Any) -> None:
    """The owner of a line has only a copy of it from now on, and so has c."""
    for a in (owner, c):
        bits[at + (a >> U6)] |= ONE << (np.uint64(a) & U63)
    lines[at + SHARERS] = 2
    lines[at + OWNER] = -1


@njit
def owned_beside(at: Any, c: Any, lines: Any, place: Any) -> Any:
    """Whether a thread of its core owns the line."""
    owner = lines[at + OWNER]
    return owner >= 0 and place[8 * owner] == place[8 * c]


@njit
def brought(at: Any, c: Any, world: Any) -> Any:
    """Since when the core's other thread has a line, so that c may read it, or will; or never."""
    lines, bits, _, _, cpu, place, _, tree, leaves, _, _, _ = world
    when = NEVER
    if lines[at + OWNER] >= 0:
        return np.int64(0) if owned_beside(at, c, lines, place) else NEVER
    b = place[8 * c + NEXT]
    while b != c:
        if bits[at + (b >> U6)] >> (np.uint64(b) & U63) & ONE:
            coming = cpu[8 * b + STAGE] == COMING and cpu[8 * b + LINE] == at
            coming = coming and cpu[8 * b + WANT] == 0  # who is to change it has a copy now
            when = min(when, tree[leaves + b] >> 9 if coming else np.int64(0))
        b = place[8 * b + NEXT]
    return when


@njit
def begin(at: Any, c: Any, t: Any, world: Any, row: Any) -> Any:
    """Start the transfer that c asks for; the key that c then has is returned."""
    lines, bits, near, size, cpu, place, cost, tree, leaves, words, counts, program = world
    start = max(t, lines[at + FREE])
    owner = lines[at + OWNER]
    copies = lines[at + SHARERS]
    wants = cpu[8 * c + WANT] != 0
    bit = ONE << (np.uint64(c) & U63)
    mine = bits[at + (c >> U6)] & bit
    since = NEVER if wants else brought(at, c, world)
    if since < NEVER:  # a core has one cache: it asks nobody, and waits for nobody's turn
        start = max(t, since)
    cpu[8 * c + STAGE] = COMING
    cpu[8 * c + LINE] = at
    counts[row + WAIT] += start - cpu[8 * c + ASKED]
    # A write that comes later must find and invalidate this copy, even on its way.
    if owner < 0 and copies > 0 and not wants and not mine:
        bits[at + (c >> U6)] |= bit
        lines[at + SHARERS] = copies + 1
    if since < NEVER:
        key = ((start + cost[READ_HIT]) << 9) | c
        lower_key(tree, leaves, c, key)
        return key
    alone = True
    if owner >= 0:
        kind = between(place, c, owner)
        latency = cost[kind]
        moved = BY_CORE + kind
        found = program[cpu[8 * c + PC] + 7] >> FOUND
        if found > 0 and moved != BY_CORE:
            counts[row + OWN + found - 1] += 1
    elif copies == 0:
        latency = cost[FILL]
        moved = FILLS
    else:
        nearest, farthest = _distances(bits, near, size, at, c, words)
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


@njit
def take_over(at: Any, c: Any, t: Any, world: Any, watchers: Any, row: Any) -> Any:
    """Let c change a line that its core's other thread has, and that leaves; whether it can.

    A thread of the core can, as the owner can, until the request for the line has come. An owner
    who watches would lose the line unnoticed.
    """
    lines, _, _, _, cpu, place, cost, tree, leaves, _, counts, _ = world
    owner, next_owner, when = lines[at + OWNER], lines[at + BUSY], t + cost[CORE]
    if next_owner < 0 or t >= lines[at + DEPART] or when >= tree[leaves + next_owner] >> 9:
        return False
    if not owned_beside(at, c, lines, place):
        return False
    if watchers[at + (owner >> U6)] >> (np.uint64(owner) & U63) & ONE:
        return False
    lines[at + OWNER] = c
    cpu[8 * c + STAGE] = COMING
    cpu[8 * c + LINE] = at
    counts[row + BY_CORE] += 1
    set_key(tree, leaves, c, (when << 9) | c)
    return True


@njit
def holds(op: Any, a: Any, b: Any) -> Any:
    """Whether a comparison of a program does."""
    if op == 0:
        return a == b
    if op == 1:
        return a != b
    if op == 2:
        return a < b
    return a >= b


@njit
def calculate(
    program: Any, pc: Any, reg: Any, mine: Any, state: Any, c: Any, phase: Any, now: Any
) -> None:
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
        reg[mine + x] = phase if what == 9 else now
