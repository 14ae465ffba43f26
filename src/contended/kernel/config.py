# SPDX-License-Identifier: MIT
"""The kernels' configurations: fragments over `make tinyconfig`, checked after kconfig had its say.

Kconfig drops without a word what depends on something that is off, and turns on what others select.
So every option that a fragment names is looked up in the result.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from contended.errors import ContendedError, UsageError
from contended.kernel import store, variants
from contended.kernel.source import KernelSource

_LAYERS = {"base": ("base",), "debug": ("base", "debug"), "up": ("base", "debug", "up")}
_MEDDLING = re.compile(
    r"(MAKE|MAKEFLAGS|MFLAGS|GNUMAKEFLAGS|MAKELEVEL|MAKEFILES|MAKEOVERRIDES|ARCH|CROSS_COMPILE"
    r"|LLVM|CC|LD|AS|CFLAGS|CPPFLAGS|LDFLAGS|HOST\w+|K[A-Z]+FLAGS|KCONFIG_\w+|KBUILD_\w+"
    r"|INSTALL_\w+|O|V|W|C|M)"
)


def options(config: str) -> dict[str, str]:
    """What a configuration asks for: options without `CONFIG_`, and their values; `n` is off.

    Later fragments win over earlier ones. Raises UsageError if there is no such configuration, or a
    line of a fragment is none of kconfig's.
    """
    if config not in _LAYERS:
        raise UsageError(f"no configuration {config!r}; there are: {', '.join(_LAYERS)}")
    found: dict[str, str] = {}
    for layer in _LAYERS[config]:
        file = variants.folder() / "config" / f"{layer}.config"
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise ContendedError(f"cannot read {file}: {error.strerror}") from error
        for number, line in enumerate(text.splitlines(), 1):
            if match := re.fullmatch(r"# CONFIG_(\w+) is not set", line):
                found[match[1]] = "n"
            elif match := re.fullmatch(r"CONFIG_(\w+)=(\S.*)", line):
                found[match[1]] = match[2]
            elif line and not line.startswith("#"):
                raise UsageError(f"{file}:{number}: {line!r} is no line of a configuration")
    return found


def environment() -> dict[str, str]:
    """The environment of the kernel's make: nothing in it changes what is built.

    A kernel names neither the machine nor the user nor the time at which it was built.
    """
    return {
        **{name: value for name, value in os.environ.items() if not _MEDDLING.fullmatch(name)},
        "LC_ALL": "C",
        "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 1970",
        "KBUILD_BUILD_USER": "contended",
        "KBUILD_BUILD_HOST": "contended",
        "KBUILD_BUILD_VERSION": "1",
    }


def flags(config: str) -> list[str]:
    """What is added to the kernel's own make.

    Where variables are at each instruction is the part of the debug information that takes gcc
    longest, and nobody here asks: the lab reads types, lines and what was inlined.
    """
    if options(config).get("DEBUG_INFO_NONE") == "y":
        return []
    return ["KCFLAGS=-fno-var-tracking -fno-var-tracking-assignments"]


def make(source: KernelSource, build_dir: Path, *arguments: str) -> list[str]:
    """The command that makes something in a build folder."""
    # An empty LOCALVERSION keeps git's opinion of a surrounding repository out of the version.
    fixed = ("ARCH=x86_64", "LOCALVERSION=")
    return ["make", "-C", str(source.tree), f"O={build_dir}", *fixed, *arguments]


def write(source: KernelSource, config: str, build_dir: Path) -> None:
    """Configure a build folder; raises ContendedError if an option does not come out as asked."""
    build_dir.mkdir(parents=True, exist_ok=True)
    file = build_dir / ".config"
    wanted = options(config)
    for goal in ("tinyconfig", "olddefconfig"):
        done = store.ask(make(source, build_dir, "--silent", goal), env=environment())
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "make" not in line.split(":")[0]]
            error = ContendedError(f"make {goal} fails: {next(iter(lines), 'no reason given')}")
            error.add_note((done.stdout + done.stderr).rstrip())
            raise error
        if goal == "tinyconfig":
            with file.open("a") as stream:
                for name, value in wanted.items():
                    off = f"# CONFIG_{name} is not set\n"
                    stream.write(off if value == "n" else f"CONFIG_{name}={value}\n")
    got = dict(re.findall(r"^CONFIG_(\w+)=(.*)$", file.read_text(), re.M))
    dropped = [
        f"{name} is {got.get(name, 'n')} instead of {value}"
        for name, value in wanted.items()
        if got.get(name, "n") != value
    ]
    if dropped:
        raise ContendedError(
            f"Linux {source.version} has no configuration {config!r} as asked for: "
            + ", ".join(dropped)
        )
