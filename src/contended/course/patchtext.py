# SPDX-License-Identifier: MIT
"""A student's patch, read strictly and written anew: nothing else of it reaches patch(1) or make.

patch(1) takes many formats (one of them is a script for ed), follows hints about names, and makes
links. So a submission is read as a unified diff of C files in allowed folders, and what is applied
is our own text of the same hunks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from contended.errors import ContendedError
from contended.kernel import patchfile
from contended.kernel.patchfile import Change

HOST_PROGRAMS = frozenset(
    {
        "fs/unicode/mkutf8data.c",
        "include/linux/crc32poly.h",
        "include/linux/license.h",
        "include/linux/mod_devicetable.h",
        "lib/crc32defs.h",
        "lib/gen_crc32table.c",
        "lib/gen_crc64table.c",
        "lib/raid6/mktables.c",
    }
)
"""What programs are made of that a build of Linux 6.1 runs on the machine that builds it."""

_NEVER = re.compile(
    r"^(GIT binary patch|Binary files .* differ|rename (from|to) |copy (from|to) |similarity index "
    r"|new file mode (?!100644)|deleted file mode )",
    re.M,
)


class Refused(ContendedError):
    """A patch that is not taken; the message says why, to its author."""


def parse(content: bytes, allow: Sequence[str]) -> tuple[Change, ...]:
    """Read a patch.

    Args:
        content: The file as it was handed in.
        allow: The folders in which it may change C files, each with a slash at its end.

    Raises:
        Refused: it is no unified diff, or changes something that it may not.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"the patch is not in UTF-8 (byte {error.start})") from error
    if "\r\n" in text:
        raise Refused(
            "the patch has Windows line ends (CRLF), the kernel has not: "
            "save it with `git diff > fix.patch`, or repair it with dos2unix"
        )
    if match := _NEVER.search(text):
        raise Refused(f"the patch may only change lines of text files, not: {match[0].strip()}")
    try:
        found = patchfile.changes(text)
    except patchfile.BadPatch as error:
        raise Refused(str(error)) from None
    names = [change.file for change in found]
    for change in found:
        if not change.new:
            raise Refused(f"the patch may not remove a file: {change.old}")
        if change.old not in ("", change.new):
            raise Refused(f"the patch may not rename {change.old} to {change.new}")
        _see_that_it_may(change.new, allow)
        if names.count(change.new) > 1:
            raise Refused(f"{change.new} is in the patch twice: hand in one diff against Linux 6.1")
    return found


def _see_that_it_may(file: str, allow: Sequence[str]) -> None:
    if not file.startswith(tuple(allow)) or not file.endswith((".c", ".h")):
        raise Refused(
            f"the patch may only change .c and .h files in {', '.join(allow)}: not {file}"
        )
    if file in HOST_PROGRAMS:
        raise Refused(f"{file} is part of a program that builds the kernel: it may not be changed")


def text(changes: Sequence[Change]) -> str:
    """The same changes as a patch of our own."""
    lines = ["Subject: submission", "", "---"]
    for change in changes:
        lines.append(f"diff --git a/{change.file} b/{change.file}")
        if not change.old:
            lines.append("new file mode 100644")
        lines += [f"--- a/{change.old}" if change.old else "--- /dev/null", f"+++ b/{change.file}"]
        lines += [line for hunk in change.hunks for line in (hunk.head, *hunk.lines)]
    return "\n".join(lines) + "\n"


def code(source: str) -> str:
    """C without its comments and blanks: what is left if only they differ is the same."""

    def keep(match: re.Match[str]) -> str:
        return " " if match[0].startswith("/") else match[0]

    bare = re.sub(
        r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', keep, source, flags=re.S
    )
    return " ".join(bare.split())
