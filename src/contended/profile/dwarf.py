# SPDX-License-Identifier: MIT
"""What a program's debug information says: whose instruction an address is, and what a byte is.

Of a kernel's 70 MB a report needs what is about a few dozen addresses and structs. So nothing is
read ahead: the table of address ranges leads to the compile units in question, and a struct is
found by searching for its name. The DWARF standard, version 5, has the formats (6.1.2, 6.2, 7.5).
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from elftools.common.exceptions import DWARFError, ELFError, ELFParseError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from contended.errors import ContendedError, UsageError
from contended.profile.coherence import Thing
from contended.profile.entries import RECORDS, Frame, Type, Unit, record_of

_SYMBOL = struct.Struct("<IBBHQQ")
# Calls and tail calls of x86-64: a byte and a distance of 32 bits, which hits the callee by chance
# once in four billion bytes, so that nothing needs to be disassembled.
_CALLS = (0xE8, 0xE9)


class Symbol(NamedTuple):
    """A name of the symbol table: `size` bytes from `address` on."""

    name: str
    address: int
    size: int


class Image(AbstractContextManager["Image"]):
    """A program with its debug information: a kernel's `vmlinux`, or any x86-64 ELF file.

    A context manager; the file is mapped, not read. Raises ContendedError, as methods do, if the
    file is missing, not a 64-bit little-endian ELF file, or lacks what is asked for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._elf: Any = ELFFile(self._map)  # type: ignore[arg-type] # a mapping reads like a file
            if self._elf.elfclass != 64 or not self._elf.little_endian:
                raise ELFError
            # Whatever else the file lacks is said when it is asked for.
            self._sections = [section.header for section in self._elf.iter_sections()]
        except OSError as error:
            raise ContendedError(f"cannot read {path}: {error.strerror}") from error
        except (ELFError, ValueError) as error:
            raise ContendedError(f"{path} is no 64-bit ELF file: give the vmlinux") from error
        self._units: dict[int, Unit] = {}
        self._types: dict[str, Type] = {}
        self._variables: dict[str, Type | None] = {}

    def __exit__(self, *_: object) -> None:
        self._map.close()

    @cached_property
    def build_id(self) -> str:
        """The linker's identification of this very build, hexadecimal."""
        for section in self._elf.iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])
        raise ContendedError(f"{self.path} has no build id: link it with -Wl,--build-id")

    # Symbols

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """All functions, variables and labels by ascending address."""
        table = self._elf.get_section_by_name(".symtab")
        if table is None:
            raise ContendedError(f"{self.path} has no symbols: it was stripped")
        names = table.stringtable.data()
        found = []
        for at, info, _, where, address, size in _SYMBOL.iter_unpack(table.data()):
            # sections and files have names too, and no place; per-cpu ones start at 0
            if at and where and info & 15 < 3:
                name = names[at : names.index(b"\0", at)].decode(errors="replace")
                # of two at one address the last, typed and global, is what people know
                rank = address, info & 15 != 0, info >> 4
                found.append((rank, Symbol(name, address, size)))
        found.sort(key=itemgetter(0))
        return tuple(symbol for _, symbol in found)

    @cached_property
    def _by_name(self) -> Mapping[str, Symbol]:
        return {symbol.name: symbol for symbol in self.symbols}

    def symbol(self, name: str) -> Symbol:
        """The symbol of that name; of several static ones, the last; UsageError if none has it."""
        if name not in self._by_name:
            raise UsageError(f"{self.path.name} has no symbol {name!r}")
        return self._by_name[name]

    def has(self, name: str) -> bool:
        """Whether there is a symbol of that name."""
        return name in self._by_name

    def symbol_at(self, address: int) -> Symbol | None:
        """The symbol that `address` is in, or None; one without a size reaches to the next."""
        at = bisect_right(self.symbols, address, key=itemgetter(1)) - 1
        for symbol in reversed(self.symbols[max(0, at - 7) : at + 1]):
            if symbol.size and address < symbol.address + symbol.size:
                return symbol
        if at >= 0 and not self.symbols[at].size and self._section_at(address):
            return self.symbols[at]
        return None

    def name_at(self, address: int) -> str:
        """The name of the symbol that an address is in, or "?"."""
        symbol = self.symbol_at(address)
        return symbol.name if symbol else "?"

    def _section_at(self, address: int) -> Any:
        """The header of the section that is loaded to an address, or None."""
        for header in self._sections:
            start = header["sh_addr"]
            if start and start <= address < start + header["sh_size"]:
                return header
        return None

    def calls(self, caller: str, callee: str) -> tuple[int, ...]:
        """The addresses of the instructions in `caller` that call (or jump to) `callee`."""
        (_, start, size), target = self.symbol(caller), self.symbol(callee).address
        section = self._section_at(start)
        if section is None or section["sh_type"] == "SHT_NOBITS":
            raise ContendedError(f"{self.path} has nothing at {start:#x}")
        offset = section["sh_offset"] + start - section["sh_addr"]
        code = self._map[offset : offset + size]
        return tuple(
            start + at
            for at in range(len(code) - 4)
            if code[at] in _CALLS
            and start + at + 5 + struct.unpack_from("<i", code, at + 1)[0] == target
        )

    # Instructions

    @cached_property
    def _dwarf(self) -> Any:
        if self._elf.get_section_by_name(".debug_info") is None:
            raise ContendedError(f"{self.path} has no debug information: build it with -g")
        return self._elf.get_dwarf_info(relocate_dwarf_sections=False)

    @cached_property
    def _ranges(self) -> list[tuple[int, int, int]]:
        """Start, end and offset of the compile unit, ascending."""
        table = self._dwarf.get_aranges()
        if table:
            rows = [(e.begin_addr, e.begin_addr + e.length, e.info_offset) for e in table.entries]
        else:  # clang leaves it out
            rows = [
                (low, high, unit.cu_offset)
                for unit in self._dwarf.iter_CUs()
                for low, high in Unit(self._dwarf, unit).ranges(unit.get_top_DIE())
            ]
        return sorted(row for row in rows if row[0] < row[1])

    def _unit_at(self, pc: int) -> Unit | None:
        at = bisect_right(self._ranges, pc, key=itemgetter(0)) - 1
        found = at >= 0 and pc < self._ranges[at][1]
        return self._unit(self._ranges[at][2]) if found else None

    def _unit(self, offset: int) -> Unit:
        if offset not in self._units:
            self._units[offset] = Unit(self._dwarf, self._dwarf.get_CU_at(offset))
        return self._units[offset]

    def frames(self, pc: int) -> tuple[Frame, ...]:
        """The source of an instruction, innermost first; the last is the function it is in.

        Without debug information (as in assembly) there is one frame, with the symbol's name.
        """
        unit = self._unit_at(pc)
        *inner, last = unit.frames(pc) if unit else (Frame("", "", 0),)
        return (*inner, last if last.function else replace(last, function=self.name_at(pc)))

    # Types

    def type(self, name: str, near: str | None = None) -> Type:
        """A struct or union by its name, as in `struct dentry` (without the word).

        It is looked for first in the file of the function `near`, which is quicker, and gives the
        right one of several that share a name. Raises UsageError if there is none.
        """
        if name not in self._types:
            unit = self._unit_at(self.symbol(near).address) if near and self.has(near) else None
            beside = unit.record(name) if unit else None
            dies = self._named(name, *RECORDS) if beside is None else iter((beside,))
            found = next((die for die in dies if "DW_AT_byte_size" in die.attributes), None)
            if found is None:
                raise UsageError(f"{self.path.name} has no struct {name}")
            self._types[name] = Type(found)
        return self._types[name]

    def enumerator(self, name: str) -> int:
        """The value of an enumeration's constant; UsageError if there is none of that name."""
        for die in self._named(name, "DW_TAG_enumerator"):
            return int(die.attributes["DW_AT_const_value"].value)
        raise UsageError(f"{self.path.name} has no constant {name}")

    def thing_at(self, address: int, kind: str = "variable", label: str = "") -> Thing | None:
        """The member of a global variable at an address; None if no symbol is there."""
        symbol = self.symbol_at(address)
        if symbol is None:
            return None
        offset = address - symbol.address
        layout = self.variable(symbol.name)
        field = layout.at(offset) if layout and offset < layout.size else ""
        struct = layout.name if layout else ""
        return Thing(kind, symbol.name, struct, offset, field, symbol.address, label)

    def variable(self, name: str) -> Type | None:
        """The struct that a global variable is; None if it is none, or unknown."""
        if name not in self._variables:  # each processor has many of them, and a search takes long
            dies = self._named(name, "DW_TAG_variable")
            found = next((die for die in dies if "DW_AT_type" in die.attributes), None)
            self._variables[name] = None if found is None else record_of(found)
        return self._variables[name]

    def _named(self, name: str, *tags: str) -> Iterator[Any]:
        """All entries of these kinds with this name.

        An entry starts with the number of its kind, and then, in what compilers write, its name:
        the string itself if it is short, else its place in the table of strings.
        """
        info = self._dwarf.debug_info_sec
        for pattern in self._spellings(name):
            for place in self._places(pattern, info):
                for start in (place - 2, place - 1):
                    try:
                        die = self._dwarf.get_DIE_from_refaddr(start)
                        label = die.attributes["DW_AT_name"].offset
                    except (DWARFError, ELFParseError, KeyError, ValueError, AttributeError):
                        continue  # bytes that only look like an entry
                    if label == place and die.tag in tags and self._is_entry(die):
                        yield die
                        break

    def _is_entry(self, die: Any) -> bool:
        """Whether the unit does have an entry at this very byte, in its first two levels."""
        tops = self._unit(die.cu.cu_offset).tops
        for top in [top for offset, top in tops.items() if offset <= die.offset][-1:]:
            return top.offset == die.offset or any(
                entry.offset == die.offset for entry in top.iter_children()
            )
        return False

    def _spellings(self, name: str) -> Iterator[bytes]:
        """How an entry may give its name."""
        text = name.encode() + b"\0"
        strings = self._dwarf.debug_str_sec
        if strings is not None:
            # The linker lets a string be the tail of another one; a string of its own comes first.
            whole = next(self._places(b"\0" + text, strings), -2) + 1
            if whole > 0:
                yield struct.pack("<I", whole)
            for at in self._places(text, strings):
                if at != whole:
                    yield struct.pack("<I", at)
        yield text

    def _places(self, pattern: bytes, section: Any) -> Iterator[int]:
        """Where some bytes are in a section."""
        start = section.global_offset
        at = self._map.find(pattern, start, start + section.size)
        while at >= 0:
            yield at - start
            at = self._map.find(pattern, at + 1, start + section.size)
