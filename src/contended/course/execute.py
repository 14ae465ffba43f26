# SPDX-License-Identifier: MIT
"""Judge a notebook's tests: nbgrader's execution, of what the instructor wrote alone.

A student's cells are in the judge's copy for nbgrader's autograded notebook, but are executed
elsewhere, whenever a test asks them something: nothing of theirs shares a process with the tests.
Imported only to grade: nbgrader brings a web server and a database along.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from nbclient.exceptions import DeadKernelError

from contended import child
from contended.course import ask, lab, notebook, release, sandbox, submission
from contended.course.grades import Verdict
from contended.course.lab import Lab
from contended.course.submission import Taken
from contended.errors import ContendedError

with notebook.quiet():
    from nbgrader.preprocessors import Execute
    from nbgrader.utils import determine_grade

CELL_S = 60  # what a test may take, all its questions together

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Tests(Execute):  # type: ignore[misc]
    """Executes set-up and test cells, and nothing that a student wrote."""

    def preprocess_cell(self, cell: Any, resources: Any, index: int) -> tuple[Any, Any]:
        """Execute a cell, or leave it as it is."""
        if notebook.role(cell) in ("test", "setup"):
            cell, resources = super().preprocess_cell(cell, resources, index)
        return cell, resources

    def setup_kernel(self, **options: Any) -> Any:
        """Start a kernel that knows whose work it judges."""
        return super().setup_kernel(env={**os.environ, **self._environ}, **options)

    def run(
        self, book: Any, about: Lab, taken: Taken, resources: Any, *, unsafe: bool = False
    ) -> tuple[Any, Any]:
        """Execute a notebook among a clean copy of what comes with the lab."""
        with (
            child.scratch() as place,
            child.jupyter_sockets() as manager,
        ):
            # Submissions are graded side by side, each by a kernel of its own.
            self.config.KernelManager.update(manager)
            material = dict(release.material(about))
            # Student code finds no files of its own: those are compiled, not read.
            given = {n: c for n, c in material.items() if "/" not in n and n not in about.files}
            for name, files in (("work", material), ("taken", taken.files), ("given", given)):
                (place / name).mkdir()
                release.write_files(place / name, files)
            cells = notebook.for_student(about, taken.cells)
            folders = str(about.folder), str(place / "taken"), str(place / "given")
            ask.GradingJob(*folders, cells, unsafe).save(place / "job.json")
            # Start-up files of whoever grades are no part of the tests.
            ipython = str(place / "ipython")
            self._environ = {"IPYTHONDIR": ipython, ask.JOB: str(place / "job.json")}
            self.timeout = CELL_S
            about_it = {**resources["metadata"], "path": str(place / "work")}
            return super().preprocess(book, {**resources, "metadata": about_it})  # type: ignore[no-any-return]


class InSandbox(Tests):
    """The same for nbgrader's own `autograde`, which a release's `nbgrader_config.py` tells so."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Execute a notebook of `autograded/`, which nbgrader has put in order already."""
        os.environ[sandbox.CHOICE] = sandbox.require(False)
        about = lab.load(lab.folder() / str(resources["metadata"]["name"]))
        place = Path(resources["metadata"]["path"])
        files = {name: submission.read_file(place / name) for name in about.files}
        return self.run(nb, about, Taken(notebook.students(nb), files), resources)


def judge(about: Lab, taken: Taken, *, unsafe: bool = False) -> tuple[dict[str, Verdict], str]:
    """A verdict for each part of a submission, and the autograded notebook's text."""
    book = notebook.overlay(about, taken.cells)
    with notebook.quiet() as log:
        tests = Tests(kernel_name="python3")
        tests.log = log
        try:
            book, _ = tests.run(book, about, taken, {"metadata": {}}, unsafe=unsafe)
        except DeadKernelError as error:
            raise ContendedError("the kernel that runs the tests died") from error
        judged = [cell for cell in book.cells if notebook.role(cell) == "test"]
        verdicts = {notebook.grade_id(cell): _verdict(cell, log) for cell in judged}
    return verdicts, notebook.write(book)


def _verdict(cell: Any, log: Any) -> Verdict:
    earned, most = determine_grade(cell, log)
    if earned == most:
        return Verdict()
    for output in cell.outputs:
        if output.output_type == "error":
            kind, said = output.ename, _ANSI.sub("", output.evalue).strip()
            if kind == "CellTimeoutError":
                return Verdict(f"the test did not end within {CELL_S} s")
            told = kind in ("AssertionError", "StudentError", "Stopped", "CodeError", "UsageError")
            words = (said or "a test of this part failed") if told else f"{kind}: {said}"
            return Verdict(words[:2000])
    warned = "".join(o.text for o in cell.outputs if o.output_type == "stream")
    return Verdict(f"the test warned: {warned.strip()[:500]}" if warned else "the test failed")
