# SPDX-License-Identifier: MIT
"""A box without namespaces: a user of its own, Landlock, a filter of system calls, and an end.

A program of its own, of the standard library alone, since it is started for each box:
`python -I -S confine.py BOX [LIFELINE] -- COMMAND`, where BOX is a `Box` as JSON. With LIFELINE,
the number of a pipe's reading end, it stays above the command, adopts all that loses its parent,
and when the command ends or the pipe's other end is closed it kills every process of the box's
user; without, it becomes the command.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import json
import os
import resource
import select
import signal
import stat
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

# The same numbers on every architecture but alpha.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_MAKE_DEVICES = 1 << 6 | 1 << 11  # character and block devices
#: By the kernel's Landlock version, what it can forbid about files: each version adds bits.
_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP = 3  # from version 4: bind and connect
_SCOPES = 3  # from version 6: abstract sockets and signals

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 22, 24
_PR_SET_KEEPCAPS, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 8, 36, 38, 47
_CAP_HEADER, _CAP_DAC_READ_SEARCH, _LAST_CAPABILITY = 0x20080522, 2, 63

# Nobody's: systemd's list of user ids (docs/UIDS-GIDS.md) leaves all from here on unused. A box's
# is among the first half.
FIRST_UID, UIDS = 1_879_048_192, 1 << 27

_END_S = 10.0  # until what was killed is gone; only a process in a hung driver takes long

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Box:
    """What is to be set up.

    `uid` 0 keeps the user, without any right of root's; a `folder` is where the command starts and
    goes with the box; of what is `listed` names can be seen; what is `hidden` lies in something
    readable. `calls` is the filter of system calls (base64), `limits` are by the names of the
    module `resource`, without `RLIMIT_`. `search` is for what lies in folders that are closed to
    others: rules alone then say what can be read.
    """

    uid: int
    folder: str
    readable: Sequence[str]
    writable: Sequence[str]
    calls: str
    limits: dict[str, int]
    listed: Sequence[str] = ()
    hidden: Sequence[str] = ()
    search: bool = False

    def command(self, lifeline: int | None = None) -> list[str]:
        """The command that others are put behind to run in it."""
        above = [] if lifeline is None else [str(lifeline)]
        return [sys.executable, "-I", "-S", __file__, json.dumps(asdict(self)), *above, "--"]


def landlock() -> int:
    """The version of Landlock that this kernel has; 0 without it."""
    return max(int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION)), 0)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _beneath(path: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """Paths that cover one but for what is hidden in it: rules can only allow."""
    if path in hidden:
        return
    if any(path in each.parents for each in hidden) and path.is_dir():
        for entry in path.iterdir():
            yield from _beneath(entry, hidden)
    else:
        yield path


def _restrict_files(box: Box) -> None:
    if not (version := landlock()):
        raise OSError(errno.ENOSYS, "no Landlock in this kernel")
    handled = _FILES[max(known for known in _FILES if known <= version)]

    # Files, network, scopes; an older kernel knows the shorter structure.
    about = struct.pack("=QQQ", handled, _TCP, _SCOPES)
    about = about[: 24 if version >= 6 else 16 if version >= 4 else 8]
    rules = _checked(_libc.syscall(_CREATE_RULESET, about, len(about), 0), "Landlock")

    def allow(path: Path, rights: int) -> None:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        if rights & handled:
            beneath = struct.pack("=Qi", rights & handled, place)
            added = _libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, beneath, 0)
            _checked(added, f"Landlock, {path}")
        os.close(place)

    hidden = [Path(each).resolve() for each in box.hidden]
    readable = [Path(each).resolve() for each in box.readable]
    # Python lists the folders that it imports from, so what is hidden has its name seen.
    for path in (*readable, *map(Path, box.listed)):
        allow(path, _READ_DIR)
    for path in readable:
        for each in _beneath(path, hidden):
            allow(each, _EXECUTE | _READ_FILE | _READ_DIR)
    for place in (*box.writable, *([box.folder] if box.folder else [])):
        allow(Path(place), handled & ~_MAKE_DEVICES)
    for name in ("null", "zero", "full"):
        allow(Path("/dev", name), _READ_FILE | _WRITE_FILE | _TRUNCATE)
    for place in ("/dev/random", "/dev/urandom", f"/proc/{os.getpid()}", "/proc/cpuinfo"):
        allow(Path(place), _READ_FILE | _READ_DIR)
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _checked(_libc.syscall(_RESTRICT_SELF, rules, 0), "Landlock")
    os.close(rules)


def _become(uid: int, search: bool) -> None:
    """Be another user, in no group, or with 0 the same without rights."""
    for capability in range(_LAST_CAPABILITY + 1):
        if not (search and capability == _CAP_DAC_READ_SEARCH):
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([])
    if uid:
        _checked(_libc.prctl(_PR_SET_KEEPCAPS, int(search), 0, 0, 0), "capabilities")
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    kept = 1 << _CAP_DAC_READ_SEARCH if search else 0
    header = struct.pack("=Ii", _CAP_HEADER, 0)
    # Effective, permitted, inheritable; and again, of the capabilities above 31.
    _checked(_libc.capset(header, struct.pack("=6I", kept, kept, kept, 0, 0, 0)), "capabilities")
    if search:
        raised = _libc.prctl(_PR_CAP_AMBIENT, 2, _CAP_DAC_READ_SEARCH, 0, 0)
        _checked(raised, "capabilities")


def _filter(calls: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]

    program = Program(len(calls) // 8, calls)
    _checked(_libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0), "seccomp")


def _enter(box: Box, command: Sequence[str]) -> NoReturn:
    """Become the command, in the box."""
    try:
        for name, most in box.limits.items():
            limit = getattr(resource, f"RLIMIT_{name}")
            # One that is lower already stays, as it is for everybody who is not root.
            hard = resource.getrlimit(limit)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(limit, (most, most))
        if box.folder:
            os.chdir(box.folder)
        _become_confined(box)
        os.execvp(command[0], list(command))
    except OSError as error:
        os.write(2, f"cannot run in a box: {error}\n".encode())
        os._exit(126)


def _become_confined(box: Box) -> None:
    # Rules first: who is nobody cannot open all that they are about.
    parent = os.getppid()
    _restrict_files(box)
    _become(box.uid, box.search)
    # After the change of users, which forgets it.
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "end with the parent")
    if os.getppid() != parent:
        os._exit(1)
    _filter(base64.b64decode(box.calls))


def _kill_all(uid: int) -> None:
    """Kill every process of a user, in one step that no fork escapes."""
    # It may signal them by its effective user, and they not it, since its other two are nobody's.
    other = uid + UIDS
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresuid(other, uid, other)
            # Never as anybody else: this is for all that the caller may signal.
            if uid >= FIRST_UID and os.getresuid() == (other, uid, other):
                os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _supervise(box: Box, lifeline: int, command: Sequence[str]) -> int:
    os.set_inheritable(lifeline, False)
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")
    top = os.fork()
    if top == 0:
        _enter(box, command)
    # Its outputs end with it, and not with us.
    nothing = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    status = _wait(top, lifeline)
    end = time.monotonic() + _END_S
    with suppress(ChildProcessError):
        while time.monotonic() < end:
            _kill_all(box.uid)
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = ended[1] if ended[0] == top else status
            time.sleep(0.005)
    if box.folder:
        # Not by Python: how deep a stranger's folders lie is no matter to rm.
        os.waitpid(os.posix_spawnp("rm", ["rm", "-rf", "--", box.folder], os.environ), 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _wait(top: int, lifeline: int) -> int:
    """Wait for the command or for the lifeline's end; the command's status, or that of a kill."""
    ends = select.poll()
    watched = os.pidfd_open(top)
    ends.register(watched, select.POLLIN)
    ends.register(lifeline, select.POLLIN | select.POLLHUP)
    while not ends.poll(200):
        # Whatever lost its parent is ours, and the dead count among the box's processes.
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == top:
                return ended[1]
    ended = os.waitpid(top, os.WNOHANG)
    return ended[1] if ended[0] else signal.SIGKILL


def main(arguments: Sequence[str]) -> int:
    """Run COMMAND in BOX, or `kill UID`: what is left of a box of which the top was killed."""
    if arguments[0] == "kill":
        _kill_all(int(arguments[1]))
        return 0
    split = arguments.index("--")
    box, command = Box(**json.loads(arguments[0])), arguments[split + 1 :]
    if split == 1:
        _enter(box, command)
    return _supervise(box, int(arguments[1]), command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
