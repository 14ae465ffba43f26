# SPDX-License-Identifier: MIT
"""A chapter that stopped, as its reader needs it: the cell, the line, the error, what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contended.book.execute import Stop, plain

_SHOWN = 5  # lines of the cell
_WIDTH = 110
_FULL = ("No space left on device", "Disk quota exceeded")


@dataclass(frozen=True, slots=True)
class Failure:
    """A chapter that stopped.

    Attributes:
        notebook: Its file, from the root.
        title: Its number and title.
        stop: Where and why.
        report: The file with the whole traceback.
    """

    notebook: Path
    title: str
    stop: Stop
    report: Path

    @property
    def disk_full(self) -> bool:
        """Whether it stopped because a disk is full: so will every other chapter."""
        return out_of_space(self.stop.error + self.stop.trace)

    def text(self) -> str:
        """Some ten lines for a terminal."""
        stop = self.stop
        where = f"code cell {stop.cell}" if stop.cell else "before its first cell"
        error = [line for line in stop.error.splitlines() if line.strip()][:3]
        code = excerpt(stop.source, failing_line(stop))
        lines = [
            f"{self.title}: failed in {where} of {self.notebook}",
            *(f"    {line}" for line in code),
            *(_cut(f"  {line}", 2 * _WIDTH) for line in error),
            f"  Traceback: {self.report}",
            f"  To look into it: make lab, open {self.notebook} and run it up to this cell.",
        ]
        return "\n".join(lines)

    def whole(self, chatter: str) -> str:
        """Everything that is known, for the report's file."""
        stop = self.stop
        return (
            f"{self.title} ({self.notebook}), code cell {stop.cell}\n\n{stop.source}\n\n"
            f"{stop.error}\n\n{stop.trace}\n\nWhat its Python wrote besides:\n{plain(chatter)}"
        )


def out_of_space(text: str) -> bool:
    """Whether an error's text says that a disk is full."""
    return any(sign in text for sign in _FULL)


def failing_line(stop: Stop) -> int | None:
    """Which line of the cell the exception came through, from 1; None if no line is known."""
    found = re.findall(r"^ *Cell In ?\[(\d+)\], line (\d+)", stop.trace, re.M)
    # functions of earlier cells may be in it, too; the one that failed has the highest number
    last = max((int(cell) for cell, _ in found), default=0)
    return next((int(line) for cell, line in found if int(cell) == last), None)


def excerpt(source: str, line: int | None) -> list[str]:
    """The lines of a cell around one of them, which is marked; its last lines if that is unknown.

    Above it are two lines or, if its statement goes on below, fewer.
    """
    lines = source.rstrip().splitlines()
    if not lines:
        return []
    if line is None or not 1 <= line <= len(lines):
        first, last = len(lines) - _SHOWN + 1, len(lines)
    else:
        last = min(max(line, _end(source, line)), line + _SHOWN - 2)
        first = max(line - _SHOWN // 2, last - _SHOWN + 1)
    numbered = list(enumerate(lines, 1))[max(0, first - 1) : last]
    while not numbered[0][1].strip():
        del numbered[0]
    return [
        _cut(f"{'>' if number == line else ' '} {number:>3} | {text}") for number, text in numbered
    ]


def _end(source: str, line: int) -> int:
    """The last line of the innermost statement that holds a line."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # the failure itself, or a line for IPython
        return line
    spans = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return min(spans, key=lambda span: span[1] - span[0], default=(line, line))[1]


def _cut(line: str, width: int = _WIDTH) -> str:
    return line if len(line) <= width else f"{line[: width - 3]}..."


def listing(failures: Sequence[Failure], total: int) -> str:
    """All failures of a build, and what to do about them."""
    chapters = f"{len(failures)} of {total} chapters failed"
    kept = "What ran is kept: the next `make book` runs only what failed or has changed."
    return "\n\n".join([*(failure.text() for failure in failures), f"{chapters}. {kept}"])
