# SPDX-License-Identifier: MIT
"""Compile a student's C with the lab's, and run it: `course.compile("lockref.c", "sim.c")`.

A student's functions share a process with the lab's code that counts. So their file is compiled
apart; its object defines and uses only the symbols that the lab names, without inline assembly or
code that starts by itself: all that is left is to guess addresses.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from contended import cc
from contended.course import ask, lab, sandbox
from contended.course.ask import StudentError
from contended.course.boxes import Limits
from contended.course.lab import CRules, Lab
from contended.errors import ContendedError, UsageError

FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-pthread")
HEADERS = (
    *("limits.h", "stdalign.h", "stdatomic.h", "stdbool.h", "stddef.h", "stdint.h"),
    *("stdnoreturn.h", "string.h"),
)
"""What a student's file may include besides the lab's own headers."""

# The compiler calls these by itself.
_COMPILER = (
    *("memcpy", "memset", "memmove", "memcmp", "__stack_chk_fail"),
    *("_GLOBAL_OFFSET_TABLE_", "__tls_get_addr"),
)
_SECTIONS = re.compile(
    r"|\.(text|rodata|data|bss|comment|note|eh_frame|symtab|strtab|shstrtab|group|tdata|tbss)(\..*)?"
    r"|\.(debug_|rela\.|rela$).*|\.note.*|\.data\.rel\.ro.*|\.rela\.debug.*"
)
_ASSEMBLY = re.compile(r"\b(asm|__asm|__asm__)\b")
_PLACED = re.compile(r"\b(?:__)?(section|alias|ifunc|symver|weakref|naked)(?:__)?\s*\(?")
_ATTRIBUTE = re.compile(r"\b__attribute(?:__)?\s*\(\(.*?\)\)", re.S)
_INCLUDE = re.compile(r"^\s*(?:#|%:|\?\?=)\s*(?:include(?:_next)?|import)\b\s*(.*?)\s*$", re.M)
_LINE = re.compile(r"^\s*(?:#|%:|\?\?=)\s*(?:line\b|\d)", re.M)
# A file of a lab compiles in a second; what a few macros unfold to can take hours.
_COMPILING = Limits(wall_s=30, cpu_s=15, memory=2 << 30, output=64 << 20)


class CodeError(StudentError):
    """C that does not compile, or that the lab does not allow; the compiler's words are a note."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a program left; `status` and `reason` are as `sandbox.Done` has them."""

    stdout: str
    stderr: str
    status: int
    reason: str

    def json(self) -> Any:
        """The last line of the output, read as JSON; StudentError if there is none."""
        if self.reason or self.status:
            said = next(iter(self.stderr.strip().splitlines()), "")
            why = self.reason or f"ended with exit status {self.status}"
            raise StudentError(f"the program {why}" + (f": {said}" if said else ""), "Failed")
        try:
            return json.loads(self.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError, RecursionError) as error:
            raise StudentError("the program's last line is no JSON", "Failed") from error


@dataclass(frozen=True, slots=True)
class Executable:
    """A compiled program."""

    binary: bytes
    unsafe: bool

    def run(self, *args: str | int, stdin: str = "", deadline_s: float = 20.0) -> Output:
        """Run it once, in a sandbox when it is graded; after `deadline_s` seconds it is stopped."""
        done = sandbox.run(
            ["./program", *map(str, args)],
            files={"program": self.binary},
            limits=Limits(wall_s=deadline_s, cpu_s=round(4 * deadline_s) + 1),
            stdin=stdin.encode(),
            unsafe=self.unsafe,
        )
        stdout, stderr = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return Output(stdout, stderr, done.status, done.reason)


def compile(*files: str | Path) -> Executable:  # noqa: A001 - read as course.compile
    """Compile C files into a program: the student's and the lab's by name, private ones by path.

    CodeError if the student's does not compile, or does what the lab does not allow.
    """
    now = ask.current()
    about = lab.load(Path(now.lab) if now else Path.cwd())
    taken = Path(now.taken) if now else Path.cwd()
    sources: dict[str, bytes] = {}
    for file in files:
        path = file if isinstance(file, Path) else about.folder / file
        if path.name in about.files:
            path = taken / path.name
        if path.suffix != ".c" or not path.is_file():
            raise UsageError(f"there is no C file {file} to compile")
        sources[path.name] = path.read_bytes()
    headers = tuple((path.name, path.read_bytes()) for path in sorted(about.folder.glob("*.h")))
    made = _compile(about, tuple(sources.items()), headers, now is None or now.unsafe)
    if isinstance(made, CodeError):
        raise made
    return made


_Files = tuple[tuple[str, bytes], ...]


@cache
def _compile(about: Lab, sources: _Files, headers: _Files, unsafe: bool) -> Executable | CodeError:
    # What is wrong is kept, too: each part of a lab asks, and it may have taken half a minute.
    try:
        for name, content in sources:
            if name in about.files:
                check(about, name, content, dict(headers), unsafe)
        names = [name for name, _ in sources]
        return Executable(_gcc(names, dict(sources + headers), unsafe), unsafe)
    except CodeError as error:
        return error


def _gcc(arguments: list[str], files: Mapping[str, bytes], unsafe: bool) -> bytes:
    """Run the compiler in a box; returns the file that it makes."""
    gcc = cc.compiler()
    command = [gcc.command, *gcc.arguments, *FLAGS, "-o", "made", *arguments]
    # Out of the box comes only what is printed: nothing outside of it can be written.
    script = ["sh", "-c", '"$@" && exec cat made', "sh", *command]
    done = sandbox.run(
        script, files=files, limits=_COMPILING, unsafe=unsafe, environ={"LC_ALL": "C"}
    )
    if done.status or done.reason:
        output = done.stderr.decode(errors="replace")
        lines = output.splitlines()
        found = (x for x in lines if re.search(r"\berror:|undefined reference|multiple def", x))
        first = next(found, next(iter(lines), "the compiler failed"))
        if re.search(r"(Killed|CPU time limit exceeded) signal terminated", output):
            first = f"the compiler was stopped after {_COMPILING.cpu_s} s of CPU time"
        error = CodeError(f"does not compile: {done.reason or first.strip()}")
        error.add_note(output.rstrip())
        raise error
    return done.stdout


def check(
    about: Lab, name: str, content: bytes, headers: Mapping[str, bytes], unsafe: bool
) -> None:
    """See that a student's C is what the lab allows; raises CodeError that says what is wrong."""
    # Comments gone and continued lines joined, as the compiler's own first steps do it.
    text = content.decode(errors="replace").replace("\\\r\n", "").replace("\\\n", "")
    bare = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    if _LINE.search(bare):
        raise CodeError(f"{name}: #line is not allowed")
    for asked in _INCLUDE.findall(bare):
        match = re.fullmatch(r'<([\w/.]+)>|"([\w.]+)"', asked)
        if not match or (match[1] or match[2]) not in (*HEADERS, *headers):
            there = ", ".join((*headers, *HEADERS))
            raise CodeError(f"{name}: #include {asked[:80]} is not allowed; there are: {there}")

    def made(step: str) -> bytes:
        return _gcc(["-w", "-g0", step, name], {name: content, **headers}, unsafe)

    seen = _lines_of(name, made("-E").decode(errors="replace"), (*HEADERS, *headers))
    own = re.sub(r'"(\\.|[^"\\])*"', '""', "\n".join(seen))
    if _ASSEMBLY.search(own):
        instead = "a barrier for the compiler is atomic_signal_fence()"
        raise CodeError(f"{name}: inline assembly is not allowed; {instead}")
    for attribute in _ATTRIBUTE.findall(own):
        if match := _PLACED.search(attribute):
            raise CodeError(f"{name}: the attribute {match[1]} is not allowed")
    if b"\n#APP" in made("-S"):
        raise CodeError(f"{name}: inline assembly is not allowed")
    for problem in _symbols(made("-c"), about.c):
        raise CodeError(f"{name}: {problem}")


def _lines_of(name: str, preprocessed: str, allowed: Container[str]) -> Iterator[str]:
    """A file's own lines; raises CodeError if the compiler went where the text did not say."""
    inside = False
    for line in preprocessed.splitlines():
        if match := re.match(r'# \d+ "((?:[^"\\]|\\.)*)"((?: \d)*)$', line):
            file, how = match.groups()
            other = inside and file != name and file[:1] != "<"
            if other and " 1" not in how:  # it neither begins a file nor goes back to one
                raise CodeError(f"{name}: #line is not allowed")
            if other and Path(file).name not in allowed:
                raise CodeError(f"{name}: #include of {file[:80]} is not allowed")
            inside = file == name
        elif inside:
            yield line


def _symbols(made: bytes, rules: CRules) -> Iterator[str]:
    try:
        elf = ELFFile(io.BytesIO(made))
        for section in elf.iter_sections():
            if not _SECTIONS.fullmatch(section.name):
                yield f"code or data in a section {section.name} is not allowed"
        table: Any = elf.get_section_by_name(".symtab")
        symbols = list(table.iter_symbols()) if table else []
    except ELFError as error:
        raise ContendedError(f"the compiler made no object file: {error}") from error
    defined = set()
    for symbol in symbols:
        kind, binding = symbol["st_info"]["type"], symbol["st_info"]["bind"]
        place, name = symbol["st_shndx"], symbol.name
        if kind in ("STT_SECTION", "STT_FILE") or not name:
            continue
        if binding not in ("STB_LOCAL", "STB_GLOBAL") or kind == "STT_GNU_IFUNC":
            yield f"{name} must be an ordinary symbol"
        elif place == "SHN_UNDEF":
            if name not in (*rules.imports, *rules.exports, *_COMPILER):
                there = ", ".join(rules.imports) or "nothing"
                yield f"it may not use {name}; it may use: {there}"
        else:
            if binding == "STB_GLOBAL":
                defined.add(name)
                if name not in rules.exports:
                    yield f"{name} must be static; the lab calls: {', '.join(rules.exports)}"
            data = kind in ("STT_OBJECT", "STT_TLS", "STT_COMMON") or place == "SHN_COMMON"
            # common data has no section yet
            flags = elf.get_section(place)["sh_flags"] if isinstance(place, int) else 1
            if data and not rules.static_data and flags & 1:
                yield f"{name} keeps data outside of functions, which this lab does not allow"
    if not defined & set(rules.exports):
        # If only some are missing, the linker says which the lab needs.
        yield f"there is no function {rules.exports[0]}"
