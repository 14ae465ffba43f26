# SPDX-License-Identifier: MIT
"""What processes that we start have in common: they find the package, and they end with us."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel signal this process when the one that started it ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)


def environment() -> dict[str, str]:
    """This process's environment, with all that it can import in reach."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
