# SPDX-License-Identifier: MIT
"""The command line of bubblewrap: what a box has in it, and who lives there.

Under root, bubblewrap sets the box up with root's rights, and a user that owns nothing on this
machine lives in it; another one in every box, so that limits on processes do not meet. Everybody
else needs a kernel that lets users make user namespaces.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import contended

HOME = "/sandbox"
"""The one folder that can be written to: the working directory in there."""

# Nobody's: systemd's list of user ids (docs/UIDS-GIDS.md) leaves all from here on unused.
_FIRST_UID, _UIDS = 1_879_048_192, 1 << 27


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


def python() -> tuple[Path, ...]:
    """What this Python and this package need to be read: folders."""
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
    return command + limited(limits)


def limited(limits: Limits) -> list[str]:
    """The command that others are put behind to be held to limits, box or not."""
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
