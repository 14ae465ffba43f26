# SPDX-License-Identifier: MIT
"""Run what a stranger wrote: no network, no files but its own, and an end to everything.

A process here lives under bubblewrap: own namespaces, a root of which all is read-only but one
small folder in memory, no capabilities, system calls refused (`filters`), and limits. Under root a
user that owns nothing lives in each box, so that limits on processes do not meet; others need user
namespaces. Where bubblewrap may not make any, root has a second mode, of less (`confine`): that
user, Landlock, more calls refused, and limits that are watched.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, Self

from contended import child, tree
from contended.course import boxes, confine, filters, usage
from contended.course.boxes import Limits
from contended.errors import ContendedError, UsageError

MISSING = "grading runs strangers' code and needs bubblewrap: apt-get install bubblewrap"

MODES = ("bubblewrap", "landlock")
UNBOXED = "none"  # the name of what `unsafe` does
CHOICE = "CONTENDED_SANDBOX"  # the environment variable that names one of the modes

_POLL_S = 0.05
_END_S = 15.0


def builder(limits: Limits, readable: Path, writable: Path) -> list[str]:
    """The command that one is put behind to make something out of a folder in another."""
    if chosen() == "bubblewrap":
        command, temporary = boxes.box(limits, [readable], [writable]), boxes.HOME
    else:
        # The folder's owner, without any of root's rights: who owns nothing cannot write there.
        temporary = str(writable)
        command = boxes.confined(limits, 0, "", [readable], [writable]).command()
    return [*command, "env", f"TMPDIR={temporary}", f"HOME={temporary}"]


@dataclass(frozen=True, slots=True)
class Done:
    """How a run ended: `status` is minus a signal's number, `reason` empty if it just ended."""

    status: int
    stdout: bytes
    stderr: bytes
    reason: str
    wall_s: float


def chosen() -> str:
    """The mode by which a process is boxed here: the one that is asked for, or the best."""
    asked = os.environ.get(CHOICE, "")
    if asked and asked not in MODES:
        raise UsageError(f"{CHOICE}={asked}: there are {', '.join(MODES)}")
    return asked or _best()


@cache
def _best() -> str:
    # Whoever has no bubblewrap is told to install it, rather than given less.
    if shutil.which("bwrap") is None or not trouble("bubblewrap"):
        return "bubblewrap"
    return "bubblewrap" if trouble("landlock") else "landlock"


@cache
def trouble(mode: str) -> str:
    """Why a mode does not work here; empty if it does."""
    cure = "it needs user namespaces, see docs"
    if mode == "bubblewrap" and shutil.which("bwrap") is None:
        return MISSING
    if mode == "landlock":
        cure = "it runs Python as a user that owns nothing, who must be able to read it"
        if os.geteuid():
            return "the sandbox by Landlock needs root, for a user of its own in each box"
        if not confine.landlock():
            return "the sandbox by Landlock needs a kernel that has it: Linux 5.13 with it enabled"
        if not filters.program():
            return f"the sandbox by Landlock knows no system calls of {platform.machine()}"
    # Among what it needs is the package, and there it may be somebody else that looks for it.
    command = [sys.executable, "-P", "-c", "import contended.course.student; print(6 * 7)"]
    try:
        done = run(command, limits=Limits(wall_s=20), mode=mode)
    except OSError as error:
        return f"{mode} does not start: {error.strerror}"
    if done.stdout.strip() == b"42":
        return ""
    said = next(iter(done.stderr.decode(errors="replace").splitlines()), done.reason or "no reason")
    return f"{mode} does not work here ({said}); {cure}"


def problem() -> str:
    """Why nothing can be run safely here; empty if it can."""
    why = trouble(chosen())
    if why and why != MISSING and not os.environ.get(CHOICE):
        why += f"; {trouble('landlock')}"
    return why


def require(unsafe: bool) -> str:
    """The mode that is used; refuses where nothing can be run safely, unless the caller insists."""
    if unsafe:
        return UNBOXED
    if why := problem():
        raise ContendedError(f"{why}; or grade with --unsafe in a machine that you can throw away")
    return chosen()


@dataclass(eq=False)
class Process:
    """A process in a box with `files` in its folder; a context manager, nothing outlives the block.

    `unsafe` is without a box: with the caller's rights, in a temporary folder. `mode` is one of
    `MODES`; default: the chosen one. `reason` says why it was stopped.
    """

    command: Sequence[str]
    _: KW_ONLY
    files: Mapping[str, bytes] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    unsafe: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    stderr: int = subprocess.PIPE
    mode: str = ""
    reason: str = field(default="", init=False)

    def __enter__(self) -> Self:
        self.started = time.monotonic()
        self._stopped = threading.Event()
        self._folder: Path | None = None
        self._lifeline: IO[bytes] | None = None
        self._uid = 0
        with ExitStack() as scratch, ExitStack() as held:
            descriptors: list[int] = []
            cwd, home = "/", boxes.HOME
            if self.unsafe:
                cwd = home = str(folder := scratch.enter_context(child.scratch()))
                before = self._unboxed(folder)
            elif (self.mode or chosen()) == "landlock":
                # Somebody else must get there, so it is nowhere below what is the grader's own.
                folder = scratch.enter_context(child.scratch(Path("/tmp")))
                self._folder, home = folder, str(folder)
                before = self._confined(held, descriptors, folder)
            else:
                before = self._boxed(held, descriptors)
            self.child = subprocess.Popen(
                [*before, *self.command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.stderr,
                env={**_environment(home), **self.environ},
                cwd=cwd,
                start_new_session=True,
                pass_fds=descriptors,
            )
            self._scratch = scratch.pop_all()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def _write(self, folder: Path) -> None:
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o755)

    def _unboxed(self, folder: Path) -> list[str]:
        self._write(folder)
        # Here all of the user's processes count, so their number cannot be limited.
        everything = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        many = everything if everything != resource.RLIM_INFINITY else 1 << 20
        return replace(self.limits, processes=many).command()

    def _confined(self, held: ExitStack, descriptors: list[int], folder: Path) -> list[str]:
        self._uid = boxes.somebody()
        self._write(folder)
        os.chown(folder, self._uid, self._uid)
        reading, writing = os.pipe()
        held.callback(os.close, reading)
        descriptors.append(reading)
        self._lifeline = os.fdopen(writing, "wb", buffering=0)
        about = boxes.confined(self.limits, self._uid, str(folder), boxes.python(), ())
        return about.command(reading)

    def _boxed(self, held: ExitStack, descriptors: list[int]) -> list[str]:
        def hold(content: bytes) -> str:
            stream = held.enter_context(os.fdopen(os.memfd_create("contended"), "wb"))
            stream.write(content)
            stream.seek(0)
            descriptors.append(stream.fileno())
            return str(stream.fileno())

        more = ["--seccomp", hold(calls)] if (calls := filters.program()) else []
        if tree.PACKED.is_dir():  # the labs' solutions lie there
            more += ["--tmpfs", str(tree.PACKED)]
        for name, content in self.files.items():
            more += ["--perms", "0755", "--file", hold(content), f"{boxes.HOME}/{name}"]
        return boxes.box(self.limits, boxes.python(), (), more)

    def __exit__(self, *_: object) -> None:
        with self._scratch:
            self._stopped.set()
            self._kill()
            self._watcher.join()
            for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()

    def stop(self, reason: str) -> None:
        """End it; the first reason stays."""
        self.reason = self.reason or reason
        self._kill()

    def _kill(self) -> None:
        if self._lifeline is not None:
            # Told so, the top of the box ends all that is in it.
            self._lifeline.close()
            with suppress(subprocess.TimeoutExpired):
                self.child.wait(_END_S)
        # The group: without a box it may have children; in a box all ends with its first process.
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        if self.child.wait() < 0 and self._uid:
            end = [sys.executable, "-I", "-S", confine.__file__, "kill", str(self._uid)]
            subprocess.run(end, check=False)

    def _watch(self) -> None:
        deadline = self.started + self.limits.wall_s
        while not self._stopped.wait(_POLL_S) and self.child.poll() is None:
            family = child.family(self.child.pid)
            if time.monotonic() > deadline:
                self.stop(f"did not finish within {self.limits.wall_s:.3g} s and was stopped")
            elif (used := child.memory(family)) > (most := self.limits.memory):
                limit = f"{most / 1e9:.1f} GB is the limit"
                self.stop(f"used {used / 1e9:.1f} GB of memory and was stopped: {limit}")
            elif self._folder and not usage.fits(self._folder, family, self.limits.disk):
                limit = f"{self.limits.disk / 1e6:.0f} MB is the limit"
                self.stop(f"wrote too much to its folder and was stopped: {limit}")


def _environment(home: str) -> dict[str, str]:
    """All that a process in a box finds in its environment."""
    return {
        "PATH": os.pathsep.join((str(Path(sys.prefix) / "bin"), "/usr/bin", "/bin")),
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(boxes.PACKAGE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
    }


def run(command: Sequence[str], *, stdin: bytes = b"", **options: Any) -> Done:
    """Run a command in a box until it ends, or is ended; the options are those of `Process`."""
    process = Process(command, **options)
    limits = process.limits

    def take(stream: IO[bytes], taken: bytearray) -> None:
        while part := stream.read1(1 << 16):  # type: ignore[attr-defined]
            taken += part[: limits.output - len(taken)]
            if len(taken) >= limits.output:
                process.stop(f"printed more than {limits.output / 1e6:.3g} MB and was stopped")
                return

    output, errors = bytearray(), bytearray()
    with process:
        running = process.child
        assert running.stdin
        readers = [
            threading.Thread(target=take, args=each, daemon=True)
            for each in ((running.stdout, output), (running.stderr, errors))
        ]
        for reader in readers:
            reader.start()
        with suppress(BrokenPipeError):
            running.stdin.write(stdin)
        with suppress(BrokenPipeError):
            running.stdin.close()
        status = running.wait()
        wall_s = time.monotonic() - process.started
        for reader in readers:
            # Without a box, something left behind may hold the pipe open: it is killed below.
            reader.join(1.0)
    # The top of a box reports a signal as a shell does.
    if status > 128 and not process.unsafe:
        status = 128 - status
    reason = process.reason or (death(-status) if status < 0 else "")
    return Done(status, bytes(output), bytes(errors), reason, wall_s)


def death(number: int) -> str:
    """How a process died, in words."""
    time, file = "it used up its CPU time", "it wrote too large a file"
    return child.death(number, SIGXCPU=time, SIGXFSZ=file, SIGKILL=f"{time} or its memory")
