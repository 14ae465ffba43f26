# SPDX-License-Identifier: MIT
"""Whether structs lie in memory as a variant says, by a kernel's debug information.

Offsets are never assumed: an option of the kernel's configuration moves them, and what shares a
64-byte line is what several of the cases are about.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from contended import records
from contended.errors import ContendedError
from contended.kernel.variants import Layout, Variant
from contended.profile.dwarf import Image
from contended.profile.entries import StructMember

LINE = 64
"""Bytes of a cache line."""


class LayoutError(ContendedError):
    """A struct of a patched kernel does not lie as the variant says it does."""


def check(variant: Variant, vmlinux: Path) -> None:
    """See that structs lie as a variant says; the answer is kept beside the kernel.

    Raises:
        LayoutError: one does not; the message gives the offsets.
        ContendedError: the file has no debug information, or lacks a struct or a member.
    """
    if not variant.layout:
        return
    wanted = hashlib.sha256(repr(sorted(variant.layout.items())).encode()).hexdigest()[:16]
    kept = vmlinux.parent / f"layout-{wanted}"
    try:
        bad = kept.read_text()
    except OSError:
        with Image(vmlinux) as image:
            bad = next(filter(None, (problem(image, *each) for each in variant.layout.items())), "")
        with suppress(ContendedError):  # reading it again costs seconds, and no more
            records.write_whole(kept, bad)
    if bad:
        raise LayoutError(f"{variant}: {bad}")


def problem(image: Image, name: str, wanted: Layout) -> str:
    """In what a struct does not lie as it should, with its offsets; empty if it does.

    Raises:
        ContendedError: no debug information, or no such struct or member.
    """
    found = image.type(name)
    bad = []
    if wanted.size is not None and found.size != wanted.size:
        bad.append(f"its size is {found.size} and not {wanted.size}")
    for pairs, should_share in ((wanted.apart, False), (wanted.together, True)):
        for pair in pairs:
            one, other = map(found.field, pair)
            if bool(_lines(one) & _lines(other)) != should_share:
                places = " and ".join(f"{f.name} (offset {f.offset})" for f in (one, other))
                bad.append(f"{places} {'share no' if should_share else 'share a'} line")
    return f"in struct {name} {'; '.join(bad)}" if bad else ""


def _lines(field: StructMember) -> set[int]:
    """The numbers of the lines that a member lies on, if the struct starts a line."""
    last = field.offset + max(field.size, 1) - 1
    return set(range(field.offset // LINE, last // LINE + 1))
