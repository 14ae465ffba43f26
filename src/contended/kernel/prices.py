# SPDX-License-Identifier: MIT
"""What things cost in virtual time: a machine's costs, drawn from their ranges, for the plugin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from contended.errors import UsageError, pick
from contended.simulate.caches import Policy
from contended.simulate.draws import latin, priced
from contended.simulate.machines import MachineModel, Parameter
from contended.simulate.workload import SMT

INSTRUCTION = (
    0.29,
    Parameter(
        "assumed",
        "with 0.255 one process is as fast as linuxf5fe24ef17b5's with fstat, with 0.325 with open",
        0.255,
        0.325,
    ),
)
"""Nanoseconds for one, over the thousands of a system call."""
DISTRIBUTION = (0.171, 0.203)
"""The same on a kernel that executes more of them for a call, as the two calls' processes did."""
POLICIES: dict[Policy, int] = {"fifo": 0, "chance": 1, "grouped": 2}
"""Who is next for a line, as in `caches.simulate`, by the plugin's number; "chance" by default."""
TURBO = (
    1.0,
    Parameter("cited", "zhu2022frequency; none, where the firmware keeps clocks as they are", 0, 1),
)
"""By what part of it a core's clock falls as a machine's `turbo` says, when others are busy."""
CLOCKED = (
    0.25,
    Parameter(
        "assumed", "two cores' caches are looked up at their clock; the mesh has its own", 0.1, 0.4
    ),
)
"""The part of a line's way that takes longer then."""
PAUSE = (
    40.0,
    Parameter(
        "cited",
        "mariadb2019pause: 140 cycles; zhu2022frequency, risska2018cascadelake: 3.5 to 3.7 GHz",
        37.8,
        40.0,
    ),
)
"""Where a machine's clocks fall with its busy cores: a pause at the highest.

A machine's own, which the simulators use, is the same cycles at any clock from there to 2.3 GHz.
"""
_OWN = {
    "instruction": INSTRUCTION,
    "smt": (SMT.value, SMT.where),
    "turbo": TURBO,
    "clocked": CLOCKED,
}
_OF_CORES = ("instruction", "rmw_hit", "pause", "core", "ahead")
_OF_WAYS = ("near", "cross", "far", "fill", "share")
_OF_MACHINES = ("rmw_hit", "pause", "core", "near", "cross", "far", "fill", "share", "request")
#: What the plugin takes: its time is in picoseconds, and a thread beside another is no faster.
LEAST = {"instruction": 0.001, "core": 0.001, "near": 0.001, "smt": 1}
_CHOICES = {"take": (0, 1, 2), "grouped": (0, 1)}  # take 2: lines that migrate, see ways.h
_PARTS = ("request", "turbo", "clocked")


def costs(box: MachineModel, drawn: Mapping[str, float] | None = None) -> dict[str, float]:
    """What things cost on a machine, by name as in `times.Timed`; what is `drawn` is as drawn."""
    drawn = drawn or {}
    prices = asdict(priced(box, drawn))
    own = {name: drawn.get(name, value) for name, (value, _) in _own(box).items()}
    return {
        **{name: prices[name] for name in _OF_MACHINES},
        **own,
        "take": float(round(drawn.get("take", 0.0))),
        "grouped": float(round(drawn.get("grouped", 0.0))),
        "ahead": drawn.get("ahead", drawn.get("early", box.early.low) * own["instruction"]),
    }


def apart(
    box: MachineModel, changes: Sequence[tuple[str, float]], at: Mapping[str, float]
) -> list[dict[str, float]]:
    """For `costs`, what is changed in each boot: nothing, and then one cost after the other.

    The others are as stated, with what is given `at` a value. Raises UsageError for a cost that
    there is not, for what it cannot be, and for what it is anyway.
    """
    stated = costs(box, at)
    for name, value in changes:
        pick(stated, name, "--cost: no cost")
        least, most = LEAST.get(name, 0), 1 if name in _PARTS else 10_000
        if name in _CHOICES:
            if value not in _CHOICES[name]:
                *some, last = map(str, _CHOICES[name])
                raise UsageError(f"--cost {name}={value:g}: give {', '.join(some)} or {last}")
        elif not least <= value <= most:
            raise UsageError(f"--cost {name}={value:g}: give a number from {least:g} to {most:g}")
        if costs(box, {**at, name: value}) == stated:
            raise UsageError(f"--cost {name}={value:g} changes nothing on {box.name}: leave it out")
    return [{}, *({name: value} for name, value in dict.fromkeys(changes))]


def halves(box: MachineModel, stated: Mapping[str, float], cpus: int) -> list[tuple[str, float]]:
    """Each cost that so many CPUs can tell: half of what is `stated`, and twice as much.

    A part is one at most, and a choice is the other one. Of how many times as long a thread's work
    takes beside another, it is what is over one. A load that begins with its instruction begins as
    early as it may.
    """
    found: list[tuple[str, float]] = []
    for name, value in stated.items():
        if name in _CHOICES:
            found.append((name, 1 - value))
        elif name == "smt":
            found += [(name, 1 + (value - 1) / 2), (name, 1 + 2 * (value - 1))]
        elif name == "ahead" and not value:
            found.append((name, box.early.high * stated["instruction"]))
        else:
            found += [
                (name, value / 2),
                (name, min(2 * value, 1.0 if name in _PARTS else math.inf)),
            ]
    untold = unseen(box, cpus)
    return [(name, to) for name, to in found if name not in untold and to != stated[name]]


def unseen(box: MachineModel, cpus: int) -> set[str]:
    """The costs that so many CPUs cannot tell: of threads, groups, sockets or clocks.

    They are of what the CPUs have one of only, or of what is as if they were alone.
    """
    where = box.topology(cpus)
    groups, sockets = len(set(where.group)), len(set(where.socket))
    found = {name for name in ("core", "smt") if not box.shares(cpus)}
    found |= {name for name in ("far",) if sockets == 1}
    found |= {name for name in ("cross",) if groups == sockets}
    found |= {name for name in ("grouped",) if groups == 1}
    return found | {name for name in ("turbo", "clocked") if box.slower(cpus) == 1}


def _own(box: MachineModel) -> dict[str, tuple[float, Parameter]]:
    return {**_OWN, "pause": PAUSE} if box.turbo else _OWN


def instruction(config: str) -> tuple[float, float] | None:
    """Between what an instruction takes on a configuration's kernels, where it has its own."""
    return DISTRIBUTION if config.startswith("distribution") else None


def draws(
    box: MachineModel,
    boots: int,
    instruction: tuple[float, float] | None = None,
    at: Mapping[str, float] | None = None,
) -> list[dict[str, float]]:
    """Costs for so many boots, each from its own range, all of them together: see `costs`.

    What an `instruction` takes is between two nanoseconds, where one process of the workload tells;
    what is given `at` a value is not drawn.
    """
    ranges = {name: box.parameters[name] for name in _OF_MACHINES}
    ranges |= {name: where for name, (_, where) in _own(box).items()}
    ranges |= {"take": box.take, "early": box.early, "grouped": box.grouped}
    ends = {name: (each.low, each.high) for name, each in ranges.items()}
    drawn = latin({**ends, "instruction": instruction or ends["instruction"]}, boots)
    return [costs(box, {**each, **(at or {})}) for each in drawn]


def busy(box: MachineModel, price: Mapping[str, float], cpus: int) -> dict[str, float]:
    """The same costs while so many CPUs work: their cores' clocks are lower."""
    longer = price["turbo"] * (box.slower(cpus) - 1)
    times = dict.fromkeys(_OF_CORES, 1 + longer)
    times |= dict.fromkeys(_OF_WAYS, 1 + longer * price["clocked"])
    return {name: value * times.get(name, 1) for name, value in price.items()}


def settings(
    box: MachineModel,
    seed: int,
    at: Mapping[str, float] | None = None,
    first: int = 1,
    cpus: int = 1,
    policy: Policy = "chance",
) -> str:
    """The plugin's `time=`: costs in picoseconds and thousandths, by default the machine's own.

    The guest's CPU `first` is the machine's first: those before it are beside the machine. So many
    CPUs work. The `policy` is one of `POLICIES`; "chance" is of what the costs say is `grouped`.
    """
    c = busy(box, at or costs(box), cpus)
    if policy == "chance" and c["grouped"]:
        policy = "grouped"
    ps = [round(1000 * c[name]) for name in ("instruction", *_OF_MACHINES)]
    own = round(1000 * c["ahead"]), round(1000 * c["smt"])
    fields = [*ps, POLICIES[policy], round(c["take"]), *own]
    shape = box.sockets, box.cores, box.groups, box.threads
    return "+".join(map(str, [*fields, *shape, first, seed]))
