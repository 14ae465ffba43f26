# SPDX-License-Identifier: MIT
"""The releases of Linux whose source the lab knows where to get."""

from __future__ import annotations

import re
from dataclasses import dataclass

from contended.errors import UsageError, pick
from contended.profile.moved import key


@dataclass(frozen=True, slots=True)
class Release:
    """A release whose source Debian has as a package."""

    name: str
    tested: str  #: The version that outcomes were seen with; others are tried.
    debian: str  #: Debian's release that has it.
    kinds: tuple[str, ...] = ("", "-updates", "-security")  #: The suites that this one has.

    def __str__(self) -> str:
        return self.name

    @property
    def package(self) -> str:
        """Debian's source package."""
        return f"linux-source-{self.name}"


#: In order; a reader whose kernel is newer than the last has the last's bugs, or fewer.
ALL = (
    Release("5.10", "5.10.262", "bullseye"),
    Release("6.1", "6.1.192", "bookworm"),
    Release("6.12", "6.12.117", "bookworm"),
    Release("7.2", "7.2.13", "unstable", ("",)),
)
_RELEASES = {release.name: release for release in ALL}
BOOK = _RELEASES["6.1"]  #: What the patches are for.


def names() -> list[str]:
    """The known releases, oldest first."""
    return list(_RELEASES)


def get(name: str) -> Release:
    """The release of that name; raises UsageError if it is not known."""
    return pick(_RELEASES, name, "the lab has no kernel release")


def check(release: Release, version: str, given: object) -> None:
    """Raise UsageError unless a source's version is one of a release, without changes of its own.

    A release candidate has none of its own either, but what it is may still change.
    """
    if re.fullmatch(rf"{re.escape(release.name)}(\.\d+)?", version):
        return
    own = key(version) == key(release.name)
    reason = "which has changes of its own" if own else "which is another release"
    raise UsageError(
        f"release {release.name}: {given} holds Linux {version}, {reason}; contended kernel "
        f"source --release {release.name} gets Debian's"
    )
