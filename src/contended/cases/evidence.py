# SPDX-License-Identifier: MIT
"""What speaks to a published figure: probes that read one number out of a run.

A figure has evidence from a model in userspace, from the kernel lab, or from both; where it has
none, it says why. A probe names a run and what to read from it, never a number. Where its number is
the published quantity itself, in the same unit, `of` names the published value and the two are
compared; other probes show the mechanism at this machine's size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    """The runs of one case; those in `fresh` were measured when the book was built."""

    slug: str
    fresh: Path | None = None
    _known: dict[str, tuple[Measurement, str, bool]] = field(default_factory=dict)

    def read(self, probe: RunProbe) -> Reading:
        """What a probe asks for; raises ContendedError if there is no such number."""
        try:
            value, text, source, live = probe._seen(self)
        except (KeyError, ValueError, IndexError, ZeroDivisionError) as error:
            raise ContendedError(
                f"the scoreboard's probe {probe.what!r} of {self.slug} finds no number: {error!r}"
            ) from error
        what, of = probe.what, probe.of
        return Reading(what=what, value=value, text=text, of=of, source=source, live=live)

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
"""A number, as it is shown, where it was found, and whether this build made it."""


@dataclass(frozen=True)
class RunProbe:
    """What to read from a run, in words, and the published value that it compares with, if any."""

    what: str
    of: str = field(default="", kw_only=True)

    def _seen(self, runs: Runs) -> Seen:
        raise NotImplementedError


@dataclass(frozen=True)
class _ModelProbe(RunProbe):
    """What to read of a variant from the measurement `results/<slug>/<run>.json`."""

    run: str
    variant: str

    def _seen(self, runs: Runs) -> Seen:
        run, source, live = runs.run(self.run)
        return *self._number(run), source, live

    def _number(self, run: Measurement) -> Number:
        raise NotImplementedError


@dataclass(frozen=True)
class Ratio(_ModelProbe):
    """Throughput of two threads over that of `base`, a variant and a phase, repeat by repeat."""

    phase: str = "run"
    base: tuple[str, str] = ("before", "run")

    def _number(self, run: Measurement) -> Number:
        sides = (self.variant, self.phase), self.base
        top, base = (run.values(variant, threads=2, phase=phase) for variant, phase in sides)
        found = stats.paired_ratio(top, base)
        text = f"{number(found.median, 3)} ({number(found.low, 3)} to {number(found.high, 3)})"
        return found.median, text


@dataclass(frozen=True)
class Share(_ModelProbe):
    """What part of the counters `among` is `counter`, of two threads."""

    counter: str
    among: tuple[str, ...]
    phase: str

    def _number(self, run: Measurement) -> Number:
        part = run.share(self.variant, self.counter, self.among, threads=2, phase=self.phase)
        return 100 * part, f"{_short(100 * part)} %"


@dataclass(frozen=True)
class Count(_ModelProbe):
    """A counter, for each operation of one thread."""

    counter: str

    def _number(self, run: Measurement) -> Number:
        counted, ops = (run.count(self.variant, name, threads=1) for name in (self.counter, "ops"))
        return counted / ops, _short(counted / ops)


@dataclass(frozen=True)
class Wait(_ModelProbe):
    """The median of what the model timed itself, with two threads, in milliseconds."""

    def _number(self, run: Measurement) -> Number:
        samples = run.samples(self.variant, threads=2)
        return _median_ms([sample.latency_ns for sample in samples])


@dataclass(frozen=True)
class Chains(_ModelProbe):
    """How many chains there must be if a lookup takes as many steps as it does.

    With N mounts on c even chains, 1 + (N - 1) / 2c.
    """

    def _number(self, run: Measurement) -> Number:
        steps = run.count(self.variant, "steps") / run.count(self.variant, "ops")
        value = (run.params["mounts"] - 1) / (2 * (steps - 1))
        return value, f"{number(value, 3)} ({number(steps, 3)} steps)"


@dataclass(frozen=True)
class Slope(RunProbe):
    """The exponent of counters, summed, over runs `<prefix>-<size>`."""

    prefix: str
    variant: str
    counters: tuple[str, ...]

    def _seen(self, runs: Runs) -> Seen:
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
class LabMetric(RunProbe):
    """What an outcome of the case's kernels saw.

    Attributes:
        variant: The kernel.
        metric: The outcome's.
        percent: Whether to show it as a percentage.
        pattern: For an outcome about text: a regular expression whose group is the number.
    """

    variant: str
    metric: str
    percent: bool = False
    pattern: str = ""

    def _seen(self, runs: Runs) -> Seen:
        source = f"results/{runs.slug}/kernel.json"
        if not self.pattern:
            value = runs.kernel.seen(self.variant, self.metric)
            return (
                value,
                f"{_short(100 * value)} %" if self.percent else _short(value),
                source,
                False,
            )
        for outcome in runs.kernel.outcomes:
            if (outcome.variant, outcome.metric) == (self.variant, self.metric) and (
                found := re.search(self.pattern, str(outcome.seen))
            ):
                return float(found[1]), found[1], source, False
        raise ValueError(f"no {self.pattern!r} in {self.metric} of {self.variant}")


@dataclass(frozen=True)
class LabWait(RunProbe):
    """The median wait in a run of the kernel lab, in milliseconds."""

    variant: str
    run: str
    label: str

    def _seen(self, runs: Runs) -> Seen:
        results = runs.kernel.results(self.variant, self.run, self.label)
        found = _median_ms([result["latency_ns"] for result in results])
        return *found, f"results/{runs.slug}/kernel.json", False


@dataclass(frozen=True)
class Lines(RunProbe):
    """HITM per operation at the instructions of one kernel function, from a recorded profile."""

    profile: str
    variant: str
    symbol: str

    def _seen(self, runs: Runs) -> Seen:
        name = f"{runs.slug}/{self.profile}"
        profile = saved.load(lesson.reference(name)).of(self.variant, None)
        moved = sum(s.counts.hitm for _, s in profile.sites() if s.symbol == self.symbol)
        value = profile.per_op(moved)
        return value, number(value, 3), f"results/{name}.json", False


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that speaks to one figure.

    Attributes:
        userspace: From the C model; if empty, `no_userspace` says why.
        kernel: From the kernel lab; if empty, `no_kernel` says why.
        note: What to keep in mind when comparing; one or two sentences.
        section: Id of the chapter's section that discusses it.
    """

    userspace: tuple[RunProbe, ...] = ()
    kernel: tuple[RunProbe, ...] = ()
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


def _median_ms(waits: Sequence[Mapping[str, float]]) -> Number:
    ms = stats.median([wait["p50"] for wait in waits]) / 1e6
    return ms, f"{number(ms, 3)} ms" if ms >= 0.1 else f"{number(1000 * ms, 3)} µs"
