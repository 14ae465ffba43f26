# SPDX-License-Identifier: MIT
"""The commands that others are put behind to run in a box, and what they find in there."""

from __future__ import annotations

import base64
import os
import secrets
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import contended
from contended import tree
from contended.course import confine, filters

HOME = "/sandbox"  # the one folder that can be written to: the working directory in there

PACKAGE = Path(contended.__file__).resolve().parent
_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin")
# The dynamic linker's cache, and Debian's names for compilers; nothing else of /etc.
_ETC = ("/etc/ld.so.cache", "/etc/alternatives")


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

    def by_name(self) -> dict[str, int]:
        """Those that the kernel knows, by the names of the module `resource`."""
        most = {"CORE": 0, "CPU": self.cpu_s, "NPROC": self.processes, "FSIZE": self.disk}
        return {**most, "NOFILE": 1024, "AS": self.address_space}

    def command(self) -> list[str]:
        """The command that others are put behind to be held to them, box or not."""
        # Not by preexec_fn: bubblewrap itself must not be held to them.
        limits = [f"--{name.lower()}={most}" for name, most in self.by_name().items()]
        return ["prlimit", *limits, "--"]


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
    for place in _SYSTEM:
        if Path(place).is_symlink():
            command += ["--symlink", str(Path(place).readlink()), place]
        elif Path(place).exists():
            command += ["--ro-bind", place, place]
    command += ["--perms", "0755", "--dir", "/etc"]
    for place in _ETC:
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
        uid = str(somebody())
        command += ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--no-new-privs"]
        command += ["--bounding-set=-all", "--inh-caps=-all", "--"]
    return command + limits.command()


def somebody() -> int:
    """A user that no machine has."""
    return confine.FIRST_UID + secrets.randbelow(confine.UIDS)


def confined(
    limits: Limits, uid: int, folder: str, readable: Sequence[Path], writable: Sequence[Path]
) -> confine.Box:
    """The same without namespaces, as that user; 0: the caller's, without any of its rights."""
    more = filters.SHARED if uid else filters.SHARED + filters.SIGNALS
    calls = base64.b64encode(filters.program(more=more) or b"").decode()
    seen = [*_SYSTEM, *_ETC, *map(str, readable)]
    hidden = [str(tree.PACKED)] if tree.PACKED.is_dir() else []
    # Python may lie below /root, which is closed to others.
    above = {folder for path in readable for folder in (path, *path.resolve().parents)}
    search = bool(uid) and any(not path.stat().st_mode & stat.S_IXOTH for path in above)
    changed = [str(path) for path in writable]
    listed = [str(PACKAGE.parent)] if PACKAGE in readable else []
    most = limits.by_name()
    return confine.Box(uid, folder, seen, changed, calls, most, listed, hidden, search)


def python() -> list[Path]:
    """What this Python and this package need to be read."""
    places = (sys.prefix, sys.base_prefix, Path(sys.executable).resolve().parents[1], PACKAGE)
    return [Path(place) for place in dict.fromkeys(map(str, places))]
