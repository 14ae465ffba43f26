# SPDX-License-Identifier: MIT
"""What chapters show of machines that the reader does not have: curves, a slider, comparisons.

The long sweeps are recorded, each by the one command that `command` names.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from contended import cases, register, stats
from contended.cases import timed
from contended.cases.timed import Region
from contended.errors import ContendedError, UsageError
from contended.kernel import times
from contended.show import lesson, widget
from contended.show.canvas import Plot
from contended.simulate import machines
from contended.simulate.chart import Mark, chart
from contended.simulate.curves import Curve, Sweep
from contended.simulate.slider import Page, Slider, page


def sweeps() -> dict[str, Sweep]:
    """What the chapters' figures are made of, by slug."""
    known = {slug: cases.study(slug).sweep for slug in register.slugs()}
    return {slug: sweep for slug, sweep in known.items() if sweep is not None}


def sweep(slug: str) -> Sweep:
    """What a chapter's figure is made of; raises UsageError if nothing of it is simulated."""
    known = sweeps()
    if slug not in known:
        raise UsageError(f"{slug!r} has no simulated curve; choose one of: {', '.join(known)}")
    return known[slug]


def command(slug: str) -> str:
    """The one command that makes the record of a chapter's sweep."""
    return sweep(slug).command(f"results/{slug}/simulate.parquet")


def grid_command(slug: str) -> str:
    """The one command that records all that a chapter's slider can show."""
    return f"contended simulate {sweep(slug).workload.name} --grid results/{slug}/grid.json"


@cache
def load(slug: str) -> Curve:
    """The recorded sweep of a chapter; raises ContendedError if the record is missing."""
    import pandas as pd  # slow to import

    chosen = sweep(slug)
    path = lesson.reference(f"{slug}/simulate").with_suffix(".parquet")
    try:
        return Curve(chosen, pd.read_parquet(path))
    except FileNotFoundError:
        raise ContendedError(f"results/{slug}/{path.name} is missing: {command(slug)}") from None
    except ImportError as error:
        raise ContendedError("reading Parquet needs pyarrow: pip install pyarrow") from error


def slider(slug: str, title: str) -> Slider | Page:
    """The chapter's figure, live: choose the machine and the work, and it is simulated anew.

    In a page of the book it is looked up; raises ContendedError if that is not recorded.
    """
    if widget.BOOK not in os.environ:
        return Slider(sweep(slug), title)
    path = lesson.reference(f"{slug}/grid")
    return page(sweep(slug), title, path, f"run {grid_command(slug)}")


def in_virtual_time(
    slug: str, title: str, regions: Sequence[Region] | None = None, *, file: str = "time"
) -> Plot:
    """The real kernel's throughput by CPUs, beside the simulator's and the published points.

    By default of a record of the case, `file`, by `contended kernel time`, else of such regions.
    Raises ContendedError if there is no record.
    """
    kernel = timed.record(slug, file).regions if regions is None else regions
    box = machines.get(kernel[0]["machine"])
    lines = timed.curves(
        kernel, lambda r: " ".join(filter(None, (r["variant"], r["label"], "kernel")))
    )
    marks: tuple[Mark, ...] = ()
    if (drawn := sweeps().get(slug)) is not None and drawn.throughput:
        marks = drawn.marks
        if drawn.machine == box.name:
            curve = load(slug)
            sizes = [n for n in curve.cpus if n <= box.cpus]
            for line in drawn.lines:
                lines[f"{line.label}, simulated"] = {n: curve.values(line, n) for n in sizes}
    return chart(
        title,
        lines,
        marks=marks,
        xlabel="CPUs",
        ylabel="operations/s, all CPUs",
        note=f"real kernel in virtual time, and simulated: {box.title}{_doubts(kernel)}",
    )


def by_release(slug: str, title: str) -> Plot:
    """The throughput of each release's unpatched kernel in virtual time, by CPUs.

    Of the record `results/history/time/<slug>.json`; raises ContendedError if there is none.
    """
    kernel = timed.record("history/time", slug).regions
    return chart(
        title,
        timed.curves(kernel, lambda region: f"Linux {region['variant']}"),
        xlabel="CPUs",
        ylabel="operations/s, all CPUs",
        note=f"real kernels in virtual time: {machines.get(kernel[0]['machine']).title}"
        + _doubts(kernel),
    )


def _doubts(kernel: Sequence[Region]) -> str:
    """What of a figure's regions is to be doubted, by variant and CPUs; "" if nothing is."""
    marked: dict[str, list[str]] = {}
    for region in filter(times.doubtful, kernel):
        marked.setdefault(region["variant"], []).append(str(region["cpus"]))
    named = (f"{name} ({', '.join(dict.fromkeys(cpus))})" for name, cpus in marked.items())
    old = [times.outdated(region) for region in kernel]
    told = f"; {times.OUTDATED if all(old) else f'in part {times.OUTDATED}'}" * any(old)
    return (f"; doubtful: {', '.join(named)}" if marked else "") + told


def release_rates(slug: str, cpus: int) -> dict[str, float]:
    """From the same record, by release: operations a second of so many CPUs, a median of seeds."""
    kernel = timed.record("history/time", slug).regions
    found = timed.curves(kernel, lambda region: str(region["variant"]))
    return {name: stats.median(curve.get(cpus, ())) for name, curve in found.items()}
