# SPDX-License-Identifier: MIT
"""`contended c2c`: which cache lines CPUs take from each other."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from contended.commands import commandline
from contended.errors import UsageError
from contended.kernel import c2c
from contended.kernel.build import Progress
from contended.profile import tables, usermode
from contended.profile.coherence import Profiles

TOP = 10


def fill(parser: argparse.ArgumentParser) -> None:
    """Give the command's parser its arguments."""
    parser.description = (
        "Boot a case's kernels (or, with --user, run its C model) in QEMU under the coherence "
        "profiler, and show who takes which cache line from whom. No performance counters are "
        "needed; caches are idealised."
    )
    parser.add_argument("slug", metavar="SLUG", help="a case")
    parser.add_argument(
        "--variants", type=commandline.names, metavar="A,B", help="default: before,after"
    )
    parser.add_argument("--run", metavar="NAME", help="one of the case's runs in variants.toml")
    parser.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="PARAMETER=VALUE",
        help="of the run's workload, e.g. name=9; may be repeated",
    )
    parser.add_argument(
        "--vcpus",
        type=commandline.positive,
        default=0,
        metavar="N",
        help="CPUs, or threads; default: 4",
    )
    parser.add_argument(
        "--quantum",
        type=commandline.positive,
        default=0,
        metavar="Q",
        help="instructions that a CPU may be ahead of the slowest; default: 2000, with --user 100",
    )
    parser.add_argument("--user", action="store_true", help="the C model instead of the kernel")
    parser.add_argument(
        "--top",
        type=commandline.positive,
        default=TOP,
        metavar="K",
        help="lines to show; default: 10",
    )
    parser.add_argument("--source", type=Path, metavar="PATH", help="the kernel's source")
    parser.add_argument("--json", type=Path, metavar="FILE|-", help="write the profiles as JSON")
    parser.set_defaults(command=_command)


def _setting(text: str) -> tuple[str, str]:
    """A parameter of a workload like `name=9`; it goes into the guest's command line."""
    found = re.fullmatch(r"([a-z][a-z0-9_]*)=([A-Za-z0-9_.-]+)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not like name=9")
    return found[1], found[2]


def _command(args: argparse.Namespace) -> int:
    if args.json is not None:
        commandline.check_writable(args.json)
    with commandline.lines() as progress:
        if args.user:
            found = _profile_model(args, progress)
        else:
            found = c2c.profile(
                args.slug,
                args.variants,
                run=args.run,
                settings=dict(args.set),
                vcpus=args.vcpus,
                quantum=args.quantum,
                source_path=args.source,
                progress=progress,
            )
    if args.json is not None:
        found.save(args.json)
    if args.json != commandline.STDOUT:
        sys.stdout.write(tables.text(found, args.top) + "\n")
    return 0


def _profile_model(args: argparse.Namespace, progress: Progress | None) -> Profiles:
    if args.run is not None or args.source is not None or args.set:
        raise UsageError("--user runs the C model: leave out --run, --set and --source")
    return usermode.profile(
        args.slug,
        args.variants,
        threads=args.vcpus or usermode.THREADS,
        quantum=args.quantum or usermode.QUANTUM,
        progress=progress,
    )
