# SPDX-License-Identifier: MIT
"""The kernel's own tests of file systems and mounts, from its source, in a guest of one processor.

They are compiled as static programs, each with what it prints for itself (KTAP) and its status.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contended import cc
from contended.errors import ContendedError
from contended.kernel import guest, observe, run
from contended.kernel.build import Kernel
from contended.kernel.observe import Said
from contended.kernel.source import KernelSource
from contended.kernel.vm import GuestTrouble, plain

#: Of tools/testing/selftests, with the files there that are no programs to run.
FOLDERS = {
    # The attack by renames is a race of a million calls, and there is one processor.
    "openat2": ("helpers.c", "rename_attack_test.c"),
    "mount": (),
    "mount_setattr": (),
    "move_mount_set_group": (),
    "proc": (),
}
HELPERS = ("helpers.c",)
FLAGS = ("-static", "-O2", "-w", "-D_GNU_SOURCE", "-pthread")
#: Makes the file system that mounts with other owners are tested with; they fail where it is not.
MAKES_EXT4 = "mkfs.ext4"
MOST_S = 300  # of the guest's time, for one program
# Some make /tmp private, so that it has to be a mount, which must not hide the program.
_COMMAND = """\
export LD_LIBRARY_PATH={libraries} PATH=$PATH:/usr/sbin:/sbin
mkdir -p /mnt
cp {program} /test
unshare -m sh -c 'mount -t tmpfs tmpfs /tmp && cd /tmp && exec timeout {most} /test'
"""
_LINE = re.compile(r"(?P<bad>not )?ok \d+\s*-?\s*(?P<skip># SKIP\s*)?(?P<name>.*)")
_STATUS = {0: "ok", 4: "skipped", 143: f"not done after {MOST_S} s"}


@dataclass(frozen=True, slots=True)
class Ran:
    """What the tests of a boot gave, by `PROGRAM` and `PROGRAM: TEST`: ok, skipped, failed, ..."""

    results: Mapping[str, str]
    console: str

    @property
    def not_ok(self) -> list[str]:
        """Those that are not ok, and what they are instead."""
        return [f"{name}: {how}" for name, how in self.results.items() if how != "ok"]


def programs(source: KernelSource) -> list[Path]:
    """The tests of a kernel's source, compiled; raises ContendedError if one cannot be."""
    home = source.tree / "tools" / "testing" / "selftests"
    found = []
    for folder, others in FOLDERS.items():
        place = home / folder
        files = sorted(place.glob("*.c"))
        if not files:
            raise ContendedError(f"Linux {source.version} has no tests in {place}")
        headers = [*home.glob("*.h"), *place.glob("*.h")]
        for file in files:
            if file.name not in others:
                what = f"the kernel's test {folder}/{file.stem}"
                sources = [file, *(place / name for name in others if name in HELPERS)]
                where = f"kernel/selftests/{folder}"
                found.append(
                    cc.compiled(where, file.stem, sources, FLAGS, headers=headers, what=what)
                )
    return found


def ran(kernel: Kernel, source: KernelSource, cmdline: str = "") -> Ran:
    """Boot a kernel with all of them; a guest that does not get to their end has one result."""
    tests = programs(source)
    # Not everybody's PATH has what root needs.
    found = shutil.which(MAKES_EXT4, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    helpers = [Path(found)] if found else []
    where = guest.library_path(*helpers)
    commands = [_COMMAND.format(libraries=where, program=file, most=MOST_S) for file in tests]
    try:
        said, report = observe.look(
            kernel,
            commands,
            [*tests, *helpers],
            cmdline=cmdline,
            vcpus=1,
            deadline_s=12 * run.DEADLINE_S[kernel.config],
        )
    except GuestTrouble as trouble:
        return Ran({"the guest": f"{trouble.kind}: {trouble}"}, trouble.console)
    results: dict[str, str] = {}
    for file, one in zip(tests, said, strict=True):
        results |= read(file.stem, one)
    return Ran(results, report.console)


def read(name: str, said: Said) -> dict[str, str]:
    """A program's results, its own by its status first."""
    found = {name: _STATUS.get(said.status, f"failed with status {said.status}")}
    for match in filter(None, map(_LINE.fullmatch, map(plain, said.text.splitlines()))):
        how = "failed" if match["bad"] else "skipped" if match["skip"] else "ok"
        test = re.sub(r"/proc/\d+", "/proc/N", match["name"].strip())  # its own process
        found[f"{name}: {test}"] = how
    return found
