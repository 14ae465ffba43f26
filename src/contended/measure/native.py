# SPDX-License-Identifier: MIT
"""Compile C models when they are used, and load them.

A model is one file in `csrc/models/`, loaded through cffi, which reads the header that the C side
includes: the two cannot disagree about the layout of what they exchange. cffi's ABI mode needs no
Python headers, and leaves a compiler's message to be about the reader's own file.
"""

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

    Raises MissingPackage if a library is not installed; all the compiler said is in a note.
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
        package = next((p.name for p in packages.PACKAGES if p.header == header), None)
        if not package:
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
    """Open a compiled model that means the same layout as we do, in a child process only."""
    try:
        lib = ffi.dlopen(str(library))
        sizes = (lib.ct_sizeof_config(), lib.ct_sizeof_result(), lib.ct_model().abi)
    except (OSError, AttributeError) as error:
        raise ContendedError(f"{library.name} is no model: {error}") from error
    if sizes != (ffi.sizeof("struct ct_config"), ffi.sizeof("struct ct_result"), lib.CT_ABI):
        place = tree.cache_dir()
        raise ContendedError(f"{library.name} was built from another abi.h: remove {place}")
    return lib
