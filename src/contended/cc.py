# SPDX-License-Identifier: MIT
"""The C compiler, and what it makes, kept in the cache."""

import hashlib
import os
import re
import shlex
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from contended import tree
from contended.errors import ContendedError


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: its path, the first line of its `--version`, and arguments that `CC` adds."""

    command: str
    version: str
    arguments: tuple[str, ...] = ()


@cache
def compiler() -> Compiler:
    """The compiler that `CC` names, or else `cc`, `gcc` or `clang`."""
    wanted = os.environ.get("CC", "")
    given = shlex.split(wanted)
    for name, *arguments in [given] if given else (["cc"], ["gcc"], ["clang"]):
        if path := shutil.which(name):
            text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            version = (text.stdout.splitlines() or ["unknown version"])[0]
            return Compiler(path, version, tuple(arguments))
    raise ContendedError(
        f"no C compiler{f' {wanted!r} (from CC)' if wanted else ''} was found: "
        "install one (Debian, Ubuntu: apt-get install gcc libc6-dev), see make doctor"
    )


class CompileError(ContendedError):
    """C that does not compile; all that the compiler said is `output`, and attached as a note."""

    def __init__(self, what: str, output: str, advice: str = "") -> None:
        telling = r"\berror:|cannot find|undefined reference"
        lines = (line.strip() for line in output.splitlines() if re.search(telling, line))
        super().__init__(f"{what} does not compile: {next(lines, 'the compiler failed')}{advice}")
        self.output = output
        self.add_note(output.rstrip())


def compile_(sources: Sequence[Path], flags: Sequence[str], made: Path, *, what: str = "") -> None:
    """Compile the C files among the sources into one; `what` is named if it does not compile."""
    cc = compiler()
    files = [str(file) for file in sources if file.suffix == ".c"]
    run = subprocess.run(
        [cc.command, *cc.arguments, "-o", str(made), *files, *flags],
        capture_output=True,
        text=True,
        errors="replace",
        # Its words stay English, because we look for some of them.
        env={**os.environ, "TMPDIR": str(made.parent), "LC_ALL": "C"},
        check=False,
    )
    if run.returncode:
        raise CompileError(what or sources[0].name, run.stderr)


def compiled(
    place: str,
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str],
    *,
    headers: Iterable[Path] = (),
    what: str = "",
    libraries: Sequence[str] = (),
) -> Path:
    """The file `name` in the cache, in `place`, in a folder named by a digest of all that goes in.

    It is compiled unless it is there; `headers` are what the sources include.
    """
    command = (compiler(), *flags, *sources, *libraries)
    digest = hashlib.sha256(repr(command).encode())
    try:
        for part in (*sources, *sorted(headers)):
            digest.update(part.name.encode() + b"\0" + part.read_bytes() + b"\0")
    except OSError as error:
        raise ContendedError(f"cannot read {error.filename}: {error.strerror}") from error
    home = tree.cache_dir() / place
    file = home / digest.hexdigest()[:32] / name
    try:
        if file.exists():
            return file
        home.mkdir(parents=True, exist_ok=True)
        work = tempfile.TemporaryDirectory(dir=home)
    except OSError as error:
        raise ContendedError(
            f"cannot write what is compiled to {home} ({error.strerror}): "
            "set CONTENDED_CACHE to a folder that you can write"
        ) from error
    with work:
        made = Path(work.name) / name
        compile_(sources, (*flags, *libraries), made, what=what)
        file.parent.mkdir(exist_ok=True)
        made.replace(file)  # the rename publishes it: nobody ever uses half a file
    return file


def is_static(program: bytes) -> bool:
    """Whether an ELF program needs no dynamic loader, by its program headers (PT_INTERP is 3)."""
    if program[:5] != b"\x7fELF\x02" or len(program) < 64:
        return False
    offset, size, count = struct.unpack_from("<32xQ14xHH", program)
    headers = (offset + i * size for i in range(count))
    return not any(program.startswith(b"\3\0\0\0", header) for header in headers)
