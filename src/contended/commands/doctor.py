# SPDX-License-Identifier: MIT
"""`contended doctor`: what this machine has and lacks."""

from __future__ import annotations

import argparse

from contended import doctor


def fill(parser: argparse.ArgumentParser) -> None:
    """Give the command's parser its arguments."""
    parser.add_argument("--json", action="store_true", help="as JSON on standard output")
    parser.set_defaults(command=lambda args: doctor.main(["--json"] if args.json else []))
