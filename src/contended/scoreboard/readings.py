# SPDX-License-Identifier: MIT
"""Read what the probes of `evidence` ask for, from this build's runs or from the recorded ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from contended import stats
from contended.errors import ContendedError
from contended.measure import results
from contended.measure.results import Measurement, number
from contended.profile import saved
from contended.scoreboard.evidence import (
    Chains,
    Count,
    Kernel,
    Lab,
    LabWait,
    Lines,
    Ratio,
    Share,
    Slope,
    User,
    Wait,
)
from contended.show import lesson

if TYPE_CHECKING:
    from contended.kernel.record import KernelRun


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

    def read(self, probe: User | Kernel) -> Reading:
        """What a probe asks for.

        Raises:
            ContendedError: there is no such run, variant or counter; the message names the probe.
        """
        how: dict[type, Callable[..., Reading]] = {
            Ratio: self._ratio,
            Share: self._share,
            Count: self._count,
            Wait: self._wait,
            Slope: self._slope,
            Chains: self._chains,
            Lab: self._lab,
            LabWait: self._lab_wait,
            Lines: self._lines,
        }
        try:
            return how[type(probe)](probe)
        except (KeyError, ValueError, IndexError, ZeroDivisionError) as error:
            raise ContendedError(
                f"the scoreboard's probe {probe.what!r} of {self.slug} finds no number: {error!r}"
            ) from error

    def _run(self, label: str) -> tuple[Measurement, str, bool]:
        if label not in self._known:
            self._known[label] = self._find(f"{self.slug}/{label}")
        return self._known[label]

    def _find(self, name: str) -> tuple[Measurement, str, bool]:
        own = None if self.fresh is None else self.fresh / f"{name}.json"
        if own is not None and own.is_file():
            return results.load(own), f"{name}.json", True
        return lesson.recorded(name), f"results/{name}.json", False

    def _made(
        self, probe: User | Kernel, value: float, text: str, source: str, live: bool = False
    ) -> Reading:
        return Reading(
            what=probe.what, value=value, text=text, of=probe.of, source=source, live=live
        )

    def _ratio(self, probe: Ratio) -> Reading:
        run, source, live = self._run(probe.run)
        top, base = (
            run.values(variant, threads=probe.threads, phase=phase)
            for variant, phase in (probe.top, probe.base)
        )
        found = stats.paired_ratio(top, base)
        text = f"{number(found.median, 3)} ({number(found.low, 3)} to {number(found.high, 3)})"
        return self._made(probe, found.median, text, source, live)

    def _share(self, probe: Share) -> Reading:
        run, source, live = self._run(probe.run)
        value = 100 * run.share(
            probe.variant, probe.counter, probe.among, threads=probe.threads, phase=probe.phase
        )
        return self._made(probe, value, f"{_short(value)} %", source, live)

    def _count(self, probe: Count) -> Reading:
        run, source, live = self._run(probe.run)
        counted, ops = (
            run.count(probe.variant, name, threads=probe.threads) for name in (probe.counter, "ops")
        )
        value = counted / ops
        return self._made(probe, value, _short(value), source, live)

    def _wait(self, probe: Wait) -> Reading:
        run, source, live = self._run(probe.run)
        samples = run.samples(probe.variant, threads=probe.threads)
        value = stats.median([sample.latency_ns["p50"] for sample in samples]) / 1e6
        return self._made(probe, value, _time(value), source, live)

    def _slope(self, probe: Slope) -> Reading:
        sizes, counted, source, live = [], [], "", True
        for path in sorted(
            lesson.reference(f"{self.slug}/x").parent.glob(f"{probe.prefix}-*.json")
        ):
            run, found, now = self._run(path.stem)
            live = live and now
            source = str(Path(found).with_name(f"{probe.prefix}-*.json"))
            sizes.append(int(path.stem.rpartition("-")[2]))
            ops = run.count(probe.variant, "ops")
            counted.append(sum(run.count(probe.variant, c) for c in probe.counters) / ops)
        exponent = stats.loglog_slope(sizes, counted)
        return self._made(probe, exponent.estimate, number(exponent.estimate, 3), source, live)

    def _chains(self, probe: Chains) -> Reading:
        run, source, live = self._run(probe.run)
        steps = run.count(probe.variant, "steps") / run.count(probe.variant, "ops")
        value = (run.params["mounts"] - 1) / (2 * (steps - 1))
        text = f"{number(value, 3)} ({number(steps, 3)} steps)"
        return self._made(probe, value, text, source, live)

    @cached_property
    def _kernel(self) -> KernelRun:
        from contended.kernel import chapter

        return chapter.recorded(self.slug)

    def _lab(self, probe: Lab) -> Reading:
        source = f"results/{self.slug}/kernel.json"
        if not probe.pattern:
            value = self._kernel.seen(probe.variant, probe.metric, probe.run)
            text = f"{_short(100 * value)} %" if probe.percent else _short(value)
            return self._made(probe, value, text, source)
        for outcome in self._kernel.outcomes:
            if (outcome.variant, outcome.metric) == (probe.variant, probe.metric):
                found = re.search(probe.pattern, str(outcome.seen))
                if found:
                    return self._made(probe, float(found[1]), found[1], source)
        raise ValueError(f"no {probe.pattern!r} in {probe.metric} of {probe.variant}")

    def _lab_wait(self, probe: LabWait) -> Reading:
        waits = [
            result["latency_ns"]["p50"]
            for result in self._kernel.results(probe.variant, probe.run, probe.label)
        ]
        value = stats.median(waits) / 1e6
        source = f"results/{self.slug}/kernel.json"
        return self._made(probe, value, _time(value), source)

    def _lines(self, probe: Lines) -> Reading:

        path = lesson.reference(f"{self.slug}/{probe.profile}")
        profile = saved.load(path).of(probe.variant, None)
        moved = sum(s.counts.hitm for _, s in profile.sites() if s.symbol == probe.symbol)
        value = profile.per_op(moved)
        source = f"results/{self.slug}/{probe.profile}.json"
        return self._made(probe, value, number(value, 3), source)


def _short(value: float) -> str:
    """Counts to the last digit, quotients to three, and next to nothing as zero."""
    if value == round(value):
        return f"{value:,.0f}"
    return "below 0.001" if 0 < value < 0.001 else number(value, 3)


def _time(ms: float) -> str:
    return f"{number(ms, 3)} ms" if ms >= 0.1 else f"{number(1000 * ms, 3)} µs"
