# SPDX-License-Identifier: MIT
"""`contended cases`: the register."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from contended import register
from contended.commands.commandline import arguments, say
from contended.show.table import columns


def fill(parser: argparse.ArgumentParser) -> None:
    """Give the command's parser its arguments."""
    add = arguments(parser, _cases)
    add("--json", action="store_true", help="as JSON on standard output")


def _cases(args: argparse.Namespace) -> None:
    rows = [(f"{case.chapter:02}", case.slug, case.title) for case in register.all()]
    if args.json:
        say(json.dumps([asdict(case) for case in register.all()], indent=2))
    else:
        say(columns([("chapter", "slug", "title"), *rows]))
