# SPDX-License-Identifier: MIT
"""Run one chapter from top to bottom in a Jupyter kernel of its own.

Nothing here stops a chapter because the machine is slow: the models' runs have deadlines of their
own, in seconds of their own making, so the limits below are only there to end what hangs.
"""

from __future__ import annotations

import atexit
import os
import re
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from traitlets.config import Config

from contended.book.kept import Run

CELL_SECONDS = 1800
"""A cell that takes longer hangs.

The longest chapter took a minute on two quiet CPUs, and seven when some twenty processes wanted the
same two: no cell comes near half an hour, on half a CPU either.
"""

START_SECONDS = 300
"""A kernel that says nothing for so long after its start hangs: it is there in one or two."""

OUTPUT_SECONDS = 120
"""Between a cell's end and the last of its outputs; nbclient would drop them after four."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SOCKET_PATH = 90  # bytes; of the 107 that a socket's address may have, the rest is the name


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a chapter did not run to its end.

    Attributes:
        cell: Which code cell, from 1; 0 if none was started.
        source: The cell's code.
        error: What was raised, as Python prints it at the end of a traceback.
        trace: The whole traceback, without colours.
    """

    cell: int
    source: str
    error: str
    trace: str


def execute(
    text: str,
    folder: Path,
    *,
    env: Mapping[str, str],
    chatter: IO[bytes],
    digest: str = "",
    cell_seconds: int = CELL_SECONDS,
) -> tuple[Run, Stop | None]:
    """Run a notebook.

    Args:
        text: Its JSON.
        folder: Where it runs: the working directory.
        env: Its environment variables.
        chatter: Takes what the kernel itself writes to its standard output and error.
        digest: Of what it rests on; put into the result.
        cell_seconds: A cell that takes longer is ended, and its chapter with it.

    Returns:
        What the chapter showed, as far as it came, and why it stopped if it did.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
        OSError: There is no place for the kernel's sockets.
    """
    notebook: NotebookNode = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    begun: list[int] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="contended-", dir=_short_folder()) as sockets:
        client = NotebookClient(
            notebook,
            # Sockets in a private directory: no port that others on the machine could listen at
            # (the kernel warns of that), and no loopback device needed.
            config=Config(
                KernelManager={"transport": "ipc", "connection_file": f"{sockets}/kernel.json"}
            ),
            timeout=cell_seconds,
            startup_timeout=START_SECONDS,
            iopub_timeout=OUTPUT_SECONDS,
            raise_on_iopub_timeout=True,
            resources={"metadata": {"path": str(folder)}},
            on_cell_start=lambda cell_index, **_: begun.append(cell_index),
        )
        why = _until_end(client, env=dict(env), stdout=chatter, stderr=chatter)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    run = Run(
        digest=digest,
        ended=time.time(),
        seconds=time.monotonic() - started,
        cells=[{"execution_count": c.execution_count, "outputs": c.outputs} for c in code],
        metadata={
            key: notebook.metadata[key]
            for key in ("language_info", "widgets")
            if key in notebook.metadata
        },
    )
    return run, _stop(notebook, begun, why, cell_seconds) if why else None


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


def _short_folder() -> str | None:
    """Where the sockets' directory goes: None for the usual place."""
    return None if len(os.fsencode(tempfile.gettempdir())) < _SOCKET_PATH - 20 else "/tmp"


def _stop(notebook: NotebookNode, begun: list[int], why: Exception, limit: int) -> Stop:
    """What the reader is to know of an exception that ended a run."""
    code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    last = next((i for i in reversed(begun) if i in code), None)
    if last is None:
        return Stop(0, "", f"its Python did not start: {why}", str(why))
    place, source = code.index(last) + 1, notebook.cells[last].source
    if isinstance(why, CellExecutionError):
        return Stop(
            place, source, f"{why.ename}: {why.evalue}".rstrip(": "), _trace(notebook, last)
        )
    if isinstance(why, CellTimeoutError):
        error = f"it was still running after {limit:,} seconds"
        if "IOPub" in str(why):
            error = f"its outputs had not all come {OUTPUT_SECONDS} seconds after its end"
        return Stop(place, source, error, str(why))
    if isinstance(why, DeadKernelError):  # nbclient has no more to say
        error = "its Python died (killed, out of memory, or crashed)"
        return Stop(place, source, error, str(why))
    trace = "".join(traceback.format_exception(why))
    return Stop(place, source, f"{type(why).__name__}: {why}", trace)


def _trace(notebook: NotebookNode, index: int) -> str:
    outputs: list[dict[str, Any]] = notebook.cells[index].outputs
    found = (o["traceback"] for o in outputs if o["output_type"] == "error")
    return plain("\n".join(next(found, [])))


def plain(text: str) -> str:
    """Text without a terminal's colours."""
    return _COLOURS.sub("", text)
