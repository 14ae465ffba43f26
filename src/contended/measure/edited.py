# SPDX-License-Identifier: MIT
"""A model with C of the reader's own: whole functions from a text, or pieces put for others.

What the compiler says of a reader's functions names "your cell" and counts from its top.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from contended import tree
from contended.errors import UsageError
from contended.measure import native
from contended.records import write_whole

CELL = "your cell"
VARIANT = "yours"
"""The name under which such a model's variant is measured beside the model's own."""
# A function, from its return type to its closing brace, each at the beginning of a line.
_FUNCTION = re.compile(
    r"^(?=[A-Za-z_])(?:[^;{}#\n]*\n)?[^;{}#\n]*?\b(?!__attribute__)(\w+)"
    r"\((?:[^;{}()]|\([^()]*\))*\)\s*\{.*?^\}$\n?",
    re.M | re.S,
)
_MACRO = re.compile(r"^#[ \t]*define[ \t]+(\w+)(?:[^\n\\]|\\.)*\n?", re.M | re.S)


@dataclass(frozen=True, slots=True)
class _Part:
    start: int
    end: int
    text: str


def _parts(text: str) -> dict[str, _Part]:
    """Functions and macros by name, with where they stand."""
    found = {}
    for pattern in (_MACRO, _FUNCTION):
        for m in pattern.finditer(text):
            found[m[1]] = _Part(m.start(), m.end(), m[0])
    return found


def functions(text: str) -> list[str]:
    """The names of the functions that a C text defines."""
    return [m[1] for m in _FUNCTION.finditer(text)]


def edit(text: str, cell: str, name: str) -> str:
    """A model's C with the cell's functions and macros in the place of its own of those names.

    What else the cell holds, helpers and types, comes before the first of the functions. `name` is
    what the compiler is to call the model's file. Raises UsageError if the cell has none of them.
    """
    have, given = _parts(text), _parts(cell)
    places = {n: have[n] for n in given if n in have}
    names = functions(text)
    if not (first := next((n for n in names if n in places), "")):
        raise UsageError(f"the cell holds no function of {name}, which has: {', '.join(names)}")
    whole = sorted((part.start, part.end) for n, part in given.items() if n in places)
    # blanks in place of what goes elsewhere, so that the rest keeps its lines
    rest = cell
    for start, end in whole:
        rest = rest[:start] + re.sub(r"[^\n]", " ", rest[start:end]) + rest[end:]

    def line(of: str, offset: int) -> int:
        return of.count("\n", 0, offset) + 1

    made, at = "", 0
    for n, old in sorted(places.items(), key=lambda item: item[1].start):
        new = given[n]
        made += text[at : old.start]
        if n == first and rest.strip():
            made += f'#line 1 "{CELL}"\n{rest}\n'
        made += f'#line {line(cell, new.start)} "{CELL}"\n{new.text.rstrip()}\n'
        made += f'#line {line(text, old.end)} "{name}"\n'
        at = old.end
    return _beside_headers(f'#line 1 "{name}"\n{made}{text[at:]}')


def replace(text: str, pieces: Mapping[str, str], name: str) -> str:
    """A model's C with pieces of it replaced, in the order given: a solution in a few lines.

    How lines are broken and indented does not matter. Raises UsageError for a piece that is not
    there, or there more than once: it would change something else than was meant.
    """
    for old, new in pieces.items():
        pattern = r"\s+".join(re.escape(word) for word in old.split())
        places = list(re.finditer(pattern, text)) if pattern else []
        if len(places) != 1:
            found = f"{len(places)} times" if places else "not"
            raise UsageError(f"{name} has {old!r} {found}: give what stands there just once")
        at = places[0]
        text = text[: at.start()] + new + text[at.end() :]
    return _beside_headers(text)


def _beside_headers(text: str) -> str:
    """The kept file is in another folder than the model, and the compiler is given the headers'."""
    return re.sub(r'^#include "\.\./', '#include "', text, flags=re.M)


def edited(slug: str, change: str | Mapping[str, str]) -> Path:
    """The C file of a model, changed, for `measure`; it is kept in the cache.

    `change` is a cell with functions that take the place of the model's own (`edit`), or pieces of
    the file and what is to stand in their place (`replace`).
    """
    source = native.source(slug)
    text = source.read_text()
    if isinstance(change, str):
        made = edit(text, change, source.name)
    else:
        made = replace(text, change, source.name)
    digest = hashlib.sha256(made.encode()).hexdigest()[:16]
    file = tree.cache_dir() / "edited" / digest / source.name
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, made)
    return file
