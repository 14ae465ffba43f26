# SPDX-License-Identifier: MIT
"""What things cost in virtual time: a machine's costs, drawn from their ranges, for the plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

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
CHANCE = 1  #: Who is next for a line is a matter of chance, not of who asked first.
_OWN = {"instruction": INSTRUCTION, "smt": (SMT.value, SMT.where)}
_OF_MACHINES = ("rmw_hit", "pause", "core", "near", "cross", "far", "fill", "share", "request")


def costs(box: MachineModel, drawn: Mapping[str, float] | None = None) -> dict[str, float]:
    """What things cost on a machine, by name as in `clock.Timed`; what is `drawn` is as drawn."""
    drawn = drawn or {}
    prices = asdict(priced(box, drawn))
    own = {name: drawn.get(name, value) for name, (value, _) in _OWN.items()}
    return {
        **{name: prices[name] for name in _OF_MACHINES},
        **own,
        "take": float(round(drawn.get("take", 0.0))),
        "ahead": drawn.get("ahead", drawn.get("early", box.early.low) * own["instruction"]),
    }


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
    ranges |= {name: where for name, (_, where) in _OWN.items()}
    ranges |= {"take": box.take, "early": box.early}
    ends = {name: (each.low, each.high) for name, each in ranges.items()}
    drawn = latin({**ends, "instruction": instruction or ends["instruction"]}, boots)
    return [costs(box, {**each, **(at or {})}) for each in drawn]


def settings(
    box: MachineModel, seed: int, at: Mapping[str, float] | None = None, first: int = 1
) -> str:
    """The plugin's `time=`: costs in picoseconds and thousandths, by default the machine's own.

    The guest's CPU `first` is the machine's first: those before it are beside the machine.
    """
    c = at or costs(box)
    ps = [round(1000 * c[name]) for name in ("instruction", *_OF_MACHINES)]
    own = round(1000 * c["ahead"]), round(1000 * c["smt"])
    fields = [*ps, CHANCE, round(c["take"]), *own]
    shape = box.sockets, box.cores, box.groups, box.threads
    return "+".join(map(str, [*fields, *shape, first, seed]))
