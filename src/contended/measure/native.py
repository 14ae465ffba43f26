# SPDX-License-Identifier: MIT
"""Compile C models when they are used, and load them.

A model is one file in `csrc/models/`. It is compiled into a plain shared object, kept under the
user's cache directory by a digest of everything that went into it (source, headers, compiler,
flags), and loaded through cffi, which reads `csrc/abi.h`, the very header that the C side includes.
So an edit in a model is measured by simply running again, and Python and C cannot disagree about
the layout of what they exchange.

cffi's ABI mode is used rather than its API mode: it needs no Python headers (Debian ships them
apart), a compiler's message is about the reader's own file, and a call's cost does not matter where
one call is one run.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from contended import cc, doctor, tree
from contended.cc import compiler
from contended.errors import ContendedError, UsageError

# _GNU_SOURCE here as well as in harness.h, so that a model may include other headers before it.
FLAGS = (
    *("-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra"),
    *("-fPIC", "-shared", "-pthread"),
)


class MissingPackage(ContendedError):
    """A model needs a library that this machine lacks; the message names its Debian package."""


def available() -> list[str]:
    """The slugs of all models in `csrc/models/`, sorted."""
    return sorted(p.stem.replace("_", "-") for p in (tree.home() / "csrc" / "models").glob("*.c"))


def source(slug: str) -> Path:
    """The C file of a model.

    Raises:
        UsageError: there is none; the message lists the models that there are.
    """
    if slug not in available():
        raise UsageError(f"no model {slug!r}; there are: {', '.join(available())}")
    return tree.home() / "csrc" / "models" / f"{slug.replace('-', '_')}.c"


def link_flags(file: Path) -> tuple[str, ...]:
    """The libraries that a model asks for in the comment at its top: ` * Link: -lone -ltwo`."""
    top = re.match(r"(?:\s*/\*.*?\*/)*", file.read_text(errors="replace"), re.S)
    asked = re.search(r"^ \* Link:((?: -l[\w+.-]+)+)$", top[0] if top else "", re.M)
    return tuple(asked[1].split()) if asked else ()


def build(model: str | Path, *, extra_flags: tuple[str, ...] = ()) -> Path:
    """Compile a model unless its shared object is in the cache.

    Args:
        model: A slug, or the path of a C file that includes `harness.h`.
        extra_flags: Flags after the usual ones, e.g. `("-DRETRIES=10",)`.

    Returns:
        The path of the shared object.

    Raises:
        MissingPackage: the model needs a library that is not installed.
        ContendedError: no compiler, an error in the C, or a cache that cannot be written. The
            compiler's full output is attached as a note.
    """
    file = model if isinstance(model, Path) else source(model)
    include = tree.home() / "csrc"
    cc = compiler()
    flags = (*FLAGS, *extra_flags)
    digest = hashlib.sha256()
    try:
        for part in (file, *sorted(include.glob("*.h"))):
            digest.update(part.name.encode() + b"\0" + part.read_bytes() + b"\0")
    except OSError as error:
        raise ContendedError(f"cannot read {error.filename}: {error.strerror}") from error
    digest.update(repr((cc, flags, str(file.parent))).encode())
    library = tree.cache_dir() / "native" / digest.hexdigest()[:32] / f"{file.stem}.so"
    try:
        made = library.exists()
    except PermissionError:
        made = False  # _compile says what is wrong
    if not made:
        _compile(cc, flags, file, include, library)
    return library


def _compile(
    cc: cc.Compiler, flags: tuple[str, ...], file: Path, include: Path, library: Path
) -> None:
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        work = tempfile.TemporaryDirectory(dir=library.parent)
    except OSError as error:
        raise ContendedError(
            f"cannot write compiled models to {tree.cache_dir()} ({error.strerror}): "
            "set CONTENDED_CACHE to a folder that you can write"
        ) from error
    with work:
        made = Path(work.name) / library.name
        command = [cc.command, *cc.arguments, *flags, f"-I{include}", "-o", str(made), str(file)]
        command += link_flags(file)
        # Its scratch files go where they are removed whatever happens; its words stay English,
        # because we look for some of them.
        env = {**os.environ, "TMPDIR": work.name, "LC_ALL": "C"}
        run = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=env, check=False
        )
        if run.returncode:
            raise _compile_error(file, run.stderr)
        # The rename is what publishes it: nobody ever loads half a file.
        made.replace(library)


def _compile_error(file: Path, output: str) -> ContendedError:
    missing = re.search(r"fatal error: (\S+): No such file", output)
    package = doctor.package_of_header(missing[1]) if missing else None
    if missing and package:
        lacking = MissingPackage(
            f"{file.name} needs the header {missing[1]}: apt-get install {package}"
        )
        lacking.add_note(output.rstrip())
        return lacking
    lines = output.splitlines()
    line = next((x for x in lines if re.search(r"\berror:", x)), "the compiler failed")
    advice = (
        f": the header {missing[1]} is missing, make doctor names its package" if missing else ""
    )
    error = ContendedError(f"{file.name} does not compile: {line.strip()}{advice}")
    error.add_note(output.rstrip())
    return error


def declarations() -> str:
    """The declarations of `csrc/abi.h` as cffi takes them: without the other directives."""
    text = (tree.home() / "csrc" / "abi.h").read_text()
    return "\n".join(
        line
        for line in text.splitlines()
        if not line.startswith("#") or re.match(r"#define \w+ -?\d+", line)
    )


def interface() -> Any:
    """A cffi `FFI` that knows the declarations of `csrc/abi.h`."""
    # Only the process that runs the models needs it.
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(declarations())
    return ffi


def load(library: Path, ffi: Any) -> Any:
    """Open a compiled model and make sure that both sides mean the same layout.

    Call this in a child process only (see `contended.measure.runner`): a model is somebody's C.

    Raises:
        ContendedError: it cannot be loaded or was built from another `abi.h`.
    """
    try:
        lib = ffi.dlopen(str(library))
        described = lib.ct_model()
        sizes = (lib.ct_sizeof_config(), lib.ct_sizeof_result(), described.abi)
    except (OSError, AttributeError) as error:
        raise ContendedError(f"{library.name} is no model: {error}") from error
    if sizes != (ffi.sizeof("struct ct_config"), ffi.sizeof("struct ct_result"), lib.CT_ABI):
        raise ContendedError(
            f"{library.name} was built from another abi.h: remove {tree.cache_dir()}"
        )
    return lib
