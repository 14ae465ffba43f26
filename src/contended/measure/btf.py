# SPDX-License-Identifier: MIT
"""The layout of the running kernel's own structs, read from its type information (BTF).

Most distributions' kernels carry it in `/sys/kernel/btf/vmlinux`, which anybody may read, in the
format of the kernel's Documentation/bpf/btf.rst. Offsets depend on configuration and version.
"""

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
    """The types of a kernel, from a file, which some kernels and containers do not have."""

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
        at, end = header + types, header + types + length
        # Kind, number of members, name, size or type, whether offsets hold bit sizes, what follows.
        self._types = [(0, 0, 0, 0, 0, 0)]  # the first is void
        while at < end:
            name, info, size = _WORDS.unpack_from(self._data, at)
            kind, members = info >> 24 & 31, info & 0xFFFF
            at += _WORDS.size
            self._types.append((kind, members, name, size, info >> 31, at))
            at += _ONCE.get(kind, 0) + members * _EACH.get(kind, 0)

    def struct(self, name: str) -> list[Member]:
        """The members of a struct in the order of their offsets, unnamed ones taken apart."""
        for number, (kind, length, text, *_) in enumerate(self._types):
            if kind == _STRUCT and length and self._text(text) == name:
                return sorted(self._members(number, 0), key=lambda m: (m.offset, -m.size))
        raise UsageError(f"this kernel has no struct {name}")

    def _text(self, at: int) -> str:
        start = self._strings + at
        return self._data[start : self._data.index(b"\0", start)].decode()

    def _members(self, number: int, base: int) -> Iterator[Member]:
        _, length, _, _, bit_sizes, at = self._types[number]
        for name, of, bits in _WORDS.iter_unpack(self._data[at : at + length * _WORDS.size]):
            offset = base + (bits & 0xFFFFFF if bit_sizes else bits) // 8
            if name:
                yield Member(self._text(name), offset, self._size(of))
            else:
                yield from self._members(self._plain(of), offset)

    def _plain(self, number: int) -> int:
        while self._types[number][0] in _ALIASES:
            number = self._types[number][3]
        return number

    def _size(self, number: int) -> int:
        kind, _, _, size, _, at = self._types[self._plain(number)]
        if kind == _PTR:
            return struct.calcsize("P")
        if kind == _ARRAY:
            of, _, length = _WORDS.unpack_from(self._data, at)
            return self._size(of) * int(length)
        return size if kind in (_INT, _STRUCT, _UNION, _ENUM, _FLOAT, _ENUM64) else 0
