# SPDX-License-Identifier: MIT
"""The command line: parse, call, print. Errors are one line; nothing is left half-written."""

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from contended import __version__
from contended.errors import ContendedError

COMMANDS = {
    "cases": "list the cases and what is published of them",
    "doctor": "say what this machine has and lacks",
    "host": "say which of the cases the running kernel has",
    "measure": "run a case's C model",
    "kernel": "build, boot and judge patched kernels",
    "c2c": "count which cache lines CPUs take from each other, as perf c2c does",
    "course": "release, check and grade the course labs",
    "simulate": "take a case past this machine's size",
    "scoreboard": "every published number beside ours",
}
"""Each has a module of its name in `contended.commands`, whose `fill` gives it its arguments."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0, 1 (it did not work) or 2 (the call was wrong)."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        args = _parser(argv).parse_args(argv)
        command: Callable[[argparse.Namespace], int] = args.command
        status = command(args)
        sys.stdout.flush()  # here, where a full disk or a closed pipe is still ours to report
        return status
    except ContendedError as error:
        sys.stderr.write(f"contended: {error}\n")
        return error.exit_code
    except ModuleNotFoundError as error:
        if (error.name or "contended").startswith("contended"):
            raise
        extra = "course" if argv[0] == "course" else "book"
        lacking = f"{argv[0]} needs the Python package {error.name}"
        sys.stderr.write(f"contended: {lacking}: pip install 'contended[{extra}]'\n")
        return 1
    except KeyboardInterrupt:
        # A terminal has just echoed ^C.
        start = "\n" if sys.stderr.isatty() else ""
        sys.stderr.write(f"{start}contended: interrupted, nothing was written\n")
        return 128 + signal.SIGINT
    except OSError as error:
        closed = isinstance(error, BrokenPipeError)
        if not closed and error.errno not in (errno.ENOSPC, errno.EIO, errno.EFBIG):
            raise
        # What standard output still holds back can go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if closed:  # whoever read our output has enough; Python must not complain at its own exit
            return 128 + signal.SIGPIPE
        sys.stderr.write(f"contended: cannot write to standard output: {error.strerror}\n")
        return 1


def _parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    does = "Linux VFS scalability bugs: reproduce, patch, measure."
    parser = argparse.ArgumentParser(prog="contended", description=does)
    parser.add_argument("--version", action="version", version=f"contended {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, does in COMMANDS.items():
        command = commands.add_parser(name, help=does)
        if name in argv[:1]:  # none should pay for importing what the others need
            importlib.import_module(f"contended.commands.{name}").fill(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
