# SPDX-License-Identifier: MIT
"""Where a struct's fields lie, read from a kernel's debug information, and whether they lie well.

Offsets are never assumed: an option of the kernel's configuration moves them, and what shares a
64-byte line is what several of the cases are about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contended.errors import ContendedError
from contended.kernel.variants import Layout

LINE = 64
"""Bytes of a cache line."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct.

    Attributes:
        name: With dots for what is within another named field.
        offset: From the struct's start, in bytes.
        size: In bytes.
    """

    name: str
    offset: int
    size: int

    @property
    def lines(self) -> range:
        """The numbers of the lines that it lies on, if the struct starts a line."""
        return range(self.offset // LINE, (self.offset + max(self.size, 1) - 1) // LINE + 1)


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct as the compiler laid it out: its size in bytes and all its fields, in order."""

    name: str
    size: int
    fields: tuple[Field, ...]

    def field(self, name: str) -> Field:
        """One field.

        Raises:
            ContendedError: there is none of this name; the message lists those that there are.
        """
        for field in self.fields:
            if field.name == name:
                return field
        there = ", ".join(f.name for f in self.fields if "." not in f.name)
        raise ContendedError(f"struct {self.name} has no field {name}; there are: {there}")


def struct(vmlinux: Path, name: str) -> Struct:
    """Read a struct from an ELF file with DWARF.

    Raises:
        ContendedError: the file has no debug information, or no such struct.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with vmlinux.open("rb") as stream:
            elf = ELFFile(stream)
            if not elf.has_dwarf_info(strict=True):
                raise ContendedError(f"{vmlinux} has no debug information")
            for unit in elf.get_dwarf_info().iter_CUs():
                for die in unit.get_top_DIE().iter_children():
                    if (
                        die.tag == "DW_TAG_structure_type"
                        and _name(die) == name
                        and "DW_AT_declaration" not in die.attributes
                    ):
                        fields = tuple(_fields(die, "", 0))
                        return Struct(name, die.attributes["DW_AT_byte_size"].value, fields)
    except (OSError, ELFError) as error:
        raise ContendedError(f"cannot read {vmlinux}: {error}") from error
    raise ContendedError(f"{vmlinux.name} has no struct {name}")


def problems(found: Struct, wanted: Layout) -> list[str]:
    """In what a struct does not lie as it should, with its offsets; empty if it does."""
    bad = []
    if wanted.size is not None and found.size != wanted.size:
        bad.append(f"its size is {found.size} and not {wanted.size}")
    for pairs, should_share in ((wanted.apart, False), (wanted.together, True)):
        for pair in pairs:
            one, other = (found.field(name) for name in pair)
            if bool(set(one.lines) & set(other.lines)) != should_share:
                places = " and ".join(f"{f.name} (offset {f.offset})" for f in (one, other))
                bad.append(f"{places} {'share no' if should_share else 'share a'} line")
    return bad


def _name(die: Any) -> str:
    attribute = die.attributes.get("DW_AT_name")
    return attribute.value.decode() if attribute else ""


def _fields(die: Any, prefix: str, base: int) -> Iterator[Field]:
    for member in die.iter_children():
        if member.tag != "DW_TAG_member":
            continue
        attributes = member.attributes
        if "DW_AT_data_bit_offset" in attributes:
            offset = base + attributes["DW_AT_data_bit_offset"].value // 8
        elif "DW_AT_data_member_location" in attributes:
            offset = base + attributes["DW_AT_data_member_location"].value
        else:  # a member of a union
            offset = base
        kind = _resolved(member)
        name = _name(member)
        if name:
            yield Field(prefix + name, offset, _size(kind))
        if kind is not None and kind.tag in ("DW_TAG_structure_type", "DW_TAG_union_type"):
            yield from _fields(kind, f"{prefix}{name}." if name else prefix, offset)


def _resolved(die: Any) -> Any:
    """The type of a DIE, through typedefs and qualifiers; None for void."""
    while "DW_AT_type" in die.attributes:
        die = die.get_DIE_from_attribute("DW_AT_type")
        if die.tag not in (
            "DW_TAG_typedef",
            "DW_TAG_const_type",
            "DW_TAG_volatile_type",
            "DW_TAG_atomic_type",
            "DW_TAG_restrict_type",
        ):
            return die
    return None


def _size(die: Any) -> int:
    if die is None:
        return 0
    if "DW_AT_byte_size" in die.attributes:
        return int(die.attributes["DW_AT_byte_size"].value)
    if die.tag == "DW_TAG_pointer_type":
        return 8
    if die.tag != "DW_TAG_array_type":
        return 0
    length = 1
    for child in die.iter_children():
        if child.tag == "DW_TAG_subrange_type":
            if "DW_AT_count" in child.attributes:
                length *= child.attributes["DW_AT_count"].value
            elif "DW_AT_upper_bound" in child.attributes:
                length *= child.attributes["DW_AT_upper_bound"].value + 1
            else:
                length = 0
    return length * _size(_resolved(die))
