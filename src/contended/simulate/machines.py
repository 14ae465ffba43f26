# SPDX-License-Identifier: MIT
"""Machines to simulate: how their CPUs lie, what a cache line costs between them, and who says so.

Each parameter carries its source: "measured" on this machine, "cited" (the key is one of SOURCES),
or "assumed", which always comes with a range, and `predict` runs that range through. No
parameter was fitted to a number that a simulation is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from contended import stats, tree
from contended.errors import ContendedError, UsageError
from contended.measure import results
from contended.measure.results import Measurement
from contended.simulate.caches import Costs, Topology
from contended.simulate.program import MAX_CPUS, check_cpus

Basis = Literal["measured", "cited", "assumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A public place where a number stands: its key, its title and its address."""

    key: str
    title: str
    url: str


SOURCES = {
    source.key: source
    for source in (
        Source(
            key="viennot2022latency",
            title="N. Viennot and others, core-to-core-latency: compare-and-exchange between two "
            "pinned threads, median over pairs",
            url="https://github.com/nviennot/core-to-core-latency",
        ),
        Source(
            key="bex2023mlc",
            title="G. J. Bex, Code-optimization, info/cascadelake_mlc.txt: output of Intel's "
            "Memory Latency Checker 3.10 on two Cascade Lake sockets",
            url="https://github.com/gjbex/Code-optimization/blob/main/info/cascadelake_mlc.txt",
        ),
        Source(
            key="mariadb2019pause",
            title="M. Mäkelä, MariaDB commit 042fc29597, Adaptive spin loops: PAUSE takes about "
            "140 cycles since Skylake, 10 or 50 on AMD",
            url="https://github.com/MariaDB/server/commit/042fc29597",
        ),
        Source(
            key="giesen2014atomics",
            title="F. Giesen and contributors, atomic_ops_test: cmpxchg and xadd of an owned line "
            "take 17 to 21 cycles",
            url="https://gist.github.com/rygorous/153ea6493ce2efabd41c",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Where one of a machine's costs comes from.

    Attributes:
        basis: "measured", "cited" or "assumed".
        source: A key of SOURCES, or in words what was measured or why it is assumed.
        low: Lower end of what it could as well be, in the unit of the cost (ns; request: a part).
        high: Upper end.
    """

    basis: Basis
    source: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """CPUs and their costs.

    Attributes:
        name: As `--machine` takes it.
        title: In words.
        sockets: How many.
        cores: In each socket.
        groups: Parts of a socket with a last-level cache of their own.
        threads: Hardware threads in each core.
        costs: What things take, nanoseconds.
        parameters: By the name of the cost: where it comes from.
    """

    name: str
    title: str
    sockets: int
    cores: int
    groups: int
    threads: int
    costs: Costs
    parameters: Mapping[str, Parameter]

    @property
    def cpus(self) -> int:
        """How many CPUs Linux sees."""
        return self.sockets * self.cores * self.threads

    def topology(self, cpus: int) -> Topology:
        """The places of the first so many CPUs, in Linux's usual order.

        One hardware thread of each core of the first socket, of the second, and so on, and then the
        second threads in the same order. For more CPUs than it has the machine is continued by
        sockets of the same kind, which no such machine may exist of.

        Raises:
            UsageError: not 1 to 512 CPUs.
        """
        check_cpus(cpus)
        each = self.cores * self.threads
        sockets = max(self.sockets, -(-cpus // each))
        wide = sockets * self.cores
        core = [n % wide for n in range(cpus)]
        return Topology(
            core=tuple(core),
            group=tuple(c * self.groups // self.cores for c in core),
            socket=tuple(c // self.cores for c in core),
        )

    def with_cost(self, name: str, value: float) -> Machine:
        """The same machine with another cost: what a sensitivity sweep is made of."""
        return replace(self, costs=replace(self.costs, **{name: value}))


def _cited(key: str, low: float, high: float) -> Parameter:
    assert key in SOURCES
    return Parameter(basis="cited", source=key, low=low, high=high)


def _assumed(why: str, low: float, high: float) -> Parameter:
    return Parameter(basis="assumed", source=why, low=low, high=high)


_SHARE = _assumed("readers of one shared line are served in turn, faster than transfers", 2.0, 25.0)
_REQUEST = _assumed("a request reaches the owner within the first part of the way", 0.02, 0.5)
_INVALIDATE = _assumed("acknowledgements overlap, so that their number hardly matters", 0.0, 2.0)
_READ_HIT = _assumed("an L1 hit of 4 to 5 cycles at about 3 GHz", 1.0, 2.0)
_RMW = _cited("giesen2014atomics", 5.0, 8.0)

_CASCADE_LAKE = Costs(
    read_hit=1.5,
    rmw_hit=6.0,
    pause=45.0,
    core=7.5,
    near=48.0,
    cross=48.0,
    far=135.0,
    fill=81.0,
    share=10.0,
    invalidate=0.0,
    request=0.1,
)
_CASCADE_LAKE_FROM = {
    "read_hit": _READ_HIT,
    "rmw_hit": _RMW,
    "pause": _cited("mariadb2019pause", 40.0, 60.0),
    "core": _cited("viennot2022latency", 7.4, 7.6),
    "near": _cited("viennot2022latency", 47.0, 49.3),
    "cross": _cited("viennot2022latency", 47.0, 49.3),
    "far": _cited("viennot2022latency", 113.0, 136.0),
    "fill": _cited("bex2023mlc", 80.8, 141.6),
    "share": _SHARE,
    "invalidate": _INVALIDATE,
    "request": _REQUEST,
}
_ICE_LAKE = replace(_CASCADE_LAKE, core=8.1, near=51.0, cross=51.0, far=108.0)
_ICE_LAKE_FROM = {
    **_CASCADE_LAKE_FROM,
    "core": _cited("viennot2022latency", 8.1, 8.1),
    "near": _cited("viennot2022latency", 51.0, 51.0),
    "cross": _cited("viennot2022latency", 51.0, 51.0),
    "far": _cited("viennot2022latency", 108.0, 108.0),
}
_MILAN = replace(_CASCADE_LAKE, pause=17.0, core=9.8, near=23.0, cross=107.0, far=197.0)
_MILAN_FROM = {
    **_CASCADE_LAKE_FROM,
    "pause": _cited("mariadb2019pause", 3.0, 17.0),
    "core": _cited("viennot2022latency", 9.8, 9.8),
    "near": _cited("viennot2022latency", 23.0, 23.0),
    "cross": _cited("viennot2022latency", 90.0, 200.0),
    "far": _cited("viennot2022latency", 197.0, 197.0),
}


def _machine(
    name: str,
    title: str,
    shape: tuple[int, int, int, int],
    costs: Costs,
    parameters: Mapping[str, Parameter],
) -> Machine:
    sockets, cores, groups, threads = shape
    return Machine(
        name=name,
        title=title,
        sockets=sockets,
        cores=cores,
        groups=groups,
        threads=threads,
        costs=costs,
        parameters=parameters,
    )


_NAMED = {
    machine.name: machine
    for machine in (
        _machine(
            "1x24",
            "one socket of 24 cores, Ice Lake's latencies: a test box as in the lockref reports",
            (1, 24, 1, 1),
            _ICE_LAKE,
            _ICE_LAKE_FROM,
        ),
        _machine(
            "2x16-smt",
            "two sockets of 16 cores with 2 threads, Ice Lake: the kernel test robot's machine",
            (2, 16, 1, 2),
            _ICE_LAKE,
            _ICE_LAKE_FROM,
        ),
        _machine(
            "2x20-smt",
            "two sockets of 20 cores with 2 threads, 80 CPUs, Cascade Lake",
            (2, 20, 1, 2),
            _CASCADE_LAKE,
            _CASCADE_LAKE_FROM,
        ),
        _machine(
            "4x20-smt",
            "four sockets of 20 cores with 2 threads, 160 CPUs, Cascade Lake, all sockets linked",
            (4, 20, 1, 2),
            _CASCADE_LAKE,
            {
                **_CASCADE_LAKE_FROM,
                "far": _assumed("two sockets' latency, cited, up to one more hop", 113.0, 200.0),
            },
        ),
        _machine(
            "2x48-smt",
            "two sockets of 48 cores with 2 threads, 192 CPUs, in groups of 8 cores: EPYC 7R13",
            (2, 48, 6, 2),
            _MILAN,
            _MILAN_FROM,
        ),
        _machine(
            "2x48-smt-intel",
            "two sockets of 48 cores with 2 threads, 192 CPUs, one group a socket, Ice Lake",
            (2, 48, 1, 2),
            _ICE_LAKE,
            {
                **_ICE_LAKE_FROM,
                "near": _assumed("cited for 32 cores a socket; more cores are farther", 51, 70),
                "cross": _assumed("as near", 51, 70),
                "far": _assumed("cited for 32 cores a socket", 108, 150),
            },
        ),
    )
}
HERE = "here"


def names() -> tuple[str, ...]:
    """The machines that `get` knows."""
    return (HERE, *_NAMED)


def get(name: str) -> Machine:
    """The machine of that name; "here" is made from the recorded ping-pong of the reference runs.

    Raises:
        UsageError: there is none; the message lists those there are.
    """
    if name == HERE:
        return here()
    if name not in _NAMED:
        raise UsageError(f"no machine {name!r}; choose one of: {', '.join(names())}")
    return _NAMED[name]


def here(
    handover: Measurement | None = None,
    atomics: Measurement | None = None,
) -> Machine:
    """This machine as far as three measurements tell: all its CPUs are one socket's cores.

    A hand-over of the ping-pong is two steps, fetching the line to see the other's turn and
    fetching it again, now alone, to write one's own; so `near` is half of it. How long an owner
    goes on with a line that somebody asked for is taken from two threads that add to one counter:
    that is measured apart from every case that is then predicted.

    Args:
        handover: What `contended.measure.pingpong` measured; default the recorded reference run.
        atomics: The model "measuring", variant shared, at 1 and 2 threads; default recorded.

    Raises:
        ContendedError: there is no such record.
    """
    old = handover is None
    handover = handover or recorded("pingpong/handover")
    atomics = atomics or recorded("measuring/atomics")
    turn = stats.median([v for pair in handover.variants for v in handover.values(pair)])
    alone = 1e9 / stats.median(atomics.values("shared", threads=1))
    near = turn / 2
    rates = atomics.values("shared", threads=2)
    # In the time of one transfer and its write the owner makes so many operations: one when the
    # line comes, one that it has begun before the next request arrives, and what fits in between.
    visit = (near + alone) / (1e9 / stats.median(rates)) if rates else 1.0
    request = min(0.5, max(0.02, (visit - 2) * alone / near))
    run = "recorded reference run" if old else "measured now"
    measured = {
        "near": (near, f"half a hand-over of the ping-pong ({run})"),
        "rmw_hit": (alone, f"one thread adding to a counter ({run})"),
        "request": (request, f"two threads adding to a counter ({run})"),
    }
    costs = replace(
        _CASCADE_LAKE,
        near=near,
        cross=near,
        core=near,
        far=near,
        rmw_hit=alone,
        request=request,
        pause=17.0,
        read_hit=1.0,
        fill=near,
    )
    spread = [v / 2 for pair in handover.variants for v in handover.values(pair)]
    parameters = {
        **_MILAN_FROM,
        **{
            name: Parameter(basis="measured", source=how, low=value, high=value)
            for name, (value, how) in measured.items()
        },
        "near": Parameter(
            basis="measured", source=measured["near"][1], low=min(spread), high=max(spread)
        ),
    }
    return Machine(
        name=HERE,
        title="this machine, continued as one socket",
        sockets=1,
        cores=MAX_CPUS,
        groups=1,
        threads=1,
        costs=costs,
        parameters=parameters,
    )


def recorded(name: str) -> Measurement:
    """The recorded reference run `results/NAME.json`.

    Raises:
        ContendedError: there is none.
    """
    path: Path = tree.home() / "results" / f"{name}.json"
    if not path.exists():
        raise ContendedError(f"machine 'here' needs the recorded run results/{name}.json")
    return results.load(path)
