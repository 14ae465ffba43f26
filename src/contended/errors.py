# SPDX-License-Identifier: MIT
"""The one exception that the package raises on purpose."""

from collections.abc import Mapping
from typing import TypeVar

_T = TypeVar("_T")


class ContendedError(Exception):
    """Something the reader can put right: the message is one line and says how.

    The command line prints it without a traceback and exits with `exit_code`.
    """

    exit_code = 1


class UsageError(ContendedError):
    """The call itself was wrong: an unknown name, a value out of range."""

    exit_code = 2


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise UsageError unless a number is in its range, ends included."""
    if not low <= value <= high:
        raise UsageError(f"{name} is {value:g}: choose {low:g} to {high:g}")


def pick(known: Mapping[str, _T], name: str, lacking: str) -> _T:
    """What a table has by a name; if nothing, a UsageError that lists the names there are."""
    if name not in known:
        raise UsageError(f"{lacking} {name!r}; it has: {', '.join(known) or 'none'}")
    return known[name]
