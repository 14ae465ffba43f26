# SPDX-License-Identifier: MIT
"""The memory of a guest that waits, read by its kernel's virtual addresses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol

from contended.errors import ContendedError

_BLOCK = 256  # bytes that are asked for at a time; never across a page


class Unmapped(ContendedError):
    """An address of the guest that is not mapped."""


class GuestMemory(Protocol):
    """A guest's memory by kernel virtual address."""

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes; raises Unmapped if nothing is mapped there."""


class Monitor:
    """A guest's memory through QEMU's monitor, asked with `qmp`, as `Machine.qmp` is.

    A question takes a millisecond and the guest waits, so what was read once is remembered: make
    a new one after the guest has run again.
    """

    def __init__(self, qmp: Callable[..., Any]) -> None:
        self._qmp = qmp
        self._blocks: dict[int, bytes] = {}

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes."""
        first = address - address % _BLOCK
        data = b"".join(map(self._block, range(first, address + size, _BLOCK)))
        return data[address - first :][:size]

    def _block(self, address: int) -> bytes:
        if address not in self._blocks:
            line = f"x /{_BLOCK // 8}gx {address:#x}"
            answer = self._qmp("human-monitor-command", **{"command-line": line})
            text = answer.get("return", "") if isinstance(answer, dict) else answer
            # "ffff888000000000: 0x0000000000000001 0x0000000000000002", two words in a line
            words = re.findall(r" 0x([0-9a-f]{16})\b", str(text))
            if len(words) != _BLOCK // 8:
                raise Unmapped(f"cannot read the guest's memory at {address:#x}")
            self._blocks[address] = b"".join(int(w, 16).to_bytes(8, "little") for w in words)
        return self._blocks[address]
