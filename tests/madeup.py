# SPDX-License-Identifier: MIT
"""Type information and trees of /proc and /sys that no kernel wrote."""

from __future__ import annotations

import struct
from pathlib import Path


class Types:
    """Writes type information, the other way round from the module under test."""

    def __init__(self) -> None:
        self.types, self.strings = b"", b"\0"

    def name(self, text: str) -> int:
        if not text:
            return 0
        at = len(self.strings)
        self.strings += text.encode() + b"\0"
        return at

    def add(
        self, kind: int, name: str, size: int, *, n: int = 0, flag: int = 0, more: bytes = b""
    ) -> None:
        info = flag << 31 | kind << 24 | n
        self.types += struct.pack("III", self.name(name), info, size) + more

    def composite(
        self, kind: int, name: str, size: int, *members: tuple[str, int, int], flag: int = 0
    ) -> None:
        more = b"".join(struct.pack("III", self.name(m), of, at) for m, of, at in members)
        self.add(kind, name, size, n=len(members), flag=flag, more=more)

    def save(self, path: Path) -> Path:
        header = struct.pack(
            "HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(self.types), len(self.types), len(self.strings)
        )
        path.write_bytes(header + self.types + self.strings)
        return path


def layout(path: Path, **structs: tuple[str, ...] | dict[str, int]) -> Path:
    """Type information of structs whose members are 8 bytes each, in a row or where it is said."""
    made = Types()
    made.add(1, "long", 8, more=bytes(4))
    for name, members in structs.items():
        places = members if isinstance(members, dict) else {m: 8 * i for i, m in enumerate(members)}
        rows = [(member, 1, 8 * at) for member, at in places.items()]
        made.composite(4, name, 8 + max(places.values(), default=0), *rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    return made.save(path)


def tree(root: Path, **files: str) -> Path:
    """Files below a directory, their names with "__" for each slash."""
    for name, text in files.items():
        place = root / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return root
