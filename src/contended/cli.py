# SPDX-License-Identifier: MIT
"""The command line: parse, call, print. Errors are one line; nothing is left half-written."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from contended import __version__
from contended.commands import commandline
from contended.errors import ContendedError, UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0, 1 (it did not work) or 2 (the call was wrong)."""
    args = _parser(sys.argv[1:] if argv is None else argv).parse_args(argv)
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        status = command(args)
        sys.stdout.flush()  # here, where a full disk or a closed pipe is still ours to report
        return status
    except ContendedError as error:
        sys.stderr.write(f"contended: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        # A terminal has just echoed ^C.
        start = "\n" if sys.stderr.isatty() else ""
        sys.stderr.write(f"{start}contended: interrupted, nothing was written\n")
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has enough; Python must not complain again at its own exit.
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EFBIG):
            raise
        _drop_output()
        sys.stderr.write(f"contended: cannot write to standard output: {error.strerror}\n")
        return 1


def _drop_output() -> None:
    """What standard output still holds back can go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="contended", description="Linux VFS scalability bugs: reproduce, patch, measure."
    )
    parser.add_argument("--version", action="version", version=f"contended {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    cases = commands.add_parser("cases", help="list the cases and what is published of them")
    cases.add_argument("--json", action="store_true", help="as JSON on standard output")
    cases.set_defaults(command=_cases)

    doctor = commands.add_parser("doctor", help="say what this machine has and lacks")
    doctor.add_argument("--json", action="store_true", help="as JSON on standard output")
    doctor.set_defaults(command=_doctor)

    measure = commands.add_parser(
        "measure",
        help="run a case's C model",
        description="Run a C model's variants, interleaved and pinned, and compare them.",
    )
    measure.add_argument("slug", metavar="SLUG", help="a case, or another model of csrc/models")
    measure.add_argument("--variants", type=commandline.names, metavar="A,B", help="default: all")
    measure.add_argument(
        "--threads", type=commandline.counts, metavar="1,2", help="default: 1, 2, 4, ..."
    )
    measure.add_argument("--repeats", type=int, default=7, metavar="K", help="default: 7")
    measure.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the model",
    )
    measure.add_argument(
        "--metric",
        default="ops_per_s",
        metavar="NAME",
        help="ops_per_s (default), ns_per_op, latency_us, or COUNTER_per_op",
    )
    measure.add_argument(
        "--think", type=int, default=0, metavar="NS", help="work between operations, nanoseconds"
    )
    measure.add_argument(
        "--ops",
        type=int,
        default=0,
        metavar="N",
        help="make each slice N operations of each thread, instead of a time",
    )
    measure.add_argument(
        "--sched",
        choices=("auto", "fifo", "other"),
        default="auto",
        help="auto: SCHED_FIFO where it is allowed and safe; fifo: or an error; other: never",
    )
    measure.add_argument("--json", type=Path, metavar="FILE|-", help="write the result as JSON")
    measure.set_defaults(command=_measure)

    kernel = commands.add_parser("kernel", help="build, boot and judge patched kernels")
    if "kernel" in argv[:1]:  # the other commands should not pay for importing the kernel lab
        from contended.commands import kernel as kernel_commands

        kernel_commands.fill(kernel)
    c2c = commands.add_parser(
        "c2c", help="count which cache lines CPUs take from each other, as perf c2c does"
    )
    if "c2c" in argv[:1]:
        from contended.kernel import c2c as profiler

        profiler.fill(c2c)
    course = commands.add_parser("course", help="release, check and grade the course labs")
    if "course" in argv[:1]:
        from contended.commands import course as course_commands

        course_commands.fill(course)
    simulate = commands.add_parser("simulate", help="take a case past this machine's size")
    if "simulate" in argv[:1]:
        from contended.commands import simulate as simulate_commands

        simulate_commands.fill(simulate)
    scoreboard = commands.add_parser("scoreboard", help="every published number beside ours")
    if "scoreboard" in argv[:1]:
        from contended.commands import scoreboard as scoreboard_commands

        scoreboard_commands.fill(scoreboard)
    return parser


def _setting(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    try:
        if equals:
            return name, int(value)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not like name=123")


def _cases(args: argparse.Namespace) -> int:
    from contended import register
    from contended.show import report

    known = register.all()
    if args.json:
        sys.stdout.write(json.dumps([asdict(case) for case in known], indent=2) + "\n")
        return 0
    rows = [["chapter", "slug", "title"]]
    rows += [[f"{case.chapter:02}", case.slug, case.title] for case in known]
    sys.stdout.write(report.columns(rows) + "\n")
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from contended import doctor

    return doctor.main(["--json"] if args.json else [])


def _measure(args: argparse.Namespace) -> int:
    from contended.measure import measure
    from contended.show import report

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
    from contended import register
    from contended.measure import native

    have = native.available()
    if slug in have:
        return
    known = [case.slug for case in register.all()]
    listed = ", ".join(have)
    if slug in known:
        raise UsageError(f"{slug} has no C model yet; what can be measured: {listed}")
    raise UsageError(f"no case or model {slug!r}; what can be measured: {listed}")


if __name__ == "__main__":
    sys.exit(main())
