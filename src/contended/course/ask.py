# SPDX-License-Identifier: MIT
"""Ask a student's code, from a test cell: `course.call("f", 1, 2)`.

What goes there and comes back is plain data: a test judges what the code answers, and the code
cannot touch the test. Where a student tries it out, it is a function of the same notebook. When it
is graded, the grader has put a job beside the judge's kernel, and the code runs in a process of its
own, in a sandbox, that has never seen the tests.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contended import records
from contended.course import sandbox, student
from contended.course.boxes import Limits
from contended.errors import ContendedError, UsageError
from contended.records import Record

JOB = "CONTENDED_COURSE_JOB"  # the environment variable with the job's file

_ANSWER = 16 << 20
_START_S = 20.0  # for Python and the cells before the first question: machines are busy


@dataclass(frozen=True, slots=True)
class GradingJob(Record):
    """One submission that is being judged; `unsafe` is to do without a sandbox.

    The folder `lab` has all that is private, `taken` the files of the submission, `given` those
    that student code finds where it runs; `cells` are names and texts of what it executes first.
    """

    lab: str
    taken: str
    given: str
    cells: tuple[tuple[str, str], ...]
    unsafe: bool = False


def current() -> GradingJob | None:
    """The job of this process; None in a student's notebook."""
    if not (place := os.environ.get(JOB)):
        return None
    found: GradingJob = records.adapter(GradingJob).validate_json(Path(place).read_bytes())
    return found


def private(name: str) -> Path:
    """A file of `private/` in the folder of the lab that is being graded: no student sees it."""
    now = current()
    path = Path(now.lab if now else ".") / "private" / name
    if not path.is_file():
        raise UsageError(f"no file {name!r} in the lab's folder private/")
    return path


class StudentError(ContendedError):
    """A student's code raised an exception, of the class `kind`: its class and words in a line."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind or type(self).__name__


class Stopped(StudentError):
    """A student's code did not answer: it took too long or too much, crashed, or left."""


class Session:
    """A process with a student's cells in it, as `session` makes it; None: this notebook."""

    def __init__(self, process: sandbox.Process | None, deadline_s: float) -> None:
        self._process = process
        self._deadline_s = deadline_s
        self._rest = bytearray()

    def call(self, function: str, /, *args: Any, **kwargs: Any) -> Any:
        """What the student's function answers to plain data; otherwise StudentError or Stopped."""
        return self._answer({"op": "call", "name": function, "args": args, "kwargs": kwargs})

    def value(self, name: str) -> Any:
        """The value of the student's global variable; raises as `call`."""
        return self._answer({"op": "value", "name": name})

    def _answer(self, request: dict[str, Any]) -> Any:
        if self._process is None:
            return _in_this_notebook(request)
        answer = self._ask(request, time.monotonic() + self._deadline_s)
        if "raised" in answer:
            raise StudentError(str(answer.get("message")), str(answer["raised"]))
        if "ok" not in answer:
            raise Stopped("answered something that is no answer")
        return answer["ok"]

    def _ask(self, request: dict[str, Any], end: float) -> dict[str, Any]:
        process = self._process
        assert process
        assert process.child.stdin
        if process.reason:
            raise Stopped(process.reason)
        with suppress(BrokenPipeError):  # it has ended: its output says no more either
            process.child.stdin.write(json.dumps(request).encode() + b"\n")
            process.child.stdin.flush()
        try:
            answer = json.loads(self._line(process, end))
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
                raise Stopped(_why_silent(process))
            self._rest += part
            if len(self._rest) > _ANSWER:
                process.stop(f"answered more than {_ANSWER >> 20} MB and was stopped")
        line, _, self._rest = self._rest.partition(b"\n")
        return bytes(line)


def _why_silent(process: sandbox.Process) -> str:
    if not process.reason:
        with suppress(Exception):
            process.child.wait(1.0)
    status = process.child.poll()
    if status is None:
        process.stop("closed its answers")
    if process.reason or status is None:
        return process.reason
    if status < 0 or status > 128:
        return sandbox.death(-status if status < 0 else status - 128)
    return f"left with exit status {status} before it answered"


def _in_this_notebook(request: dict[str, Any]) -> Any:
    names = sys.modules["__main__"].__dict__
    if request["name"] not in names:
        raise StudentError(f"nothing is called {request['name']} yet: run its cell", "LookupError")
    found = names[request["name"]]
    if request["op"] == "call":
        # The same plain data as when it is graded: no surprises there.
        args, kwargs = json.loads(json.dumps([request["args"], request["kwargs"]]))
        try:
            found = found(*args, **kwargs)
        except Exception as error:
            raise StudentError(f"{type(error).__name__}: {error}", type(error).__name__) from error
    return json.loads(json.dumps(found, default=student.plain))


@contextmanager
def session(deadline_s: float = 20.0) -> Iterator[Session]:
    """A process with the student's cells in it, for questions that build on each other in time."""
    now = current()
    if now is None:
        yield Session(None, deadline_s)
        return
    seconds = deadline_s + _START_S
    with sandbox.Process(
        [sys.executable, "-P", "-m", "contended.course.student"],
        files={path.name: path.read_bytes() for path in Path(now.given).iterdir()},
        limits=Limits(wall_s=seconds, cpu_s=round(seconds)),
        unsafe=now.unsafe,
        stderr=subprocess.DEVNULL,  # what a cell prints goes there, too
    ) as process:
        opened = Session(process, deadline_s)
        end = time.monotonic() + _START_S
        for name, source in now.cells:
            # What a cell raised is told when something is missing because of it.
            opened._ask({"op": "cell", "name": name, "source": source}, end)
        yield opened


def call(function: str, /, *args: Any, deadline_s: float = 10.0, **kwargs: Any) -> Any:
    """What the student's function answers, in a fresh process; see `Session.call`."""
    with session(deadline_s) as fresh:
        return fresh.call(function, *args, **kwargs)


def value(name: str) -> Any:
    """The value of the student's global variable; see `Session.value`."""
    with session(10.0) as fresh:
        return fresh.value(name)


def raises(function: str, /, *args: Any, **kwargs: Any) -> str:
    """The class's name of the exception that a function raises, or an empty text; or Stopped."""
    try:
        call(function, *args, **kwargs)
    except Stopped:
        raise
    except StudentError as error:
        return error.kind
    return ""
