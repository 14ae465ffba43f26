# SPDX-License-Identifier: MIT
"""Compile a student's C with the lab's, and run it: `course.compile("lockref.c", "sim.c")`.

Both happen in a sandbox. That keeps the machine safe, not the grade: the student's functions share
a process with the lab's code that counts what they do. So a student's file is compiled apart, and
its object may define and use only the symbols that the lab names, has no inline assembly and no
code that starts by itself. Without a way to call anything, all that is left is to guess addresses.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from contended import cc
from contended.course import job, lab, sandbox
from contended.course.ask import StudentError
from contended.course.box import Limits
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
_INCLUDE = re.compile(r"^\s*(?:#|%:|\?\?=)\s*include\b\s*(.*?)\s*$", re.M)
_LINE = re.compile(r"^\s*(?:#|%:|\?\?=)\s*(?:line\b|\d)", re.M)
_COMPILING = Limits(wall_s=60, cpu_s=60, memory=2 << 30, output=64 << 20)

Sanitizer = Literal["thread", "address"]


class CompileError(StudentError):
    """C that does not compile, or that the lab does not allow; the message is one line.

    Attributes:
        output: All that the compiler said.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message, "CompileError")
        self.output = output
        if output:
            self.add_note(output.rstrip())


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a program left.

    Attributes:
        status: The exit status; minus the signal's number if one ended it.
        reason: Why it was stopped, or how it died; empty if it just ended.
    """

    stdout: str
    stderr: str
    status: int
    reason: str

    def json(self) -> Any:
        """The last line of the output, read as JSON.

        Raises:
            StudentError: the program did not end well, or that line is no JSON.
        """
        if self.reason or self.status:
            said = next(iter(self.stderr.strip().splitlines()), "")
            why = self.reason or f"ended with exit status {self.status}"
            raise StudentError(f"the program {why}" + (f": {said}" if said else ""), "Failed")
        lines = self.stdout.strip().splitlines()
        try:
            return json.loads(lines[-1])
        except (IndexError, ValueError, RecursionError) as error:
            raise StudentError("the program's last line is no JSON", "Failed") from error


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled program."""

    binary: bytes
    sanitize: Sanitizer | None
    unsafe: bool

    def run(self, *args: str | int, stdin: str = "", deadline_s: float = 20.0) -> Output:
        """Run it once, in a sandbox when it is graded.

        Args:
            args: Its arguments.
            stdin: What it reads.
            deadline_s: Seconds until it is stopped.
        """
        done = sandbox.run(
            ["./program", *map(str, args)],
            files={"program": self.binary},
            limits=Limits(
                wall_s=deadline_s,
                cpu_s=round(4 * deadline_s) + 1,
                # A sanitizer's shadow is reserved, not used.
                address_space=0 if self.sanitize else Limits().address_space,
            ),
            stdin=stdin.encode(),
            unsafe=self.unsafe,
            # It looks for leaks by tracing itself, which no sandbox allows.
            environ={"ASAN_OPTIONS": "detect_leaks=0"} if self.sanitize == "address" else {},
        )
        return Output(
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
            status=done.status,
            reason=done.reason,
        )


_made: dict[tuple[Any, ...], Program] = {}


def compile(  # noqa: A001 - read as course.compile
    *files: str | Path, flags: Sequence[str] = (), sanitize: Sanitizer | None = None
) -> Program:
    """Compile C files into a program; the same ones are compiled once.

    Args:
        files: Names of the student's files and of the lab's, or paths of private ones.
        flags: Compiler flags after the usual ones.
        sanitize: With the thread or the address sanitizer.

    Raises:
        CompileError: the student's C does not compile, or does what the lab does not allow.
        UsageError: a file is neither the student's nor the lab's.
    """
    now = job.current()
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
    headers = {path.name: path.read_bytes() for path in sorted(about.folder.glob("*.h"))}
    own = [name for name in sources if name in about.files]
    unsafe = now is None or now.unsafe
    key = (str(about.folder), *sources.items(), *headers.items(), *flags, sanitize, unsafe)
    if key not in _made:
        for name in own:
            check(about, name, sources[name], headers, unsafe)
        _made[key] = _compile(sources, headers, [*FLAGS, *flags], sanitize, unsafe)
    return _made[key]


def _compile(
    sources: Mapping[str, bytes],
    headers: Mapping[str, bytes],
    flags: Sequence[str],
    sanitize: Sanitizer | None,
    unsafe: bool,
) -> Program:
    more = [f"-fsanitize={sanitize}"] if sanitize else []
    command = [*_gcc(), *flags, *more, "-o", "made", *sources]
    done = _in_box(command, {**sources, **headers}, unsafe, "made")
    return Program(done, sanitize, unsafe)


def _gcc() -> list[str]:
    compiler = cc.compiler()
    return [compiler.command, *compiler.arguments]


def _in_box(command: Sequence[str], files: Mapping[str, bytes], unsafe: bool, made: str) -> bytes:
    """Run a compiler; returns the file that it makes."""
    # Out of the box comes only what is printed: nothing outside of it can be written.
    script = ["sh", "-c", f'"$@" && exec cat {made}', "sh", *command]
    done = sandbox.run(
        script, files=files, limits=_COMPILING, unsafe=unsafe, environ={"LC_ALL": "C"}
    )
    if done.status or done.reason:
        output = done.stderr.decode(errors="replace")
        lines = output.splitlines()
        found = (x for x in lines if re.search(r"\berror:|undefined reference|multiple def", x))
        first = next(found, next(iter(lines), "the compiler failed"))
        raise CompileError(f"does not compile: {done.reason or first.strip()}", output)
    return done.stdout


def check(
    about: Lab, name: str, content: bytes, headers: Mapping[str, bytes], unsafe: bool
) -> None:
    """See that a student's C is what the lab allows.

    Raises:
        CompileError: it does not compile, or it is not; the message says what is wrong.
    """
    files = {name: content, **headers}
    # Comments gone and continued lines joined, as the compiler's own first steps do it.
    text = content.decode(errors="replace").replace("\\\r\n", "").replace("\\\n", "")
    bare = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    if _LINE.search(bare):
        raise CompileError(f"{name}: #line is not allowed")
    for asked in _INCLUDE.findall(bare):
        match = re.fullmatch(r'<([\w/.]+)>|"([\w.]+)"', asked)
        if not match or (match[1] or match[2]) not in (*HEADERS, *headers):
            there = ", ".join((*headers, *HEADERS))
            raise CompileError(f"{name}: #include {asked[:80]} is not allowed; there are: {there}")
    gcc = [*_gcc(), *FLAGS, "-w"]
    seen = _in_box([*gcc, "-E", "-o", "made", name], files, unsafe, "made").decode(errors="replace")
    own = re.sub(r'"(\\.|[^"\\])*"', '""', "\n".join(_lines_of(name, seen)))
    if _ASSEMBLY.search(own):
        raise CompileError(
            f"{name}: inline assembly is not allowed; a barrier for the compiler is "
            "atomic_signal_fence()"
        )
    for attribute in _ATTRIBUTE.findall(own):
        if match := _PLACED.search(attribute):
            raise CompileError(f"{name}: the attribute {match[1]} is not allowed")
    assembled = _in_box([*gcc, "-S", "-o", "made", name], files, unsafe, "made")
    if b"\n#APP" in assembled:
        raise CompileError(f"{name}: inline assembly is not allowed")
    made = _in_box([*gcc, "-c", "-o", "made", name], files, unsafe, "made")
    for problem in _symbols(made, about.c):
        raise CompileError(f"{name}: {problem}")


def _lines_of(name: str, preprocessed: str) -> Iterator[str]:
    """The lines that come from a file itself and not from what it includes."""
    inside = False
    for line in preprocessed.splitlines():
        if match := re.match(r'# \d+ "([^"]*)"', line):
            inside = match[1] == name
        elif inside:
            yield line


def _symbols(made: bytes, rules: CRules) -> Iterator[str]:
    """What an object file has that it may not have."""
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
            if data and not rules.static_data and _is_writable(elf, place):
                yield f"{name} keeps data outside of functions, which this lab does not allow"
    if not defined & set(rules.exports):
        # If only some are missing, the linker says which the lab needs.
        yield f"there is no function {rules.exports[0]}"


def _is_writable(elf: Any, place: int | str) -> bool:
    if not isinstance(place, int):
        return True  # common data has no section yet
    return bool(elf.get_section(place)["sh_flags"] & 1)
