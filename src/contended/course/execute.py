# SPDX-License-Identifier: MIT
"""nbgrader's execution of a notebook, of what the instructor wrote alone.

Imported only to grade: nbgrader brings a web server and a database along. `InSandbox` is for
nbgrader's own `autograde`, which the `nbgrader_config.py` of `contended course release --nbgrader`
tells to use it; its formgrader then shows grades that came about as ours do.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contended.course import job, lab, notebook, release, sandbox, submission
from contended.course.lab import Lab
from contended.course.submission import Taken

with notebook.quiet():
    from nbgrader.preprocessors import Execute
    from nbgrader.utils import determine_grade

CELL_S = 60
"""What a test may take, all its questions together."""


class Tests(Execute):  # type: ignore[misc]
    """Executes set-up and test cells, and nothing that a student wrote."""

    def preprocess_cell(self, cell: Any, resources: Any, index: int) -> tuple[Any, Any]:
        """Execute a cell, or leave it as it is."""
        if notebook.is_test(cell) or notebook.is_setup(cell):
            cell, resources = super().preprocess_cell(cell, resources, index)
        return cell, resources


class InSandbox(Tests):
    """The same for a notebook that nbgrader has collected: its student code runs in a sandbox."""

    def preprocess(self, nb: Any, resources: Any, km: Any = None) -> tuple[Any, Any]:
        """Execute a notebook of `autograded/`, which nbgrader has put in order already."""
        sandbox.require(False)
        about = lab.load(lab.folder() / str(resources["metadata"]["name"]))
        texts = {notebook.grade_id(c): str(c.source) for c in nb.cells if notebook.is_student(c)}
        files = {}
        for name in about.files:
            place = Path(resources["metadata"]["path"]) / name
            files[name] = submission.read_file(place, submission.FILE_BYTES)
        taken = Taken(cells=texts, files=files, notes=(), empty=False)
        with told(about, taken, unsafe=False) as work:
            self.timeout = CELL_S
            resources = {**resources, "metadata": {**resources["metadata"], "path": str(work)}}
            return super().preprocess(nb, resources, km)  # type: ignore[no-any-return]


@contextmanager
def told(about: Lab, taken: Taken, *, unsafe: bool) -> Iterator[Path]:
    """Let the kernels that start in this block know whose work they judge.

    Yields:
        The folder for them to work in: a clean copy of what comes with the lab.
    """
    with tempfile.TemporaryDirectory(prefix="contended-judge-") as scratch:
        places = {name: Path(scratch) / name for name in ("work", "taken", "given")}
        for place in places.values():
            place.mkdir()
        given = dict(release.material(about))
        release.write_files(places["work"], given)
        # Student code finds no files of its own: those are compiled, not read.
        hidden = {name for name in given if "/" in name or name in about.files}
        release.write_files(places["given"], {n: given[n] for n in given.keys() - hidden})
        release.write_files(places["taken"], taken.files)
        what = job.Job(
            lab=str(about.folder),
            taken=str(places["taken"]),
            given=str(places["given"]),
            cells=notebook.for_student(about, taken.cells),
            unsafe=unsafe,
        )
        what.save(Path(scratch) / "job.json")
        environ = {
            job.VARIABLE: str(Path(scratch) / "job.json"),
            # Start-up files of whoever grades are no part of the tests.
            "IPYTHONDIR": str(Path(scratch) / "ipython"),
        }
        with _environment(environ):
            yield places["work"]


@contextmanager
def _environment(given: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def silent() -> logging.Logger:
    """What nbgrader logs is for its own commands."""
    found = logging.getLogger("contended.course.nbgrader")
    found.setLevel(logging.CRITICAL)
    return found


def points(cell: Any) -> Sequence[float]:
    """What nbgrader gives for an executed test, and what it could give."""
    with notebook.quiet():
        earned, most = determine_grade(cell, silent())
    return earned, most
