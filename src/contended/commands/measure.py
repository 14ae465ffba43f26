# SPDX-License-Identifier: MIT
"""`contended measure`: run a case's C model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from contended import register
from contended.commands import commandline
from contended.errors import UsageError
from contended.measure import measure, native
from contended.show import report


def fill(parser: argparse.ArgumentParser) -> None:
    """Give the command's parser its arguments."""
    parser.description = "Run a C model's variants, interleaved and pinned, and compare them."
    parser.add_argument("slug", metavar="SLUG", help="a case, or another model of csrc/models")
    parser.add_argument("--variants", type=commandline.names, metavar="A,B", help="default: all")
    parser.add_argument(
        "--threads", type=commandline.counts, metavar="1,2", help="default: 1, 2, 4, ..."
    )
    parser.add_argument("--repeats", type=int, default=7, metavar="K", help="default: 7")
    parser.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the model",
    )
    parser.add_argument(
        "--metric",
        default="ops_per_s",
        metavar="NAME",
        help="ops_per_s (default), ns_per_op, latency_us, or COUNTER_per_op",
    )
    parser.add_argument(
        "--think", type=int, default=0, metavar="NS", help="work between operations, nanoseconds"
    )
    parser.add_argument(
        "--ops",
        type=int,
        default=0,
        metavar="N",
        help="make each slice N operations of each thread, instead of a time",
    )
    parser.add_argument(
        "--sched",
        choices=("auto", "fifo", "other"),
        default="auto",
        help="auto: SCHED_FIFO where it is allowed and safe; fifo: or an error; other: never",
    )
    parser.add_argument("--json", type=Path, metavar="FILE|-", help="write the result as JSON")
    parser.set_defaults(command=_measure)


def _setting(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    try:
        if equals:
            return name, int(value)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not like name=123")


def _measure(args: argparse.Namespace) -> int:
    _check_slug(args.slug)
    if args.json is not None:
        commandline.check_writable(args.json)
    with commandline.bar("run") as progress:
        measurement = measure(
            args.slug,
            variants=args.variants,
            threads=args.threads,
            repeats=args.repeats,
            params=dict(args.set),
            think_ns=args.think,
            metric=args.metric,
            ops=args.ops,
            sched=args.sched,
            progress=progress,
        )
    if args.json is not None:
        measurement.save(args.json)
    if args.json != commandline.STDOUT:
        sys.stdout.write(report.measurement_text(measurement) + "\n")
    for failure in measurement.failures:
        sys.stderr.write(
            f"contended: {args.slug}, variant {failure.variant}, {failure.threads} threads: "
            f"{failure.reason}\n"
        )
    return 1 if measurement.failures else 0


def _check_slug(slug: str) -> None:
    have = native.available()
    if slug in have:
        return
    known = [case.slug for case in register.all()]
    listed = ", ".join(have)
    if slug in known:
        raise UsageError(f"{slug} has no C model yet; what can be measured: {listed}")
    raise UsageError(f"no case or model {slug!r}; what can be measured: {listed}")
