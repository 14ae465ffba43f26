# SPDX-License-Identifier: MIT
"""Run what a stranger wrote: no network, no files but its own, and an end to everything.

A process here lives under bubblewrap: own namespaces, a root of which all is read-only but one
small folder in memory, no capabilities, system calls refused (`_CALLS`), and limits. Under root a
user that owns nothing lives in each box, so that limits on processes do not meet; others need user
namespaces.
"""

from __future__ import annotations

import errno
import os
import platform
import resource
import secrets
import shutil
import signal
import struct
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

import contended
from contended import child, tree
from contended.errors import ContendedError

MISSING = "grading runs strangers' code and needs bubblewrap: apt-get install bubblewrap"

OTHER_USER = "CONTENDED_COURSE_OTHER_USER"
"""If this variable is set, what root runs `unsafe` runs as a user that owns nothing."""

HOME = "/sandbox"  # the one folder that can be written to: the working directory in there

_POLL_S = 0.05
_PACKAGE = Path(contended.__file__).resolve().parent
# Nobody's: systemd's list of user ids (docs/UIDS-GIDS.md) leaves all from here on unused.
_FIRST_UID, _UIDS = 1_879_048_192, 1 << 27

_CALLS = """
    ptrace 101 117   process_vm_readv 310 270   process_vm_writev 311 271   pidfd_getfd 438 438
    kcmp 312 272   unshare 272 97   setns 308 268   mount 165 40   umount2 166 39
    pivot_root 155 41   chroot 161 51   open_tree 428 428   move_mount 429 429   fsopen 430 430
    fsmount 432 432   mount_setattr 442 442   add_key 248 217   request_key 249 218
    keyctl 250 219   bpf 321 280   perf_event_open 298 241   userfaultfd 323 282
    io_uring_setup 425 425   io_uring_enter 426 426   io_uring_register 427 427
    name_to_handle_at 303 264   open_by_handle_at 304 265   kexec_load 246 104
    init_module 175 105   finit_module 313 273   reboot 169 142   swapon 167 224   acct 163 89
    quotactl 179 60   syslog 103 116
"""
"""Names, and numbers on x86-64 and arm64.

From the kernel's tables: arch/x86/entry/syscalls/syscall_64.tbl and the generic table.
"""

_CLONE = (56, 220)
_CLONE3 = (435, 435)
_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_NEW_NAMESPACES = 0x7E020080  # all of CLONE_NEW*: mount, cgroup, uts, ipc, user, pid, net, time

_X32 = 0x40000000  # on x86-64, calls of the x32 ABI have this bit and would pass by the list

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARGUMENT_0 = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a process and all that it starts may use.

    Seconds until all is stopped, and of CPU time for each process; bytes of memory over all, and of
    address space for each; processes and threads; bytes in its folder, and of each of its outputs.
    """

    wall_s: float = 30.0
    cpu_s: int = 30
    memory: int = 1 << 30
    address_space: int = 4 << 30
    processes: int = 64
    disk: int = 64 << 20
    output: int = 1 << 20

    def command(self) -> list[str]:
        """The command that others are put behind to be held to them, box or not."""
        # Not by preexec_fn: bubblewrap itself must not be held to them.
        command = ["prlimit", "--core=0", f"--cpu={self.cpu_s}", f"--nproc={self.processes}"]
        return [
            *command,
            f"--fsize={self.disk}",
            "--nofile=1024",
            f"--as={self.address_space}",
            "--",
        ]


def box(
    limits: Limits,
    readable: Sequence[Path],
    writable: Sequence[Path] = (),
    more: Sequence[str] = (),
) -> list[str]:
    """The command that others are put behind to run in a box; `more` is bubblewrap's own."""
    # What writes to others' folders cannot become a user that owns nothing.
    drop = not writable
    root = os.geteuid() == 0
    tmpfs = f"--size {limits.disk} --perms 1777 --tmpfs"
    command = (
        "bwrap --unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try "
        "--die-with-parent --new-session --hostname box "
        + ("" if root else "--unshare-user --disable-userns --uid 65534 --gid 65534 ")
        + ("" if root and drop else "--cap-drop ALL ")
        + f"--proc /proc --dev /dev {tmpfs} /dev/shm {tmpfs} /tmp {tmpfs} {HOME}"
    ).split()
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
    for how, paths in (("--ro-bind", readable), ("--bind", writable)):
        for path in paths:
            command += [how, str(path), str(path)]
    command += [*more, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME, "--"]
    if root and drop:
        command += _become(_nobody())
    return command + limits.command()


def _nobody() -> int:
    return _FIRST_UID + secrets.randbelow(_UIDS)


def _become(uid: int) -> list[str]:
    """The command that others are put behind to have a user's rights, and no way to more."""
    command = f"setpriv --reuid {uid} --regid {uid} --clear-groups --no-new-privs"
    return [*command.split(), "--bounding-set=-all", "--inh-caps=-all", "--"]


def _step(code: int, k: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, k)


def filter_program(machine: str | None = None) -> bytes | None:
    """The filter (`struct sock_filter[]`) for a machine as `uname -m` says it; None if unknown."""
    known = _ARCHES.get(machine or platform.machine())
    if known is None:
        return None
    column, arch = known
    refuse, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    steps = [_step(_LOAD, _ARCH), _step(_EQUAL, arch, then=1), _step(_RETURN, _KILL)]
    steps.append(_step(_LOAD, _NR))
    if column == 0:
        steps += [_step(_AT_LEAST, _X32, otherwise=1), _step(_RETURN, refuse)]
    for number in map(int, _CALLS.split()[1 + column :: 3]):
        steps += [_step(_EQUAL, number, otherwise=1), _step(_RETURN, refuse)]
    # Its flags are behind a pointer, where a filter cannot look; the C library then uses clone().
    steps += [_step(_EQUAL, _CLONE3[column], otherwise=1), _step(_RETURN, unknown)]
    steps += [_step(_EQUAL, _CLONE[column], otherwise=3), _step(_LOAD, _ARGUMENT_0)]
    steps += [_step(_ANY_BIT, _NEW_NAMESPACES, otherwise=1), _step(_RETURN, refuse)]
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


@dataclass(frozen=True, slots=True)
class Done:
    """How a run ended: `status` is minus a signal's number, `reason` empty if it just ended."""

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
    """Refuse to go on where nothing can be run safely, unless the caller insists."""
    if not unsafe and (why := problem()):
        raise ContendedError(f"{why}; or grade with --unsafe in a machine that you can throw away")


@dataclass(eq=False)
class Process:
    """A process in a box with `files` in its folder; a context manager, nothing outlives the block.

    `unsafe` is without bubblewrap: in a temporary folder, with the caller's rights or those of
    another user (`OTHER_USER`). `reason` says why it was stopped.
    """

    command: Sequence[str]
    _: KW_ONLY
    files: Mapping[str, bytes] = field(default_factory=dict)
    limits: Limits = Limits()
    unsafe: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    stderr: int = subprocess.PIPE
    reason: str = field(default="", init=False)

    def __enter__(self) -> Self:
        self.started = time.monotonic()
        self._stopped = threading.Event()
        apart = self.unsafe and os.geteuid() == 0 and bool(os.environ.get(OTHER_USER))
        self._uid = _nobody() if apart else None
        with ExitStack() as scratch, ExitStack() as held:
            descriptors: list[int] = []
            if self.unsafe:
                # The caller's temporary folder may be closed to others.
                folder = scratch.enter_context(child.scratch(Path("/tmp") if apart else None))
                cwd = home = str(folder)
                before = self._unboxed(folder)
            else:
                cwd, home = "/", HOME
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

    def _unboxed(self, folder: Path) -> list[str]:
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o755)
        if self._uid is not None:
            os.chown(folder, self._uid, self._uid)
            return _become(self._uid) + self.limits.command()
        # Here all of the user's processes count, so their number cannot be limited.
        everything = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        many = everything if everything != resource.RLIM_INFINITY else 1 << 20
        return replace(self.limits, processes=many).command()

    def _boxed(self, held: ExitStack, descriptors: list[int]) -> list[str]:
        def hold(content: bytes) -> str:
            stream = held.enter_context(os.fdopen(os.memfd_create("contended"), "wb"))
            stream.write(content)
            stream.seek(0)
            descriptors.append(stream.fileno())
            return str(stream.fileno())

        # What this Python and this package need to be read.
        python = (sys.prefix, sys.base_prefix, Path(sys.executable).resolve().parents[1], _PACKAGE)
        more = ["--seccomp", hold(calls)] if (calls := filter_program()) else []
        if tree.PACKED.is_dir():  # the labs' solutions lie there
            more += ["--tmpfs", str(tree.PACKED)]
        for name, content in self.files.items():
            more += ["--perms", "0755", "--file", hold(content), f"{HOME}/{name}"]
        return box(
            self.limits, [Path(place) for place in dict.fromkeys(map(str, python))], (), more
        )

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
        # The group: without a box it may have children; in a box all ends with its first process.
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        if self._uid is not None:  # and whatever has left the group
            kill = [*_become(self._uid), "kill", "-KILL", "-1"]
            subprocess.run(kill, check=False, capture_output=True)
        self.child.wait()

    def _watch(self) -> None:
        deadline = self.started + self.limits.wall_s
        while not self._stopped.wait(_POLL_S) and self.child.poll() is None:
            if time.monotonic() > deadline:
                self.stop(f"did not finish within {self.limits.wall_s:.3g} s and was stopped")
            elif (used := _memory(self.child.pid)) > (most := self.limits.memory):
                limit = f"{most / 1e9:.1f} GB is the limit"
                self.stop(f"used {used / 1e9:.1f} GB of memory and was stopped: {limit}")


def _environment(home: str) -> dict[str, str]:
    """All that a process in a box finds in its environment."""
    return {
        "PATH": os.pathsep.join((str(Path(sys.prefix) / "bin"), "/usr/bin", "/bin")),
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(_PACKAGE.parent),
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
    # bubblewrap reports a signal as a shell does.
    if status > 128 and not process.unsafe:
        status = 128 - status
    reason = process.reason or (death(-status) if status < 0 else "")
    return Done(status, bytes(output), bytes(errors), reason, wall_s)


def death(number: int) -> str:
    """How a process died, in words."""
    time, file = "it used up its CPU time", "it wrote too large a file"
    return child.death(number, SIGXCPU=time, SIGXFSZ=file, SIGKILL=f"{time} or its memory")


def _memory(top: int) -> int:
    pages: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for pid, fields in child.processes():
        pages[pid] = int(fields[21])
        children.setdefault(int(fields[1]), []).append(pid)
    below = [top]
    for pid in below:
        below += children.get(pid, [])
    return sum(pages.get(pid, 0) for pid in below) * resource.getpagesize()
