# SPDX-License-Identifier: MIT
"""`contended simulate`: a case past this machine's size, as a table, JSON or Parquet."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from contended import cases, stats
from contended.commands import commandline
from contended.errors import UsageError
from contended.measure.results import number
from contended.records import write_whole
from contended.show.table import columns
from contended.simulate import machines, sweep

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_CPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
DEFAULT_MACHINE = "2x20-smt"
MAX_SEEDS = 1000


def fill(parser: argparse.ArgumentParser) -> None:
    """Give `contended simulate` its arguments."""
    parser.description = (
        "Simulate a case's variants on a machine, up to 512 CPUs. The same call gives the same "
        "digits everywhere. Without --dask all of this machine's CPUs are used."
    )
    parser.add_argument("slug", metavar="SLUG", help=f"one of {', '.join(cases.workloads())}")
    parser.add_argument(
        "--cpus",
        type=commandline.counts,
        default=list(DEFAULT_CPUS),
        metavar="1,2,4",
        help="default: 1,2,4,...,512",
    )
    parser.add_argument(
        "--machine",
        default=DEFAULT_MACHINE,
        metavar="NAME",
        help=f"one of {', '.join(machines.names())}; default: {DEFAULT_MACHINE}",
    )
    parser.add_argument("--variants", type=commandline.names, metavar="A,B", help="default: all")
    parser.add_argument("--seeds", type=int, default=1, metavar="K", help="default: 1")
    parser.add_argument("--dask", metavar="ADDRESS", help="a Dask scheduler, tcp://host:8786")
    parser.add_argument("--json", type=Path, metavar="FILE|-", help="write the rows as JSON")
    parser.add_argument("--parquet", type=Path, metavar="FILE", help="write the rows as Parquet")
    parser.add_argument(
        "--published", action="store_true", help="the published numbers beside the simulated ones"
    )
    parser.set_defaults(command=simulate)


def simulate(args: argparse.Namespace) -> int:
    """Run the command; the exit status is 0, and anything else is an exception."""
    if not 1 <= args.seeds <= MAX_SEEDS:
        raise UsageError(f"--seeds is {args.seeds}: choose 1 to {MAX_SEEDS}")
    for path in (args.json, args.parquet):
        if path is not None:
            commandline.check_writable(path)
    if args.parquet == commandline.STDOUT:
        raise UsageError("Parquet is no text: give --parquet a file's name")
    todo = sweep.tasks(
        [cases.workload(args.slug)],
        machines=[args.machine],
        cpus=sorted(set(args.cpus)),
        variants=args.variants,
        seeds=range(args.seeds),
    )
    with commandline.bar("run") as progress:
        frame = sweep.run(todo, address=args.dask, progress=progress)
    if args.parquet is not None:
        sweep.save(frame, args.parquet)
    if args.json is not None:
        write_whole(args.json, frame.to_json(orient="records", indent=2) + "\n")
    if args.json == commandline.STDOUT:
        return 0
    sys.stdout.write(columns(table(frame)) + "\n")
    if args.published:
        sys.stdout.write("\n" + cases.prediction(cases.case_of(args.slug)).text + "\n")
    return 0


def table(frame: pd.DataFrame) -> list[list[str]]:
    """Simulated rows as text for a terminal: medians over seeds, a heading first."""
    shown = ["ops_per_s", "ns_per_op", "transfers_per_op", "slow_share"]
    shown = [name for name in shown if name in frame and frame[name].notna().any()]
    rows = [["variant", "cpus", "phase", *shown, "seeds"]]
    groups = frame.groupby(["variant", "cpus", "phase"], sort=False)
    for (variant, cpus, phase), group in groups:
        cells = []
        for name in shown:
            values = [float(value) for value in group[name].dropna()]
            finite = [value for value in values if value != float("inf")]
            cells.append(number(stats.median(finite)) if finite else "-")
        mark = "*" if bool(group["extrapolated"].any()) else ""
        rows.append([str(variant), f"{cpus}{mark}", str(phase), *cells, str(len(group))])
    if frame["extrapolated"].any():
        rows.append(["* more CPUs than the machine has", *[""] * (len(rows[0]) - 1)])
    return rows
