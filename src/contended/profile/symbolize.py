# SPDX-License-Identifier: MIT
"""Frames of many addresses; what an address means never changes for a build, so it is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from contended.errors import ContendedError
from contended.profile.dwarf import Image
from contended.profile.units import Frame
from contended.records import write_whole

_SCHEMA = 2  # raised whenever `Frame` or the way frames are found changes


def frames(
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
            write_whole(file, json.dumps({"schema": _SCHEMA, "frames": rows}))
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
        if data["schema"] != _SCHEMA:
            return {}
        return {
            int(pc, 16): tuple(Frame(str(a), str(b), int(c)) for a, b, c in frames)
            for pc, frames in data["frames"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
