# SPDX-License-Identifier: MIT
"""Compile C models when they are used, and load them.

A model is one file in `csrc/models/`, loaded through cffi, which reads the header that the C side
includes, so that the two cannot disagree about the layout of what they exchange. cffi's ABI mode
needs no Python headers, and leaves a compiler's message to be about the reader's own file; what a
call costs does not matter where one call is one run.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from contended import cc, packages, tree
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
    """The C file of a model; raises UsageError, with the models that there are, if none."""
    if slug not in available():
        raise UsageError(f"no model {slug!r}; there are: {', '.join(available())}")
    return tree.home() / "csrc" / "models" / f"{slug.replace('-', '_')}.c"


def link_flags(file: Path) -> tuple[str, ...]:
    """The libraries that a model asks for in the comment at its top: ` * Link: -lone -ltwo`."""
    top = re.match(r"(?:\s*/\*.*?\*/)*", file.read_text(errors="replace"), re.S)
    asked = re.search(r"^ \* Link:((?: -l[\w+.-]+)+)$", top[0] if top else "", re.M)
    return tuple(asked[1].split()) if asked else ()


def build(model: str | Path) -> Path:
    """The shared object of a model, a slug or a C file, compiled unless it is in the cache.

    Raises MissingPackage if it needs a library that is not installed, else ContendedError; the
    compiler's full output is attached as a note.
    """
    file = model if isinstance(model, Path) else source(model)
    include = tree.home() / "csrc"
    try:
        flags = (*FLAGS, f"-I{include}", *link_flags(file))
        headers = include.glob("*.h")
        return cc.compiled("native", f"{file.stem}.so", [file], flags, headers=headers)
    except OSError as error:
        raise ContendedError(f"cannot read {error.filename}: {error.strerror}") from error
    except cc.CompileError as error:
        missing = re.search(r"fatal error: (\S+): No such file", error.output)
        if not missing:
            raise
        header = missing[1]
        if not (package := packages.package_of_header(header)):
            advice = f": the header {header} is missing, make doctor names its package"
            raise cc.CompileError(file.name, error.output, advice) from None
        lacking = MissingPackage(
            f"{file.name} needs the header {header}: apt-get install {package}"
        )
        lacking.add_note(error.output.rstrip())
        raise lacking from None


def declarations() -> str:
    """The declarations of `csrc/abi.h` as cffi takes them: without the other directives."""
    text = (tree.home() / "csrc" / "abi.h").read_text()
    return "\n".join(re.findall(r"^(?!#).*|^#define \w+ -?\d+.*", text, re.M))


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
