# SPDX-License-Identifier: MIT
"""Structs as the compiler laid them out: where a member is, and which one a byte belongs to.

They are read from entries of a program's debug information (`contended.profile.dwarf`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple

from contended.errors import UsageError

RECORDS = ("DW_TAG_structure_type", "DW_TAG_union_type")
_TYPEDEF = "DW_TAG_typedef"
_THROUGH = (_TYPEDEF, "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_atomic_type")
_ARRAY, _POINTER = "DW_TAG_array_type", "DW_TAG_pointer_type"
_VOID: Any = SimpleNamespace(tag="void", attributes={})  # which has no entry
_UNION = 4  # of more members at one byte not all are named

_Path = tuple[str, ...]


class StructMember(NamedTuple):
    """A member of a struct: `size` bytes from `offset` on."""

    name: str
    offset: int
    size: int


class Type:
    """The layout of a struct or union, whose `size` is in bytes.

    Members of its unnamed structs and unions are its own.
    """

    def __init__(self, die: Any) -> None:
        self._die = die
        self.name = name_of(die)
        self.size = int(value(die, "DW_AT_byte_size"))

    def field(self, path: str) -> StructMember:
        """A member, as in "d_lockref" or "d_name.len"; raises UsageError if there is none."""
        base, member, record = 0, None, self._die
        for part in path.split("."):
            offset, member = self._member(record, part, path)
            base += offset
            record = behind(member)[0]
        return StructMember(path, base, _size(member))

    def target(self, member: str) -> Type | None:
        """The struct that a member (else UsageError) points at; None if it is no such pointer."""
        pointer = behind(self._member(self._die, member, member)[1])[0]
        return record_of(pointer) if pointer.tag == _POINTER else None

    def _member(self, record: Any, name: str, path: str) -> tuple[int, Any]:
        for known, offset, member in _members(record) if record.tag in RECORDS else ():
            if known == name:
                return offset, member
        raise UsageError(f"struct {self.name} has no member {path!r}")

    def at(self, offset: int) -> str:
        """The member at an offset in bytes: "d_lockref.count", "d_iname[8]", "" for padding.

        Where members of a union start at the same byte there is no telling which one was meant:
        the union's name then, or, if it has none, both: "d_lru/d_wait". A struct that goes by a
        typedef, such as an atomic_t, is not taken apart.
        """
        paths = list(_leaves(self._die, offset))
        exact = [path for path, rest in paths if rest == 0]
        chosen = list(dict.fromkeys(exact or [path for path, _ in paths]))
        if common := posixpath.commonprefix(chosen):
            return _joined(common)
        every = list(dict.fromkeys(path[0] for path in chosen))
        return "/".join(every if len(every) <= _UNION else [*every[: _UNION - 1], "..."])

    def tail(self, offset: int) -> str:
        """The member at an offset beyond the end, if the struct ends in an array without length."""
        for name, start, member in _members(self._die):
            if behind(member)[0].tag == _ARRAY and not _size(member) and offset >= start:
                return _joined((name, *next(_into(member, offset - start))[0]))
        return ""


def value(die: Any, attribute: str, otherwise: Any = None) -> Any:
    """The value of an attribute ("DW_AT_...") of an entry, or what it is if there is none."""
    found = die.attributes.get(attribute)
    return otherwise if found is None else found.value


def name_of(die: Any) -> str:
    """The name of an entry; empty if it has none."""
    name: bytes = value(die, "DW_AT_name", b"")
    return name.decode(errors="replace")


def behind(die: Any) -> tuple[Any, bool]:
    """What an entry's type is behind typedefs and qualifiers, and whether one was a typedef."""
    alias = False
    while "DW_AT_type" in die.attributes:
        die = die.get_DIE_from_attribute("DW_AT_type")
        alias |= die.tag == _TYPEDEF
        if die.tag not in _THROUGH:
            return die, alias
    return _VOID, alias


def record_of(die: Any) -> Type | None:
    """The struct that an entry's type is; None if it is none, or only declared."""
    plain, _ = behind(die)
    known = plain.tag in RECORDS and "DW_AT_byte_size" in plain.attributes
    return Type(plain) if known else None


def _joined(path: Sequence[str]) -> str:
    return ".".join(path).replace(".[", "[")


def _lengths(array: Any) -> list[int]:
    """The elements by dimension; 0 where none is told."""
    return [
        int(value(part, "DW_AT_count", value(part, "DW_AT_upper_bound", -1) + 1))
        for part in array.iter_children()
        if part.tag == "DW_TAG_subrange_type"
    ]


def _size(die: Any) -> int:
    """Bytes of what an entry has as its type."""
    plain, _ = behind(die)
    if plain.tag == _ARRAY:
        return _size(plain) * prod(_lengths(plain))
    return int(value(plain, "DW_AT_byte_size", 8 if plain.tag == _POINTER else 0))


def _covered(member: Any) -> int:
    """Bytes from a member's first one to its last: a bit field covers less than its type."""
    bits = value(member, "DW_AT_data_bit_offset")
    return _size(member) if bits is None else (bits % 8 + value(member, "DW_AT_bit_size") + 7) // 8


def _members(record: Any, base: int = 0) -> Iterator[tuple[str, int, Any]]:
    """Name, offset and entry of each member, those of unnamed members among them."""
    for member in record.iter_children():
        if member.tag != "DW_TAG_member":
            continue
        bits = value(member, "DW_AT_data_bit_offset")
        place = value(member, "DW_AT_data_member_location", 0) if bits is None else bits // 8
        if name := name_of(member):
            yield name, base + place, member
        elif (inner := behind(member)[0]).tag in RECORDS:
            yield from _members(inner, base + place)


def _leaves(record: Any, offset: int) -> Iterator[tuple[_Path, int]]:
    """The innermost members over a byte: their paths, and how far in them the byte is."""
    for name, start, member in _members(record):
        inside = offset - start
        if 0 <= inside < _covered(member):
            for path, rest in _into(member, inside):
                yield (name, *path), rest


def _into(die: Any, inside: int) -> Iterator[tuple[_Path, int]]:
    """The leaves over a byte of an entry's type; one that goes by a typedef is one itself."""
    plain, alias = behind(die)
    if plain.tag == _ARRAY and (size := _size(plain)):
        number, rest = divmod(inside, size)
        index: list[str] = []
        for length in reversed(_lengths(plain)):
            number, last = divmod(number, length) if length else (0, number)
            index.insert(0, f"[{last}]")
        for path, left in _into(plain, rest):
            yield (*index, *path), left
    elif plain.tag in RECORDS and not alias:
        yield from list(_leaves(plain, inside)) or [(("(padding)",), 0)]
    else:
        yield (), inside
