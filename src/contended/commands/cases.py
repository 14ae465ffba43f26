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
    if args.json:
        sys.stdout.write(json.dumps([asdict(case) for case in known], indent=2) + "\n")
        return 0
    rows = [["chapter", "slug", "title"]]
    rows += [[f"{case.chapter:02}", case.slug, case.title] for case in known]
    sys.stdout.write(columns(rows) + "\n")
    return 0
