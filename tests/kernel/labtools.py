# SPDX-License-Identifier: MIT
"""Helpers of the kernel lab's tests: who is still alive, and stand-ins for QEMU and guests."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support import eventually

from contended.kernel import qemu
from contended.kernel.boot import GuestReport


def has_qemu() -> bool:
    return shutil.which(qemu.QEMU) is not None


def machines(parent: int | None = None) -> set[int]:
    """The QEMU processes that a process (this one, if none is named) has started."""
    parent = os.getpid() if parent is None else parent
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (place / "stat").read_text().rpartition(")")[::2]
            if int(rest.split()[1]) == parent and "qemu" in name:
                found.add(int(place.name))
        except OSError:
            continue  # it ended just now
    return found


def gone(before: set[int]) -> bool:
    return eventually(lambda: machines() <= before)


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def script(folder: Path, text: str, name: str = qemu.QEMU) -> Path:
    """A program of that name in the folder, to be found before the real one."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return folder


def path_with(folder: Path) -> str:
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def report(
    *results: Mapping[str, Any],
    console: str = "",
    dmesg: str = "",
    checks: list[dict[str, Any]] | None = None,
) -> GuestReport:
    """What no guest sent."""
    return GuestReport(
        hello={"type": "hello", "abi": 1},
        results=[{"type": "result", "label": "", "size": 0, "procs": 1, **r} for r in results],
        checks=checks or [],
        dmesg=dmesg,
        console=console,
        boot_s=1.0,
        wall_s=2.0,
    )
