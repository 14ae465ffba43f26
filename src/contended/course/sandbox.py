# SPDX-License-Identifier: MIT
"""Run what a stranger wrote: no network, no files but its own, and an end to everything.

A process in here lives under bubblewrap: own pid, mount, network, ipc and uts namespaces, a root of
which everything is read-only but one small folder in memory, an environment of our making, no
capabilities, and the system calls of `contended.course.seccomp` refused. CPU time, address space,
processes, files and output are limited, and a watcher adds up the memory of all its processes and
knows the deadline. Whatever it leaves behind ends with its pid namespace.

Under root, bubblewrap sets the box up with root's rights, and a user that owns nothing on this
machine lives in it; another one in every box, so that limits on processes do not meet. Everybody
else needs a kernel that lets users make user namespaces.
"""

from __future__ import annotations

import os
import resource
import secrets
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
from types import TracebackType
from typing import IO, Self

from contended.course import seccomp
from contended.errors import ContendedError

HOME = "/sandbox"
"""The one folder that can be written to: the working directory in there."""

MISSING = "grading runs strangers' code and needs bubblewrap: apt-get install bubblewrap"

# Nobody's: systemd's list of user ids (docs/UIDS-GIDS.md) leaves all from here on unused.
_FIRST_UID, _UIDS = 1_879_048_192, 1 << 27
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a process and all that it starts may use.

    Attributes:
        wall_s: Seconds until all of it is stopped.
        cpu_s: Seconds of CPU time for each process.
        memory: Bytes, added up over all processes.
        address_space: Bytes for each process, or 0 for no limit: sanitizers reserve terabytes.
        processes: Processes and threads.
        disk: Bytes in its folder.
        output: Bytes of standard output, and as many of standard error.
    """

    wall_s: float = 30.0
    cpu_s: int = 30
    memory: int = 1 << 30
    address_space: int = 4 << 30
    processes: int = 64
    disk: int = 64 << 20
    output: int = 1 << 20


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


def python() -> tuple[Path, ...]:
    """What this Python and this package need to be read: folders."""
    import contended

    package = Path(contended.__file__).resolve().parent
    places = (Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1])
    return tuple(dict.fromkeys((*places, package)))


def prefix(
    *,
    readable: Sequence[Path] = (),
    writable: Sequence[Path] = (),
    limits: Limits,
    drop: bool = True,
    filter_fd: int | None = None,
    data: Mapping[str, int] | None = None,
) -> list[str]:
    """The command that others are put behind to run in a box.

    Args:
        readable: Files and folders that can be read at their own places, besides the system's.
        writable: Folders that can be written to at their own places.
        limits: As `run`.
        drop: Whether to become a user that owns nothing; false only to write to `writable`.
        filter_fd: An open file with the filter of system calls.
        data: Names in its folder, and open files with what they shall hold.
    """
    root = os.geteuid() == 0
    command = ["bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--hostname", "box"]
    if not root:
        command += ["--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534"]
    if not (root and drop):
        command += ["--cap-drop", "ALL"]
    command += ["--proc", "/proc", "--dev", "/dev", "--size", str(limits.disk)]
    command += ["--perms", "1777", "--tmpfs", "/dev/shm"]
    command += ["--size", str(limits.disk), "--perms", "1777", "--tmpfs", "/tmp"]
    command += ["--size", str(limits.disk), "--perms", "1777", "--tmpfs", HOME]
    for place in ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin"):
        if Path(place).is_symlink():
            command += ["--symlink", str(Path(place).readlink()), place]
        elif Path(place).exists():
            command += ["--ro-bind", place, place]
    # The dynamic linker's cache, and Debian's names for compilers; nothing else of /etc.
    command += ["--perms", "0755", "--dir", "/etc"]
    for place in ("/etc/ld.so.cache", "/etc/alternatives"):
        command += ["--ro-bind-try", place, place]
    # What bubblewrap makes on the way to a place is closed to others, so it is made before.
    above = {folder for path in (*readable, *writable) for folder in path.absolute().parents}
    for folder in sorted(above - {Path("/"), Path("/usr"), Path("/tmp")}):
        command += ["--perms", "0755", "--dir", str(folder)]
    for path in readable:
        command += ["--ro-bind", str(path), str(path)]
    for path in writable:
        command += ["--bind", str(path), str(path)]
    for name, descriptor in (data or {}).items():
        command += ["--perms", "0755", "--file", str(descriptor), f"{HOME}/{name}"]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME]
    if filter_fd is not None:
        command += ["--seccomp", str(filter_fd)]
    command += ["--"]
    if root and drop:
        uid = str(_FIRST_UID + secrets.randbelow(_UIDS))
        command += ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--no-new-privs"]
        command += ["--bounding-set=-all", "--inh-caps=-all", "--"]
    return command + _limited(limits)


def _limited(limits: Limits) -> list[str]:
    # Not by preexec_fn: bubblewrap itself must not be held to them.
    command = ["prlimit", "--core=0", f"--cpu={limits.cpu_s}", f"--nproc={limits.processes}"]
    command += [f"--fsize={limits.disk}", "--nofile=1024"]
    if limits.address_space:
        command += [f"--as={limits.address_space}"]
    return [*command, "--"]


def environment(**more: str) -> dict[str, str]:
    """All that a process in a box finds in its environment."""
    package = next(p for p in python()[::-1] if p.name == "contended")
    return {
        "PATH": os.pathsep.join((str(Path(sys.prefix) / "bin"), "/usr/bin", "/bin")),
        "HOME": HOME,
        "TMPDIR": HOME,
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(package.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
        **more,
    }


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
            environ = environment(**self._environ)
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
            return _limited(limits) + self._command, self._scratch.name

        def hold(content: bytes) -> int:
            descriptor = os.memfd_create("contended")
            descriptors.append(descriptor)
            with os.fdopen(os.dup(descriptor), "wb") as stream:
                stream.write(content)
            os.lseek(descriptor, 0, os.SEEK_SET)
            return descriptor

        data = {name: hold(content) for name, content in self._files.items()}
        calls = seccomp.program()
        before = prefix(
            readable=(*python(), *self._readable),
            limits=self.limits,
            filter_fd=hold(calls) if calls else None,
            data=data,
        )
        return before + self._command, None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        child = process.child
        assert child.stdin
        readers = [
            threading.Thread(target=take, args=(stream, name), daemon=True)
            for stream, name in ((child.stdout, "output"), (child.stderr, "errors"))
        ]
        for reader in readers:
            reader.start()
        with suppress(BrokenPipeError):
            child.stdin.write(stdin)
        with suppress(BrokenPipeError):
            child.stdin.close()
        status = child.wait()
        wall = time.monotonic() - process.started
        for reader in readers:
            # Without a box, something left behind may hold the pipe open: it is killed below.
            reader.join(1.0)
    # bubblewrap reports a signal as a shell does.
    if status > 128 and not unsafe:
        status = 128 - status
    reason = process.reason or (signal_name(-status) if status < 0 else "")
    return Done(
        status=status,
        stdout=bytes(taken["output"]),
        stderr=bytes(taken["errors"]),
        reason=reason,
        wall_s=wall,
    )


_MEANING = {
    "SIGSEGV": "it used memory that is not there",
    "SIGBUS": "it used memory that is not there",
    "SIGABRT": "it, or a checker, gave up",
    "SIGFPE": "a division by zero, most likely",
    "SIGXCPU": "it used up its CPU time",
    "SIGXFSZ": "it wrote too large a file",
    "SIGKILL": "it used up its CPU time or its memory",
}


def signal_name(number: int) -> str:
    """How a process died, in words."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"was killed by signal {number}"
    return f"was killed by {name}" + (f" ({_MEANING[name]})" if name in _MEANING else "")


def _memory(top: int) -> int:
    """The bytes of memory that a process and all below it hold."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text(errors="replace")
            except OSError:
                continue  # it has just ended
            # "pid (name) state ppid ...": the name may hold anything, brackets and blanks too
            fields = stat.rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            pages[int(entry.name)] = int(fields[21])
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    total, todo = 0, [top]
    while todo:
        pid = todo.pop()
        total += pages.get(pid, 0)
        todo += children.get(pid, [])
    return total * resource.getpagesize()
