# SPDX-License-Identifier: MIT
"""Run one chapter in a Jupyter kernel of its own, tell why it stopped, and keep what it showed.

Nothing here stops a chapter because the machine is slow: the models' runs have deadlines of their
own, so the limits below are only there to end what hangs.
"""

from __future__ import annotations

import ast
import atexit
import json
import os
import re
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import unescape
from pathlib import Path
from typing import IO, Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from traitlets.config import Config

from contended import child

# A cell that takes longer hangs. The longest chapter took a minute on two quiet CPUs, and seven
# when twenty processes wanted the same two: no cell comes near half an hour, on half a CPU either.
CELL_SECONDS = 1800
_START_SECONDS = 300  # a kernel that says nothing for so long hangs: it is there in one or two
_OUTPUT_SECONDS = 120  # until a cell's outputs have all come; nbclient would drop them after four
_SHOWN = 5  # lines of a cell that failed
_WIDTH = 110


# As `contended.show.claims` displays it.
_CLAIM = re.compile(
    r'<[^>]* class="(?:[^"]* )?contended-claim(?: [^"]*)?"'
    r'[^>]* data-holds="(\w+)"[^>]* data-expected="([^"]*)"'
)


@dataclass(frozen=True, slots=True)
class ChapterRun:
    """What one run of a chapter left; `digest` is of what it rested on, `ended` is Unix time.

    `cells` are of its code cells; `metadata` is added to the notebook's: language, widgets' state.
    """

    digest: str
    ended: float
    seconds: float
    cells: list[dict[str, Any]]
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TimeClaim:
    """A claim about time that a chapter made: what was expected, and whether it held."""

    expected: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a chapter stopped (code cell from 1; 0: before any), the last line said, and all."""

    cell: int
    source: str
    error: str
    trace: str


def execute(
    text: str, folder: Path, digest: str, env: dict[str, str], chatter: IO[bytes], limit: int
) -> tuple[ChapterRun, Stop | None]:
    """Run a notebook, given its JSON; what it showed, as far as it came, and why it stopped early.

    `chatter` takes what the kernel itself writes; a cell that takes longer than `limit` seconds is
    ended, and its chapter with it. OSError if there is no place for the kernel's sockets.
    """
    notebook: NotebookNode = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        cell.outputs, cell.execution_count = [], None
    begun: list[NotebookNode] = []
    started = time.monotonic()
    with child.jupyter_sockets() as manager:
        client = NotebookClient(
            notebook,
            config=Config(KernelManager=manager),
            timeout=limit,
            startup_timeout=_START_SECONDS,
            iopub_timeout=_OUTPUT_SECONDS,
            raise_on_iopub_timeout=True,
            resources={"metadata": {"path": str(folder)}},
            on_cell_start=lambda cell, **_: begun.append(cell),
        )
        why = _until_end(client, env=env, stdout=chatter, stderr=chatter)
    added = {k: v for k, v in notebook.metadata.items() if k in ("language_info", "widgets")}
    cells = [{"execution_count": c.execution_count, "outputs": c.outputs} for c in code]
    run = ChapterRun(digest, time.time(), time.monotonic() - started, cells, added)
    if why is None:
        return run, None
    reached = [cell for cell in begun if cell.cell_type == "code"]
    last = reached[-1] if reached else None
    return run, Stop(len(reached), last.source if last else "", *_reason(why, last, limit))


def _until_end(client: NotebookClient, **options: Any) -> Exception | None:
    """Run a client's notebook; what ended it, if that was not its end.

    In a thread, since nbclient, in the main one, takes Ctrl-C for itself and loses it.
    """
    errors: list[Exception] = []
    ended = threading.Event()  # before Python 3.13 a join that is interrupted takes it for ended

    def work() -> None:
        try:
            client.execute(**options)
        except Exception as error:
            errors.append(error)
        finally:
            # nbclient forgets to, where the kernel died, and would complain at the very end
            atexit.unregister(getattr(client, "_cleanup_kernel", work))
            ended.set()

    threading.Thread(target=work, daemon=True).start()
    try:
        ended.wait()
    finally:
        while not ended.wait(0.1):  # Ctrl-C: the kernel's end is the client's
            provisioner = getattr(client.km, "provisioner", None)
            if process := getattr(provisioner, "process", None):
                process.kill()
    return errors[0] if errors else None


def _reason(why: Exception, cell: NotebookNode | None, limit: int) -> tuple[str, str]:
    if cell is None:
        return f"its Python did not start: {why}", str(why)
    if isinstance(why, CellExecutionError):
        traces = (o["traceback"] for o in cell.outputs if o["output_type"] == "error")
        return f"{why.ename}: {why.evalue}".rstrip(": "), plain("\n".join(next(traces, [])))
    if isinstance(why, CellTimeoutError):
        if "IOPub" in str(why):
            return f"its outputs had not all come {_OUTPUT_SECONDS} seconds after its end", str(why)
        return f"it was still running after {limit:,} seconds", str(why)
    if isinstance(why, DeadKernelError):  # nbclient has no more to say
        return "its Python died (killed, out of memory, or crashed)", str(why)
    return f"{type(why).__name__}: {why}", "".join(traceback.format_exception(why))


def plain(text: str) -> str:
    """Text without a terminal's colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@dataclass(frozen=True, slots=True)
class ChapterFailure:
    """A chapter that stopped: its file from the root, its title, why, and where it is reported."""

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
        lines = [
            f"{self.title}: failed in {where} of {self.notebook}",
            *(f"    {line}" for line in excerpt(stop.source, failing_line(stop))),
            *(_cut(f"  {line}", 2 * _WIDTH) for line in error),
            f"  Traceback: {self.report}",
            f"  To look into it: make lab, open {self.notebook} and run it up to this cell.",
        ]
        return "\n".join(lines)

    def whole(self, chatter: str) -> str:
        """Everything that is known, for the report's file."""
        stop, head = self.stop, f"{self.title} ({self.notebook}), code cell {self.stop.cell}"
        wrote = f"What its Python wrote besides:\n{plain(chatter)}"
        return "\n\n".join((head, stop.source, stop.error, stop.trace, wrote))


def out_of_space(text: str) -> bool:
    """Whether an error's text says that a disk is full."""
    return "No space left on device" in text or "Disk quota exceeded" in text


def failing_line(stop: Stop) -> int | None:
    """Which line of the cell the exception came through, from 1; None if no line is known."""
    found = re.findall(r"^ *Cell In ?\[(\d+)\], line (\d+)", stop.trace, re.M)
    # functions of earlier cells may be in it, too; the one that failed has the highest number
    last = max((int(cell) for cell, _ in found), default=0)
    return next((int(line) for cell, line in found if int(cell) == last), None)


def excerpt(source: str, line: int | None) -> list[str]:
    """The lines of a cell around one of them, which is marked; its last ones if that is unknown."""
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
    return [_cut(f"{'>' if at == line else ' '} {at:>3} | {text}") for at, text in numbered]


def _end(source: str, line: int) -> int:
    try:
        statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    except SyntaxError:  # the failure itself, or a line for IPython
        return line
    spans = [(node.lineno, node.end_lineno or node.lineno) for node in statements]
    around = [(last - first, last) for first, last in spans if first <= line <= last]
    return min(around, default=(0, line))[1]


def _cut(line: str, width: int = _WIDTH) -> str:
    return line if len(line) <= width else f"{line[: width - 3]}..."


def listing(failures: Sequence[ChapterFailure], total: int) -> str:
    """All failures of a build, and what to do about them."""
    chapters = f"{len(failures)} of {total} chapters failed"
    kept = "What ran is kept: the next `make book` runs only what failed or has changed."
    return "\n\n".join([*(failure.text() for failure in failures), f"{chapters}. {kept}"])


def load(path: Path) -> ChapterRun | None:
    """A kept run, or None if there is none, or none that can be read."""
    try:
        return ChapterRun(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def save(path: Path, run: ChapterRun) -> None:
    """Keep a run; if that is an OSError, what was kept before still is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(asdict(run), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def prune(folder: Path, known: Iterable[Path]) -> None:
    """Remove what is kept of chapters that are no more; `known` is of those that are."""
    for path in set(folder.glob("*")) - set(known):
        path.unlink()


def merge(notebook: dict[str, Any], run: ChapterRun) -> dict[str, Any]:
    """The notebook as it is now with the outputs of its last run, as far as that came."""
    none: dict[str, Any] = {"execution_count": None, "outputs": []}
    left = iter(run.cells)
    cells = [
        {**cell, **(next(left, none) if cell["cell_type"] == "code" else {})}
        for cell in notebook["cells"]
    ]
    return {**notebook, "cells": cells, "metadata": {**notebook["metadata"], **run.metadata}}


def claims(run: ChapterRun) -> list[TimeClaim]:
    """The claims about time that a run made, in their order."""
    shown = (output.get("data", {}) for cell in run.cells for output in cell["outputs"])
    found = (pair for data in shown for pair in _CLAIM.findall("".join(data.get("text/html", ""))))
    return [TimeClaim(unescape(expected), holds == "true") for holds, expected in found]
