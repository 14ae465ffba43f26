# SPDX-License-Identifier: MIT
"""The one exception that the package raises on purpose."""


class ContendedError(Exception):
    """Something the reader can put right: the message is one line and says how.

    The command line prints it without a traceback and exits with `exit_code`.
    """

    exit_code = 1


class UsageError(ContendedError):
    """The call itself was wrong: an unknown name, a value out of range."""

    exit_code = 2
