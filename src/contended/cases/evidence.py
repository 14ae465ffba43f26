# SPDX-License-Identifier: MIT
"""What speaks to a published figure: probes that read one number out of a run.

A figure has evidence from a model in userspace, from the kernel lab, or from both, or says why not.
A probe names a run and what to read from it, never a number. Where its number is the published
quantity itself, in the same unit, `of` names the published value and the two are compared; other
probes show the mechanism at this machine's size. What the real kernel did in virtual time, at the
published size, is read by `contended.cases.timed`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Concatenate, ParamSpec

from contended import stats
from contended.cases.timed import Time
from contended.errors import ContendedError
from contended.kernel import chapter
from contended.kernel.record import KernelRun
from contended.measure import results
from contended.measure.results import Measurement, number
from contended.profile import saved
from contended.show import lesson


@dataclass(frozen=True, slots=True)
class Reading:
    """One number beside a published one."""

    what: str  #: in words
    value: float
    text: str  #: as it is shown, with its unit and, where it has one, its interval
    of: str  #: the published value to compare it with; "" if it shows the mechanism only
    source: str  #: the file that it was read from, below the tree's root
    live: bool  #: whether it was measured when the book was built, not on another occasion
    given: bool = False  #: whether it is what was put in, which agrees with itself


@dataclass
class Runs:
    """The runs of one case; those in `fresh` were measured when the book was built."""

    slug: str
    fresh: Path | None = None
    _known: dict[str, tuple[Measurement, str, bool]] = field(default_factory=dict)

    def read(self, probe: RunProbe) -> Reading:
        """What a probe asks for; raises ContendedError if there is no such number."""
        try:
            value, text, source, live = probe.read(self)
        except (KeyError, ValueError, IndexError, ZeroDivisionError) as error:
            raise ContendedError(
                f"the scoreboard's probe {probe.what!r} of {self.slug} finds no number: {error!r}"
            ) from error
        return Reading(probe.what, value, text, probe.of, source, live, probe.given)

    def run(self, label: str) -> tuple[Measurement, str, bool]:
        """A measurement, where it was found, and whether this build made it."""
        if label not in self._known:
            name = f"{self.slug}/{label}"
            own = None if self.fresh is None else self.fresh / f"{name}.json"
            if own is not None and own.is_file():
                self._known[label] = results.load(own), f"{name}.json", True
            else:
                self._known[label] = lesson.recorded(name), f"results/{name}.json", False
        return self._known[label]

    @cached_property
    def kernel(self) -> KernelRun:
        """The recorded runs of the case's kernels."""
        return chapter.recorded(self.slug)


Number = tuple[float, str]
"""A number, and as it is shown."""
Seen = tuple[float, str, str, bool]
"""The same, where it was found, and whether this build made it."""
Read = Callable[[Runs], Seen]
P = ParamSpec("P")


@dataclass(frozen=True)
class RunProbe:
    """What to read from a run, in words, and how; it may compare with a published value.

    A value that is `given` went into the run, and comes out again.
    """

    what: str
    read: Read
    of: str = ""
    given: bool = False


def _measured(
    number_of: Callable[Concatenate[Measurement, P], Number],
) -> Callable[Concatenate[str, P], Read]:
    """Let a number of a measurement be read from the run of a label."""

    def labelled(label: str, /, *args: P.args, **options: P.kwargs) -> Read:
        def read(runs: Runs) -> Seen:
            run, source, live = runs.run(label)
            return *number_of(run, *args, **options), source, live

        return read

    return labelled


@_measured
def ratio(
    run: Measurement,
    variant: str,
    phase: str = "run",
    base: tuple[str, str] = ("before", "run"),
) -> Number:
    """Throughput of two threads over that of `base`, a variant and a phase, repeat by repeat."""
    sides = (variant, phase), base
    found = stats.paired_ratio(*(run.values(name, threads=2, phase=at) for name, at in sides))
    text = f"{number(found.median, 3)} ({number(found.low, 3)} to {number(found.high, 3)})"
    return found.median, text


@_measured
def share(
    run: Measurement, variant: str, counter: str, among: tuple[str, ...], phase: str
) -> Number:
    """What part of the counters `among` is `counter`, of two threads."""
    percent = 100 * run.share(variant, counter, among, threads=2, phase=phase)
    return percent, f"{_short(percent)} %"


@_measured
def count(run: Measurement, variant: str, counter: str) -> Number:
    """A counter, for each operation of one thread."""
    value = run.count(variant, counter, threads=1) / run.count(variant, "ops", threads=1)
    return value, _short(value)


@_measured
def wait(run: Measurement, variant: str) -> Number:
    """The median of what the model timed itself, with two threads, in milliseconds."""
    return _median_ms([sample.latency_ns for sample in run.samples(variant, threads=2)])


@_measured
def chains(run: Measurement, variant: str) -> Number:
    """How many chains there must be if a lookup takes as many steps as it does.

    With N mounts on c even chains, 1 + (N - 1) / 2c.
    """
    steps = run.count(variant, "steps") / run.count(variant, "ops")
    value = (run.params["mounts"] - 1) / (2 * (steps - 1))
    return value, f"{number(value, 3)} ({number(steps, 3)} steps)"


def slope(prefix: str, variant: str, *counters: str) -> Read:
    """The exponent of counters, summed, over runs `<prefix>-<size>`."""

    def read(runs: Runs) -> Seen:
        sizes, counted, source, live = [], [], "", True
        folder = lesson.reference(f"{runs.slug}/x").parent
        for path in sorted(folder.glob(f"{prefix}-*.json")):
            run, found, now = runs.run(path.stem)
            live = live and now
            source = str(Path(found).with_name(f"{prefix}-*.json"))
            sizes.append(int(path.stem.rpartition("-")[2]))
            counted.append(sum(run.count(variant, c) for c in counters) / run.count(variant, "ops"))
        exponent = stats.loglog_slope(sizes, counted).estimate
        return exponent, number(exponent, 3), source, live

    return read


def _in_lab(number_of: Callable[Concatenate[KernelRun, P], Number]) -> Callable[P, Read]:
    """Let a number of the recorded runs of kernels be read from the case's."""

    def reading(*args: P.args, **options: P.kwargs) -> Read:
        return lambda runs: (
            *number_of(runs.kernel, *args, **options),
            f"results/{runs.slug}/kernel.json",
            False,
        )

    return reading


@_in_lab
def lab(
    kernels: KernelRun, variant: str, metric: str, run: str | None = None, *, percent: bool = False
) -> Number:
    """What an outcome of the case's kernels saw, the first such or a run's."""
    value = kernels.seen(variant, metric, run)
    return value, f"{_short(100 * value)} %" if percent else _short(value)


@_in_lab
def lab_text(kernels: KernelRun, variant: str, metric: str, pattern: str) -> Number:
    """The group of a regular expression in the text that an outcome saw."""
    for outcome in kernels.outcomes:
        found = re.search(pattern, str(outcome.seen))
        if found and (outcome.variant, outcome.metric) == (variant, metric):
            return float(found[1]), found[1]
    raise ValueError(f"no {pattern!r} in {metric} of {variant}")


@_in_lab
def lab_wait(kernels: KernelRun, variant: str, run: str, label: str) -> Number:
    """The median wait in a run of the kernel lab, in milliseconds."""
    return _median_ms([result["latency_ns"] for result in kernels.results(variant, run, label)])


def hitm(name: str, variant: str, symbol: str) -> Read:
    """HITM per operation at the instructions of one kernel function, from a recorded profile."""

    def read(runs: Runs) -> Seen:
        profile = saved.load(lesson.reference(f"{runs.slug}/{name}")).of(variant, None)
        moved = sum(s.counts.hitm for _, s in profile.sites() if s.symbol == symbol)
        value = profile.per_op(moved)
        return value, number(value, 3), f"results/{runs.slug}/{name}.json", False

    return read


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that speaks to one figure."""

    userspace: tuple[RunProbe, ...] = ()  # from the C model; if empty, `no_userspace` says why
    kernel: tuple[RunProbe, ...] = ()  # from the kernel lab; if empty, `no_kernel` says why
    timed: tuple[Time, ...] = ()  # from the real kernel in virtual time, as far as it was timed
    note: str  # what to keep in mind when comparing; one or two sentences
    section: str = "beyond-this-machine"  # id of the chapter's section that discusses it
    no_userspace: str = ""
    no_kernel: str = ""


NONE = Evidence(
    no_userspace="No measurement has been put beside this figure.",
    no_kernel="No run of the lab has been put beside this figure.",
    note="Nothing here speaks to this figure yet.",
    section="",
)
"""Of a figure that nobody has put anything beside."""


def _short(value: float) -> str:
    """Counts to the last digit, quotients to three, and next to nothing as zero."""
    if value == round(value):
        return f"{value:,.0f}"
    return "below 0.001" if 0 < value < 0.001 else number(value, 3)


def _median_ms(waits: Sequence[Mapping[str, float]]) -> Number:
    ms = stats.median([wait["p50"] for wait in waits]) / 1e6
    return ms, f"{number(ms, 3)} ms" if ms >= 0.1 else f"{number(1000 * ms, 3)} µs"
