# SPDX-License-Identifier: MIT
"""The C compiler."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from contended.errors import ContendedError


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: its path, the first line of its `--version`, and arguments that `CC` adds."""

    command: str
    version: str
    arguments: tuple[str, ...] = ()


@cache
def compiler() -> Compiler:
    """The compiler that `CC` names, or else `cc`, `gcc` or `clang`.

    Raises:
        ContendedError: there is none.
    """
    wanted = os.environ.get("CC")
    for name, *arguments in (
        [shlex.split(wanted)] if wanted and wanted.strip() else (["cc"], ["gcc"], ["clang"])
    ):
        if path := shutil.which(name):
            text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            version = (text.stdout.splitlines() or ["unknown version"])[0]
            return Compiler(path, version, tuple(arguments))
    raise ContendedError(
        f"no C compiler{f' {wanted!r} (from CC)' if wanted else ''} was found: "
        "install one (Debian, Ubuntu: apt-get install gcc libc6-dev), see make doctor"
    )
