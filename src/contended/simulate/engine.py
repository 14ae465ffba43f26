# SPDX-License-Identifier: MIT
"""The compiled part of the simulator: one loop over events, in numba's subset of Python.

Only `contended.simulate.caches` calls it, and explains what it does; nothing else imports it,
because importing numba takes longer than most commands. Arrays stand for objects here: a row of
`lines` is a line, a row of `cpu` a CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

# Columns of a line.
OWNER, BUSY, DEPART, FREE, HEAD, TAIL, OVERTAKEN, SHARERS = range(8)
# Columns of a CPU.
PC, STAGE, NEXT, WANT, SINCE, LEFT, ASKED, PREEMPT = range(8)
# What a CPU is doing: running, waiting in a line's queue, about to get its line, watching a word
# that it has, or about to look again at one that it no longer has.
RUN, QUEUED, COMING, WATCHING, AGAIN = range(5)
# Costs.
CORE, NEAR, CROSS, FAR, READ_HIT, RMW_HIT, PAUSE, FILL, SHARE, INVALIDATE, REQUEST = range(11)
# Counts.
OPS, EVENTS, BY_CORE, BY_NEAR, BY_CROSS, BY_FAR, UPGRADES, INVALIDATED, FILLS, WAIT = range(10)
OWN = 10
ROW = 18

THINK, READ, ADD, CAS, SWAP, WRITE, SPIN, BRANCH, ALU, COUNT, DONE, HALT = range(12)
VALUE, FLAG, ZERO, SELF = 12, 13, 14, 15

NEVER = np.int64(0x7FFFFFFFFFFFFFFF)
LOW9 = np.int64(511)
ONE, NONE = np.uint64(1), np.uint64(0)
GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX1 = np.uint64(0xBF58476D1CE4E5B9)
MIX2 = np.uint64(0x94D049BB133111EB)
U30, U27, U31, U11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
U63, U6 = np.uint64(63), np.int64(6)
IDLE_STEPS = 100_000


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return builder.inttoptr(args[0], context.get_value_type(signature.return_type))


def _as_ints(typing: Any, address: Any) -> Any:  # noqa: ARG001
    return _types.CPointer(_types.int64)(_types.intp), _pointer


def _as_sets(typing: Any, address: Any) -> Any:  # noqa: ARG001
    return _types.CPointer(_types.uint64)(_types.intp), _pointer


# Pointers to int64 and to uint64 from addresses: see `run`.
_types: Any = types
_ints: Any = intrinsic(_as_ints)
_sets: Any = intrinsic(_as_sets)


@njit(cache=True)
def _random(state: Any, c: Any) -> Any:
    # splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014
    state[c] += GAMMA
    z = state[c]
    z = (z ^ (z >> U30)) * MIX1
    z = (z ^ (z >> U27)) * MIX2
    return z ^ (z >> U31)


@njit(cache=True)
def _scaled(mean: Any, part: Any) -> Any:
    # mean * part / 2**53 in integers that do not overflow
    if mean < np.int64(1) << np.int64(30):
        return (mean * np.int64(part >> np.uint64(21))) >> np.int64(32)
    return (mean * np.int64(part >> np.uint64(34))) >> np.int64(19)


@njit(cache=True)
def _exponential(state: Any, c: Any, mean: Any) -> Any:
    # von Neumann's way, by comparisons alone: no logarithm that machines might round differently
    # (J. von Neumann, "Various techniques used in connection with random digits", 1951).
    whole = np.int64(0)
    while True:
        first = _random(state, c) >> U11
        last = first
        n = 1
        while True:
            u = _random(state, c) >> U11
            if u > last:
                break
            last = u
            n += 1
        if n & 1:
            return whole * mean + _scaled(mean, first)
        whole += 1


@njit(cache=True)
def _set_key(tree: Any, leaves: Any, c: Any, key: Any) -> None:
    # unsigned, so that numba need not look for negative indices
    i = np.uint64(leaves + c)
    tree[i] = key
    while i > ONE:
        key = min(key, tree[i ^ ONE])
        i >>= ONE
        tree[i] = key


@njit(cache=True)
def _lower_key(tree: Any, leaves: Any, c: Any, key: Any) -> None:
    # as above, for a key that is lower than the one before
    i = np.uint64(leaves + c)
    while i > NONE and tree[i] > key:
        tree[i] = key
        i >>= ONE


@njit(cache=True)
def _bound(tree: Any, leaves: Any, c: Any) -> Any:
    # the earliest event of everybody but c
    i = np.uint64(leaves + c)
    least = NEVER
    while i > ONE:
        least = min(least, tree[i ^ ONE])
        i >>= ONE
    return least


@njit(cache=True)
def _between(place: Any, a: Any, b: Any) -> Any:
    a8, b8 = 8 * a, 8 * b
    if place[a8 + 2] != place[b8 + 2]:
        return FAR
    if place[a8 + 1] != place[b8 + 1]:
        return CROSS
    if place[a8] != place[b8]:
        return NEAR
    return CORE


@njit(cache=True)
def _distances(bits: Any, copies: Any, group: Any, socket: Any, at: Any, c: Any, words: Any) -> Any:
    # to the nearest copy and to the farthest
    inside = NONE
    beside = NONE
    away = NONE
    for k in range(words):
        these = bits[copies + at + k]
        inside |= these & bits[group + 8 * c + k]
        beside |= these & bits[socket + 8 * c + k] & ~bits[group + 8 * c + k]
        away |= these & ~bits[socket + 8 * c + k]
    nearest = NEAR if inside != NONE else (CROSS if beside != NONE else FAR)
    farthest = FAR if away != NONE else (CROSS if beside != NONE else NEAR)
    return nearest, farthest


@njit(cache=True)
def _begin(
    at: Any,
    c: Any,
    t: Any,
    lines: Any,
    bits: Any,
    group: Any,
    socket: Any,
    cpu: Any,
    place: Any,
    cost: Any,
    tree: Any,
    leaves: Any,
    words: Any,
    counts: Any,
    row: Any,
) -> Any:
    """Start the transfer that c asks for; the key that c then has is returned."""
    start = max(t, lines[at + FREE])
    owner = lines[at + OWNER]
    copies = lines[at + SHARERS]
    wants = cpu[8 * c + WANT] != 0
    cpu[8 * c + STAGE] = COMING
    counts[row + WAIT] += start - cpu[8 * c + ASKED]
    alone = True
    if owner >= 0:
        kind = _between(place, c, owner)
        latency = cost[kind]
        counts[row + BY_CORE + kind] += 1
    elif copies == 0:
        latency = cost[FILL]
        counts[row + FILLS] += 1
    else:
        nearest, farthest = _distances(bits, 0, group, socket, at, c, words)
        bit = ONE << (np.uint64(c) & U63)
        mine = bits[at + (c >> U6)] & bit
        if wants:
            latency = cost[farthest]
            others = copies
            if mine:
                others -= 1
                counts[row + UPGRADES] += 1
            else:
                counts[row + BY_CORE + farthest] += 1
            counts[row + INVALIDATED] += others
            latency += others * cost[INVALIDATE]
        else:
            alone = False
            latency = cost[nearest]
            counts[row + BY_CORE + nearest] += 1
            # A write that comes later must find and invalidate this copy, even on its way.
            if not mine:
                bits[at + (c >> U6)] |= bit
                lines[at + SHARERS] = copies + 1
            lines[at + FREE] = start + cost[SHARE]
    if alone:
        lines[at + BUSY] = c
        lines[at + DEPART] = start + (latency * cost[REQUEST] >> 20)
    key = ((start + latency) << 9) | c
    _lower_key(tree, leaves, c, key)
    return key


@njit(cache=True)
def _enqueue(at: Any, c: Any, lines: Any, cpu: Any) -> None:
    cpu[8 * c + STAGE] = QUEUED
    cpu[8 * c + NEXT] = -1
    if lines[at + HEAD] < 0:
        lines[at + HEAD] = c
    else:
        cpu[8 * lines[at + TAIL] + NEXT] = c
    lines[at + TAIL] = c


@njit(cache=True)
def _take(at: Any, lines: Any, cpu: Any, place: Any, overtakes: Any) -> Any:
    """The next to be served, taken out of the queue."""
    head = lines[at + HEAD]
    best, before = head, np.int64(-1)
    holder = lines[at + OWNER]
    if overtakes > 0 and holder >= 0 and lines[at + OVERTAKEN] < overtakes:
        nearest = _between(place, head, holder)
        previous, other = head, cpu[8 * head + NEXT]
        while other >= 0 and nearest > CORE:
            kind = _between(place, other, holder)
            if kind < nearest:
                nearest, best, before = kind, other, previous
            previous, other = other, cpu[8 * other + NEXT]
    if before < 0:
        lines[at + HEAD] = cpu[8 * best + NEXT]
        lines[at + OVERTAKEN] = 0
    else:
        cpu[8 * before + NEXT] = cpu[8 * best + NEXT]
        lines[at + OVERTAKEN] += 1
    if lines[at + TAIL] == best:
        lines[at + TAIL] = before
    return best


@njit(cache=True)
def _holds(op: Any, a: Any, b: Any) -> Any:
    if op == 0:
        return a == b
    if op == 1:
        return a != b
    if op == 2:
        return a < b
    return a >= b


def run(
    program: Ints,
    entry: Ints,
    line_of: Ints,
    initial: Ints,
    n_lines: int,
    place: Ints,
    cost: Ints,
    ends: Ints,
    counts: Ints,
    options: Ints,
) -> tuple[int, int, int]:
    """Simulate; see `contended.simulate.caches.simulate`.

    The arrays are made here and handed over by address: numba would check each index for being
    negative and count references to the arrays, which is more work than the simulation.

    Returns:
        (0 done, 1 stuck or 2 looping), the time in picoseconds, the phase reached.
    """
    n = len(entry)
    leaves = 1 << (n - 1).bit_length()
    arrays = (
        program,
        entry,
        line_of,
        initial.copy(),
        place,
        cost,
        ends,
        counts,
        options,
        np.full(2 * leaves, NEVER, dtype=np.int64),
        np.zeros(8 * n_lines, dtype=np.int64),
        np.zeros(8 * (n_lines + 2 * n), dtype=np.int64),
        np.zeros(8 * n_lines, dtype=np.int64),
        np.zeros(8 * n, dtype=np.int64),
        np.zeros(16 * n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
    )
    for array in arrays:
        assert array.dtype == np.int64
        assert array.flags.c_contiguous
    status, now, phase = _run(n, leaves, n_lines, len(ends), *(a.ctypes.data for a in arrays))
    return int(status), int(now), int(phase)


@njit(cache=True)
def _run(
    n: Any,
    leaves: Any,
    n_lines: Any,
    last: Any,
    at_program: Any,
    at_entry: Any,
    at_line_of: Any,
    at_word: Any,
    at_place: Any,
    at_cost: Any,
    at_ends: Any,
    at_counts: Any,
    at_options: Any,
    at_tree: Any,
    at_lines: Any,
    at_bits: Any,
    at_watchers: Any,
    at_cpu: Any,
    at_reg: Any,
    at_state: Any,
) -> Any:
    program, entry, line_of = _ints(at_program), _ints(at_entry), _ints(at_line_of)
    word, place, cost = _ints(at_word), _ints(at_place), _ints(at_cost)
    ends, counts, options = _ints(at_ends), _ints(at_counts), _ints(at_options)
    tree, lines, cpu, reg = _ints(at_tree), _ints(at_lines), _ints(at_cpu), _ints(at_reg)
    bits, watchers, state = _sets(at_bits), _sets(at_watchers), _sets(at_state)
    seed, max_ops, overtakes = options[0], options[1], options[2]
    every, away = options[3], options[4]
    words = (n + 63) >> 6
    for at in range(0, 8 * n_lines, 8):
        lines[at + OWNER] = -1
        lines[at + BUSY] = -1
        lines[at + HEAD] = -1
        lines[at + TAIL] = -1
    # Sets of CPUs, 8 words each: who shares each line, and who is in each CPU's group and socket.
    group, socket = 8 * n_lines, 8 * (n_lines + n)
    for a in range(n):
        for b in range(n):
            bit = ONE << (np.uint64(b) & U63)
            if place[8 * a + 1] == place[8 * b + 1]:
                bits[group + 8 * a + (b >> 6)] |= bit
            if place[8 * a + 2] == place[8 * b + 2]:
                bits[socket + 8 * a + (b >> 6)] |= bit
    for c in range(n):
        state[c] = (np.uint64(seed) + ONE) * MIX2 + np.uint64(c) * MIX1
        _random(state, c)
        cpu[8 * c + PC] = 8 * entry[c]
        reg[16 * c + SELF] = c
        cpu[8 * c + PREEMPT] = _exponential(state, c, every) if every > 0 else NEVER
        tree[leaves + c] = c
    for i in range(leaves - 1, 0, -1):
        tree[i] = min(tree[2 * i], tree[2 * i + 1])

    look = cost[PAUSE] + cost[READ_HIT]
    phase = 0
    row = 0
    limit = ends[0] << 9
    total = 0
    idle = 0
    now = np.int64(0)

    while True:
        root = tree[1]
        if root == NEVER:
            return 1, now, phase
        now = root >> 9
        while phase < last and now >= ends[phase]:
            phase += 1
            row = ROW * phase
            if phase < last:
                limit = ends[phase] << 9
        if phase == last:
            return 0, ends[last - 1], phase - 1
        c = root & LOW9
        me, mine = 8 * c, 16 * c
        t = now
        bound = min(_bound(tree, leaves, c), limit)
        stage = cpu[me + STAGE]
        pc = cpu[me + PC]

        if stage == WATCHING:  # looked as often as it may
            at = line_of[program[pc + 1] + program[pc + 2] * reg[mine + program[pc + 3]]]
            watchers[at + (c >> U6)] &= ~(ONE << (np.uint64(c) & U63))
            cpu[me + STAGE] = RUN
            stage = RUN
            pc = program[pc + 7] >> 8
            counts[row + EVENTS] += 1

        parked = False
        while True:
            op = program[pc + 0]
            if op >= BRANCH:
                idle += 1
                if idle > IDLE_STEPS:
                    return 2, t, phase
                if op == BRANCH:
                    w = program[pc + 7]
                    if _holds(
                        w & 255, reg[mine + program[pc + 4]] & program[pc + 6], program[pc + 5]
                    ):
                        pc = w >> 8
                    else:
                        pc += 8
                elif op == ALU:
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
                        reg[mine + x] = np.int64(_random(state, c) >> ONE) % number
                    else:
                        reg[mine + x] = phase
                    pc += 8
                elif op == COUNT:
                    y = program[pc + 5]
                    counts[row + OWN + program[pc + 4]] += reg[mine + y] if y >= 0 else 1
                    pc += 8
                elif op == DONE:
                    counts[row + OPS] += 1
                    total += 1
                    pc += 8
                    if total == max_ops:
                        return 0, max(t, np.int64(1)), phase
                else:  # HALT
                    cpu[me + PC] = pc
                    _set_key(tree, leaves, c, NEVER)
                    parked = True
                    break
                continue

            if stage == RUN and t >= cpu[me + PREEMPT]:
                t += away
                cpu[me + PREEMPT] = t + _exponential(state, c, every)
                if (t << 9) | c >= bound:
                    break

            if op == THINK:
                ps = program[pc + 4]
                kind = program[pc + 5]
                if kind == 1:
                    ps = _exponential(state, c, ps)
                elif kind == 2:
                    ps = (ps >> 1) + _scaled(ps, _random(state, c) >> U11)
                t += ps
                counts[row + EVENTS] += 1
                pc += 8
                if ps > 0:
                    idle = 0
                if (t << 9) | c >= bound:
                    break
                continue

            # A step on a line.
            address = program[pc + 1] + program[pc + 2] * reg[mine + program[pc + 3]]
            at = line_of[address]
            wants = op != READ and op != SPIN
            bit = ONE << (np.uint64(c) & U63)
            if stage == COMING:
                if lines[at + BUSY] == c:
                    owner = lines[at + OWNER]
                    if wants:
                        if lines[at + SHARERS] > 0:
                            for k in range(words):
                                bits[at + k] = 0
                            lines[at + SHARERS] = 0
                        lines[at + OWNER] = c
                        # Those who watched have lost their copies, and ask for the line again.
                        for k in range(words):
                            wake = watchers[at + k]
                            watchers[at + k] = 0
                            b = k << 6
                            while wake:
                                if wake & ONE:
                                    waited = (t - cpu[8 * b + SINCE]) // look if look > 0 else 0
                                    if cpu[8 * b + LEFT] > 0:
                                        cpu[8 * b + LEFT] = max(cpu[8 * b + LEFT] - waited, 1)
                                    cpu[8 * b + WANT] = 0
                                    cpu[8 * b + ASKED] = t
                                    _set_key(tree, leaves, b, NEVER)
                                    _enqueue(at, b, lines, cpu)
                                b += 1
                                wake >>= ONE
                    elif owner >= 0:
                        bits[at + (owner >> U6)] |= ONE << (np.uint64(owner) & U63)
                        bits[at + (c >> U6)] |= bit
                        lines[at + SHARERS] = 2
                        lines[at + OWNER] = -1
                    else:
                        lines[at + OWNER] = c
                    lines[at + BUSY] = -1
            else:
                if stage == RUN and op == SPIN:
                    cpu[me + LEFT] = program[pc + 5]
                lost = lines[at + BUSY] >= 0 and t >= lines[at + DEPART]
                if wants:
                    hit = lines[at + OWNER] == c and not lost
                else:
                    hit = lines[at + OWNER] == c or (bits[at + (c >> U6)] & bit) != 0
                    if hit and lost and cpu[8 * lines[at + BUSY] + WANT] == 1:
                        hit = False
                if not hit:
                    cpu[me + WANT] = 1 if wants else 0
                    cpu[me + ASKED] = t
                    cpu[me + PC] = pc
                    if lines[at + BUSY] >= 0 or lines[at + HEAD] >= 0:
                        _set_key(tree, leaves, c, NEVER)
                        _enqueue(at, c, lines, cpu)
                    else:
                        key = _begin(
                            at,
                            c,
                            t,
                            lines,
                            bits,
                            group,
                            socket,
                            cpu,
                            place,
                            cost,
                            tree,
                            leaves,
                            words,
                            counts,
                            row,
                        )
                        _set_key(tree, leaves, c, key)  # it was lower: this very event
                    parked = True
                    break

            came = stage == COMING
            begun = t
            value = word[address]
            counts[row + EVENTS] += 1
            idle = 0
            stage = RUN
            watch = False
            if op == READ:
                reg[mine + program[pc + 5]] = value
                t += cost[READ_HIT]
                pc += 8
            elif op == ADD:
                part = program[pc + 6]
                word[address] = (value & ~part) | ((value + program[pc + 4]) & part)
                reg[mine + program[pc + 5]] = value
                t += cost[RMW_HIT]
                pc += 8
            elif op == CAS:
                x, part = program[pc + 4], program[pc + 6]
                if (value & part) == (reg[mine + x] & part):
                    word[address] = (value & ~part) | (reg[mine + program[pc + 5]] & part)
                    reg[mine + FLAG] = 1
                else:
                    reg[mine + x] = value
                    reg[mine + FLAG] = 0
                t += cost[RMW_HIT]
                pc += 8
            elif op == SWAP:
                part = program[pc + 6]
                word[address] = (value & ~part) | (reg[mine + program[pc + 4]] & part)
                reg[mine + program[pc + 5]] = value
                t += cost[RMW_HIT]
                pc += 8
            elif op == WRITE:
                part = program[pc + 6]
                word[address] = (value & ~part) | (reg[mine + program[pc + 4]] & part)
                t += cost[READ_HIT]
                pc += 8
            else:  # SPIN
                w = program[pc + 7]
                reg[mine + VALUE] = value
                if _holds(w & 255, value & program[pc + 6], reg[mine + program[pc + 4]]):
                    t += cost[READ_HIT]
                    pc += 8
                else:
                    t += look
                    bounded = cpu[me + LEFT] > 0
                    if bounded:
                        cpu[me + LEFT] -= 1
                    if bounded and cpu[me + LEFT] == 0:
                        pc = w >> 8
                    elif lines[at + OWNER] == c or (bits[at + (c >> U6)] & bit) != 0:
                        watch = True
                    else:
                        stage = AGAIN  # it was taken away as soon as it had come
            cpu[me + PC] = pc
            cpu[me + STAGE] = stage
            if watch:
                watchers[at + (c >> U6)] |= bit
                cpu[me + STAGE] = WATCHING
                cpu[me + SINCE] = t
                key = NEVER
                if cpu[me + LEFT] > 0:
                    key = ((t + cpu[me + LEFT] * look) << 9) | c
                _set_key(tree, leaves, c, key)

            if came:
                if wants:
                    lines[at + FREE] = max(lines[at + FREE], t)
                begun = t if wants else begun
                while lines[at + HEAD] >= 0 and lines[at + BUSY] < 0:
                    b = _take(at, lines, cpu, place, overtakes)
                    key = _begin(
                        at,
                        b,
                        begun,
                        lines,
                        bits,
                        group,
                        socket,
                        cpu,
                        place,
                        cost,
                        tree,
                        leaves,
                        words,
                        counts,
                        row,
                    )
                    bound = min(bound, key)
            if watch:
                parked = True
                break
            if (t << 9) | c >= bound:
                break

        if not parked:
            cpu[me + PC] = pc
            cpu[me + STAGE] = stage
            _set_key(tree, leaves, c, (t << 9) | c)
