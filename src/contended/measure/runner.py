# SPDX-License-Identifier: MIT
"""Runs of C models in a child process, each with a deadline.

A model is somebody's C, perhaps a student's. So it never runs in this process: a crash, an endless
loop or a broken invariant comes back as a reason in words.
"""

import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from contended import child, records
from contended.errors import ContendedError

# What a run may take beyond what it plans, for a machine that is busy with other things.
GRACE_S = 5.0
# To load a model, which takes milliseconds, on a machine that is busy with other things.
LOAD_S = 30.0
# How long a run waits for another one's end before it goes on beside it.
PATIENCE_S = 120.0


class RunFailed(ContendedError):
    """A run that gave no result, and why; a busy machine may be to blame if it is `late`."""

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One run of one variant: `struct ct_config` of `csrc/abi.h`, which explains the fields."""

    variant: int
    threads: int
    cpus: list[int]
    params: list[int] = field(default_factory=list)
    slices: int = 5
    sched: int = 0
    pin: bool = True
    think_ns: int = 0
    warmup_ns: int = 0
    slice_ns: int = 0
    ops: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseResult:
    """What one phase of a run gave; rates in operations per second, counts over all threads."""

    rate_min: float
    rate_median: float
    rate_max: float
    ops: int
    cpu_changes: int
    counts: list[int]
    latency_ns: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What one run gave: `struct ct_result` of `csrc/abi.h`."""

    sched: str
    start_skew_ns: int
    stop_skew_ns: int
    runq_wait_ns: int
    first_touch: int
    phases: list[PhaseResult]


class Runner:
    """A child process that runs models; a context manager, nothing of it outlives the block."""

    _child: subprocess.Popen[str] | None = None

    def __init__(self) -> None:
        self._patience_s = PATIENCE_S

    def __enter__(self) -> Self:
        # A session of its own: Ctrl-C in a terminal reaches us, and we end the child in order.
        self._child = subprocess.Popen(
            [sys.executable, "-m", "contended.measure.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=child.environment(),
        )
        return self

    def __exit__(self, *_: object) -> None:
        host, self._child = self._child, None
        assert host is not None
        host.terminate()  # it ends whatever a model has started, then itself
        try:
            host.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            host.kill()
            host.communicate()

    def describe(self, library: Path) -> dict[str, Any]:
        """The model's own description, as plain data."""
        return self._ask(library, LOAD_S)

    def run(self, library: Path, config: Config, *, deadline_s: float) -> RunResult:
        """Run a variant once; raises RunFailed if it crashed, took too long or counted wrong.

        While it runs, no other runner of this package does: two would disturb each other's numbers,
        and threads of SCHED_FIFO could keep each other from their CPUs until both are stopped.
        """
        with self._alone():
            answer = self._ask(library, deadline_s, config=asdict(config))
        run: RunResult = records.adapter(RunResult).validate_python(answer)
        return run

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait for another process's run to end, once if that is stuck, and keep others waiting."""
        until = time.monotonic() + self._patience_s
        # a file of our own: it is there in read-only installations too, and is only locked
        with Path(__file__).open("rb") as ours:
            while True:
                try:
                    fcntl.flock(ours, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        self._patience_s = 0
                        break
                    time.sleep(0.005)
            yield

    def _ask(self, library: Path, deadline_s: float, **more: Any) -> dict[str, Any]:
        host = self._child
        assert host is not None, "use the runner as a context manager"
        assert host.stdin is not None
        assert host.stdout is not None
        request = {"library": str(library), "deadline_s": deadline_s, **more}
        try:
            host.stdin.write(json.dumps(request) + "\n")
            host.stdin.flush()
            line = host.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise ContendedError("the process that runs the models ended; is memory short?")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise RunFailed(answer["failed"], late=answer.get("late", False))
        return answer
