# SPDX-License-Identifier: MIT
"""The one reader of patches: strict, since patch(1) is not; and a patch as chapters show it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from contended.errors import ContendedError, UsageError
from contended.kernel import variants

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@ ?(.*)")
_FIRST = re.compile(r"^(diff --git |--- \S+.*\n\+\+\+ )", re.M)


class BadPatch(ContendedError):
    """What is no unified diff of files in the kernel's tree; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One change of a patch: its head says where it is, and the lines have their marks."""

    file: str
    head: str
    lines: tuple[str, ...]

    @property
    def added(self) -> int:
        """How many lines are new."""
        return sum(line.startswith("+") for line in self.lines)

    @property
    def removed(self) -> int:
        """How many lines are gone."""
        return sum(line.startswith("-") for line in self.lines)

    @property
    def text(self) -> str:
        """The hunk as a diff shows it, without line numbers, which differ from tree to tree."""
        function = self.head.split(" @@")[1].strip()
        return "\n".join([f"@@ {self.file}: {function} @@", *self.lines])


@dataclass(frozen=True, slots=True)
class Change:
    """What a patch does to one file; of a new one `old` is empty, of a removed one `new`."""

    old: str
    new: str
    hunks: tuple[Hunk, ...]

    @property
    def file(self) -> str:
        """The file's name, whether it comes, goes or stays."""
        return self.new or self.old


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch file: its name, the change in one line, the paragraphs that say why, and what."""

    name: str
    subject: str
    message: str
    hunks: tuple[Hunk, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it changes, in the patch's order."""
        return tuple(dict.fromkeys(hunk.file for hunk in self.hunks))

    def show(self, *numbers: int, file: str | None = None) -> Any:
        """Some hunks of all, or of a `file`, counted from 1, for display with a diff's colours.

        Raises UsageError if there is no such hunk or file; a chapter must follow its patch.
        """
        from IPython.display import Code  # the book's: measuring does without

        hunks = [hunk for hunk in self.hunks if file is None or hunk.file == file]
        if not hunks:
            raise UsageError(f"{self.name} does not change {file}, but {', '.join(self.files)}")
        if wrong := [n for n in numbers if not 1 <= n <= len(hunks)]:
            raise UsageError(f"{self.name} has hunks 1 to {len(hunks)}, not {wrong[0]}")
        shown = [hunks[n - 1] for n in numbers] if numbers else hunks
        text = "\n".join(hunk.text for hunk in shown)
        return Code(text, language="diff")  # type: ignore[no-untyped-call]

    def _repr_html_(self) -> str:
        paragraphs = "".join(
            f"<p>{_linked(escape(' '.join(part.split())))}</p>"
            for part in self.message.split("\n\n")
        )
        changed = ", ".join(
            f"<code>{escape(file)}</code> "
            f"(+{sum(h.added for h in self.hunks if h.file == file)} "
            f"&minus;{sum(h.removed for h in self.hunks if h.file == file)})"
            for file in self.files
        )
        return (
            '<div class="admonition note" style="border-left: 0.25em solid #0072b2; '
            f'padding: 0.5em 1em"><p class="admonition-title"><strong>{escape(self.subject)}'
            f"</strong></p>{paragraphs}<p>{escape(self.name)} changes {changed}.</p></div>"
        )

    def __repr__(self) -> str:
        return f"{self.subject}\n\n{self.message}\n\n{self.name}: {', '.join(self.files)}"


def _linked(text: str) -> str:
    """The links of a message, one a line."""
    return re.sub(r" ?Link: (\S+)", r'<br>Link: <a href="\1">\1</a>', text).removeprefix("<br>")


def load(slug: str, name: str) -> Patch:
    """Read the one patch of a case whose file's name begins so; raises UsageError if none does."""
    there = sorted((variants.folder() / slug).glob("*.patch"))
    found = [path for path in there if path.name.startswith(name)]
    if len(found) != 1:
        listed = ", ".join(path.name for path in there) or "none"
        raise UsageError(f"{name!r} does not name one patch of {slug}; there are: {listed}")
    return parse(found[0])


def parse(path: Path) -> Patch:
    """Read a patch file; raises UsageError if it has no subject, or as `read` does."""
    text = path.read_text(encoding="utf-8")
    start = _FIRST.search(text)
    message = text[: start.start() if start else None].partition("\n---\n")[0]
    # The subject may be folded; the text comes after the header's blank line.
    found = re.search(r"^Subject: *(\S.*(?:\n .*)*)", message, re.M)
    if not found:
        raise UsageError(f"{path}: no Subject: line")
    subject = re.sub(r"^\[PATCH[^]]*\] *", "", " ".join(found[1].split()))
    body = message[found.end() :].partition("\n\n")[2].strip()
    hunks = tuple(hunk for change in read(path) for hunk in change.hunks)
    return Patch(path.name, subject, body, hunks)


def read(path: Path) -> tuple[Change, ...]:
    """What a patch file changes; raises BadPatch, with the file's name, as `changes` does."""
    try:
        return changes(changes_of(path.read_text(errors="replace")))
    except BadPatch as error:
        raise BadPatch(f"{path.name}: {error}") from None


def changes_of(text: str) -> str:
    """A patch without its message: another wording is no other kernel."""
    start = _FIRST.search(text)
    return text[start.start() :] if start else text


def changes(text: str) -> tuple[Change, ...]:
    """Read a diff, and skip what stands between the changes of files; raises BadPatch."""
    lines = text.split("\n")
    found: list[Change] = []
    number = 0
    while number < len(lines):
        if re.match(r"--- .*\n\+\+\+ ", "\n".join(lines[number : number + 2])):
            change, number = _change(lines, number)
            found.append(change)
            continue
        number += 1
        if _HUNK.match(lines[number - 1]):
            raise BadPatch(f"line {number} starts a hunk of no file: --- and +++ are missing")
    if not found:
        raise BadPatch("it holds no change: it must be what `git diff` prints")
    return tuple(found)


def _change(lines: list[str], number: int) -> tuple[Change, int]:
    """The change that begins at that line, and the number of the line after it."""
    old, new = (_name(lines[number + i].partition(" ")[2].split("\t")[0].rstrip()) for i in (0, 1))
    file = new or old
    number += 2
    hunks: list[Hunk] = []
    while number < len(lines) and (match := _HUNK.match(lines[number])):
        head, body = lines[number], list[str]()
        number += 1
        # By the counts that each hunk states: a removed line may look like a header.
        left = [int(match[1] or 1), int(match[2] or 1)]
        while any(left):
            if number == len(lines):
                raise BadPatch(f"the patch is cut short in hunk {len(hunks) + 1} of {file}")
            line = lines[number] or " "  # some mailers strip the blank of an empty line
            if line[0] not in " +-\\":
                raise BadPatch(f"line {number + 1} of the patch is no line of a hunk")
            left[0] -= line[0] in " -"
            left[1] -= line[0] in " +"
            if min(left) < 0:
                raise BadPatch(f"hunk {len(hunks) + 1} of {file} has other lines than it says")
            body.append(line)
            number += 1
        if number < len(lines) and lines[number].startswith("\\"):
            body.append(lines[number])
            number += 1
        hunks.append(Hunk(file, head, tuple(body)))
    if not hunks:
        raise BadPatch(f"the patch has no hunk for {file}")
    return Change(old, new, tuple(hunks)), number


def _name(text: str) -> str:
    """The name in the tree; empty for no file."""
    if text == "/dev/null":
        return ""
    _, slash, name = text.partition("/")
    parts = name.split("/")
    if not slash or text.startswith(("/", '"')) or not name or {"", ".", ".."} & set(parts):
        raise BadPatch(f"{text[:100]!r} is no name like a/fs/namei.c")
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", name):
        raise BadPatch(f"{text[:100]!r} is no name of the kernel's tree")
    return name
