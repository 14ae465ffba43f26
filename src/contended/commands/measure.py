# SPDX-License-Identifier: MIT
"""`contended measure`: run a case's C model."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

from contended import register
from contended.commands import commandline
from contended.commands.commandline import complain, counts, names, options
from contended.errors import UsageError
from contended.measure import measure, native
from contended.show import report


def fill(parser: argparse.ArgumentParser) -> None:
    """Give the command's parser its arguments."""
    about = "Run a C model's variants, interleaved and pinned, and compare them."
    add = commandline.arguments(parser, _measure, about)
    add("slug", metavar="SLUG", help="a case, or another model of csrc/models")
    add("--variants", type=names, metavar="A,B", help="default: all")
    add("--threads", type=counts, metavar="1,2", help="default: 1, 2, 4, ...")
    add("--repeats", type=int, default=7, metavar="K", help="default: 7")
    of = "a parameter of the model"
    add("--set", type=_setting, action="append", default=[], metavar="NAME=VALUE", help=of)
    metrics = "ops_per_s (default), ns_per_op, latency_us, or COUNTER_per_op"
    add("--metric", default="ops_per_s", metavar="NAME", help=metrics)
    between = "work between operations, nanoseconds"
    add("--think", type=int, default=0, metavar="NS", dest="think_ns", help=between)
    slices = "make each slice N operations of each thread, instead of a time"
    add("--ops", type=int, default=0, metavar="N", help=slices)
    policy = "auto: SCHED_FIFO where it is allowed and safe; fifo: or an error; other: never"
    add("--sched", choices=("auto", "fifo", "other"), default="auto", help=policy)
    add("--json", type=Path, metavar="FILE|-", help="write the result as JSON")


def _setting(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    with suppress(ValueError):
        if equals:
            return name, int(value)
    raise argparse.ArgumentTypeError(f"{text!r} is not like name=123")


def _measure(args: argparse.Namespace) -> int:
    if args.slug not in (have := native.available()):
        known = args.slug in register.slugs()
        what = f"{args.slug} has no C model yet" if known else f"no case or model {args.slug!r}"
        raise UsageError(f"{what}; what can be measured: {', '.join(have)}")
    commandline.check_writable(args.json)
    chosen = options(args, "variants", "threads", "repeats", "think_ns", "metric", "ops", "sched")
    with commandline.bar("run") as progress:
        done = measure(args.slug, params=dict(args.set), progress=progress, **chosen)
    commandline.deliver(args.json, done.to_json, lambda: report.measurement_text(done))
    for failed in done.failures:
        where = f"{args.slug}, variant {failed.variant}, {failed.threads} threads"
        complain(f"{where}: {failed.reason}")
    return 1 if done.failures else 0
