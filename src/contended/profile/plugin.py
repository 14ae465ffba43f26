# SPDX-License-Identifier: MIT
"""The QEMU plugin that counts: is there a QEMU for it, compile it, ask for it.

`csrc/qemu/coherence.c` is compiled for the version of the plugin interface that the QEMU at hand
speaks, and kept under a digest of all that went into it. The caller starts QEMU with the value that
`option` makes, and reads what the plugin wrote with `output.load`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
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

    Raises NoPlugins if it is not installed, was built without plugins, or speaks a version of the
    plugin interface that is not known here.
    """
    system = "qemu-system-x86_64", "qemu-system-x86"
    program, package = system if mode == "system" else ("qemu-x86_64", "qemu-user")
    path = shutil.which(program)
    if path is None:
        raise NoPlugins(f"{program} is not installed: apt-get install {package}")
    return ask(Path(path), mode)


def ask(path: Path, mode: Mode) -> Qemu:
    """Ask a given QEMU, as `find` does."""
    version = re.search(r"version (\d[\w.]*)", _said(str(path), "--version"))
    if not version:
        raise NoPlugins(f"{path} does not say which version it is: is it QEMU?")
    qemu = f"{path.name} {version[1]}"
    # A plugin that asks for too new an interface is refused with the number of the newest.
    value = _escape(_compiled("probe"))
    rest = ["-M", "none", "-display", "none"] if mode == "system" else ["/bin/true"]
    said = _said(str(path), "-plugin", value, *rest)
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


def option(library: Path, out: Path, *, quantum: int = QUANTUM, watch: Sequence[int] = ()) -> str:
    """The value of QEMU's `-plugin` option, for a report that goes to `out`.

    A vCPU may be `quantum` instructions ahead of the slowest, 10 to 10^9, or 0: any number; `watch`
    has the addresses of instructions whose executions are counted. Else it is a UsageError.
    """
    if quantum and not 10 <= quantum <= 10**9:
        raise UsageError(f"a quantum of {quantum} instructions: give 10 to 1000000000, or 0 (off)")
    if len(watch) > MAX_WATCHES:
        raise UsageError(f"{len(watch)} watched addresses: at most {MAX_WATCHES}")
    parts = [_escape(library), f"out={_escape(out)}", f"quantum={quantum}", f"line={LINE}"]
    if watch:
        parts.append("watch=" + "+".join(f"{pc:#x}" for pc in watch))
    return ",".join(parts)


def _escape(path: Path) -> str:
    # QEMU's options end at a comma, and two commas are one
    return str(path).replace(",", ",,")


def run(command: Sequence[str], deadline_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, without input; it is killed at the deadline."""
    no_input = subprocess.DEVNULL
    return subprocess.run(
        command, capture_output=True, errors="replace", stdin=no_input, timeout=deadline_s
    )


def _said(*command: str) -> str:
    try:
        done = run(command, PROBE_S)
    except subprocess.TimeoutExpired as error:
        raise NoPlugins(f"{command[0]} does not answer within {PROBE_S} s") from error
    except OSError as error:
        raise NoPlugins(f"{command[0]} cannot be run: {error.strerror}") from error
    return done.stdout + done.stderr


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
