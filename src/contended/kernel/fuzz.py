# SPDX-License-Identifier: MIT
"""Random file-system operations from one seed, on two kernels that must give the same.

The guest (`csrc/guest/work_fuzz.c`) reports a digest of every hundred operations, its worlds. One
in which two kernels differ is run again in words, and then with fewer operations as long as they
differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from contended.errors import UsageError
from contended.kernel import boot
from contended.kernel.build import Kernel
from contended.kernel.qemu import Boot
from contended.kernel.vm import GuestTrouble, VirtualMachine

WORLD = 100  #: Operations that share a mount namespace, and are forgotten together.
OPS = 10_000
MAX_SEED = 2**32 - 1
_OPERATION = re.compile(r"\d+ ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where two kernels part, and the fewest operations found that show it."""

    seed: int
    operation: int | None  #: The first whose result, or the tree after which, differs, from 0.
    what: str  #: The operation, name or mount of which they say something else.
    reference: str  #: What the one kernel says of it.
    seen: str  #: What the other one says.
    shortest: list[str]  #: Operations with their results on the reference; empty if not repeatable.
    keep: list[int]  #: Their numbers in the world, as the guest's `keep` has them.


@dataclass(slots=True)
class Heard:
    """What a boot said, as far as it got."""

    worlds: dict[int, int] = field(default_factory=dict)  #: Digests.
    done: Counter[str] = field(default_factory=Counter)  #: Operations that succeeded, by family.
    log: list[tuple[str, str]] = field(default_factory=list)
    ended: str = ""  #: How it went wrong; empty if it did not.
    console: str = ""


Hear = Callable[[int, int, Sequence[int] | None], Heard]
"""Runs so many worlds from one on; or just these operations of one, and tells them in words."""


def check(seed: int, ops: int) -> None:
    """Refuse numbers that cannot be, by a UsageError."""
    if not 0 <= seed <= MAX_SEED:
        raise UsageError(f"seed {seed}: give 0 to {MAX_SEED}")
    if ops < WORLD or ops % WORLD or ops > 1_000_000:
        raise UsageError(f"{ops} operations: give a multiple of {WORLD}, up to 1000000")


def hearing(kernel: Kernel, seed: int, cmdline: str = "", deadline_s: float = 600) -> Hear:
    """What boots a kernel with parts of a seed's operations."""

    def hear(first: int, worlds: int, keep: Sequence[int] | None) -> Heard:
        args = {"run": "fuzz", "seed": str(seed), "first": str(first), "worlds": str(worlds)}
        if keep is not None:
            args |= {"log": "1", "keep": "+".join(map(str, keep))}
        asked = Boot(
            kernel=kernel, vcpus=1, args=args, cmdline=cmdline, accel="tcg", deadline_s=deadline_s
        )
        found = Heard()
        with VirtualMachine(asked, boot.choose(asked)[0]) as machine:
            try:
                for line in machine.lines():
                    if line["type"] == "result":
                        counts = dict(line["counts"])
                        found.worlds[line["size"]] = counts.pop("digest")
                        found.done.update(counts)
                    elif line["type"] == "check":
                        found.log.append((line["name"], line["detail"]))
                    elif line["type"] == "error":
                        found.ended = f"error: {line['what']}"
            except GuestTrouble as trouble:
                found.ended = f"{trouble.kind}: {trouble}"
            found.console = machine.console
        return found

    return hear


def parted(one: Heard, other: Heard) -> int | None:
    """The first world in which they differ, or that only one of them got through."""
    both = sorted(one.worlds.keys() | other.worlds.keys())
    return next((n for n in both if one.worlds.get(n) != other.worlds.get(n)), None)


def compare(
    seed: int, reference: Hear, other: Hear, first: Heard, second: Heard
) -> Difference | None:
    """What the first difference of two runs is, by running its world again; None without one."""
    world = parted(first, second)
    if world is None:
        return None

    def both(
        keep: Sequence[int],
    ) -> tuple[int, list[tuple[str, str]], list[tuple[str, str]]] | None:
        """Where the logs part, and both, if they do; a kernel's end is its log's last line."""
        logs = []
        for hear in (reference, other):
            heard = hear(world, 1, keep)
            logs.append([*heard.log, ("the end", heard.ended or "as it should be")])
        one, two = logs
        at = next(
            (i for i, pair in enumerate(zip(one, two, strict=False)) if len({*pair}) > 1), None
        )
        return None if at is None else (at, one, two)

    every = list(range(WORLD))
    if (found := both(every)) is None:
        what = f"world {world} differs, but not when it is run again"
        return Difference(
            seed=seed, operation=None, what=what, reference="", seen="", shortest=[], keep=[]
        )
    at, one, two = found
    before = [name for name, _ in one[: at + 1] if _OPERATION.match(name)]
    operation = int(before[-1].split()[0]) if before else world * WORLD
    keep = shrunk(
        [n for n in every if world * WORLD + n <= operation], lambda k: both(k) is not None
    )
    last = both(keep)
    shortest = last[1] if last else []
    return Difference(
        seed=seed,
        operation=operation,
        what=one[at][0],
        reference=one[at][1],
        seen=two[at][1] if two[at][0] == one[at][0] else f"{two[at][0]}: {two[at][1]}",
        shortest=[f"{name} = {result!r}" for name, result in shortest if _OPERATION.match(name)],
        keep=keep,
    )


def shrunk(items: Sequence[int], still: Callable[[Sequence[int]], bool]) -> list[int]:
    """Fewer of the items of which `still` holds: none of what is left can be spared by itself."""
    kept, size = list(items), max(1, len(items) // 2)
    while True:
        at, before = 0, len(kept)
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            if fewer and still(fewer):
                kept = fewer
            else:
                at += size
        if size > 1:
            size //= 2
        elif len(kept) == before:
            return kept
