# SPDX-License-Identifier: MIT
"""Ask a student's code, from a test cell: `course.call("f", 1, 2)`.

What goes there and comes back is plain data. So a test judges what the code answers, and the code
cannot touch the test: when it is graded it runs in a process of its own, in a sandbox, that has
never seen the tests.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from contended.course import job, sandbox, student
from contended.course.box import Limits
from contended.errors import ContendedError, UsageError

LIMITS = Limits(wall_s=60, cpu_s=60, processes=64)
_ANSWER = 16 << 20
_START_S = 20.0
"""For Python and the cells before the first question: a busy machine takes its time."""


class StudentError(ContendedError):
    """A student's code raised an exception: its class and words in one line.

    Attributes:
        kind: The class's name.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Stopped(StudentError):
    """A student's code did not answer: it took too long or too much, crashed, or left."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "Stopped")


class Session:
    """A process with a student's cells in it; a context manager. See `session`."""

    def __init__(self, deadline_s: float) -> None:
        self._job = job.current()
        self._deadline_s = deadline_s
        self._process: sandbox.Process | None = None
        self._rest = b""

    def __enter__(self) -> Self:
        if self._job is None:
            return self
        limits = Limits(
            wall_s=self._deadline_s + _START_S,
            cpu_s=round(self._deadline_s + _START_S),
            processes=LIMITS.processes,
        )
        command = [sys.executable, "-P", "-m", "contended.course.student"]
        given = {path.name: path.read_bytes() for path in Path(self._job.given).iterdir()}
        self._process = sandbox.Process(
            command, files=given, limits=limits, unsafe=self._job.unsafe
        )
        self._process.__enter__()
        threading.Thread(target=_drain, args=(self._process.child.stderr,), daemon=True).start()
        try:
            end = time.monotonic() + _START_S
            for name, source in self._job.cells:
                # What a cell raised is told when something is missing because of it.
                self._ask({"op": "cell", "name": name, "source": source}, end)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.__exit__()

    def call(
        self, function: str, /, *args: Any, deadline_s: float | None = None, **kwargs: Any
    ) -> Any:
        """What the student's function answers.

        Args:
            function: Its name.
            args: Plain data: None, numbers, texts, lists, dictionaries.
            deadline_s: Seconds that it may take; default: the session's.
            kwargs: The same.

        Raises:
            StudentError: it raised an exception, or there is none of that name.
            Stopped: it did not answer in time, crashed, or used too much.
        """
        request = {"op": "call", "name": function, "args": args, "kwargs": kwargs}
        return self._answer(request, deadline_s)

    def value(self, name: str) -> Any:
        """The value of the student's global variable; raises as `call`."""
        return self._answer({"op": "value", "name": name}, None)

    def define(self, source: str) -> None:
        """Execute code in the student's process, as another cell of it.

        Whatever runs there can be tampered with: let it hand out what it sees, and judge it here.
        """
        self._answer({"op": "cell", "name": "driver", "source": source}, None)

    def _answer(self, request: dict[str, Any], deadline_s: float | None) -> Any:
        limit = self._deadline_s if deadline_s is None else deadline_s
        if self._job is None:
            return _in_this_notebook(request)
        answer = self._ask(request, time.monotonic() + limit)
        if "raised" in answer:
            raise StudentError(str(answer.get("message")), str(answer["raised"]))
        if "ok" not in answer:
            raise Stopped("answered something that is no answer")
        return answer["ok"]

    def _ask(self, request: Mapping[str, Any], end: float) -> dict[str, Any]:
        process = self._process
        if process is None:
            raise UsageError("use the session in a with block")
        assert process.child.stdin
        if process.reason:
            raise Stopped(process.reason)
        with suppress(BrokenPipeError):  # it has ended: its output says no more either
            process.child.stdin.write(json.dumps(request).encode() + b"\n")
            process.child.stdin.flush()
        line = self._line(process, end)
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            process.stop("answered something that is no answer")
            raise Stopped(process.reason)
        return answer

    def _line(self, process: sandbox.Process, end: float) -> bytes:
        assert process.child.stdout
        descriptor = process.child.stdout.fileno()
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0:
                process.stop("did not answer in time and was stopped")
            elif not select.select([descriptor], [], [], left)[0]:
                continue
            part = os.read(descriptor, 1 << 16) if left > 0 else b""
            if not part:
                raise Stopped(self._why(process))
            self._rest += part
            if len(self._rest) > _ANSWER:
                process.stop(f"answered more than {_ANSWER >> 20} MB and was stopped")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _why(self, process: sandbox.Process) -> str:
        """Why there is no answer."""
        if not process.reason:
            with suppress(Exception):
                process.child.wait(1.0)
        if process.reason:
            return process.reason
        status = process.child.poll()
        if status is None:
            process.stop("closed its answers")
            return process.reason
        if status < 0 or status > 128:
            return sandbox.death(-status if status < 0 else status - 128)
        return f"left with exit status {status} before it answered"


def _drain(stream: Any) -> None:
    """Take what a cell prints, so that it need not wait for a reader."""
    with suppress(OSError, ValueError):
        while stream.read1(1 << 16):
            pass


def _in_this_notebook(request: Mapping[str, Any]) -> Any:
    names = sys.modules["__main__"].__dict__
    if request["op"] == "cell":
        exec(compile(request["source"], "<driver>", "exec"), names)
        return None
    if request["name"] not in names:
        raise StudentError(f"nothing is called {request['name']} yet: run its cell", "LookupError")
    found = names[request["name"]]
    if request["op"] == "call":
        # The same plain data as when it is graded: no surprises there.
        plain = json.loads(json.dumps([request["args"], request["kwargs"]]))
        try:
            found = found(*plain[0], **plain[1])
        except Exception as error:
            raise StudentError(f"{type(error).__name__}: {error}", type(error).__name__) from error
    return json.loads(json.dumps(found, default=student.plain))


def session(deadline_s: float = 20.0) -> Session:
    """A process with the student's cells in it, for questions that build on each other.

    Args:
        deadline_s: Seconds for all of them together.
    """
    return Session(deadline_s)


def call(function: str, /, *args: Any, deadline_s: float = 10.0, **kwargs: Any) -> Any:
    """What the student's function answers, in a fresh process; see `Session.call`."""
    with Session(deadline_s) as fresh:
        return fresh.call(function, *args, **kwargs)


def value(name: str) -> Any:
    """The value of the student's global variable; see `Session.value`."""
    with Session(10.0) as fresh:
        return fresh.value(name)


def raises(function: str, /, *args: Any, **kwargs: Any) -> str:
    """The name of the class of the exception that a function raises, or an empty text.

    Raises:
        Stopped: it did not answer in time, crashed, or used too much.
    """
    try:
        call(function, *args, **kwargs)
    except Stopped:
        raise
    except StudentError as error:
        return error.kind
    return ""


def source(grade_id: str) -> str:
    """The text of a student's cell.

    Raises:
        UsageError: there is no such cell. In a notebook that is not being graded it cannot be
            known, and the text is empty.
    """
    now = job.current()
    if now is None:
        return ""
    texts = dict(now.cells)
    if grade_id not in texts:
        raise UsageError(f"no cell {grade_id!r}; there are: {', '.join(texts)}")
    return texts[grade_id]
