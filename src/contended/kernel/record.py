# SPDX-License-Identifier: MIT
"""What a run of a case's kernels gave: the record that is kept, and how a reader sees it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from contended import records
from contended.errors import UsageError
from contended.measure.results import number
from contended.records import Record
from contended.show.table import Table, columns

SCHEMA = 1
_WIDTH, _SEEN, _NOTE = 46, 60, 70


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProvenance:
    """Where, when and with what the machines ran."""

    cpu: str
    cpus_allowed: list[int]
    host_kernel: str
    virtualized: str | None
    qemu: str
    accel: str
    note: str
    source: str
    guest_compiler: str
    contended: str
    commit: str | None
    load_1min: float
    started: str
    seconds: float


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """A kernel that was booted, as the case's variant."""

    variant: str
    config: str
    version: str
    build_id: str
    compiler: str
    patches: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BootRecord:
    """One boot and all that its guest sent."""

    variant: str
    run: str
    config: str
    workload: str
    args: dict[str, str]
    cmdline: str
    vcpus: int
    icount: bool
    repeat: int
    accel: str
    build_id: str
    results: list[dict[str, Any]]  #: The guest's result lines as they came.
    checks: list[dict[str, Any]]  #: Its smoke checks as they came.
    failed: str  #: Why (panic, hang or error) there is no whole report; or empty.
    splats: list[str]  #: The first lines of the kernel's complaints.
    excerpt: str  #: The console from the first complaint on, bounded; empty without one.
    boot_s: float  #: From QEMU's start to the guest's first line.
    wall_s: float  #: To its end.


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeRecord:
    """What was expected of a variant, what was seen, and whether it held."""

    variant: str
    run: str
    expected: str
    condition: str
    metric: str
    seen: float | str | None  #: The median, or the line of a text that was looked for.
    low: float | None  #: The lowest of the repeats; None for a text.
    high: float | None
    held: bool
    reason: str  #: Why it did not hold; empty if it did.
    timed: bool = False  #: Whether a busy host can spoil it.
    control: bool = False  #: Whether it shows what is the same for all kernels.

    @property
    def said(self) -> str:
        """What was expected, and that it is a control if it is one."""
        return f"control: {self.expected}" if self.control else self.expected


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun(Record):
    """A case's kernels, run and judged."""

    case: str
    vcpus: int  #: As asked for; runs may fix their own number.
    repeats: int  #: Boots of each variant and run.
    variants: dict[str, str]  #: Each variant's summary, by name.
    kernels: list[KernelInfo]
    boots: list[BootRecord]  #: In the order they were made.
    outcomes: list[OutcomeRecord]  #: In the file's order, then the smoke set's.
    provenance: KernelProvenance
    schema: int = SCHEMA
    recorded: bool = False  #: Whether it is a reference run that was loaded.

    @property
    def held(self) -> bool:
        """Whether all outcomes held; nothing expected is nothing held."""
        return bool(self.outcomes) and all(outcome.held for outcome in self.outcomes)

    @property
    def misses(self) -> list[str]:
        """A line for each outcome that did not hold."""
        missed = [o for o in self.outcomes if not o.held]
        return [f"variant {o.variant}, run {o.run}: {o.expected}: {o.reason}" for o in missed]

    @property
    def first_miss(self) -> str:
        """The first outcome that did not hold, in one line; empty if all held."""
        nothing = "" if self.outcomes else "nothing is expected of these variants"
        return next(iter(self.misses), nothing)

    def of(self, variant: str, run: str) -> list[BootRecord]:
        """A variant's boots with a run, one for each repeat."""
        return [boot for boot in self.boots if (boot.variant, boot.run) == (variant, run)]

    def results(self, variant: str, run: str, label: str | None = None) -> list[dict[str, Any]]:
        """The guest's result lines of `of`, optionally those with one label only."""
        found = [result for boot in self.of(variant, run) for result in boot.results]
        return [result for result in found if label in (None, result.get("label", ""))]

    def seen(self, variant: str, metric: str, run: str | None = None) -> float:
        """What the first such outcome saw: the median; raises UsageError if that is no number."""
        about = [o for o in self.outcomes if o.variant == variant]
        for o in about:
            if o.metric == metric and run in (None, o.run):
                if isinstance(o.seen, float | int):
                    return o.seen
                break
        metrics = ", ".join(sorted({o.metric for o in about}))
        raise UsageError(f"no number {metric!r} of {self.case}/{variant}; there are: {metrics}")

    def __repr__(self) -> str:
        held = sum(outcome.held for outcome in self.outcomes)
        return f"<{self.case} on {self.vcpus} vCPUs: {held} of {len(self.outcomes)} outcomes held>"

    def __str__(self) -> str:
        """The outcomes, the boots that failed, and where it all ran, as plain text."""
        rows = [["variant", "run", "expected", "seen", "held"]]
        for o in self.outcomes:
            cells = [[o.variant], [o.run], textwrap.wrap(o.said, _WIDTH)]
            cells += [textwrap.wrap(_seen(o), _WIDTH), ["yes" if o.held else "NO"]]
            rows += [list(line) for line in zip_longest(*cells, fillvalue="")]
        parts = [columns(rows), *(f"NOT HELD {miss}" for miss in self.misses)]
        for boot in filter(lambda boot: boot.failed, self.boots):
            where = f"{boot.variant}, run {boot.run}, repeat {boot.repeat + 1}"
            parts.append(f"FAILED {where}: {boot.failed}")
        return "\n\n".join([*parts, self._where()])

    def _repr_html_(self) -> str:
        what = "recorded reference run" if self.recorded else "run now"
        head = ("variant", "expected", "seen", "condition", "outcome")
        rows = [
            (o.variant, o.said, _seen(o), o.condition, "held" if o.held else "did not hold")
            for o in self.outcomes
        ]
        caption = f"{self.case} on a real kernel ({what}; {self._where()})"
        return Table(caption, head, rows)._repr_html_()

    def _where(self) -> str:
        from_ = self.provenance
        # Why it is not KVM, in a word; `contended kernel doctor` has what QEMU said of it.
        note = textwrap.shorten(from_.note.partition(": ")[0], _NOTE, placeholder=" ...")
        accel = f"{from_.accel} ({note})" if note else from_.accel
        repeats = "1 repeat" if self.repeats == 1 else f"{self.repeats} repeats"
        return (
            f"Linux {from_.source}, QEMU {from_.qemu}, {accel}, {self.vcpus} vCPUs, {repeats}, "
            f"on {from_.cpu}, {from_.seconds:.0f} s"
        )


def load(path: Path) -> KernelRun:
    """Read a saved run, as one that is `recorded`; raises ContendedError if it is none."""
    return replace(records.load(KernelRun, path, "outcomes", SCHEMA, "run it again"), recorded=True)


def _seen(outcome: OutcomeRecord) -> str:
    if outcome.seen is None:
        return f"nothing ({outcome.reason})"
    if isinstance(outcome.seen, str):
        return textwrap.shorten(outcome.seen, _SEEN, placeholder=" ...") or "no such line"
    text = f"{outcome.metric} {number(outcome.seen)}"
    if outcome.low is not None and outcome.high is not None and outcome.low != outcome.high:
        text += f" ({number(outcome.low)} to {number(outcome.high)})"
    return text
