# SPDX-License-Identifier: MIT
"""Machines side by side, as their owners shared them."""

from __future__ import annotations

from collections.abc import Sequence

from contended import register
from contended.measure.results import number
from contended.measure.share import Machine
from contended.show.table import Table


def machines_table(machines: Sequence[Machine]) -> Table:
    """A column for each machine: hand-overs, then what the fix of each case brings, and from when.

    A case's cell is the paired ratio of its fix at the most threads, with its 95% interval, and the
    number of threads with which the variant before it does most.
    """
    head = ["", *(m.title for m in machines)]
    rows = [
        ["CPUs", *(str(len(m.provenance.cpus_allowed)) for m in machines)],
        ["processor", *(m.provenance.cpu for m in machines)],
        ["Linux", *(m.provenance.kernel for m in machines)],
        ["measured", *(m.provenance.started[:10] for m in machines)],
        ["hand-over, nearest (ns)", *(_handover(m, False) for m in machines)],
        ["hand-over, farthest (ns)", *(_handover(m, True) for m in machines)],
    ]
    rows += [[slug, *(_case(m, slug) for m in machines)] for slug in register.slugs()]
    notes = [f"{m.title}: {line}" for m in machines for line in m.provenance.disturbed]
    notes += [f"{m.title}: {slug}: {why}" for m in machines for slug, why in m.lacking.items()]
    return Table("Machines side by side", head, rows, notes)


def _handover(machine: Machine, farthest: bool) -> str:
    rows = sorted(machine.handovers, key=lambda h: h.median)
    found = rows[-1 if farthest else 0]
    spread = f"{number(found.low, 3)} to {number(found.high, 3)}"
    return f"{number(found.median, 3)} ({spread}; CPUs {found.a} and {found.b})"


def _case(machine: Machine, slug: str) -> str:
    if slug not in machine.cases:
        return "not measured"
    case = machine.cases[slug]
    pair, row = case.widest()
    after, before = pair.split("/")
    knee = case.knee(before, row.phase)
    phase = "" if row.phase == "run" else f", {row.phase}"
    interval = f"{number(row.low, 3)} to {number(row.high, 3)}"
    threads = f"{row.threads} thread{'s' * (row.threads > 1)}"
    ratio = f"{number(row.median, 3)} ({interval}; {after}, {threads}{phase})"
    return f"{ratio}; {before} does most with {knee}" if row.threads > 1 else ratio
