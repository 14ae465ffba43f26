# SPDX-License-Identifier: MIT
"""Names of addresses; what an address means never changes for a build, so frames are kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from contended.errors import ContendedError
from contended.profile.coherence import Thing
from contended.profile.dwarf import Image
from contended.profile.units import Frame
from contended.records import write_whole

_SCHEMA = 2  # raised whenever `Frame` or the way frames are found changes
# Asking the debug information where an instruction comes from takes milliseconds: of so many of the
# worst it is asked, of the others only the function's name is looked up.
RESOLVED_PCS = 400


def frames(
    image: Image, pcs: Sequence[int], cache: Path | None = None
) -> dict[int, tuple[Frame, ...]]:
    """The frames of addresses, of which those that come first matter most.

    They are kept by build id in the folder `cache`, if there is one. A folder that cannot be
    written, or a damaged file in it, only costs time.
    """
    file = cache / f"{image.build_id}.json" if cache else None
    known = _remembered(file) if file else {}
    wanted = sorted(set(pcs[:RESOLVED_PCS]))
    fresh = {pc: image.frames(pc) for pc in wanted if pc not in known}
    known |= fresh
    if file and fresh:
        rows = {
            f"{pc:x}": [[f.function, f.file, f.line] for f in frames]
            for pc, frames in sorted(known.items())
        }
        with suppress(OSError, ContendedError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps({"schema": _SCHEMA, "frames": rows}))
    names = {pc: (Frame(image.name_at(pc), "", 0),) for pc in pcs[RESOLVED_PCS:]}
    return names | {pc: known[pc] for pc in wanted}


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


def variable(image: Image, address: int, kind: str = "variable", label: str = "") -> Thing | None:
    """The member of a global variable at an address; None if no symbol is there."""
    symbol = image.symbol_at(address)
    if symbol is None:
        return None
    offset = address - symbol.address
    layout = image.variable(symbol.name)
    field = layout.at(offset) if layout and offset < layout.size else ""
    struct = layout.name if layout else ""
    return Thing(kind, symbol.name, struct, offset, field, symbol.address, label)
