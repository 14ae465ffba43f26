# SPDX-License-Identifier: MIT
"""Judge a notebook's tests: nbgrader's execution, of the tests alone.

The judge's kernel runs set-up and test cells of the instructor's copy. A student's cells are in the
notebook too, so that the result is nbgrader's autograded notebook, but they are executed elsewhere:
whenever a test asks them something (`contended.course.ask`). So nothing that a student wrote shares
a process with the tests, their answers, or the points.
"""

from __future__ import annotations

import re
from typing import Any

from nbclient.exceptions import DeadKernelError

from contended.course import execute, notebook
from contended.course.grades import Verdict
from contended.course.lab import Lab
from contended.course.submission import Taken
from contended.errors import ContendedError

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def judge(lab: Lab, taken: Taken, *, unsafe: bool = False) -> tuple[dict[str, Verdict], str]:
    """Run a lab's tests against a submission.

    Returns:
        A verdict for each part, and the autograded notebook's text.

    Raises:
        ContendedError: the tests could not be run: no kernel, or it died.
    """
    book = notebook.overlay(lab, taken.cells)
    with execute.told(lab, taken, unsafe=unsafe) as work, notebook.quiet():
        run = execute.Tests(timeout=execute.CELL_S, kernel_name="python3")
        run.log = execute.silent()
        try:
            book, _ = run.preprocess(book, {"metadata": {"path": str(work)}})
        except DeadKernelError as error:
            raise ContendedError("the kernel that runs the tests died") from error
    return {notebook.grade_id(c): _verdict(c) for c in book.cells if notebook.is_test(c)}, (
        notebook.write(book)
    )


def _verdict(cell: Any) -> Verdict:
    """What nbgrader makes of an executed test, with the reason in a student's words."""
    earned, most = execute.points(cell)
    if earned == most:
        return Verdict()
    for output in cell.outputs:
        if output.output_type == "error":
            return Verdict(_words(output.ename, output.evalue))
    warned = "".join(o.text for o in cell.outputs if o.output_type == "stream")
    return Verdict(f"the test warned: {warned.strip()[:500]}" if warned else "the test failed")


def _words(kind: str, said: str) -> str:
    said = _ANSI.sub("", said).strip()
    if kind == "CellTimeoutError":
        return f"the test did not end within {execute.CELL_S} s"
    if kind in ("AssertionError", "StudentError", "Stopped", "CompileError", "UsageError"):
        return said[:2000] or "a test of this part failed"
    return f"{kind}: {said}"[:2000]
