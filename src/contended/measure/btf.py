# SPDX-License-Identifier: MIT
"""The layout of the running kernel's own structs, read from its type information (BTF).

Most distributions' kernels carry a description of all their types in `/sys/kernel/btf/vmlinux`,
which anybody may read. Offsets depend on configuration and version, so asking beats remembering.
The format is described in the kernel's Documentation/bpf/btf.rst.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contended.errors import ContendedError, UsageError

VMLINUX = Path("/sys/kernel/btf/vmlinux")
_MAGIC = 0xEB9F
_HEADER = struct.Struct("HBBIIIII")
_WORDS = struct.Struct("III")  # of a type, of a member, of an array

_INT, _PTR, _ARRAY, _STRUCT, _UNION, _ENUM, _FLOAT, _ENUM64 = 1, 2, 3, 4, 5, 6, 16, 19
# typedef, volatile, const, restrict, type tag: another type's size
_ALIASES = frozenset((8, 9, 10, 11, 18))
# What follows a type's three words: bytes once, or bytes for each of its members.
_ONCE = {_INT: 4, _ARRAY: 12, 14: 4, 17: 4}
_EACH = {_STRUCT: 12, _UNION: 12, _ENUM: 8, 13: 8, 15: 12, _ENUM64: 12}


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a struct: `size` bytes from `offset` on."""

    name: str
    offset: int
    size: int


class Btf:
    """The types of a kernel, from a file.

    Raises ContendedError if there is none, as in kernels built without it and in some containers,
    or it is not what it should be.
    """

    def __init__(self, path: Path = VMLINUX) -> None:
        try:
            self._data = path.read_bytes()
            self._index()
        except OSError as error:
            message = f"this kernel does not show its types in {path} ({error.strerror})"
            raise ContendedError(message) from error
        except (struct.error, IndexError, KeyError) as error:
            raise ContendedError(f"{path} holds no type information that we can read") from error

    def _index(self) -> None:
        magic, _, _, header, types, length, strings, _ = _HEADER.unpack_from(self._data)
        if magic != _MAGIC:
            raise KeyError(magic)
        self._strings = header + strings
        self._at = [0]  # type 0 is void
        at = header + types
        end = at + length
        while at < end:
            self._at.append(at)
            info = _WORDS.unpack_from(self._data, at)[1]
            kind = info >> 24 & 31
            at += _WORDS.size + _ONCE.get(kind, 0) + (info & 0xFFFF) * _EACH.get(kind, 0)

    def struct(self, name: str) -> list[Member]:
        """The members of a struct in the order of their offsets, unnamed ones taken apart.

        Raises UsageError if this kernel has no struct of that name.
        """
        wanted = name.encode()
        for number in range(1, len(self._at)):
            kind, length, at = self._type(number)[:3]
            if kind == _STRUCT and length and self._text(at) == wanted:
                return sorted(self._members(number, 0), key=lambda m: (m.offset, -m.size))
        raise UsageError(f"this kernel has no struct {name}")

    def _type(self, number: int) -> tuple[int, int, int, int, bool]:
        """Kind, number of members, name, size or type, and whether offsets hold bit sizes."""
        name, info, size = _WORDS.unpack_from(self._data, self._at[number])
        return info >> 24 & 31, info & 0xFFFF, name, size, bool(info >> 31)

    def _text(self, at: int) -> bytes:
        start = self._strings + at
        return self._data[start : self._data.index(b"\0", start)]

    def _members(self, number: int, base: int) -> Iterator[Member]:
        _, length, _, _, bit_sizes = self._type(number)
        for i in range(1, length + 1):
            name, of, bits = _WORDS.unpack_from(self._data, self._at[number] + i * _WORDS.size)
            offset = base + (bits & 0xFFFFFF if bit_sizes else bits) // 8
            if name:
                yield Member(self._text(name).decode(), offset, self._size(of))
            else:
                yield from self._members(self._plain(of), offset)

    def _plain(self, number: int) -> int:
        while self._type(number)[0] in _ALIASES:
            number = self._type(number)[3]
        return number

    def _size(self, number: int) -> int:
        number = self._plain(number)
        kind, _, _, size, _ = self._type(number)
        if kind == _PTR:
            return struct.calcsize("P")
        if kind == _ARRAY:
            of, _, length = _WORDS.unpack_from(self._data, self._at[number] + _WORDS.size)
            return self._size(of) * int(length)
        return size if kind in (_INT, _STRUCT, _UNION, _ENUM, _FLOAT, _ENUM64) else 0
