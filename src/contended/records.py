# SPDX-License-Identifier: MIT
"""Records on disk: dataclasses that pydantic reads and writes, as JSON or out of TOML.

A mistake is one line that names the file, the place in it, and what is wrong there.
"""

import json
import os
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from contended.errors import ContendedError, UsageError

if TYPE_CHECKING:
    from pydantic import ValidationError

T = TypeVar("T")


class Record:
    """What can be written as JSON: a base for dataclasses."""

    __slots__ = ()

    def to_json(self) -> str:
        """The record as JSON text."""
        text: bytes = adapter(type(self)).dump_json(self, indent=2)
        return text.decode() + "\n"

    def save(self, path: Path) -> None:
        """Write `to_json()` to `path`: the whole file or, on any error, no file."""
        write_whole(path, self.to_json())


_ADAPTERS: dict[Any, Any] = {}


def adapter(kind: Any) -> Any:
    """Pydantic's adapter of a dataclass."""
    # pydantic takes a tenth of a second to import; commands that read nothing should not pay for it
    from pydantic import TypeAdapter

    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def load(
    kind: type[T], path: Path, what: str, schema: int, remedy: str, *, strict: bool = True
) -> T:
    """Read `what`, with that field `schema`, `Record.save` wrote; errors end in the remedy."""
    try:
        text = path.read_bytes()
    except OSError as error:
        why = f"cannot read {what} from {path}: {error.strerror}"
        raise ContendedError(f"{why}: {remedy}") from error
    try:
        found = _valid(kind, text, f"{path} holds no valid {what}", ContendedError, strict)
    except ContendedError as error:
        raise ContendedError(f"{error}: {remedy}") from error
    had = found.schema  # type: ignore[attr-defined]
    if had != schema:
        raise ContendedError(f"{path} has schema {had}, this version reads {schema}: {remedy}")
    return found


def toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; raises UsageError if it cannot be read, or is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from error


def made(kind: type[T], content: dict[str, Any], where: str) -> T:
    """A dataclass, whose lists are tuples, of what a TOML file holds; UsageError says `where`."""
    # As JSON, whose lists are tuples to pydantic even when it takes types at their word.
    return _valid(kind, json.dumps(content, default=str), where, UsageError)


def _valid(
    kind: type[T], text: str | bytes, what: str, wrong: type[ContendedError], strict: bool = True
) -> T:
    from pydantic import ValidationError

    try:
        record: T = adapter(kind).validate_json(text, strict=strict, extra="forbid")
    except ValidationError as error:
        raise wrong(f"{what}: {mistake(error)}") from error
    return record


def mistake(error: "ValidationError") -> str:
    """The first thing that is wrong, and where."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "the whole file"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"


def write_whole(path: Path, text: str) -> None:
    """Write `text` so that a reader, or a crash, sees all of it or nothing.

    `-` stands for standard output. A pipe or a device is written to, never replaced by a file.
    """
    if str(path) == "-":
        sys.stdout.write(text)
        return
    temporary: Path | None = None
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_text(text, encoding="utf-8")
            return
        path = path.resolve()
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as out:
            temporary = Path(out.name)
            out.write(text)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        raise ContendedError(f"cannot write {path}: {error.strerror}") from error
    finally:
        if temporary:  # after the rename there is none
            temporary.unlink(missing_ok=True)
