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
    try:
        libraries = link_flags(file)
        return cc.compiled(
            "native",
            f"{file.stem}.so",
            [file],
            (*FLAGS, *extra_flags, f"-I{include}"),
            headers=include.glob("*.h"),
            libraries=libraries,
        )
    except OSError as error:
        raise ContendedError(f"cannot read {error.filename}: {error.strerror}") from error
    except cc.CompileError as error:
        raise _explained(file, error) from None


def _explained(file: Path, error: cc.CompileError) -> ContendedError:
    """With what to install, if a header is missing."""
    missing = re.search(r"fatal error: (\S+): No such file", error.output)
    if not missing:
        return error
    if package := packages.package_of_header(missing[1]):
        lacking = MissingPackage(
            f"{file.name} needs the header {missing[1]}: apt-get install {package}"
        )
        lacking.add_note(error.output.rstrip())
        return lacking
    advice = f": the header {missing[1]} is missing, make doctor names its package"
    return cc.CompileError(file.name, error.output, advice)


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
