# SPDX-License-Identifier: MIT
"""A run of a case's kernels as a table, for a terminal and for a notebook."""

from __future__ import annotations

import textwrap
from html import escape
from typing import TYPE_CHECKING

from contended.measure.results import number
from contended.show.table import columns

if TYPE_CHECKING:
    from contended.kernel.run import KernelRun, OutcomeRecord

_WIDTH = 46
_SEEN = 60
_NOTE = 70


def text(run: KernelRun) -> str:
    """The outcomes, the boots that failed, and where it all ran."""
    rows = [["variant", "run", "expected", "seen", "held"]]
    for outcome in run.outcomes:
        expected = textwrap.wrap(outcome.expected, _WIDTH) or [""]
        seen = textwrap.wrap(_seen(outcome), _WIDTH) or [""]
        for i in range(max(len(expected), len(seen))):
            first = i == 0
            rows.append(
                [
                    outcome.variant if first else "",
                    outcome.run if first else "",
                    expected[i] if i < len(expected) else "",
                    seen[i] if i < len(seen) else "",
                    ("yes" if outcome.held else "NO") if first else "",
                ]
            )
    parts = [columns(rows)]
    parts += [f"NOT HELD {miss}" for miss in run.misses]
    parts += [
        f"FAILED {boot.variant}, run {boot.run}, repeat {boot.repeat + 1}: {boot.failed}"
        for boot in run.boots
        if boot.failed
    ]
    parts.append(_where(run))
    return "\n\n".join(parts)


def html(run: KernelRun) -> str:
    """The outcomes as a table for a notebook."""
    rows = "".join(
        f"<tr><td>{escape(o.variant)}</td><td>{escape(o.expected)}</td>"
        f"<td>{escape(_seen(o))}<br><small>{escape(o.condition)}</small></td>"
        f"<td>{'held' if o.held else '<strong>did not hold</strong>'}</td></tr>"
        for o in run.outcomes
    )
    what = "recorded reference run" if run.recorded else "run now"
    return (
        f'<table class="table"><caption>{escape(run.case)} on a real kernel ({what}; '
        f"{escape(_where(run))})</caption>"
        "<thead><tr><th>variant</th><th>expected</th><th>seen</th><th>outcome</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _seen(outcome: OutcomeRecord) -> str:
    if outcome.seen is None:
        return f"nothing ({outcome.reason})"
    if isinstance(outcome.seen, str):
        return textwrap.shorten(outcome.seen, _SEEN, placeholder=" ...") or "no such line"
    text = f"{outcome.metric} {number(outcome.seen)}"
    if outcome.low is not None and outcome.high is not None and outcome.low != outcome.high:
        text += f" ({number(outcome.low)} to {number(outcome.high)})"
    return text


def _where(run: KernelRun) -> str:
    from_ = run.provenance
    # Why it is not KVM, as far as it fits; `contended kernel doctor` has all of it.
    note = textwrap.shorten(from_.note, _NOTE, placeholder=" ...")
    accel = f"{from_.accel} ({note})" if note else from_.accel
    repeats = "1 repeat" if run.repeats == 1 else f"{run.repeats} repeats"
    return (
        f"Linux {from_.source}, QEMU {from_.qemu}, {accel}, {run.vcpus} vCPUs, {repeats}, "
        f"on {from_.cpu}, {from_.seconds:.0f} s"
    )
