# SPDX-License-Identifier: MIT
"""The course labs: what a lab's notebook uses (`from contended import course`), and the grading.

Test cells ask the student's work through these few functions, when a student tries them out and
when they are graded; only where the student's code runs differs: see `contended.course.ask`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contended.course.ask import Session, Stopped, StudentError, call, private  # noqa: I001
    from contended.course.ask import raises, session, value
    from contended.course.program import CodeError, Executable, Output, compile  # noqa: A004
    from contended.course.prove import check

__all__ = ["CodeError", "Executable", "Output", "Session", "Stopped", "StudentError"]
__all__ += ["call", "check", "compile", "private", "raises", "session", "value"]

_HOMES = {"check": "prove"}
_HOMES |= dict.fromkeys(("CodeError", "Executable", "Output", "compile"), "program")


def __getattr__(name: str) -> Any:
    # When asked for: the process of a student's cells must not pay for what judges them.
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'ask')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
