# SPDX-License-Identifier: MIT
"""`%%model SLUG`: measure a model with the C functions of a notebook's cell, beside its own.

`%load_ext contended.show.magic` brings it. The measurement is left in the variable `yours`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any, NoReturn

from contended import cc
from contended.errors import ContendedError, UsageError
from contended.measure import edited, measure, models
from contended.measure.edited import VARIANT
from contended.measure.results import Measurement
from contended.show import claims, lesson
from contended.show.report import measurement_table, ratio_table


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {' '.join(self.format_usage().split())}")


def _setting(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not value.lstrip("-").isdigit():
        raise UsageError(f"{text!r} is not like name=123")
    return name, int(value)


def _arguments(line: str) -> argparse.Namespace:
    parser = _Parser(prog="%%model", add_help=False)
    parser.add_argument("slug", metavar="SLUG")
    parser.add_argument("--of", metavar="VARIANT")
    parser.add_argument("--threads", metavar="1,2", type=lambda t: [int(n) for n in t.split(",")])
    parser.add_argument("--repeats", metavar="K", type=int, default=5)
    parser.add_argument("--set", metavar="NAME=VALUE", type=_setting, action="append", default=[])
    parser.add_argument("--think", metavar="NS", type=int, default=0)
    parser.add_argument("--metric", metavar="NAME", default="ops_per_s")
    return parser.parse_args(shlex.split(line))


def run(line: str, cell: str) -> Measurement:
    """Measure the model that `line` names with the functions in `cell`, beside before and after.

    The new variant, "yours", is the model's `--of` ("after" by default, or what comes second) in a
    file that has the cell's functions in the place of its own. Raises ContendedError, as `measure`
    does, and UsageError if the cell has no function of the model.
    """
    args = _arguments(line)
    file = edited.edited(args.slug, cell)
    names = [variant.name for variant in models.describe(args.slug).variants]
    other = "after" if "after" in names else names[min(1, len(names) - 1)]
    return measure(
        args.slug,
        variants=list(dict.fromkeys((names[0], other))),
        beside={VARIANT: (file, args.of or other)},
        threads=args.threads,
        repeats=args.repeats,
        params=dict(args.set),
        think_ns=args.think,
        metric=args.metric,
    )


def load_ipython_extension(ipython: Any) -> None:
    """Register the magic; IPython calls this."""
    from IPython.core.error import UsageError as Refused

    def model(line: str, cell: str) -> None:
        if lesson.from_records():
            sys.stdout.write("%%model measures, and this book is made of recorded runs.\n")
            return
        try:
            done = run(line, cell)
        except ContendedError as error:
            if isinstance(error, cc.CompileError):
                sys.stderr.write(error.output)
            raise Refused(str(error)) from None
        claims.display(measurement_table(done))
        claims.display(ratio_table(done))
        ipython.push({VARIANT: done})

    ipython.register_magic_function(model, "cell", "model")
