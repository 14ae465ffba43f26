# SPDX-License-Identifier: MIT
"""What speaks to a published figure: probes that read one number out of a run.

A figure has evidence from a model in userspace, from the kernel lab, or from both; where it has
none, it says why. A probe names a run and what to read from it, never a number. Where its number is
the published quantity itself, in the same unit, `of` names the published value and the two are
compared; other probes show the mechanism at this machine's size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from contended import stats
from contended.errors import ContendedError
from contended.kernel import chapter
from contended.kernel.record import KernelRun
from contended.measure import results
from contended.measure.results import Measurement, number
from contended.profile import saved
from contended.show import lesson

PREDICTED = "predicted-and-published"
BEYOND = "beyond-this-machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One number beside a published one.

    Attributes:
        what: In words.
        value: The number.
        text: As it is shown, with its unit and, where it has one, its interval.
        of: The published value that it can be compared with; empty if it shows the mechanism only.
        source: The file that it was read from, below the tree's root.
        live: Whether that was measured when the book was built, not on another occasion.
    """

    what: str
    value: float
    text: str
    of: str
    source: str
    live: bool


@dataclass
class Runs:
    """The runs of one case.

    Attributes:
        slug: The case.
        fresh: The folder of what was measured when the book was built; None to leave it out.
    """

    slug: str
    fresh: Path | None = None
    _known: dict[str, tuple[Measurement, str, bool]] = field(default_factory=dict)

    def read(self, probe: Probe) -> Reading:
        """What a probe asks for.

        Raises:
            ContendedError: there is no such run, variant or counter; the message names the probe.
        """
        try:
            value, text, source, live = probe.seen(self)
        except (KeyError, ValueError, IndexError, ZeroDivisionError) as error:
            raise ContendedError(
                f"the scoreboard's probe {probe.what!r} of {self.slug} finds no number: {error!r}"
            ) from error
        return Reading(
            what=probe.what, value=value, text=text, of=probe.of, source=source, live=live
        )

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

    @property
    def kernel_source(self) -> str:
        """Where they are, below the tree's root."""
        return f"results/{self.slug}/kernel.json"


Seen = tuple[float, str, str, bool]
"""A number, as it is shown, where it was found, and whether this build made it."""


@dataclass(frozen=True)
class Probe:
    """What to read from a run.

    Attributes:
        what: In words.
        of: The published value that it can be compared with, if there is one.
    """

    what: str
    of: str = field(default="", kw_only=True)

    def seen(self, runs: Runs) -> Seen:
        """Read it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Ratio(Probe):
    """Throughput over throughput, repeat by repeat.

    Attributes:
        run: The measurement's label: `results/<slug>/<run>.json`.
        top: Variant and phase.
        base: Variant and phase.
        threads: How many.
    """

    run: str
    top: tuple[str, str]
    base: tuple[str, str]
    threads: int = 2

    def seen(self, runs: Runs) -> Seen:
        """See `Probe`."""
        run, source, live = runs.run(self.run)
        top, base = (
            run.values(variant, threads=self.threads, phase=phase)
            for variant, phase in (self.top, self.base)
        )
        found = stats.paired_ratio(top, base)
        text = f"{number(found.median, 3)} ({number(found.low, 3)} to {number(found.high, 3)})"
        return found.median, text, source, live


@dataclass(frozen=True)
class Share(Probe):
    """What part of the counters `among` is `counter`."""

    run: str
    variant: str
    counter: str
    among: tuple[str, ...]
    phase: str
    threads: int = 2

    def seen(self, runs: Runs) -> Seen:
        """See `Probe`."""
        run, source, live = runs.run(self.run)
        value = 100 * run.share(
            self.variant, self.counter, self.among, threads=self.threads, phase=self.phase
        )
        return value, f"{_short(value)} %", source, live


@dataclass(frozen=True)
class Count(Probe):
    """A counter, for each operation."""

    run: str
    variant: str
    counter: str
    threads: int = 1

    def seen(self, runs: Runs) -> Seen:
        """See `Probe`."""
        run, source, live = runs.run(self.run)
        counted, ops = (
            run.count(self.variant, name, threads=self.threads) for name in (self.counter, "ops")
        )
        return counted / ops, _short(counted / ops), source, live


@dataclass(frozen=True)
class Wait(Probe):
    """The median of what the model timed itself, in milliseconds."""

    run: str
    variant: str
    threads: int = 2

    def seen(self, runs: Runs) -> Seen:
        """See `Probe`."""
        run, source, live = runs.run(self.run)
        samples = run.samples(self.variant, threads=self.threads)
        value = stats.median([sample.latency_ns["p50"] for sample in samples]) / 1e6
        return value, _time(value), source, live


@dataclass(frozen=True)
class Slope(Probe):
    """The exponent of counters, summed, over runs `<prefix>-<size>`."""

    prefix: str
    variant: str
    counters: tuple[str, ...]

    def seen(self, runs: Runs) -> Seen:
        """See `Probe`."""
        sizes, counted, source, live = [], [], "", True
        folder = lesson.reference(f"{runs.slug}/x").parent
        for path in sorted(folder.glob(f"{self.prefix}-*.json")):
            run, found, now = runs.run(path.stem)
            live = live and now
            source = str(Path(found).with_name(f"{self.prefix}-*.json"))
            sizes.append(int(path.stem.rpartition("-")[2]))
            ops = run.count(self.variant, "ops")
            counted.append(sum(run.count(self.variant, c) for c in self.counters) / ops)
        exponent = stats.loglog_slope(sizes, counted).estimate
        return exponent, number(exponent, 3), source, live


@dataclass(frozen=True)
class Chains(Probe):
    """How many chains there must be if a lookup takes as many steps as it does.

    With N mounts on c even chains, 1 + (N - 1) / 2c.
    """

    run: str
    variant: str

    def seen(self, runs: Runs) -> Seen:
        """See `Probe`."""
        run, source, live = runs.run(self.run)
        steps = run.count(self.variant, "steps") / run.count(self.variant, "ops")
        value = (run.params["mounts"] - 1) / (2 * (steps - 1))
        return value, f"{number(value, 3)} ({number(steps, 3)} steps)", source, live


@dataclass(frozen=True)
class Lab(Probe):
    """What an outcome of the case's kernels saw.

    Attributes:
        variant: The kernel.
        metric: The outcome's.
        run: Of the case's file; None takes the first that looks at the metric.
        percent: Whether to show it as a percentage.
        pattern: For an outcome about text: a regular expression whose group is the number.
    """

    variant: str
    metric: str
    run: str | None = None
    percent: bool = False
    pattern: str = ""

    def seen(self, runs: Runs) -> Seen:
        """See `Probe`."""
        if not self.pattern:
            value = runs.kernel.seen(self.variant, self.metric, self.run)
            text = f"{_short(100 * value)} %" if self.percent else _short(value)
            return value, text, runs.kernel_source, False
        for outcome in runs.kernel.outcomes:
            if (outcome.variant, outcome.metric) == (self.variant, self.metric):
                found = re.search(self.pattern, str(outcome.seen))
                if found:
                    return float(found[1]), found[1], runs.kernel_source, False
        raise ValueError(f"no {self.pattern!r} in {self.metric} of {self.variant}")


@dataclass(frozen=True)
class LabWait(Probe):
    """The median wait in a run of the kernel lab, in milliseconds."""

    variant: str
    run: str
    label: str

    def seen(self, runs: Runs) -> Seen:
        """See `Probe`."""
        results = runs.kernel.results(self.variant, self.run, self.label)
        value = stats.median([result["latency_ns"]["p50"] for result in results]) / 1e6
        return value, _time(value), runs.kernel_source, False


@dataclass(frozen=True)
class Lines(Probe):
    """HITM per operation at the instructions of one kernel function, from a recorded profile."""

    profile: str
    variant: str
    symbol: str

    def seen(self, runs: Runs) -> Seen:
        """See `Probe`."""
        path = lesson.reference(f"{runs.slug}/{self.profile}")
        profile = saved.load(path).of(self.variant, None)
        moved = sum(s.counts.hitm for _, s in profile.sites() if s.symbol == self.symbol)
        value = profile.per_op(moved)
        return value, number(value, 3), f"results/{runs.slug}/{self.profile}.json", False


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that speaks to one figure.

    Attributes:
        userspace: From the C model; if empty, `no_userspace` says why.
        kernel: From the kernel lab; if empty, `no_kernel` says why.
        note: What to keep in mind when comparing; one or two sentences.
        section: Id of the chapter's section that discusses it.
    """

    userspace: tuple[Probe, ...] = ()
    kernel: tuple[Probe, ...] = ()
    note: str
    section: str = PREDICTED
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


def _time(ms: float) -> str:
    return f"{number(ms, 3)} ms" if ms >= 0.1 else f"{number(1000 * ms, 3)} µs"
