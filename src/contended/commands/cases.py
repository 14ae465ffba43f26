# SPDX-License-Identifier: MIT
"""`contended cases`: the register."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from contended import register
from contended.show.table import columns


def fill(parser: argparse.ArgumentParser) -> None:
    """Give the command's parser its arguments."""
    parser.add_argument("--json", action="store_true", help="as JSON on standard output")
    parser.set_defaults(command=_cases)


def _cases(args: argparse.Namespace) -> int:
    known = register.all()
    rows = [("chapter", "slug", "title"), *((f"{c.chapter:02}", c.slug, c.title) for c in known)]
    as_json = json.dumps([asdict(case) for case in known], indent=2)
    sys.stdout.write((as_json if args.json else columns(rows)) + "\n")
    return 0
