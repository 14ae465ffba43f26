# SPDX-License-Identifier: MIT
"""Machines to simulate: how their CPUs lie, what a cache line costs between them, and who says so.

Each parameter carries its source: "measured" on this machine, "cited", or "assumed", which always
comes with a range, and `predict` runs that range through. But for what docs/simulators.md names,
none was fitted to a number that a simulation is compared with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from contended import stats, tree
from contended.errors import ContendedError, UsageError
from contended.measure import results
from contended.measure.results import Measurement
from contended.simulate.caches import Costs, Topology
from contended.simulate.program import MAX_CPUS, check_cpus

Basis = Literal["measured", "cited", "assumed"]


class Parameter(NamedTuple):
    """Where a number comes from.

    The source is a citation's key, or says in words what was measured or why it is assumed; `low`
    and `high` are the ends of what it could as well be, in the number's own unit.
    """

    basis: Basis
    source: str
    low: float
    high: float


Turbo = tuple[tuple[int, float], ...]
"""See MachineModel."""


@dataclass(frozen=True, slots=True)
class MachineModel:
    """CPUs, their costs in nanoseconds, and by a cost's name where it comes from."""

    name: str  # as `--machine` takes it
    title: str
    sockets: int
    cores: int  # in each socket
    groups: int  # parts of a socket with a last-level cache of their own
    threads: int  # hardware threads in each core
    costs: Costs
    parameters: Mapping[str, Parameter]
    take: Parameter
    """Whether a load takes a modified line from its holder (1) or leaves it shared (0), which is
    what is taken for granted here, and what virtual time draws where it is not known."""
    early: Parameter
    """How many instructions before its own a load begins: from none, which is what is taken for
    granted, to all that the CPU can have under way. Virtual time draws it."""
    turbo: Turbo = ()
    """Busy cores of a socket, at most, and how many times as long as alone a core's own work takes
    then, since its clock falls. Virtual time minds it. Nothing: it is not known."""

    @property
    def grouped(self) -> Parameter:
        """Whether each group sends one request at a time for a line that another has (1), or all.

        All of them (0) is what is taken for granted here; virtual time draws it.
        """
        return _ONE_AT_A_TIME if self.sockets * self.groups > 1 else _NO_OTHER_GROUP

    @property
    def cpus(self) -> int:
        """How many CPUs Linux sees."""
        return self.sockets * self.cores * self.threads

    def topology(self, cpus: int) -> Topology:
        """The places of the first so many CPUs, 1 to 512, in Linux's usual order.

        That is one hardware thread of each core, socket by socket, and then the second threads. For
        more CPUs than it has it is continued by sockets of the same kind, real or not.
        """
        check_cpus(cpus)
        sockets = max(self.sockets, -(-cpus // (self.cores * self.threads)))
        core = tuple(n % (sockets * self.cores) for n in range(cpus))
        group = tuple(c * self.groups // self.cores for c in core)
        return Topology(core, group, tuple(c // self.cores for c in core))

    def shares(self, cpus: int) -> bool:
        """Whether both threads of some core are among the first so many CPUs."""
        return self.threads > 1 and cpus > self.sockets * self.cores

    def slower(self, cpus: int) -> float:
        """How many times as long as alone a core's own work takes when so many CPUs are busy."""
        where = self.topology(cpus)
        cores = Counter(socket for _, socket in set(zip(where.core, where.socket, strict=True)))
        most = max(cores.values())
        return next((times for busy, times in self.turbo if most <= busy), 1.0)


Shape = tuple[int, int, int, int]  # sockets, cores, groups, threads: see MachineModel
Priced = dict[str, tuple[float, Basis, str, float, float]]
"""Costs by name, nanoseconds (but `request`, a part), each with what a Parameter has."""

_LATENCY, _PAUSE = "viennot2022latency", "mariadb2019pause"
_NEAR = f"{_LATENCY}, bex2023mlc, plantegg2022mlc"
_FAR = f"{_NEAR}: the mean of both ways, since a line that crosses comes back"
_AS_MUCH = f"{_LATENCY} has one machine; others may be as far from it as among Cascade Lake's"
_IN_TURN = (
    "mckenney2024temporal: stores among readers take from 0.7 to 1.7 times as long with it as was "
    "measured, and with 80 ns from 1.6 to 3.6; where a core's other thread is served first, from "
    "0.5 to 1.1, and from 1.0 to 2.0"
)
_OVERLAP = (
    "acknowledgements overlap; mckenney2024temporal: nine in ten of a socket's 39 readers lose "
    "their copies within 20 ns of each other, half a nanosecond each"
)
_FIRST = (
    "mckenney2019count, tarreau2021atomic: with such a part a crowd on one word is as fast in the "
    "simulator as it was measured"
)
_CASCADE_LAKE: Priced = {
    "read_hit": (1.5, "assumed", "an L1 hit of 4 to 5 cycles at about 3 GHz", 1.0, 2.0),
    "rmw_hit": (6.0, "cited", "giesen2014atomics", 5.0, 8.0),
    "pause": (45.0, "cited", _PAUSE, 40.0, 60.0),
    "core": (7.5, "cited", _LATENCY, 7.4, 7.6),
    "near": (48.0, "cited", _NEAR, 47.0, 51.7),
    "cross": (48.0, "cited", _NEAR, 47.0, 51.7),
    "far": (135.0, "cited", _FAR, 113.0, 144.0),
    "fill": (81.0, "cited", "bex2023mlc, plantegg2022mlc", 77.9, 144.7),
    "share": (10.0, "assumed", _IN_TURN, 2.0, 25.0),
    "invalidate": (0.0, "assumed", _OVERLAP, 0.0, 2.0),
    "request": (0.1, "cited", _FIRST, 0.08, 0.25),
}
_ICE_LAKE = _CASCADE_LAKE | {
    "core": (8.1, "cited", _LATENCY, 8.1, 8.1),
    "near": (51.0, "assumed", _AS_MUCH, 50.0, 55.0),
    "cross": (51.0, "assumed", _AS_MUCH, 50.0, 55.0),
    "far": (108.0, "assumed", _AS_MUCH, 90.0, 115.0),
}
_FOUR_DIES = (
    "lam2023latency: the mean of a socket of four dies; a part of one die may be as near as Ice "
    "Lake's, and others as much farther as among Cascade Lake's"
)
_SAPPHIRE_RAPIDS = _ICE_LAKE | {
    "core": (8.1, "cited", f"{_LATENCY}, of Ice Lake; with one thread nobody sees it", 8.1, 8.1),
    "near": (59.0, "assumed", _FOUR_DIES, 50.0, 64.0),
    "cross": (59.0, "assumed", _FOUR_DIES, 50.0, 64.0),
    "far": (138.0, "cited", "lam2023latency", 138.0, 138.0),
}
_MILAN = _CASCADE_LAKE | {
    "pause": (17.0, "cited", _PAUSE, 3.0, 17.0),
    "core": (9.8, "cited", _LATENCY, 9.8, 9.8),
    "near": (23.0, "cited", _LATENCY, 23.0, 23.0),
    "cross": (107.0, "cited", _LATENCY, 90.0, 200.0),
    "far": (197.0, "cited", _LATENCY, 197.0, 197.0),
    "request": (0.1, "cited", _FIRST, 0.08, 0.4),
}
_FOUR_SOCKETS = _CASCADE_LAKE | {
    "far": (135.0, "assumed", "two sockets' latency, cited, up to one more hop", 113.0, 200.0)
}
_MORE_CORES = _ICE_LAKE | {
    "near": (51.0, "assumed", "cited for 32 cores a socket; more cores are farther", 51, 70),
    "cross": (51.0, "assumed", "as near", 51, 70),
    "far": (108.0, "assumed", "cited for 32 cores a socket", 108, 150),
}
_CONFIGURED = Parameter("cited", "linux2026pmuevents", 0.0, 1.0)
_TWICE = "a turn of load and compare-and-exchange is two of the exchange alone"
_LEFT = Parameter(
    "cited",
    f"mckenney2020cachetorture, tarreau2021atomic: {_TWICE}, on Skylake, whose caches these have",
    0.0,
    0.0,
)
_LEFT_BY_MILAN = Parameter(
    "cited", f"tarreau2021atomic: {_TWICE}, between groups of such a processor", 0.0, 0.0
)
_ONE_AT_A_TIME = Parameter("assumed", "crowds that others measured fit neither better", 0.0, 1.0)
_NO_OTHER_GROUP = Parameter("assumed", "there is one group", 0.0, 0.0)
_EARLY = Parameter("cited", "llvm2017skylake", 0.0, 224.0)
_EARLY_BY_MILAN = Parameter("cited", "llvm2021znver", 0.0, 256.0)
_EARLY_BY_SAPPHIRE_RAPIDS = Parameter("cited", "llvm2023sapphirerapids", 0.0, 512.0)
_MORE_UNDER_WAY = Parameter(
    "assumed", "later than Skylake's, of 224, and up to half as many again", 0.0, 336.0
)
# zhu2022frequency: 3.5 GHz with two busy cores of 20, 2.9 with all
_FALLING = tuple((n, 35 / x) for n, x in ((2, 35), (4, 33), (12, 32), (16, 31), (28, 29)))


def _machine(
    name: str,
    title: str,
    shape: Shape,
    priced: Priced,
    take: Parameter = _CONFIGURED,
    early: Parameter = _MORE_UNDER_WAY,
    turbo: Turbo = (),
) -> MachineModel:
    costs = Costs(**{cost: row[0] for cost, row in priced.items()})
    parameters = {cost: Parameter(*row[1:]) for cost, row in priced.items()}
    return MachineModel(name, title, *shape, costs, parameters, take, early, turbo)


_TITLES = {
    "1x24": "one socket of 24 cores, Ice Lake's latencies: a box that is not named",
    "1x24-spr": "one socket of 24 cores, Sapphire Rapids",
    "2x16-smt": "two sockets of 16 cores with 2 threads, Ice Lake: the kernel test robot's machine",
    "2x20-smt": "two sockets of 20 cores with 2 threads, 80 CPUs, Cascade Lake",
    "2x24-smt": "two sockets of 24 cores with 2 threads, 96 CPUs, Cascade Lake",
    "4x20-smt": "four sockets of 20 cores with 2 threads, 160 CPUs, Cascade Lake, all sockets "
    "linked",
    "2x48-smt": "two sockets of 48 cores with 2 threads, 192 CPUs, in groups of 8 cores: EPYC 7R13",
    "2x48-smt-intel": "two sockets of 48 cores with 2 threads, 192 CPUs, one group a socket, Ice "
    "Lake",
    "2x128": "two sockets of 128 cores, 256 CPUs: the kernel test robot's Sierra Forest, at Ice "
    "Lake's latencies",
}
_BUILT: dict[str, tuple[Any, ...]] = {  # as `_machine` takes them
    "1x24": ((1, 24, 1, 1), _ICE_LAKE),
    "1x24-spr": (
        (1, 24, 1, 1),
        _SAPPHIRE_RAPIDS,
        _CONFIGURED,
        _EARLY_BY_SAPPHIRE_RAPIDS,
    ),
    "2x16-smt": ((2, 16, 1, 2), _ICE_LAKE),
    "2x20-smt": ((2, 20, 1, 2), _CASCADE_LAKE, _LEFT, _EARLY, _FALLING),
    "2x24-smt": ((2, 24, 1, 2), _CASCADE_LAKE, _LEFT, _EARLY, _FALLING),
    "4x20-smt": ((4, 20, 1, 2), _FOUR_SOCKETS, _LEFT, _EARLY, _FALLING),
    "2x48-smt": ((2, 48, 6, 2), _MILAN, _LEFT_BY_MILAN, _EARLY_BY_MILAN),
    "2x48-smt-intel": ((2, 48, 1, 2), _MORE_CORES),
    "2x128": ((2, 128, 1, 1), _MORE_CORES),
}
_NAMED = {name: _machine(name, _TITLES[name], *how) for name, how in _BUILT.items()}
HERE = "here"


def names() -> tuple[str, ...]:
    """The machines that `get` knows."""
    return (HERE, *_NAMED)


def get(name: str) -> MachineModel:
    """The machine of that name, see `here` for "here"; raises UsageError if there is none."""
    if name == HERE:
        return here()
    if name not in _NAMED:
        raise UsageError(f"no machine {name!r}; choose one of: {', '.join(names())}")
    return _NAMED[name]


def here() -> MachineModel:
    """The machine of the reference runs as far as they tell: all its CPUs are one socket's cores.

    A hand-over of the ping-pong is two steps, fetching the line to see the other's turn and
    fetching it again, now alone, to write one's own; so `near` is half of it. How long an owner
    goes on with a line that somebody asked for is taken from two threads that add to one counter:
    that is measured apart from every case that is then predicted. Raises ContendedError without
    these records.
    """
    handover, atomics = recorded("pingpong/handover"), recorded("measuring/atomics")
    turns = [v for pair in handover.variants for v in handover.values(pair)]
    near = stats.median(turns) / 2
    alone = 1e9 / stats.median(atomics.values("shared", threads=1))
    rates = atomics.values("shared", threads=2)
    # In the time of one transfer the owner makes so many operations: one when the line comes, one
    # that it has begun before the next request arrives, and what fits in between.
    visit = near / (1e9 / stats.median(rates)) if rates else 1.0
    request = min(0.5, max(0.02, (visit - 2) * alone / near))
    spread = min(turns) / 2, max(turns) / 2
    measured: Priced = {
        name: (value, "measured", f"{how} (recorded reference run)", *ends)
        for name, value, how, ends in (
            ("near", near, "half a hand-over of the ping-pong", spread),
            ("rmw_hit", alone, "one thread adding to a counter", (alone, alone)),
            ("request", request, "two threads adding to a counter", (request, request)),
        )
    }
    # what was not measured is taken to be as near, at the ranges of the machine most like this
    unknown = {"cross": near, "core": near, "far": near, "fill": near, "read_hit": 1.0}
    ranges: Priced = {name: (value, *_MILAN[name][1:]) for name, value in unknown.items()}
    priced = _MILAN | ranges | measured
    return _machine(HERE, "this machine, continued as one socket", (1, MAX_CPUS, 1, 1), priced)


def recorded(name: str) -> Measurement:
    """The reference run `results/NAME.json`; raises ContendedError if there is none."""
    path = tree.home() / "results" / f"{name}.json"
    if not path.exists():
        raise ContendedError(f"machine 'here' needs the recorded run results/{name}.json")
    return results.load(path)
