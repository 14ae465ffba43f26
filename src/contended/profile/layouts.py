# SPDX-License-Identifier: MIT
"""Structs as the compiler laid them out: where a member is, and which one a byte belongs to.

They are read from entries of a program's debug information (`contended.profile.dwarf`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from contended.errors import UsageError

RECORDS = ("DW_TAG_structure_type", "DW_TAG_union_type")
_TYPEDEF = "DW_TAG_typedef"
_THROUGH = (_TYPEDEF, "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_atomic_type")
_UNION = 4  # of more members at one byte not all are named


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a struct, with those of unnamed members as its own: bytes from `offset` on."""

    name: str
    offset: int
    size: int


class Type:
    """The layout of a struct or union."""

    def __init__(self, die: Any) -> None:
        self._die = die
        self.name = name_of(die)
        self.size = int(die.attributes["DW_AT_byte_size"].value)  # bytes

    def fields(self) -> tuple[Field, ...]:
        """The members in order, those of unnamed structs and unions taken apart."""
        return tuple(_fields(self._die, 0))

    def field(self, path: str) -> Field:
        """A member, as in "d_lockref" or "d_name.len".

        Raises:
            UsageError: there is none of that name.
        """
        base, die, size = 0, self._die, self.size
        for part in path.split("."):
            for name, offset, member in _members(die, 0) if die is not None else ():
                if name == part:
                    base += offset
                    size = _size(member)
                    die = behind(member)[0]
                    die = die if die is not None and die.tag in RECORDS else None
                    break
            else:
                raise UsageError(f"struct {self.name} has no member {path!r}")
        return Field(path, base, size)

    def target(self, member: str) -> Type | None:
        """The struct that a member points at; None if it is no pointer to one.

        Raises:
            UsageError: there is no member of that name.
        """
        for name, _, die in _members(self._die, 0):
            if name == member:
                pointer = behind(die)[0]
                if pointer is None or pointer.tag != "DW_TAG_pointer_type":
                    return None
                plain = behind(pointer)[0]
                whole = plain is not None and "DW_AT_byte_size" in plain.attributes
                return Type(plain) if whole and plain.tag in RECORDS else None
        raise UsageError(f"struct {self.name} has no member {member!r}")

    def tail(self, offset: int) -> str:
        """The member at an offset beyond the end, if the struct ends in an array without length."""
        for name, start, die in _members(self._die, 0):
            plain = behind(die)[0]
            if plain is not None and plain.tag == "DW_TAG_array_type" and not _size(die):
                inside = offset - start
                element, alias = behind(plain)
                size = _size(plain)
                if inside >= 0 and size and element is not None:
                    index, rest = divmod(inside, size)
                    leaves = list(_into(element, rest, alias))
                    path = (name, f"[{index}]", *(leaves[0][0] if leaves else ()))
                    return ".".join(path).replace(".[", "[")
        return ""

    def at(self, offset: int) -> str:
        """The member at an offset in bytes: "d_lockref.count", "d_iname[8]", "" for padding.

        Where members of a union start at the same byte there is no telling which one was meant:
        the union's name then, or, if it has none, both: "d_lru/d_wait". A struct that goes by a
        typedef, such as an atomic_t, is not taken apart.
        """
        paths = list(_leaves(self._die, offset))
        exact = [path for path, start in paths if start == 0]
        chosen = list(dict.fromkeys(exact or [path for path, _ in paths]))
        if len(chosen) < 2:
            return ".".join(chosen[0]).replace(".[", "[") if chosen else ""
        common = posixpath.commonprefix(chosen)
        if common:
            return ".".join(common).replace(".[", "[")
        every = list(dict.fromkeys(path[0] for path in chosen))
        return "/".join(every if len(every) <= _UNION else [*every[: _UNION - 1], "..."])


def name_of(die: Any) -> str:
    """The name of an entry; empty if it has none."""
    label = die.attributes.get("DW_AT_name")
    return label.value.decode(errors="replace") if label is not None else ""


def behind(die: Any) -> tuple[Any, bool]:
    """What an entry's type is behind typedefs and qualifiers, and whether one was a typedef."""
    alias = False
    while "DW_AT_type" in die.attributes:
        die = die.get_DIE_from_attribute("DW_AT_type")
        alias |= die.tag == _TYPEDEF
        if die.tag not in _THROUGH:
            return die, alias
    return None, alias


def _lengths(array: Any) -> list[int]:
    found = []
    for part in array.iter_children():
        if part.tag == "DW_TAG_subrange_type":
            if "DW_AT_count" in part.attributes:
                found.append(int(part.attributes["DW_AT_count"].value))
            elif "DW_AT_upper_bound" in part.attributes:
                found.append(int(part.attributes["DW_AT_upper_bound"].value) + 1)
            else:
                found.append(0)
    return found


def _size(die: Any) -> int:
    """Bytes of what an entry has as its type."""
    plain, _ = behind(die)
    if plain is None:
        return 0
    if plain.tag == "DW_TAG_array_type":
        size = _size(plain)
        for length in _lengths(plain):
            size *= length
        return size
    if "DW_AT_byte_size" in plain.attributes:
        return int(plain.attributes["DW_AT_byte_size"].value)
    return 8 if plain.tag == "DW_TAG_pointer_type" else 0


def _covered(member: Any) -> int:
    """Bytes from a member's first one to its last: a bit field covers less than its type."""
    where = member.attributes
    if "DW_AT_data_bit_offset" not in where:
        return _size(member)
    first = int(where["DW_AT_data_bit_offset"].value) % 8
    return (first + int(where["DW_AT_bit_size"].value) + 7) // 8


def _offset(member: Any) -> int:
    attributes = member.attributes
    if "DW_AT_data_bit_offset" in attributes:
        return int(attributes["DW_AT_data_bit_offset"].value) // 8
    place = attributes.get("DW_AT_data_member_location")
    return int(place.value) if place is not None else 0


def _members(record: Any, base: int) -> Iterator[tuple[str, int, Any]]:
    """Name, offset and entry of each member, those of unnamed members among them."""
    for member in record.iter_children():
        if member.tag != "DW_TAG_member":
            continue
        offset = base + _offset(member)
        if name_of(member):
            yield name_of(member), offset, member
        else:
            inner = behind(member)[0]
            if inner is not None and inner.tag in RECORDS:
                yield from _members(inner, offset)


def _fields(record: Any, base: int) -> Iterator[Field]:
    for name, offset, member in _members(record, base):
        yield Field(name, offset, _size(member))


def _leaves(record: Any, offset: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """The innermost members over a byte: their paths, and how far in them the byte is."""
    for name, start, member in _members(record, 0):
        inside = offset - start
        plain, alias = behind(member)
        if plain is None or not 0 <= inside < _covered(member):
            continue
        for path, rest in _into(plain, inside, alias):
            yield (name, *path), rest


def _into(plain: Any, inside: int, alias: bool) -> Iterator[tuple[tuple[str, ...], int]]:
    if plain.tag == "DW_TAG_array_type":
        lengths = _lengths(plain)
        element, named = behind(plain)
        size = _size(plain)
        if not size or element is None:
            yield (), inside
            return
        number, rest = divmod(inside, size)
        index = []
        for length in reversed(lengths):
            number, last = divmod(number, length or 1)
            index.append(f"[{last}]")
        for path, left in _into(element, rest, named):
            yield (*reversed(index), *path), left
    elif plain.tag in RECORDS and not alias:
        found = False
        for path, rest in _leaves(plain, inside):
            found = True
            yield path, rest
        if not found:
            yield ("(padding)",), 0
    else:
        yield (), inside
