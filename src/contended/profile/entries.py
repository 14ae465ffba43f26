# SPDX-License-Identifier: MIT
"""What entries of a program's debug information say, which `contended.profile.dwarf` finds.

Structs as the compiler laid them out: where a member is, and which one a byte belongs to. Places in
the source: of which functions and lines an instruction is, by its compile unit.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from operator import itemgetter
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
    """The value of an attribute (`DW_AT_name`, say) of an entry, or what it is if there is none."""
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


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in the source: function, file as the build names it, line (0: unknown)."""

    function: str
    file: str
    line: int

    @property
    def place(self) -> str:
        """The file's last part and the line, as `perf c2c` shows them."""
        return f"{posixpath.basename(self.file)}:{self.line}" if self.file else "?"


# Folders that a kernel's source has. What a program includes from /usr/include is no kernel's.
_BELOW_ROOT = re.compile(r"(?!/usr/include/)(/.*)/(?:include/linux$|arch/x86(?:/|$))")


class Unit:
    """One compile unit: its functions and its lines, taken apart once."""

    def __init__(self, dwarf: Any, unit: Any) -> None:
        self._dwarf, self._unit = dwarf, unit

    @cached_property
    def tops(self) -> dict[int, Any]:
        """The entries of the first level by their offset."""
        return {die.offset: die for die in self._unit.get_top_DIE().iter_children()}

    def record(self, name: str) -> Any:
        """The entry that defines a struct or union in this unit, or None."""
        for die in self.tops.values():
            if die.tag in RECORDS and name_of(die) == name and "DW_AT_byte_size" in die.attributes:
                return die
        return None

    def frames(self, pc: int) -> tuple[Frame, ...]:
        """The source of an instruction, innermost first; one frame without a name if unknown."""
        file, line = self._line(pc)
        found = []
        for die in reversed(self._chain(pc)):
            found.append(Frame(self._function(die), file, line))
            if die.tag == "DW_TAG_inlined_subroutine":
                file = self._file(value(die, "DW_AT_call_file", -1))
                line = value(die, "DW_AT_call_line", 0)
        return tuple(found) or (Frame("", file, line),)

    def ranges(self, die: Any) -> list[tuple[int, int]]:
        """The addresses that an entry covers, as (first, one past the last)."""
        at, low = value(die, "DW_AT_ranges"), value(die, "DW_AT_low_pc")
        high = die.attributes.get("DW_AT_high_pc")
        if at is None and (low is None or high is None):
            return []
        if at is None:
            return [(low, high.value if high.form == "DW_FORM_addr" else low + high.value)]
        base = value(self._unit.get_top_DIE(), "DW_AT_low_pc", 0)
        rows: list[tuple[int, int]] = []
        for entry in self._dwarf.range_lists().get_range_list_at_offset(at, cu=self._unit):
            if hasattr(entry, "base_address"):
                base = entry.base_address
            elif entry.begin_offset != entry.end_offset:
                start = 0 if entry.is_absolute else base
                rows.append((start + entry.begin_offset, start + entry.end_offset))
        return rows

    @cached_property
    def _functions(self) -> list[tuple[int, int, Any]]:
        functions = [die for die in self.tops.values() if die.tag == "DW_TAG_subprogram"]
        return [(low, high, die) for die in functions for low, high in self.ranges(die)]

    def _chain(self, pc: int) -> list[Any]:
        """The function at `pc` and what is inlined there, outermost first."""
        chain: list[Any] = []
        inside = next((die for low, high, die in self._functions if low <= pc < high), None)
        while inside is not None:
            if inside.tag != "DW_TAG_lexical_block":
                chain.append(inside)
            inner = (
                die
                for die in inside.iter_children()
                if die.tag in ("DW_TAG_inlined_subroutine", "DW_TAG_lexical_block")
                and any(low <= pc < high for low, high in self.ranges(die))
            )
            inside = next(inner, None)
        return chain

    def _function(self, die: Any) -> str:
        for _ in range(8):  # an instance refers to what it is one of, which may refer on
            for link in ("DW_AT_abstract_origin", "DW_AT_specification"):
                if link in die.attributes and "DW_AT_name" not in die.attributes:
                    die = die.get_DIE_from_attribute(link)
        return name_of(die)

    @cached_property
    def _program(self) -> Any:
        return self._dwarf.line_program_for_CU(self._unit)

    @cached_property
    def _lines(self) -> list[tuple[int, bool, int, int]]:
        """Address, whether a line starts there or none does, file and line, ascending."""
        entries = self._program.get_entries() if self._program else ()
        states = [entry.state for entry in entries if entry.state is not None]
        rows = [(s.address, not s.end_sequence, s.file, s.line) for s in states]
        return sorted(rows, key=itemgetter(0, 1))

    def _line(self, pc: int) -> tuple[str, int]:
        at = bisect_right(self._lines, pc, key=itemgetter(0)) - 1
        _, known, file, line = self._lines[at] if at >= 0 else (0, False, 0, 0)
        return (self._file(file), line) if known else ("", 0)

    def _file(self, number: int) -> str:
        if not self._program:
            return ""
        header = self._program.header
        first = 0 if header["version"] >= 5 else 1  # of files; of folders the unit's own counts
        entries, folders = header["file_entry"], header["include_directory"]
        if not first <= number < len(entries) + first:
            return ""
        entry = entries[number - first]
        path: str = entry.name.decode(errors="replace")
        if first <= entry.dir_index < len(folders) + first:
            path = posixpath.join(folders[entry.dir_index - first].decode(errors="replace"), path)
        path = posixpath.normpath(path)
        for home in self._homes:
            path = path.removeprefix(f"{home}/")
        while path.startswith("../"):
            path = path[3:]
        return path

    @cached_property
    def _homes(self) -> list[str]:
        """Where it was compiled, and where the source is, if it is a kernel's.

        "../fs/namei.c" and "/somewhere/linux/fs/namei.c" are both fs/namei.c to the reader, and
        where somebody built a kernel is nobody's business. Of a kernel that is built beside its
        source only its headers' folders tell where that is, and an architecture's.
        """
        top = self._unit.get_top_DIE()
        built = value(top, "DW_AT_comp_dir", b"").decode(errors="replace").rstrip("/")
        folders = self._program.header["include_directory"]
        found = (_BELOW_ROOT.match(each.decode(errors="replace")) for each in folders)
        roots = {each[1] for each in found if each}
        return [home for home in (built, *sorted(roots)) if home]
