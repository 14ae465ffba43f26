# SPDX-License-Identifier: MIT
"""`contended simulate`: a case past this machine's size, as a table, JSON or Parquet."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from contended import cases, stats
from contended.commands import commandline
from contended.commands.commandline import counts, names, say
from contended.errors import UsageError, check_range
from contended.measure.results import number
from contended.show.table import columns
from contended.simulate import grid, machines, sweep

if TYPE_CHECKING:
    import pandas as pd


def fill(parser: argparse.ArgumentParser) -> None:
    """Give `contended simulate` its arguments."""
    about = """Simulate a case's variants on a machine, up to 512 CPUs. The same call
        gives the same digits everywhere. Without --dask all of this machine's CPUs are used."""
    add = commandline.arguments(parser, _simulate, about)
    add("slug", metavar="SLUG", help=f"one of {', '.join(cases.workloads())}")
    sizes = [2**power for power in range(10)]
    add("--cpus", type=counts, default=sizes, metavar="1,2,4", help="default: 1,2,4,...,512")
    parser.set_defaults(usual=parser.get_default)
    known = f"one of {', '.join(machines.names())}; default: 2x20-smt"
    add("--machine", default="2x20-smt", metavar="NAME", help=known)
    add("--variants", type=names, metavar="A,B", help="default: all")
    add("--seeds", type=int, default=1, metavar="K", help="default: 1")
    add("--dask", metavar="ADDRESS", help="a Dask scheduler, tcp://host:8786")
    add("--json", type=Path, metavar="FILE|-", help="write the rows as JSON")
    add("--parquet", type=Path, metavar="FILE", help="write the rows as Parquet")
    add("--grid", type=Path, metavar="FILE", help="all that the chapter's slider shows, as JSON")
    add("--published", action="store_true", help="the published numbers beside the simulated ones")


def _grid(args: argparse.Namespace) -> None:
    for name, value in vars(args).items():
        if name not in ("slug", "grid", "command", "usual") and value != args.usual(name):
            raise UsageError(f"--grid takes no --{name}: it has the settings of the slider")
    commandline.check_writable(args.grid)
    chosen = cases.study(cases.case_of(args.slug)).sweep
    if chosen is None or chosen.workload.name != args.slug:
        raise UsageError(f"{args.slug!r} has no slider in its chapter")
    with commandline.bar("setting") as progress:
        found = grid.record(chosen, progress)
    found.save(args.grid)


def _simulate(args: argparse.Namespace) -> None:
    if args.grid is not None:
        _grid(args)
        return
    check_range("--seeds", args.seeds, 1, 1000)
    commandline.check_writable(args.json)
    commandline.check_writable(args.parquet)
    if args.parquet == commandline.STDOUT:
        raise UsageError("Parquet is no text: give --parquet a file's name")
    where = {"machines": [args.machine], "cpus": sorted(set(args.cpus))}
    what = {"variants": args.variants, "seeds": range(args.seeds)}
    todo = sweep.tasks([cases.workload(args.slug)], **where, **what)
    with commandline.bar("run") as progress:
        frame = sweep.run(todo, address=args.dask, progress=progress)
    if args.parquet is not None:
        sweep.save(frame, args.parquet)
    rows = f"{frame.to_json(orient='records', indent=2)}\n"
    commandline.deliver(args.json, lambda: rows, lambda: columns(_table(frame)))
    if args.published and args.json != commandline.STDOUT:
        say(f"\n{cases.prediction(cases.case_of(args.slug)).text}")


def _table(frame: pd.DataFrame) -> list[list[str]]:
    """Medians over seeds, a heading first."""
    shown = ["ops_per_s", "ns_per_op", "transfers_per_op", "slow_share"]
    shown = [name for name in shown if name in frame and frame[name].notna().any()]
    rows = [["variant", "cpus", "phase", *shown, "seeds"]]
    for (variant, cpus, phase), group in frame.groupby(["variant", "cpus", "phase"], sort=False):
        finite = ([float(x) for x in group[name].dropna() if x != math.inf] for name in shown)
        cells = [number(stats.median(values)) if values else "-" for values in finite]
        mark = "*" if group["extrapolated"].any() else ""
        rows.append([str(variant), f"{cpus}{mark}", str(phase), *cells, str(len(group))])
    if frame["extrapolated"].any():
        rows.append(["* more CPUs than the machine has", *[""] * (len(rows[0]) - 1)])
    return rows
