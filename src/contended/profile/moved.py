# SPDX-License-Identifier: MIT
"""What is called otherwise in other releases of Linux than in 6.1, for which cases are written.

It is looked up here and nowhere else. What a release has under no name is an error, and never a
count of 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from contended.errors import ContendedError


@dataclass(frozen=True, slots=True)
class Moved:
    """What a function or a STRUCT.MEMBER is called from a release on; nothing if it is none."""

    since: str
    name: str = ""
    why: str = ""  #: Why it is none.


_INLINE = "inline and counts no reference"
# Up to the first of these it is called as in 6.1. Where only releases between which it moved were
# looked at, it is the later one.
_MOVED: dict[str, tuple[Moved, ...]] = {
    # struct slab was made of members of struct page
    "slab.slab_cache": (Moved("0", "page.slab_cache"), Moved("5.17", "slab.slab_cache")),
    "page.compound_head": (Moved("7.2", "page.compound_info"),),
    "pcpu_alloc": (Moved("6.10", "pcpu_alloc_noprof"),),
    "try_to_unlazy": (Moved("0", "unlazy_walk"), Moved("5.12", "try_to_unlazy")),
    "override_creds": (Moved("6.14", why=_INLINE),),
    "revert_creds": (Moved("6.14", why=_INLINE),),
}


class Gone(ContendedError):
    """A release has nothing of that name."""


def key(version: str) -> tuple[int, ...]:
    """What versions and releases are compared by: "6.12.117" and "6.12" are after "6.2"."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def called(name: str, version: str) -> str:
    """What 6.1 calls `name`, in a version of Linux; raises Gone, which says why, if nothing is."""
    found = Moved("0", name)
    for moved in _MOVED.get(name, ()):
        if key(version) >= key(moved.since):
            found = moved
    if not found.name:
        raise Gone(f"Linux {version} has no function {name}: since {found.since} it is {found.why}")
    return found.name
