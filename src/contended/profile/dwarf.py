# SPDX-License-Identifier: MIT
"""What a program's debug information says: whose instruction an address is, and what a byte is.

A kernel with debug information is 70 MB, of which a report needs the part about a few dozen
addresses and a few structs. So nothing is read ahead: the table of address ranges leads to the
compile units in question, and a struct is found by searching the section for its name, not by
walking through two thousand units. What an address means never changes for a given build, so it is
kept in the cache directory by build id.

The formats are described in the DWARF standard, version 5 (sections 6.1.2, 6.2 and 7.5).
"""

from __future__ import annotations

import json
import mmap
import posixpath
import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from contended.errors import ContendedError, UsageError
from contended.records import write_whole

_SYMBOL = struct.Struct("<IBBHQQ")
_CACHE = 2  # raised whenever `Frame` or the way frames are found changes
_OBJECT, _FUNCTION = 1, 2
_TYPEDEF = "DW_TAG_typedef"
_THROUGH = (_TYPEDEF, "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_atomic_type")
_RECORDS = ("DW_TAG_structure_type", "DW_TAG_union_type")
_UNION = 4  # of more members at one byte not all are named
# Calls and tail calls with a 32-bit distance, of x86-64.
_CALLS = (b"\xe8", b"\xe9")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name of the symbol table: `size` bytes from `address` on."""

    name: str
    address: int
    size: int


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


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a struct, with those of unnamed members as its own: bytes from `offset` on."""

    name: str
    offset: int
    size: int


class Image:
    """A program with its debug information: a kernel's `vmlinux`, or any x86-64 ELF file.

    A context manager; the file is mapped, not read.

    Args:
        path: The file.

    Raises:
        ContendedError: it is missing or not a 64-bit little-endian ELF file.
    """

    def __init__(self, path: Path) -> None:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile

        self.path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ContendedError(f"cannot read {path}: {error.strerror}") from error
        try:
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._elf: Any = ELFFile(self._map)  # type: ignore[arg-type] # a mapping reads like a file
            if self._elf.elfclass != 64 or not self._elf.little_endian:
                raise ELFError
            # Whatever else the file lacks is said when it is asked for.
            self._sections = [(s.name, s.header) for s in self._elf.iter_sections()]
        except (ELFError, ValueError) as error:
            self._file.close()
            raise ContendedError(f"{path} is no 64-bit ELF file: give the vmlinux") from error
        self._units: dict[int, _Unit] = {}
        self._types: dict[str, Type] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back."""
        self._map.close()
        self._file.close()

    @cached_property
    def build_id(self) -> str:
        """The linker's identification of this very build, hexadecimal.

        Raises:
            ContendedError: the file has none.
        """
        from elftools.elf.sections import NoteSection

        for section in self._elf.iter_sections():
            if isinstance(section, NoteSection):
                for note in section.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])
        raise ContendedError(f"{self.path} has no build id: link it with -Wl,--build-id")

    # Symbols

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """All functions, variables and labels by ascending address.

        Raises:
            ContendedError: the file is stripped.
        """
        table = self._elf.get_section_by_name(".symtab")
        if table is None:
            raise ContendedError(f"{self.path} has no symbols: it was stripped")
        names = table.stringtable.data()
        found = []
        for at, info, _, where, address, size in _SYMBOL.iter_unpack(table.data()):
            # sections and files have names too, and no place; per-cpu ones start at 0
            if at and where and info & 15 < 3:
                name = names[at : names.index(b"\0", at)].decode(errors="replace")
                found.append((address, info & 15 == 0, -(info >> 4), size, name))
        # of two at one address the typed and global one is what people know
        found.sort(key=lambda s: (s[0], not s[1], -s[2]))
        return tuple(Symbol(name, address, size) for address, _, _, size, name in found)

    @cached_property
    def _by_name(self) -> Mapping[str, Symbol]:
        return {symbol.name: symbol for symbol in self.symbols}

    @cached_property
    def _addresses(self) -> list[int]:
        return [symbol.address for symbol in self.symbols]

    def symbol(self, name: str) -> Symbol:
        """The symbol of that name; of several static ones, the last.

        Raises:
            UsageError: there is none.
        """
        try:
            return self._by_name[name]
        except KeyError:
            raise UsageError(f"{self.path.name} has no symbol {name!r}") from None

    def has(self, name: str) -> bool:
        """Whether there is a symbol of that name."""
        return name in self._by_name

    def symbol_at(self, address: int) -> Symbol | None:
        """The symbol that `address` is in, or None; one without a size reaches to the next."""
        at = bisect_right(self._addresses, address) - 1
        for symbol in reversed(self.symbols[max(0, at - 7) : at + 1]):
            if symbol.size and address < symbol.address + symbol.size:
                return symbol
        if at >= 0 and not self.symbols[at].size and self._in_section(address):
            return self.symbols[at]
        return None

    def _in_section(self, address: int) -> bool:
        return any(
            h["sh_addr"] and h["sh_addr"] <= address < h["sh_addr"] + h["sh_size"]
            for _, h in self._sections
        )

    def section(self, name: str) -> tuple[int, int]:
        """Address and size in bytes of a section; (0, 0) if there is none of that name."""
        for known, header in self._sections:
            if known == name:
                return int(header["sh_addr"]), int(header["sh_size"])
        return 0, 0

    def data(self, address: int, size: int) -> bytes:
        """What the file has at an address: code or initial data.

        Raises:
            ContendedError: it has nothing there.
        """
        for _, h in self._sections:
            if (
                h["sh_type"] != "SHT_NOBITS"
                and h["sh_addr"]
                and h["sh_addr"] <= address
                and address + size <= h["sh_addr"] + h["sh_size"]
            ):
                start = h["sh_offset"] + address - h["sh_addr"]
                return bytes(self._map[start : start + size])
        raise ContendedError(f"{self.path} has nothing at {address:#x}")

    def calls(self, caller: str, callee: str) -> tuple[int, ...]:
        """The addresses of the instructions in `caller` that call (or jump to) `callee`.

        x86-64: a call is a byte and a distance of 32 bits, which hits the callee by chance once in
        four billion bytes, so nothing needs to be disassembled.

        Raises:
            UsageError: no such function.
        """
        inside, target = self.symbol(caller), self.symbol(callee).address
        code = self.data(inside.address, inside.size)
        found = []
        for at in range(len(code) - 4):
            if code[at : at + 1] in _CALLS:
                distance = int.from_bytes(code[at + 1 : at + 5], "little", signed=True)
                if inside.address + at + 5 + distance == target:
                    found.append(inside.address + at)
        return tuple(found)

    # Instructions

    @cached_property
    def _dwarf(self) -> Any:
        if self._elf.get_section_by_name(".debug_info") is None:
            raise ContendedError(f"{self.path} has no debug information: build it with -g")
        return self._elf.get_dwarf_info(relocate_dwarf_sections=False)

    @cached_property
    def _ranges(self) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Start addresses, and (start, end, offset of the compile unit), ascending."""
        table = self._dwarf.get_aranges()
        entries = table.entries if table else self._ranges_of_units()
        rows = sorted(
            (e.begin_addr, e.begin_addr + e.length, e.info_offset) for e in entries if e.length
        )
        return [row[0] for row in rows], rows

    def _ranges_of_units(self) -> Iterator[Any]:
        """What `.debug_aranges` would hold, for compilers that leave it out (clang)."""
        from elftools.dwarf.aranges import ARangeEntry

        for unit in self._dwarf.iter_CUs():
            for low, high in _Unit(self._dwarf, unit).ranges(unit.get_top_DIE()):
                yield ARangeEntry(low, high - low, unit.cu_offset, 0, 5, 8, 0)

    def _unit_at(self, pc: int) -> _Unit | None:
        starts, rows = self._ranges
        at = bisect_right(starts, pc) - 1
        if at < 0 or pc >= rows[at][1]:
            return None
        return self._unit(rows[at][2])

    def _unit(self, offset: int) -> _Unit:
        if offset not in self._units:
            self._units[offset] = _Unit(self._dwarf, self._dwarf.get_CU_at(offset))
        return self._units[offset]

    def frames(self, pc: int) -> tuple[Frame, ...]:
        """The source of an instruction: innermost first, then what it was inlined into.

        The last frame is the function that the instruction is in. Without debug information for
        the address (as in assembly) there is one frame, with the symbol's name.
        """
        unit = self._unit_at(pc)
        found = unit.frames(pc) if unit else ()
        if found and found[-1].function:
            return found
        symbol = self.symbol_at(pc)
        place = found[-1] if found else Frame("", "", 0)
        return (*found[:-1], Frame(symbol.name if symbol else "?", place.file, place.line))

    # Types

    def type(self, name: str, near: str | None = None) -> Type:
        """A struct or union by its name, as in `struct dentry` (without the word).

        Args:
            name: The name.
            near: A function whose file knows the struct: it is looked for there first, which is
                quicker, and gives the right one of several that share a name.

        Raises:
            UsageError: there is none.
        """
        if name not in self._types:
            unit = self._unit_at(self.symbol(near).address) if near and self.has(near) else None
            beside = unit.record(name) if unit else None
            dies = self._named(name, _RECORDS) if beside is None else iter((beside,))
            found = next((die for die in dies if "DW_AT_byte_size" in die.attributes), None)
            if found is None:
                raise UsageError(f"{self.path.name} has no struct {name}")
            self._types[name] = Type(found)
        return self._types[name]

    def enumerator(self, name: str) -> int:
        """The value of an enumeration's constant.

        Raises:
            UsageError: there is none of that name.
        """
        for die in self._named(name, ("DW_TAG_enumerator",)):
            return int(die.attributes["DW_AT_const_value"].value)
        raise UsageError(f"{self.path.name} has no constant {name}")

    def variable(self, name: str) -> Type | None:
        """The struct that a global variable is; None if it is none, or unknown."""
        for die in self._named(name, ("DW_TAG_variable",)):
            if "DW_AT_type" in die.attributes:
                plain = _plain(die)[0]
                return Type(plain) if plain is not None and plain.tag in _RECORDS else None
        return None

    def _named(self, name: str, tags: tuple[str, ...]) -> Iterator[Any]:
        """All entries of these kinds with this name.

        An entry starts with the number of its kind, and then, in what compilers write, its name:
        the string itself if it is short, else its place in the table of strings.
        """
        from elftools.common.exceptions import DWARFError, ELFParseError

        info = self._dwarf.debug_info_sec
        lo, hi = info.global_offset, info.global_offset + info.size
        for pattern in self._spellings(name):
            at = self._map.find(pattern, lo, hi)
            while at >= 0:
                place = at - lo
                for start in (place - 2, place - 1):
                    try:
                        die = self._dwarf.get_DIE_from_refaddr(start)
                        label = die.attributes.get("DW_AT_name")
                    except (DWARFError, ELFParseError, KeyError, ValueError, AttributeError):
                        continue  # bytes that only look like an entry
                    if (
                        label is not None
                        and label.offset == place
                        and die.tag in tags
                        and self._is_entry(die)
                    ):
                        yield die
                        break
                at = self._map.find(pattern, at + 1, hi)

    def _is_entry(self, die: Any) -> bool:
        """Whether the unit does have an entry at this very byte, in its first two levels."""
        tops = self._unit(die.cu.cu_offset).tops
        if die.offset in tops:
            return True
        before = max((offset for offset in tops if offset < die.offset), default=None)
        return before is not None and any(
            entry.offset == die.offset for entry in tops[before].iter_children()
        )

    def _spellings(self, name: str) -> Iterator[bytes]:
        text = name.encode() + b"\0"
        strings = self._dwarf.debug_str_sec
        if strings is not None:
            lo, hi = strings.global_offset, strings.global_offset + strings.size
            whole = self._map.find(b"\0" + text, lo, hi)
            if whole >= 0:
                yield struct.pack("<I", whole + 1 - lo)
            # The linker lets a string be the tail of another one.
            at = self._map.find(text, lo, hi)
            while at >= 0:
                if at != whole + 1:
                    yield struct.pack("<I", at - lo)
                at = self._map.find(text, at + 1, hi)
        yield text


class Type:
    """The layout of a struct or union."""

    def __init__(self, die: Any) -> None:
        self._die = die
        self.name = _name(die)
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
                    die = _plain(member)[0]
                    die = die if die is not None and die.tag in _RECORDS else None
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
                pointer = _plain(die)[0]
                if pointer is None or pointer.tag != "DW_TAG_pointer_type":
                    return None
                plain = _plain(pointer)[0]
                whole = plain is not None and "DW_AT_byte_size" in plain.attributes
                return Type(plain) if whole and plain.tag in _RECORDS else None
        raise UsageError(f"struct {self.name} has no member {member!r}")

    def tail(self, offset: int) -> str:
        """The member at an offset beyond the end, if the struct ends in an array without length."""
        for name, start, die in _members(self._die, 0):
            plain = _plain(die)[0]
            if plain is not None and plain.tag == "DW_TAG_array_type" and not _size(die):
                inside = offset - start
                element, alias = _plain(plain)
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


class _Unit:
    """One compile unit: its functions and its lines, taken apart once."""

    def __init__(self, dwarf: Any, unit: Any) -> None:
        self._dwarf = dwarf
        self._unit = unit

    @cached_property
    def tops(self) -> dict[int, Any]:
        """The entries of the first level by their offset."""
        return {die.offset: die for die in self._unit.get_top_DIE().iter_children()}

    def record(self, name: str) -> Any:
        """The entry that defines a struct or union in this unit, or None."""
        for die in self.tops.values():
            if die.tag in _RECORDS and _name(die) == name and "DW_AT_byte_size" in die.attributes:
                return die
        return None

    def frames(self, pc: int) -> tuple[Frame, ...]:
        chain = self._chain(pc)
        file, line = self._line(pc)
        found = []
        for die in reversed(chain):
            found.append(Frame(self._function(die), file, line))
            if die.tag == "DW_TAG_inlined_subroutine":
                where = die.attributes
                file = (
                    self._file(where["DW_AT_call_file"].value) if "DW_AT_call_file" in where else ""
                )
                line = where["DW_AT_call_line"].value if "DW_AT_call_line" in where else 0
        return tuple(found) or (Frame("", file, line),)

    def ranges(self, die: Any) -> list[tuple[int, int]]:
        """The addresses that an entry covers, as (first, one past the last)."""
        attributes = die.attributes
        if "DW_AT_ranges" in attributes:
            return self._listed(attributes["DW_AT_ranges"].value)
        if "DW_AT_low_pc" not in attributes or "DW_AT_high_pc" not in attributes:
            return []
        low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
        return [(low, high.value if high.form == "DW_FORM_addr" else low + high.value)]

    def _listed(self, at: int) -> list[tuple[int, int]]:
        top = self._unit.get_top_DIE().attributes
        base = top["DW_AT_low_pc"].value if "DW_AT_low_pc" in top else 0
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
        rows: list[tuple[int, int, Any]] = []
        for die in self.tops.values():
            if die.tag == "DW_TAG_subprogram":
                rows.extend((low, high, die) for low, high in self.ranges(die))
        return rows

    def _chain(self, pc: int) -> list[Any]:
        """The function at `pc` and what is inlined there, outermost first."""
        chain: list[Any] = []
        inside = next((die for low, high, die in self._functions if low <= pc < high), None)
        while inside is not None:
            if inside.tag != "DW_TAG_lexical_block":
                chain.append(inside)
            inside = next(
                (
                    die
                    for die in inside.iter_children()
                    if die.tag in ("DW_TAG_inlined_subroutine", "DW_TAG_lexical_block")
                    and any(low <= pc < high for low, high in self.ranges(die))
                ),
                None,
            )
        return chain

    def _function(self, die: Any) -> str:
        for _ in range(8):  # an instance refers to what it is one of, which may refer on
            if "DW_AT_name" in die.attributes:
                return _name(die)
            for link in ("DW_AT_abstract_origin", "DW_AT_specification"):
                if link in die.attributes:
                    die = die.get_DIE_from_attribute(link)
                    break
            else:
                break
        return ""

    @cached_property
    def _program(self) -> Any:
        return self._dwarf.line_program_for_CU(self._unit)

    @cached_property
    def _lines(self) -> list[tuple[int, int, list[int], list[tuple[int, int]]]]:
        """Sequences of the line table: start, end, addresses, and (file, line) for each."""
        sequences = []
        addresses: list[int] = []
        rows: list[tuple[int, int]] = []
        for entry in self._program.get_entries() if self._program else ():
            state = entry.state
            if state is None:
                continue
            if state.end_sequence:
                if addresses:
                    sequences.append((addresses[0], state.address, addresses, rows))
                addresses, rows = [], []
            else:
                addresses.append(state.address)
                rows.append((state.file, state.line))
        return sequences

    def _line(self, pc: int) -> tuple[str, int]:
        for start, end, addresses, rows in self._lines:
            if start <= pc < end:
                file, line = rows[bisect_right(addresses, pc) - 1]
                return self._file(file), line
        return "", 0

    def _file(self, number: int) -> str:
        if not self._program:
            return ""
        header = self._program.header
        new = header["version"] >= 5  # counts files from 0, and folders from the unit's own
        entries = header["file_entry"]
        at = number if new else number - 1
        if not 0 <= at < len(entries):
            return ""
        entry = entries[at]
        folders = header["include_directory"]
        folder = entry.dir_index if new else entry.dir_index - 1
        path = entry.name.decode(errors="replace")
        if 0 <= folder < len(folders):
            path = posixpath.join(folders[folder].decode(errors="replace"), path)
        return _tidy(path, self._home)

    @cached_property
    def _home(self) -> str:
        """The folder that the names of files are relative to, with a slash; "" if unknown."""
        top = self._unit.get_top_DIE().attributes
        folder = top["DW_AT_comp_dir"].value.decode() if "DW_AT_comp_dir" in top else ""
        return folder.rstrip("/") + "/" if folder else ""


def symbolize(
    image: Image, pcs: Iterable[int], cache: Path | None = None
) -> dict[int, tuple[Frame, ...]]:
    """The frames of many addresses.

    Args:
        image: The program.
        pcs: Instruction addresses.
        cache: A folder for what was found, by build id; None remembers nothing. A folder that
            cannot be written, or a damaged file in it, only costs time.
    """
    file = cache / f"{image.build_id}.json" if cache else None
    known = _remembered(file) if file else {}
    wanted = sorted(set(pcs))
    fresh = {pc: image.frames(pc) for pc in wanted if pc not in known}
    if file and fresh:
        known.update(fresh)
        rows = {
            f"{pc:x}": [[f.function, f.file, f.line] for f in frames]
            for pc, frames in sorted(known.items())
        }
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps({"schema": _CACHE, "frames": rows}))
        except (OSError, ContendedError):
            pass
    return {pc: known.get(pc) or fresh[pc] for pc in wanted}


def names(image: Image, pcs: Iterable[int]) -> dict[int, tuple[Frame, ...]]:
    """The functions that addresses are in, by the symbol table alone, which is quick."""
    found: dict[int, tuple[Frame, ...]] = {}
    for pc in pcs:
        symbol = image.symbol_at(pc)
        found[pc] = (Frame(symbol.name if symbol else "?", "", 0),)
    return found


def _remembered(file: Path) -> dict[int, tuple[Frame, ...]]:
    try:
        data = json.loads(file.read_bytes())
        if data["schema"] != _CACHE:
            return {}
        return {
            int(pc, 16): tuple(Frame(str(a), str(b), int(c)) for a, b, c in frames)
            for pc, frames in data["frames"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _tidy(path: str, home: str) -> str:
    # "../fs/namei.c" and "/somewhere/linux/fs/namei.c" are both fs/namei.c to the reader, and
    # where somebody built a kernel is nobody's business.
    path = posixpath.normpath(path)
    if home and path.startswith(home):
        path = path[len(home) :]
    while path.startswith("../"):
        path = path[3:]
    return path


def _name(die: Any) -> str:
    label = die.attributes.get("DW_AT_name")
    return label.value.decode(errors="replace") if label is not None else ""


def _plain(die: Any) -> tuple[Any, bool]:
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
    plain, _ = _plain(die)
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
        if _name(member):
            yield _name(member), offset, member
        else:
            inner = _plain(member)[0]
            if inner is not None and inner.tag in _RECORDS:
                yield from _members(inner, offset)


def _fields(record: Any, base: int) -> Iterator[Field]:
    for name, offset, member in _members(record, base):
        yield Field(name, offset, _size(member))


def _leaves(record: Any, offset: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """The innermost members over a byte: their paths, and how far in them the byte is."""
    for name, start, member in _members(record, 0):
        inside = offset - start
        plain, alias = _plain(member)
        if plain is None or not 0 <= inside < _covered(member):
            continue
        for path, rest in _into(plain, inside, alias):
            yield (name, *path), rest


def _into(plain: Any, inside: int, alias: bool) -> Iterator[tuple[tuple[str, ...], int]]:
    if plain.tag == "DW_TAG_array_type":
        lengths = _lengths(plain)
        element, named = _plain(plain)
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
    elif plain.tag in _RECORDS and not alias:
        found = False
        for path, rest in _leaves(plain, inside):
            found = True
            yield path, rest
        if not found:
            yield ("(padding)",), 0
    else:
        yield (), inside
