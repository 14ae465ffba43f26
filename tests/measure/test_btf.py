# SPDX-License-Identifier: MIT
"""Struct layouts out of a kernel's type information: a made-up one, and this machine's."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from madeup import Types

from contended.errors import ContendedError, UsageError
from contended.measure import btf
from contended.measure.btf import Btf, Member


@pytest.fixture
def types(tmp_path: Path) -> Path:
    made = Types()
    made.add(1, "int", 4, more=bytes(4))  # 1
    made.add(2, "", 1)  # 2: int *
    made.add(3, "", 0, more=struct.pack("III", 1, 1, 5))  # 3: int [5]
    made.add(10, "", 1)  # 4: const int
    made.add(6, "colour", 4, n=2, more=bytes(16))  # 5: enum
    made.composite(5, "", 8, ("short_name", 1, 0), ("long_name", 2, 0))  # 6: unnamed union
    made.add(13, "", 0, n=2, more=bytes(16))  # 7: a function's type
    made.add(7, "thing", 0)  # 8: struct thing, only declared
    made.composite(  # 9
        4, "thing", 48, ("numbers", 3, 64), ("", 6, 256), ("first", 4, 0), ("hue", 5, 320)
    )
    made.composite(4, "bits", 8, ("low", 1, 3 << 24 | 0), ("high", 1, 5 << 24 | 32), flag=1)  # 10
    return made.save(tmp_path / "vmlinux")


def test_members_lie_where_they_were_put(types: Path) -> None:
    assert Btf(types).struct("thing") == [
        Member("first", 0, 4),
        Member("numbers", 8, 20),
        Member("long_name", 32, 8),
        Member("short_name", 32, 4),
        Member("hue", 40, 4),
    ]


def test_bit_sizes_do_not_count_as_offsets(types: Path) -> None:
    assert [(m.name, m.offset) for m in Btf(types).struct("bits")] == [("low", 0), ("high", 4)]


def test_an_unknown_struct_is_named(types: Path) -> None:
    with pytest.raises(UsageError, match="no struct nothing"):
        Btf(types).struct("nothing")


def test_a_file_that_is_missing_or_no_type_information_is_refused(types: Path) -> None:
    with pytest.raises(ContendedError, match="does not show its types"):
        Btf(types.with_name("missing"))
    for text in (b"", b"no type information at all", types.read_bytes()[:60]):
        types.write_bytes(text)
        with pytest.raises(ContendedError, match="no type information"):
            Btf(types)


def test_this_kernel() -> None:
    if not btf.VMLINUX.exists():
        with pytest.raises(ContendedError, match="does not show its types"):
            Btf()
        return
    pointer = struct.calcsize("P")
    kernel = Btf()
    assert kernel.struct("list_head") == [
        Member("next", 0, pointer),
        Member("prev", pointer, pointer),
    ]
    dentry = {m.name: m for m in kernel.struct("dentry")}
    assert dentry["d_lockref"].size >= 8
    assert dentry["d_inode"].size == pointer
