# SPDX-License-Identifier: MIT
"""The compiled part of the simulator: one loop over events, in numba's subset of Python.

Only `caches` imports it, when it simulates, and explains it: importing numba takes long.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from contended.simulate.lines import (
    AGAIN,
    ASKED,
    BUSY,
    CHANCE,
    COMING,
    DEPART,
    EVENTS,
    FLAG,
    GROUPED,
    HOME,
    LAST,
    LEFT,
    LOW9,
    MIX1,
    MIX2,
    NEVER,
    ONE,
    OPS,
    OVERTAKEN,
    OWN,
    OWNER,
    PAUSE,
    PC,
    PREEMPT,
    READ_HIT,
    RMW_HIT,
    ROW,
    RUN,
    SELF,
    SHARERS,
    SINCE,
    STAGE,
    U6,
    U11,
    U63,
    VALUE,
    WANT,
    WATCHING,
    begin,
    brought,
    calculate,
    exponential,
    holds,
    ints,
    neighbours,
    others,
    owned_beside,
    random_bits,
    scaled,
    set_key,
    sets,
    share,
    take_over,
)
from contended.simulate.turns import draw, enqueue, leave, reader_beside, shuffle, take

THINK, READ, ADD, CAS, SWAP, WRITE, SPIN, BRANCH, ALU, COUNT, DONE, HALT = range(12)
IDLE_STEPS = 100_000


def run(n_lines: int, *given: Any) -> tuple[int, int, int]:
    """Simulate, from what `contended.simulate.caches.simulate` hands over; counts are filled in.

    The arrays are handed on by address: numba would check each index for being negative and count
    references to the arrays, which is more work than the simulation. What comes back is 0 for done,
    1 for stuck or 2 for looping, the time in picoseconds, and the phase reached.
    """
    n, last = len(given[1]), len(given[6])
    leaves = 1 << (n - 1).bit_length()
    most = 8 * n_lines
    sizes = most, most + 24 * n + 16, most, 8 * n, 16 * n, n + 1, n * n_lines, most
    tree = np.full(2 * leaves, NEVER, dtype=np.int64)
    arrays = *given, tree, *(np.zeros(size, dtype=np.int64) for size in sizes)
    assert all(each.dtype == np.int64 and each.flags.c_contiguous for each in arrays)
    where = np.array([array.ctypes.data for array in arrays], dtype=np.int64)
    status, now, phase = _run(n, leaves, n_lines, last, where.ctypes.data)
    return int(status), int(now), int(phase)


@njit(cache=True)
def _run(n: Any, leaves: Any, n_lines: Any, last: Any, arrays: Any) -> Any:
    table = ints(arrays)
    program, entry, line_of, word = ints(table[0]), ints(table[1]), ints(table[2]), ints(table[3])
    place, cost, ends, counts = ints(table[4]), ints(table[5]), ints(table[6]), ints(table[7])
    options, tree, lines, bits = ints(table[8]), ints(table[9]), ints(table[10]), sets(table[11])
    watchers, cpu, reg, state = sets(table[12]), ints(table[13]), ints(table[14]), sets(table[15])
    queues, waiting = ints(table[16]), sets(table[17])
    seed, max_ops, overtakes = options[0], options[1], options[2]
    every, away = options[3], options[4]
    words = (n + 63) >> 6
    for line in range(0, 8 * n_lines, 8):
        lines[line + OWNER] = -1
        lines[line + BUSY] = -1
        lines[line + LAST] = -1
        lines[line + HOME] = -1
    near = 8 * n_lines
    neighbours(bits, near, place, n, words)
    for c in range(n):
        state[c] = (np.uint64(seed) + ONE) * MIX2 + np.uint64(c) * MIX1
        random_bits(state, c)
        cpu[8 * c + PC] = 8 * entry[c]
        reg[16 * c + SELF] = c
        cpu[8 * c + PREEMPT] = exponential(state, c, every) if every > 0 else NEVER
        tree[leaves + c] = c
    # The last generator is the lines': who of those that wait is next.
    state[n] = (np.uint64(seed) + ONE) * MIX2 + np.uint64(n) * MIX1
    for i in range(leaves - 1, 0, -1):
        tree[i] = min(tree[2 * i], tree[2 * i + 1])

    world = lines, bits, near, n, cpu, place, cost, tree, leaves, words, counts, program
    look = cost[PAUSE] + cost[READ_HIT]
    phase = row = total = idle = 0
    limit = ends[0] << 9
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
        bound = min(others(tree, leaves, c), limit)
        stage = cpu[me + STAGE]
        pc = cpu[me + PC]

        if stage == WATCHING:  # looked as often as it may
            at = line_of[program[pc + 1] + program[pc + 2] * reg[mine + program[pc + 3]]]
            watchers[at + (c >> U6)] &= ~(ONE << (np.uint64(c) & U63))
            reg[mine + program[pc + 5]] = 0
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
                    if holds(
                        w & 255, reg[mine + program[pc + 4]] & program[pc + 6], program[pc + 5]
                    ):
                        pc = w >> 8
                    else:
                        pc += 8
                elif op == ALU:
                    calculate(program, pc, reg, mine, state, c, phase, t)
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
                    set_key(tree, leaves, c, NEVER)
                    parked = True
                    break
                continue

            if stage == RUN and t >= cpu[me + PREEMPT]:
                t += away
                cpu[me + PREEMPT] = t + exponential(state, c, every)
                if (t << 9) | c >= bound:
                    break

            if op == THINK:
                kind = program[pc + 5]
                ps = cost[PAUSE] if kind == 3 else program[pc + 4]
                if kind == 1:
                    ps = exponential(state, c, ps)
                elif kind == 2:
                    ps = (ps >> 1) + scaled(ps, random_bits(state, c) >> U11)
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
                        # Those who watched have lost their copies, and ask for the line again:
                        # all within one way, so that chance decides who is before whom.
                        asked = lines[at + LAST] + 1
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
                                    set_key(tree, leaves, b, NEVER)
                                    enqueue(at, b, lines, cpu, overtakes, queues, waiting, n)
                                b += 1
                                wake >>= ONE
                        if overtakes != CHANCE:
                            shuffle(at, asked, lines, queues, n, state)
                    elif owner >= 0:
                        share(at, owner, c, lines, bits)
                    else:
                        lines[at + OWNER] = c
                    lines[at + BUSY] = -1
                    lines[at + HOME] = c
            else:
                if stage == RUN and op == SPIN:
                    y = program[pc + 5]
                    cpu[me + LEFT] = reg[mine + y] if y >= 0 else 0
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
                    # What its core has it need not wait for, whoever does.
                    if wants and take_over(at, c, t, world, watchers, row):
                        parked = True
                        break
                    gone = lost and cpu[8 * lines[at + BUSY] + WANT] == 1
                    here = not wants and not gone and stage != AGAIN
                    here = here and brought(at, c, world) < NEVER
                    if not here and (lines[at + BUSY] >= 0 or lines[at + LAST] >= 0):
                        set_key(tree, leaves, c, NEVER)
                        enqueue(at, c, lines, cpu, overtakes, queues, waiting, n)
                    else:
                        if not here and overtakes in (CHANCE, GROUPED):
                            lines[at + OVERTAKEN] = 0
                        key = begin(at, c, t, world, row)
                        set_key(tree, leaves, c, key)  # it was lower: this very event
                    parked = True
                    break

            # A way is from access to access: it has the access at its end in it.
            came, begun = stage == COMING, t
            read, change = (0, 0) if came else (cost[READ_HIT], cost[RMW_HIT])
            value = word[address]
            counts[row + EVENTS] += 1
            idle = 0
            stage = RUN
            watch = False
            if op == READ:
                reg[mine + program[pc + 5]] = value
                t += read
                pc += 8
            elif op == ADD:
                part = program[pc + 6]
                word[address] = (value & ~part) | ((value + program[pc + 4]) & part)
                reg[mine + program[pc + 5]] = value
                t += change
                pc += 8
            elif op == CAS:
                x, part = program[pc + 4], program[pc + 6]
                if (value & part) == (reg[mine + x] & part):
                    word[address] = (value & ~part) | (reg[mine + program[pc + 5]] & part)
                    reg[mine + FLAG] = 1
                else:
                    reg[mine + x] = value
                    reg[mine + FLAG] = 0
                t += change
                pc += 8
            elif op == SWAP:
                part = program[pc + 6]
                word[address] = (value & ~part) | (reg[mine + program[pc + 4]] & part)
                reg[mine + program[pc + 5]] = value
                t += change
                pc += 8
            elif op == WRITE:
                part = program[pc + 6]
                word[address] = (value & ~part) | (reg[mine + program[pc + 4]] & part)
                t += read
                pc += 8
            else:  # SPIN
                w = program[pc + 7]
                reg[mine + VALUE] = value
                if holds(w & 255, value & program[pc + 6], reg[mine + program[pc + 4]]):
                    t += read
                    if cpu[me + LEFT] > 0:
                        reg[mine + program[pc + 5]] = cpu[me + LEFT] - 1
                    pc += 8
                else:
                    t += look
                    bounded = cpu[me + LEFT] > 0
                    if bounded:
                        cpu[me + LEFT] -= 1
                    if bounded and cpu[me + LEFT] == 0:
                        reg[mine + program[pc + 5]] = 0
                        pc = w >> 8
                    elif lines[at + OWNER] == c or (bits[at + (c >> U6)] & bit) != 0:
                        watch = True
                    elif lines[at + BUSY] < 0 and owned_beside(at, c, lines, place):
                        # from now on it is shared, so that a write is noticed
                        share(at, lines[at + OWNER], c, lines, bits)
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
                set_key(tree, leaves, c, key)

            if came:
                kept = owned_beside(at, c, lines, place) or (bits[at + (c >> U6)] & bit) != 0
                if kept and (lines[at + BUSY] < 0 or begun < lines[at + DEPART]):
                    b = reader_beside(at, c, cpu, place)
                    if b != c:
                        leave(at, b, lines, overtakes, queues, waiting, n)
                        bound = min(bound, begin(at, b, begun, world, row))
                while lines[at + LAST] >= 0 and lines[at + BUSY] < 0:
                    if overtakes == CHANCE:
                        b = draw(at, queues, waiting, world, state)
                    else:
                        b = take(at, lines, place, cost, overtakes, queues, waiting, n, state)
                    key = begin(at, b, begun, world, row)
                    bound = min(bound, key)
            if watch:
                parked = True
                break
            if (t << 9) | c >= bound:
                break

        if not parked:
            cpu[me + PC] = pc
            cpu[me + STAGE] = stage
            set_key(tree, leaves, c, (t << 9) | c)


def _forget() -> None:
    """Drop what was compiled before another part changed: numba looks at this file's age alone."""
    parts = (Path(__file__).with_name(name) for name in ("lines.py", "turns.py"))
    changed = max(part.stat().st_mtime for part in parts)
    for index in Path(str(_run.stats.cache_path)).glob("engine._run-*.nbi"):
        with contextlib.suppress(OSError):  # another process may have been faster
            if index.stat().st_mtime < changed:
                index.unlink()


_forget()
