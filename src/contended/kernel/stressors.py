# SPDX-License-Identifier: MIT
"""stress-ng's file-system stressors, in a guest: what fails must be the same with and without.

It is this system's program with its libraries. Each stressor checks what it does, and is one result
by its exit status. How much it does in its time is not looked at.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from contended.errors import ContendedError
from contended.kernel import guest, observe, run
from contended.kernel.build import Kernel
from contended.kernel.selftests import Ran
from contended.kernel.vm import GuestTrouble

NAME = "stress-ng"
#: Its class "filesystem", without binderfs and fsize, which the kernels lack, and copy-file, which
#: wants more room than the guest has.
STRESSORS = (
    *("access", "bind-mount", "chattr", "chdir", "chmod", "chown", "dentry", "dir"),
    *("dirdeep", "dirmany", "dnotify", "dup", "eventfd", "fallocate", "fanotify", "fcntl"),
    *("fiemap", "file-ioctl", "filename", "flock", "fpunch", "fstat", "getdent", "handle", "hdd"),
    *("inode-flags", "inotify", "io", "iomix", "ioprio", "lease", "link", "locka", "lockf"),
    *("lockofd", "mknod", "open", "procfs", "rename", "symlink", "sync-file", "touch", "utime"),
    *("verity", "xattr"),
)
SECONDS = 2  # of the guest's time
# The guest has a gigabyte, which is all the disk there is.
_SMALL = {name: f"--{name}-bytes 4m" for name in ("fallocate", "hdd", "iomix")}
_SMALL["bind-mount"] = "--pathological"  # on a machine that may be lost
_COMMAND = """\
export LD_LIBRARY_PATH={libraries}
mkdir -p /tmp/stress
cd /tmp/stress
timeout -s KILL 120 {program} --{name} 2 {small} --timeout {seconds} --verify --temp-path .
"""
_STATUS = {0: "ok", 3: "skipped", 4: "skipped", 137: "not done after 120 s"}


def find() -> Path:
    """The program; raises ContendedError if it is not on PATH."""
    if place := shutil.which(NAME):
        return Path(place)
    raise ContendedError(f"the stressors are {NAME}'s: apt-get install {NAME}")


def ran(kernel: Kernel, cmdline: str = "", names: tuple[str, ...] = STRESSORS) -> Ran:
    """Boot a kernel with all of them; a guest that does not get to their end has one result."""
    program = find()
    commands = [
        _COMMAND.format(
            libraries=guest.library_path(program),
            program=program,
            name=name,
            small=_SMALL.get(name, ""),
            seconds=SECONDS,
        )
        for name in names
    ]
    try:
        said, report = observe.look(
            kernel,
            commands,
            [program],
            cmdline=cmdline,
            deadline_s=12 * run.DEADLINE_S[kernel.config],
        )
    except GuestTrouble as trouble:
        return Ran({"the guest": f"{trouble.kind}: {trouble}"}, trouble.console)
    results = {
        name: _STATUS.get(one.status, f"failed with status {one.status}")
        for name, one in zip(names, said, strict=True)
    }
    return Ran(results, report.console)
