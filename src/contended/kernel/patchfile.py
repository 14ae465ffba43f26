# SPDX-License-Identifier: MIT
"""A patch as readers see it: its message, and its hunks one by one, out of the file itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from contended.errors import UsageError
from contended.kernel import variants

_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@ ?(.*)$")


@dataclass(frozen=True, slots=True)
class Hunk:
    """One change of a patch.

    Attributes:
        file: The file it changes.
        function: Where in the file, as diff says it.
        lines: Its lines, each with the mark that it starts with, without the `@@` line.
    """

    file: str
    function: str
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
        return "\n".join([f"@@ {self.file}: {self.function} @@", *self.lines])


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch file.

    Attributes:
        name: Of the file.
        subject: The change in one line.
        message: Why, as the paragraphs of the message.
        hunks: What, in the file's order.
    """

    name: str
    subject: str
    message: str
    hunks: tuple[Hunk, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it changes, in the patch's order."""
        return tuple(dict.fromkeys(hunk.file for hunk in self.hunks))

    def show(self, *numbers: int, file: str | None = None) -> Any:
        """Some hunks, for display with a diff's colours.

        Args:
            numbers: Which, counted from 1; all if none is given.
            file: Only those that change this file; `numbers` then count within it.

        Raises:
            UsageError: there is no such hunk or file; a chapter must follow its patch.
        """
        from IPython.display import Code

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
            f"<p>{escape(' '.join(part.split()))}</p>" for part in self.message.split("\n\n")
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


def load(slug: str, name: str) -> Patch:
    """Read a case's patch.

    Args:
        slug: The case.
        name: The file's name, or as much of its beginning as tells it apart.

    Raises:
        UsageError: none, or more than one, has such a name.
    """
    place = variants.folder() / slug
    there = sorted(path for path in place.glob("*.patch"))
    found = [path for path in there if path.name.startswith(name)]
    if len(found) != 1:
        listed = ", ".join(path.name for path in there) or "none"
        raise UsageError(f"{name!r} does not name one patch of {slug}; there are: {listed}")
    return parse(found[0])


def parse(path: Path) -> Patch:
    """Read a patch file.

    Raises:
        UsageError: it has no subject, or no change.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    head = next((i for i, line in enumerate(lines) if line == "---"), len(lines))
    first = next((i for i, line in enumerate(lines) if line.startswith("diff ")), len(lines))
    subject, message = _message(lines[: min(head, first)])
    hunks = _hunks(lines[first:])
    if not subject or not hunks:
        raise UsageError(f"{path}: {'no Subject: line' if not subject else 'changes nothing'}")
    return Patch(path.name, subject, message, hunks)


def _message(lines: Sequence[str]) -> tuple[str, str]:
    """The subject, which may be folded, and the text after the header's blank line."""
    subject, body = "", 0
    for number, line in enumerate(lines):
        if line.startswith("Subject:"):
            subject = line.removeprefix("Subject:").strip()
        elif subject and line.startswith(" "):
            subject += f" {line.strip()}"
        elif not line and subject:
            body = number
            break
    text = "\n".join(lines[body:]).strip() if body else ""
    return re.sub(r"^\[PATCH[^]]*\] *", "", subject), text


def _hunks(lines: Sequence[str]) -> tuple[Hunk, ...]:
    """Read by the counts that each hunk states: a removed line may look like a header."""
    found: list[Hunk] = []
    file, number = "", 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.startswith("+++ "):
            file = line.removeprefix("+++ ").removeprefix("b/").split("\t")[0]
        elif match := _HUNK.match(line):
            old, new, body = int(match[1] or 1), int(match[2] or 1), list[str]()
            while (old or new) and number < len(lines):
                change = lines[number]
                number += 1
                if change.startswith("\\"):
                    continue  # no newline at the end of the file
                old -= change[:1] != "+"
                new -= change[:1] != "-"
                body.append(change)
            found.append(Hunk(file, match[3], tuple(body)))
    return tuple(found)
