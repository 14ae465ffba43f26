# SPDX-License-Identifier: MIT
"""A student's patch, read strictly and written anew: nothing else of it reaches patch(1) or make.

patch(1) takes many formats (one of them is a script for ed), follows hints about names, and makes
links. So a submission is read as a unified diff of C files in allowed folders, and what is applied
is our own text of the same hunks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from contended.errors import ContendedError

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

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
_NEVER = re.compile(
    r"(GIT binary patch|Binary files .* differ|rename (from|to) |copy (from|to) |similarity index "
    r"|new file mode (?!100644)|deleted file mode )"
)


class Refused(ContendedError):
    """A patch that is not taken; the message says why, to its author."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a patch does to one file.

    Attributes:
        file: Its name in the kernel's tree.
        new: Whether it makes the file.
        hunks: Each as its lines, with the line of numbers first.
    """

    file: str
    new: bool
    hunks: tuple[tuple[str, ...], ...]


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
    lines = text.split("\n")
    found: list[Change] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        if match := _NEVER.match(line):
            raise Refused(f"the patch may only change lines of text files, not: {match[0].strip()}")
        if line.startswith("--- ") and lines[number + 1 : number + 2] != []:
            after = lines[number + 1]
            if after.startswith("+++ "):
                change, number = _change(lines, number, allow)
                found.append(change)
                continue
        if _HUNK.match(line):
            raise Refused(f"line {number + 1} starts a hunk of no file: --- and +++ are missing")
        number += 1
    if not found:
        raise Refused("it holds no change: hand in the output of `git diff`")
    names = [change.file for change in found]
    for name in names:
        if names.count(name) > 1:
            raise Refused(f"{name} is in the patch twice: hand in one diff against Linux 6.1")
    return tuple(found)


def _change(lines: Sequence[str], number: int, allow: Sequence[str]) -> tuple[Change, int]:
    old = lines[number].removeprefix("--- ").split("\t")[0].rstrip()
    new = lines[number + 1].removeprefix("+++ ").split("\t")[0].rstrip()
    if new == "/dev/null":
        raise Refused(f"the patch may not remove a file: {old}")
    file = _name(new)
    if old != "/dev/null" and _name(old) != file:
        raise Refused(f"the patch may not rename {old} to {new}")
    _see_that_it_may(file, allow)
    number += 2
    hunks: list[tuple[str, ...]] = []
    while number < len(lines) and (match := _HUNK.match(lines[number])):
        hunk = [lines[number]]
        number += 1
        left = [int(match[2] or 1), int(match[4] or 1)]
        while any(left):
            if number == len(lines):
                raise Refused(f"the patch is cut short in hunk {len(hunks) + 1} of {file}")
            line = lines[number] or " "  # some mailers strip the blank of an empty line
            if line[0] not in " +-\\":
                raise Refused(f"line {number + 1} of the patch is no line of a hunk")
            left[0] -= line[0] in " -"
            left[1] -= line[0] in " +"
            if min(left) < 0:
                raise Refused(f"hunk {len(hunks) + 1} of {file} has other lines than it says")
            hunk.append(line)
            number += 1
        if number < len(lines) and lines[number].startswith("\\"):
            hunk.append(lines[number])
            number += 1
        hunks.append(tuple(hunk))
    if not hunks:
        raise Refused(f"the patch has no hunk for {file}")
    return Change(file, old == "/dev/null", tuple(hunks)), number


def _name(text: str) -> str:
    _, slash, name = text.partition("/")
    parts = name.split("/")
    if not slash or text.startswith(("/", '"')) or not name or {"", ".", ".."} & set(parts):
        raise Refused(f"{text[:100]!r} is no name like a/fs/namei.c")
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", name):
        raise Refused(f"{text[:100]!r} is no name of the kernel's tree")
    return name


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
        if change.new:
            lines.append("new file mode 100644")
        lines += ["--- /dev/null" if change.new else f"--- a/{change.file}", f"+++ b/{change.file}"]
        lines += [line for hunk in change.hunks for line in hunk]
    return "\n".join(lines) + "\n"


def code(source: str) -> str:
    """C without its comments and blanks: what is left if only they differ is the same."""

    def keep(match: re.Match[str]) -> str:
        return " " if match[0].startswith("/") else match[0]

    bare = re.sub(
        r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', keep, source, flags=re.S
    )
    return " ".join(bare.split())
