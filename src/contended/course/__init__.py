# SPDX-License-Identifier: MIT
"""The course labs: what a lab's notebook uses (`from contended import course`), and the grading.

A notebook's test cells ask the student's work through these few functions, and judge the answers.
They do the same when a student tries them out and when they are graded; only where the student's
code runs differs: see `contended.course.job`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contended.course.ask import (
        Session,
        Stopped,
        StudentError,
        call,
        raises,
        session,
        source,
        value,
    )
    from contended.course.checking import check
    from contended.course.job import private
    from contended.course.program import CompileError, Output, Program, compile  # noqa: A004

__all__ = [
    "CompileError",
    "Output",
    "Program",
    "Session",
    "Stopped",
    "StudentError",
    "call",
    "check",
    "compile",
    "private",
    "raises",
    "session",
    "source",
    "value",
]

_HOMES = {
    "ask": ("Session", "Stopped", "StudentError", "call", "raises", "session", "source", "value"),
    "checking": ("check",),
    "job": ("private",),
    "program": ("CompileError", "Output", "Program", "compile"),
}


def __getattr__(name: str) -> Any:
    # When asked for: the process of a student's cells must not pay for what judges them.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"contended.course.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
