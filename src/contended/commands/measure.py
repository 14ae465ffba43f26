# SPDX-License-Identifier: MIT
"""`contended measure`: run a case's C model."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

from contended import register, state
from contended.commands import commandline
from contended.commands.commandline import complain, counts, names, options
from contended.errors import UsageError
from contended.measure import measure, native, share
from contended.show import machines, report


def fill(parser: argparse.ArgumentParser) -> None:
    """Give the command's parser its arguments."""
    about = "Run a C model's variants, interleaved and pinned, and compare them."
    add = commandline.arguments(parser, _measure, about)
    add("slug", metavar="SLUG", nargs="?", help="a case, or another model of csrc/models")
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
    whole = "measure the ping-pong and all cases, and write what is compared between machines"
    add("--share", type=Path, metavar="FILE|-", help=whole)
    add("--title", default="", metavar="TEXT", help="with --share: the machine's name in tables")
    add("--json", type=Path, metavar="FILE|-", help="write the result as JSON")


def _setting(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    with suppress(ValueError):
        if equals:
            return name, int(value)
    raise argparse.ArgumentTypeError(f"{text!r} is not like name=123")


def _share(args: argparse.Namespace) -> int:
    if args.slug is not None or args.json is not None:
        raise UsageError("--share measures all cases into a file of its own: no SLUG, no --json")
    commandline.check_writable(args.share)
    _say_state()
    with commandline.lines() as progress:
        machine = share.take(args.title, progress)
    table = machines.machines_table([machine, *share.recorded()])
    commandline.deliver(args.share, machine.to_json, lambda: table)
    return 0


def _say_state() -> None:
    for check in state.checks():
        if not check.ok:
            commandline.mention(f"machine: {check}")


def _measure(args: argparse.Namespace) -> int:
    if args.share is not None:
        return _share(args)
    if args.slug is None:
        raise UsageError("name a SLUG, or --share FILE for all of them")
    if args.title:
        raise UsageError("--title is for --share")
    if args.slug not in (have := native.available()):
        known = args.slug in register.slugs()
        what = f"{args.slug} has no C model yet" if known else f"no case or model {args.slug!r}"
        raise UsageError(f"{what}; what can be measured: {', '.join(have)}")
    commandline.check_writable(args.json)
    chosen = options(args, "variants", "threads", "repeats", "think_ns", "metric", "ops", "sched")
    _say_state()
    with commandline.bar("run") as progress:
        done = measure(args.slug, params=dict(args.set), progress=progress, **chosen)
    commandline.deliver(args.json, done.to_json, lambda: report.measurement_text(done))
    for failed in done.failures:
        where = f"{args.slug}, variant {failed.variant}, {failed.threads} threads"
        complain(f"{where}: {failed.reason}")
    return 1 if done.failures else 0
