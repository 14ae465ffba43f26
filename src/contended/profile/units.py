# SPDX-License-Identifier: MIT
"""Places in the source: of which functions and lines an instruction is, by its compile unit."""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from contended.profile.layouts import RECORDS, name_of, value


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


class Unit:
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
                    break
        return name_of(die)

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
            if not state.end_sequence:
                addresses.append(state.address)
                rows.append((state.file, state.line))
                continue
            if addresses:
                sequences.append((addresses[0], state.address, addresses, rows))
            addresses, rows = [], []
        return sequences

    def _line(self, pc: int) -> tuple[str, int]:
        for start, end, addresses, rows in self._lines:
            if start <= pc < end:
                file, line = rows[bisect_right(addresses, pc) - 1]
                return self._file(file), line
        return "", 0

    def _file(self, number: int) -> str:
        """The file of that number; empty if unknown.

        "../fs/namei.c" and "/somewhere/linux/fs/namei.c" are both fs/namei.c to the reader, and
        where somebody built a kernel is nobody's business.
        """
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
        home = value(self._unit.get_top_DIE(), "DW_AT_comp_dir", b"").decode().rstrip("/")
        path = posixpath.normpath(path).removeprefix(f"{home}/" if home else "")
        while path.startswith("../"):
            path = path[3:]
        return path
