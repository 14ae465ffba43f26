# SPDX-License-Identifier: MIT
"""`contended c2c`: which cache lines CPUs take from each other."""

from __future__ import annotations

import argparse
from pathlib import Path

from contended.commands import commandline
from contended.commands.commandline import names, options, positive, setting
from contended.errors import UsageError
from contended.kernel import c2c
from contended.profile import usermode


def fill(parser: argparse.ArgumentParser) -> None:
    """Give the command's parser its arguments."""
    about = """Boot a case's kernels (or, with --user, run its C model) in QEMU under
        the coherence profiler, and show who takes which cache line from whom. No performance
        counters are needed; caches are idealised."""
    add = commandline.arguments(parser, _command, about)
    add("slug", metavar="SLUG", help="a case")
    add("--variants", type=names, metavar="A,B", help="default: before,after")
    add("--run", metavar="NAME", help="one of the case's runs in variants.toml")
    of = "of the run's workload, e.g. name=9; may be repeated"
    add("--set", type=setting, action="append", default=[], metavar="PARAMETER=VALUE", help=of)
    add("--vcpus", type=positive, default=0, metavar="N", help="CPUs, or threads; default: 4")
    ahead = "instructions that a CPU may be ahead of the slowest; default: 2000, with --user 100"
    add("--quantum", type=positive, default=0, metavar="Q", help=ahead)
    add("--user", action="store_true", help="the C model instead of the kernel")
    add("--top", type=positive, default=10, metavar="K", help="lines to show; default: 10")
    add("--source", type=Path, metavar="PATH", dest="source_path", help="the kernel's source")
    add("--json", type=Path, metavar="FILE|-", help="write the profiles as JSON")
    kept = "lines of each profile that --json keeps, the worst; default: all"
    add("--keep", type=positive, metavar="K", help=kept)


def _command(args: argparse.Namespace) -> None:
    commandline.check_writable(args.json)
    if args.user and (args.run is not None or args.source_path is not None or args.set):
        raise UsageError("--user runs the C model: leave out --run, --set and --source")
    with commandline.lines() as progress:
        if args.user:
            threads, quantum = args.vcpus or usermode.THREADS, args.quantum or usermode.QUANTUM
            found = usermode.profile(
                args.slug, args.variants, threads=threads, quantum=quantum, progress=progress
            )
        else:
            chosen = options(args, "run", "vcpus", "quantum", "source_path")
            chosen["settings"] = dict(args.set)
            found = c2c.profile(args.slug, args.variants, progress=progress, **chosen)
    kept = found.trimmed(args.keep) if args.keep else found
    commandline.deliver(args.json, kept.to_json, lambda: found.text(args.top))
