# SPDX-License-Identifier: MIT
"""The QEMU plugin that counts: is there a QEMU for it, compile it, ask for it.

`csrc/qemu/coherence.c` is compiled when it is used, for the version of the plugin interface that
the QEMU at hand speaks, and kept in the cache under a digest of all that went into it. The caller
starts QEMU (a kernel: `boot`; a program: `qemu-x86_64`) with the value that `option` makes, and
reads what the plugin wrote with `output.load`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from contended import cc, tree
from contended.errors import ContendedError, UsageError
from contended.profile.output import Mode

#: Versions of QEMU's plugin interface that csrc/qemu/plugin_api.h knows.
KNOWN_APIS = range(1, 7)
MAX_VCPUS = 128
#: Instructions that one vCPU may be ahead of the others, where nothing else is asked for.
QUANTUM = 2000
LINE = 64
FLAGS = (
    *("-shared", "-fPIC", "-O2", "-std=c11", "-D_GNU_SOURCE", "-pthread"),
    *("-fvisibility=hidden", "-Wall", "-Wextra"),
)
PROBE_S = 20
MAX_WATCHES = 64

PROGRAMS: Mapping[Mode, tuple[str, str]] = {
    "system": ("qemu-system-x86_64", "qemu-system-x86"),
    "user": ("qemu-x86_64", "qemu-user"),
}


class NoPlugins(ContendedError):
    """There is no QEMU, or none that takes this plugin."""


class Qemu(NamedTuple):
    """A QEMU that can load plugins, up to version `api` of their interface."""

    path: Path
    version: str
    api: int


def sources() -> Path:
    """The folder of the plugin's C."""
    return tree.home() / "csrc" / "qemu"


@cache
def find(mode: Mode = "system") -> Qemu:
    """The QEMU on this machine, asked whether it takes plugins, and of which version.

    Raises:
        NoPlugins: it is not installed, was built without plugins, or speaks a version of the
            plugin interface that is not known here.
    """
    program, package = PROGRAMS[mode]
    path = shutil.which(program)
    if path is None:
        raise NoPlugins(f"{program} is not installed: apt-get install {package}")
    return ask(Path(path), mode)


def ask(path: Path, mode: Mode) -> Qemu:
    """Ask a given QEMU, as `find` does."""
    version = re.search(r"version (\d[\w.]*)", _run([str(path), "--version"]))
    if not version:
        raise NoPlugins(f"{path} does not say which version it is: is it QEMU?")
    qemu = f"{path.name} {version[1]}"
    # A plugin that asks for too new an interface is refused with the number of the newest.
    value = _escape(_compiled("probe"))
    rest = ["-M", "none", "-display", "none"] if mode == "system" else ["/bin/true"]
    said = _run([str(path), "-plugin", value, *rest])
    newest = re.search(r"supports only up to version (\d+)", said)
    if not newest:
        if mode == "user" and cc.is_static(path.read_bytes()):
            raise NoPlugins(
                f"{qemu} loads no plugins since it is linked statically, as Debian's is from 13 "
                "on: profile the kernel (contended c2c without --user), or build QEMU's user mode "
                "with --enable-plugins"
            )
        reason = (said.strip().splitlines() or ["it says nothing"])[-1]
        raise NoPlugins(
            f"{qemu} loads no plugins ({reason}): use Debian's, or build QEMU with --enable-plugins"
        )
    api = int(newest[1])
    if api not in KNOWN_APIS:
        raise NoPlugins(
            f"{qemu} has version {api} of the plugin interface; "
            f"csrc/qemu/plugin_api.h knows {KNOWN_APIS[0]} to {KNOWN_APIS[-1]}"
        )
    return Qemu(path, version[1], api)


def build(qemu: Qemu) -> Path:
    """The plugin for this QEMU, compiled unless it is in the cache."""
    return _compiled("coherence", f"-DCT_QEMU_API={qemu.api}")


def option(
    library: Path,
    out: Path,
    *,
    quantum: int = QUANTUM,
    line: int = LINE,
    watch: Sequence[int] = (),
    whole: bool = False,
) -> str:
    """The value of QEMU's `-plugin` option.

    Args:
        library: The plugin, from `build`.
        out: The file that the report goes to; a relative path is QEMU's to resolve.
        quantum: Instructions that a vCPU may be ahead of the slowest, 10 to 10^9; 0: any number.
        line: Bytes of a cache line, a power of two from 16 to 4096.
        watch: Addresses of instructions whose executions are counted.
        whole: Count the whole program instead of the marked region.

    Raises:
        UsageError: a value is out of range.
    """
    if quantum and not 10 <= quantum <= 10**9:
        raise UsageError(f"a quantum of {quantum} instructions: give 10 to 1000000000, or 0 (off)")
    if not 16 <= line <= 4096 or line & (line - 1):
        raise UsageError(f"lines of {line} bytes: give a power of two from 16 to 4096")
    if len(watch) > MAX_WATCHES:
        raise UsageError(f"{len(watch)} watched addresses: at most {MAX_WATCHES}")
    parts = [_escape(library), f"out={_escape(out)}", f"quantum={quantum}", f"line={line}"]
    if watch:
        parts.append("watch=" + "+".join(f"{pc:#x}" for pc in watch))
    if whole:
        parts.append("region=all")
    return ",".join(parts)


def _escape(path: Path) -> str:
    # QEMU's options end at a comma, and two commas are one
    return str(path).replace(",", ",,")


def _run(command: Sequence[str]) -> str:
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PROBE_S,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as error:
        raise NoPlugins(f"{command[0]} does not answer within {PROBE_S} s") from error
    except OSError as error:
        raise NoPlugins(f"{command[0]} cannot be run: {error.strerror}") from error


def _compiled(name: str, *flags: str) -> Path:
    """Compile a C file of `csrc/qemu` into the cache."""
    return cc.compiled(
        "kernel/plugin",
        f"{name}.so",
        [sources() / f"{name}.c"],
        (*FLAGS, *flags),
        headers=sources().glob("*.h"),
        what=f"csrc/qemu/{name}.c",
    )
