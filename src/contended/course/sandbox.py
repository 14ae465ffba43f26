# SPDX-License-Identifier: MIT
"""Run what a stranger wrote: no network, no files but its own, and an end to everything.

A process in here lives under bubblewrap: own pid, mount, network, ipc and uts namespaces, a root of
which everything is read-only but one small folder in memory, an environment of our making, no
capabilities, and the system calls of `contended.course.seccomp` refused. CPU time, address space,
processes, files and output are limited, and a watcher adds up the memory of all its processes and
knows the deadline. Whatever it leaves behind ends with its pid namespace.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Self

from contended import child
from contended.course import box, seccomp
from contended.course.box import Limits
from contended.errors import ContendedError

MISSING = "grading runs strangers' code and needs bubblewrap: apt-get install bubblewrap"

_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a run ended.

    Attributes:
        status: The exit status; minus the signal's number if one ended it.
        stdout: At most as much as was allowed.
        stderr: The same.
        reason: Why it was stopped, or how it died, in words; empty if it just ended.
        wall_s: How long it took, seconds.
    """

    status: int
    stdout: bytes
    stderr: bytes
    reason: str
    wall_s: float


@cache
def problem() -> str:
    """Why nothing can be run safely here; empty if it can."""
    if shutil.which("bwrap") is None:
        return MISSING
    try:
        done = run([sys.executable, "-P", "-c", "print(6 * 7)"], limits=Limits(wall_s=20))
    except OSError as error:
        return f"bubblewrap does not start: {error.strerror}"
    if done.stdout.strip() == b"42":
        return ""
    said = next(iter(done.stderr.decode(errors="replace").splitlines()), done.reason or "no reason")
    return f"bubblewrap does not work here ({said}); it needs user namespaces, see docs"


def require(unsafe: bool) -> None:
    """Refuse to go on where nothing can be run safely, unless the caller insists.

    Raises:
        ContendedError: there is no working bubblewrap and `unsafe` is false.
    """
    if not unsafe and (why := problem()):
        raise ContendedError(f"{why}; or grade with --unsafe in a machine that you can throw away")


class Process:
    """A process in a box; a context manager, nothing of it outlives the block.

    Args:
        command: What to run; it starts in its own folder.
        files: What is in that folder: names and contents.
        readable: Files and folders that it may read, besides the system's and Python's.
        limits: What it may use.
        unsafe: Without bubblewrap: with the caller's rights, in a temporary folder.
        stdout: Where its output goes; default: a pipe.
        environ: Added to its environment.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        readable: Sequence[Path] = (),
        limits: Limits | None = None,
        unsafe: bool = False,
        stdout: IO[bytes] | int = subprocess.PIPE,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._command = list(command)
        self._files = dict(files or {})
        self._readable = tuple(readable)
        self.limits = limits or Limits()
        self._unsafe = unsafe
        self._stdout = stdout
        self._environ = dict(environ or {})
        self._stopped = threading.Event()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self.reason = ""

    def __enter__(self) -> Self:
        self.started = time.monotonic()
        descriptors: list[int] = []
        try:
            command, cwd = self._prepare(descriptors)
            environ = box.environment(**self._environ)
            if cwd is not None:
                environ |= {"HOME": cwd, "TMPDIR": cwd}
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=self._stdout,
                stderr=subprocess.PIPE,
                env=environ,
                cwd=cwd or "/",
                start_new_session=True,
                pass_fds=descriptors,
            )
        except BaseException:
            self._forget()
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def _prepare(self, descriptors: list[int]) -> tuple[list[str], str | None]:
        if self._unsafe:
            self._scratch = tempfile.TemporaryDirectory(prefix="contended-")
            for name, content in self._files.items():
                file = Path(self._scratch.name) / name
                file.write_bytes(content)
                file.chmod(0o755)
            # Here all of the user's processes count, so their number cannot be limited.
            everything = resource.getrlimit(resource.RLIMIT_NPROC)[0]
            many = everything if everything != resource.RLIM_INFINITY else 1 << 20
            limits = replace(self.limits, processes=many)
            return box.limited(limits) + self._command, self._scratch.name

        def hold(content: bytes) -> int:
            descriptor = os.memfd_create("contended")
            descriptors.append(descriptor)
            with os.fdopen(os.dup(descriptor), "wb") as stream:
                stream.write(content)
            os.lseek(descriptor, 0, os.SEEK_SET)
            return descriptor

        data = {name: hold(content) for name, content in self._files.items()}
        calls = seccomp.program()
        before = box.prefix(
            readable=(*box.python(), *self._readable),
            limits=self.limits,
            filter_fd=hold(calls) if calls else None,
            data=data,
        )
        return before + self._command, None

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._kill()
        self._watcher.join()
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._forget()

    def _forget(self) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()

    def stop(self, reason: str) -> None:
        """End it; the first reason stays."""
        self.reason = self.reason or reason
        self._kill()

    def _kill(self) -> None:
        # The group: without a box it may have children; in a box all ends with its first process.
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()

    def _watch(self) -> None:
        deadline = self.started + self.limits.wall_s
        while not self._stopped.wait(_POLL_S):
            if self.child.poll() is not None:
                return
            if time.monotonic() > deadline:
                self.stop(f"did not finish within {self.limits.wall_s:.3g} s and was stopped")
            elif (used := _memory(self.child.pid)) > self.limits.memory:
                self.stop(
                    f"used {used / 1e9:.1f} GB of memory and was stopped: "
                    f"{self.limits.memory / 1e9:.1f} GB is the limit"
                )


def run(
    command: Sequence[str],
    *,
    files: Mapping[str, bytes] | None = None,
    readable: Sequence[Path] = (),
    limits: Limits | None = None,
    stdin: bytes = b"",
    unsafe: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Done:
    """Run a command in a box until it ends, or is ended; see `Process`.

    Raises:
        OSError: it could not even be started.
    """
    limits = limits or Limits()
    taken: dict[str, bytearray] = {"output": bytearray(), "errors": bytearray()}

    def take(stream: IO[bytes], name: str) -> None:
        while part := stream.read1(1 << 16):  # type: ignore[attr-defined]
            taken[name] += part[: limits.output - len(taken[name])]
            if len(taken[name]) >= limits.output:
                process.stop(f"printed more than {limits.output / 1e6:.3g} MB and was stopped")
                return

    process = Process(
        command, files=files, readable=readable, limits=limits, unsafe=unsafe, environ=environ
    )
    with process:
        running = process.child
        assert running.stdin
        readers = [
            threading.Thread(target=take, args=(stream, name), daemon=True)
            for stream, name in ((running.stdout, "output"), (running.stderr, "errors"))
        ]
        for reader in readers:
            reader.start()
        with suppress(BrokenPipeError):
            running.stdin.write(stdin)
        with suppress(BrokenPipeError):
            running.stdin.close()
        status = running.wait()
        wall = time.monotonic() - process.started
        for reader in readers:
            # Without a box, something left behind may hold the pipe open: it is killed below.
            reader.join(1.0)
    # bubblewrap reports a signal as a shell does.
    if status > 128 and not unsafe:
        status = 128 - status
    reason = process.reason or (death(-status) if status < 0 else "")
    return Done(
        status=status,
        stdout=bytes(taken["output"]),
        stderr=bytes(taken["errors"]),
        reason=reason,
        wall_s=wall,
    )


_CAUSES = {
    "SIGXCPU": "it used up its CPU time",
    "SIGXFSZ": "it wrote too large a file",
    "SIGKILL": "it used up its CPU time or its memory",
}


def death(number: int) -> str:
    """How a process died, in words."""
    return child.death(number, **_CAUSES)


def _memory(top: int) -> int:
    """The bytes of memory that a process and all below it hold."""
    pages: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for pid, fields in child.processes():
        pages[pid] = int(fields[21])
        children.setdefault(int(fields[1]), []).append(pid)
    total, todo = 0, [top]
    while todo:
        pid = todo.pop()
        total += pages.get(pid, 0)
        todo += children.get(pid, [])
    return total * resource.getpagesize()
