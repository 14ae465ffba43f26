# SPDX-License-Identifier: MIT
"""What `patches/<slug>/variants.toml` says: a case's kernels, how they are run, what is expected.

The file is written by hand, so every mistake in it is one line that names the file and the key.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contended import tree
from contended.errors import ContendedError, UsageError

CONFIGS = ("base", "debug", "up")
MAX_VCPUS = 128
"""What the kernels are configured for."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_PARAMETER = re.compile(r"[a-z][a-z0-9_]*")
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_TIME = re.compile(r"\b(latency_us|ns_per_op)\b")
_WATCHED = re.compile(r"[A-Za-z_]\w*(>[A-Za-z_]\w*)?|slow\([a-z_]+\)")
_PATCH = re.compile(r"(\.\./[a-z0-9]+(-[a-z0-9]+)*/)?[^/]*[^/.][^/]*\.patch")
_FIELD = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a struct must lie in memory; checked by DWARF after a build with config base.

    Attributes:
        struct: Its name, without `struct`.
        size: Its size in bytes, or None if it does not matter.
        apart: Pairs of fields that must not share a 64-byte line.
        together: Pairs of fields that must share one.
    """

    struct: str
    size: int | None = None
    apart: tuple[tuple[str, str], ...] = ()
    together: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel of a case.

    Attributes:
        slug: The case.
        name: `before`, `after`, or what it does.
        summary: One line.
        patches: Applied in this order.
        cmdline: Added to the standard command line.
        right: Whether it is a right fix: one that the debugging options do not complain about.
        layout: What must be true of its structs.
    """

    slug: str
    name: str
    summary: str
    patches: tuple[Path, ...] = ()
    cmdline: str = ""
    right: bool = False
    layout: tuple[Layout, ...] = ()

    def __str__(self) -> str:
        return f"{self.slug}/{self.name}"


@dataclass(frozen=True, slots=True)
class Run:
    """How a workload is run: one boot.

    Attributes:
        name: As outcomes name it.
        workload: A workload of the guest.
        args: Its parameters.
        config: `base`, `debug` or `up`.
        vcpus: Their number; 0: as many as are asked for.
        icount: Count instructions instead of time; needs one vCPU.
        calls: Kernel functions whose calls are counted.
        cmdline: Added to the command line after the variant's.
        profile: Run it under the coherence profiler; its metrics are then those of
            `contended.profile.query`.
        quantum: Instructions that the profiler lets a CPU be ahead of the others; 0: its default.
        watch: What the profiler counts executions of: a function, calls (`caller>callee`), or
            `slow(lockref)`.
    """

    name: str
    workload: str
    args: Mapping[str, int | str]
    config: str = "base"
    vcpus: int = 0
    icount: bool = False
    calls: tuple[str, ...] = ()
    cmdline: str = ""
    profile: bool = False
    quantum: int = 0
    watch: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of a variant is expected to show.

    Attributes:
        variant: Its name.
        run: The run's name.
        expected: The expectation in words.
        metric: What is looked at.
        at_least: The metric's least value; like all numbers, None if it does not matter.
        at_most: Its greatest value.
        equals: Its only value.
        contains: Text that it must contain.
        lacks: Text that it must not contain.
        relative_to: A variant by whose metric, in the same run, this one is divided.
        timed: Whether it rests on time, or on how processors meet: a busy host can spoil it.
    """

    variant: str
    run: str
    expected: str
    metric: str
    at_least: float | None = None
    at_most: float | None = None
    equals: float | None = None
    contains: str | None = None
    lacks: str | None = None
    relative_to: str | None = None
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """All of one file; the variants and runs are in the file's order."""

    slug: str
    variants: Mapping[str, Variant]
    runs: Mapping[str, Run]
    outcomes: tuple[Outcome, ...]

    def kernels(self) -> list[tuple[Variant, str]]:
        """All kernels that the outcomes need, each once: a variant and a configuration's name.

        Every variant is built with config base, so that a reader can look around in it.
        """
        needed = [(name, "base") for name in self.variants]
        for outcome in self.outcomes:
            config = self.runs[outcome.run].config
            needed += [(name, config) for name in (outcome.variant, outcome.relative_to) if name]
        return [(self.variants[name], config) for name, config in dict.fromkeys(needed)]


def folder() -> Path:
    """Where the patches are.

    Raises:
        ContendedError: there is none: the package was installed away from its repository.
    """
    place = tree.home() / "patches"
    if not place.is_dir():
        raise ContendedError(f"no kernel patches in {place}: set CONTENDED_HOME to a whole clone")
    return place


def slugs() -> list[str]:
    """The cases that have variants of the kernel, sorted."""
    return sorted(file.parent.name for file in folder().glob("*/variants.toml"))


def load(slug: str) -> Case:
    """Read a case's variants.

    Raises:
        UsageError: there is no such case (the message lists those that there are), or its file has
            a mistake.
    """
    if slug not in slugs():
        raise UsageError(f"no kernel variants of {slug!r}; there are: {', '.join(slugs())}")
    return read(folder() / slug / "variants.toml")


def pick(name: str) -> Variant:
    """The variant that `SLUG/VARIANT` names.

    Raises:
        UsageError: no such case or variant; the message lists those that there are.
    """
    slug, _, variant = name.partition("/")
    case = load(slug)
    if variant not in case.variants:
        there = ", ".join(f"{slug}/{each}" for each in case.variants)
        raise UsageError(f"no kernel variant {name!r}; there are: {there}")
    return case.variants[variant]


def read(file: Path) -> Case:
    """Read one variants.toml; its folder's name is the slug.

    Raises:
        UsageError: it cannot be read, or has a mistake; the message names the file and the key.
    """
    slug = file.parent.name
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {' '.join(str(error).split())}") from error
    top = _Table(file, "", content)
    variants = {
        name: _variant(slug, name, table) for name, table in top.tables("variants", _NAME).items()
    }
    if not variants:
        raise top.mistake("variants", "has no entry")
    runs = {name: _run(name, table) for name, table in top.tables("runs", _NAME).items()}
    outcomes = tuple(_outcome(table, variants, runs) for table in top.array("outcomes"))
    top.done()
    return Case(slug, variants, runs, outcomes)


def _variant(slug: str, name: str, table: _Table) -> Variant:
    patches = []
    for patch in table.strings("patches"):
        if not _PATCH.fullmatch(patch):
            raise table.mistake(
                "patches", f"{patch!r} is no .patch beside this file or in ../<another case>"
            )
        other, _, own = patch.rpartition("/")
        path = table.file.parent.parent / (other.removeprefix("../") or slug) / own
        if not path.is_file():
            raise table.mistake("patches", f"there is no {patch}")
        if path in patches:
            raise table.mistake("patches", f"{patch} is named twice")
        patches.append(path)
    layout = tuple(_layout(struct, t) for struct, t in table.tables("layout", _FIELD, {}).items())
    variant = Variant(
        slug=slug,
        name=name,
        summary=table.line("summary"),
        patches=tuple(patches),
        cmdline=table.line("cmdline", ""),
        right=table.boolean("right", False),
        layout=layout,
    )
    table.done()
    return variant


def _layout(struct: str, table: _Table) -> Layout:
    layout = Layout(
        struct,
        table.integer("size", None, at_least=1),
        table.pairs("apart"),
        table.pairs("together"),
    )
    table.done()
    if layout == Layout(struct):
        raise table.mistake("", "has none of size, apart and together")
    return layout


def _run(name: str, table: _Table) -> Run:
    config = table.line("config", "base")
    if config not in CONFIGS:
        raise table.mistake("config", f"is {config!r}; there are: {', '.join(CONFIGS)}")
    calls = table.strings("calls", ())
    for function in calls:
        if not _FUNCTION.fullmatch(function):
            raise table.mistake("calls", f"{function!r} is no function's name")
    run = Run(
        name=name,
        workload=table.line("workload"),
        args=table.args("args"),
        config=config,
        vcpus=table.integer("vcpus", 0, at_least=0, at_most=MAX_VCPUS) or 0,
        icount=table.boolean("icount", False),
        calls=calls,
        cmdline=table.line("cmdline", ""),
        profile=table.boolean("profile", False),
        quantum=table.integer("quantum", 0, at_least=0) or 0,
        watch=table.strings("watch", ()),
    )
    table.done()
    for watched in run.watch:
        if not _WATCHED.fullmatch(watched):
            raise table.mistake("watch", f"{watched!r} is neither f, f>g nor slow(NAME)")
    if (run.quantum or run.watch) and not run.profile:
        raise table.mistake("profile", "must be true: quantum and watch are the profiler's")
    if run.profile and (run.icount or run.calls or config != "base"):
        raise table.mistake("profile", "goes with config base, and without icount and calls")
    if not _NAME.fullmatch(run.workload):
        raise table.mistake("workload", f"{run.workload!r} is no workload's name")
    if run.icount and run.vcpus != 1:
        raise table.mistake("icount", "needs vcpus = 1")
    if config == "up" and run.vcpus != 1:
        raise table.mistake("vcpus", 'must be 1 with config = "up"')
    return run


def _outcome(table: _Table, variants: Mapping[str, Variant], runs: Mapping[str, Run]) -> Outcome:
    outcome = Outcome(
        variant=table.one_of("variant", variants),
        run=table.one_of("run", runs),
        expected=table.line("expected"),
        metric=table.line("metric"),
        at_least=table.number("at_least"),
        at_most=table.number("at_most"),
        equals=table.number("equals"),
        contains=table.text("contains"),
        lacks=table.text("lacks"),
        relative_to=table.one_of("relative_to", variants) if "relative_to" in table else None,
        timed=table.boolean("timed", False),
    )
    table.done()
    # Counted instructions stand for time under icount, and are the same on every host.
    by_clock = _TIME.search(outcome.metric) and not runs[outcome.run].icount
    outcome = replace(outcome, timed=outcome.timed or bool(by_clock))
    numbers = [outcome.at_least, outcome.at_most, outcome.equals]
    texts = [outcome.contains, outcome.lacks]
    numeric, textual = numbers != [None] * 3, texts != [None] * 2
    if not numeric and not textual:
        raise table.mistake("", "has no condition: at_least, at_most, equals, contains or lacks")
    if numeric and textual:
        raise table.mistake("", "has conditions on a number and on a text")
    if textual and outcome.relative_to:
        raise table.mistake("relative_to", "needs a number, not a text")
    if outcome.relative_to == outcome.variant:
        raise table.mistake("relative_to", "is the variant itself")
    return outcome


class _Table:
    """A TOML table whose keys are taken one by one; those that nobody took are unknown."""

    def __init__(self, file: Path, path: str, content: Mapping[str, Any]) -> None:
        self.file = file
        self._path = path
        self._content = content
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._content

    def mistake(self, key: str, what: str) -> UsageError:
        """An error about a key of this table, or about the table itself if the key is empty."""
        name = ".".join(part for part in (self._path, key) if part)
        return UsageError(f"{self.file}: {name} {what}")

    def done(self) -> None:
        """All keys that this table may have were asked for."""
        for key in self._content:
            if key not in self._taken:
                known = ", ".join(sorted(self._taken))
                raise self.mistake(key, f"is not known here; known are: {known}")

    def _take(self, key: str, kind: type, what: str, default: Any) -> Any:
        self._taken.add(key)
        if key not in self._content:
            if default is ...:
                raise self.mistake(key, "is missing")
            return default
        value = self._content[key]
        # bool is an int to Python, and an int will do where a float is asked for.
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise self.mistake(key, f"must be {what}")
        return value

    def line(self, key: str, default: Any = ...) -> str:
        """One line of text, not empty unless its default is."""
        value: str = self._take(key, str, "a text", default)
        if "\n" in value or "\r" in value or value != value.strip():
            raise self.mistake(key, "must be one line without blanks around it")
        if not value and default != "":
            raise self.mistake(key, "is empty")
        return value

    def text(self, key: str) -> str | None:
        """Text that must not be empty, or None."""
        value: str | None = self._take(key, str, "a text", None)
        if value == "":
            raise self.mistake(key, "is empty")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        value: bool = self._take(key, bool, "true or false", default)
        return value

    def number(self, key: str) -> float | None:
        value: float | None = self._take(key, float, "a number", None)
        if value is not None and not math.isfinite(value):
            raise self.mistake(key, "must be a finite number")
        return value

    def integer(
        self, key: str, default: int | None, *, at_least: int, at_most: int | None = None
    ) -> int | None:
        value: int | None = self._take(key, int, "an integer", default)
        if value is not None and (value < at_least or (at_most is not None and value > at_most)):
            upto = f" to {at_most}" if at_most is not None else " or more"
            raise self.mistake(key, f"is {value}, but must be {at_least}{upto}")
        return value

    def strings(self, key: str, default: Any = ...) -> tuple[str, ...]:
        value = self._take(key, list, "a list of texts", None if default is not ... else ...)
        if value is None:
            return tuple(default)
        if not all(isinstance(each, str) and each for each in value):
            raise self.mistake(key, "must be a list of texts")
        return tuple(value)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """Pairs of field names; those in another struct are written with dots."""
        found = []
        for pair in self._take(key, list, "a list of pairs of fields", []):
            if not (
                isinstance(pair, list)
                and len(pair) == 2
                and all(isinstance(field, str) and _FIELD.fullmatch(field) for field in pair)
            ):
                raise self.mistake(key, "must be a list of pairs of fields")
            found.append((pair[0], pair[1]))
        return tuple(found)

    def args(self, key: str) -> Mapping[str, int | str]:
        """A workload's parameters: they go onto a command line, so no blanks are in them."""
        value: dict[str, int | str] = self._take(key, dict, "a table", {})
        for name, each in value.items():
            if not _PARAMETER.fullmatch(name):
                raise self.mistake(f"{key}.{name}", "is no parameter's name")
            if isinstance(each, bool) or not isinstance(each, (int, str)):
                raise self.mistake(f"{key}.{name}", "must be an integer or a text")
            if isinstance(each, str) and (not each or re.search(r'[\s"]', each)):
                raise self.mistake(f"{key}.{name}", "must be a text without blanks and quotes")
        return value

    def one_of(self, key: str, names: Mapping[str, Any]) -> str:
        value = self.line(key)
        if value not in names:
            there = ", ".join(names) or "none"
            raise self.mistake(key, f"names {value!r}; there are: {there}")
        return value

    def tables(self, key: str, name: re.Pattern[str], default: Any = ...) -> dict[str, _Table]:
        """The tables in a table, by name."""
        found = {}
        for each, content in self._take(key, dict, "a table", default).items():
            if not name.fullmatch(each):
                raise self.mistake(f"{key}.{each}", "is no name: use a-z, 0-9 and hyphens")
            if not isinstance(content, dict):
                raise self.mistake(f"{key}.{each}", "must be a table")
            path = ".".join(part for part in (self._path, key, each) if part)
            found[each] = _Table(self.file, path, content)
        return found

    def array(self, key: str) -> Iterator[_Table]:
        """The tables in an array, which may be missing; they are numbered from 1 in messages."""
        for number, content in enumerate(self._take(key, list, "an array of tables", []), 1):
            path = ".".join(part for part in (self._path, f"{key}[{number}]") if part)
            if not isinstance(content, dict):
                raise UsageError(f"{self.file}: {path} must be a table")
            yield _Table(self.file, path, content)
