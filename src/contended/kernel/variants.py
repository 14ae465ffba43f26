# SPDX-License-Identifier: MIT
"""What `patches/<slug>/variants.toml` says: a case's kernels, how they are run, what is expected.

The file is written by hand, so every mistake in it is one line that names the file and the key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, Field, FiniteFloat

from contended import records, tree
from contended.errors import ContendedError, UsageError

Config = Literal["base", "debug", "up"]
CONFIGS = get_args(Config)
MAX_VCPUS = 128
"""What the kernels are configured for."""

_T = TypeVar("_T")
_TIME = re.compile(r"\b(latency_us|ns_per_op)\b")
_PATCH = re.compile(r"(\.\./[a-z0-9]+(-[a-z0-9]+)*/)?[^/]*[^/.][^/]*\.patch")


def _like(pattern: str, what: str) -> AfterValidator:
    def check(value: int | str) -> int | str:
        if isinstance(value, str) and not re.fullmatch(pattern, value):
            raise ValueError(f"{value!r} is {what}")
        return value

    return AfterValidator(check)


_Line = Annotated[str, _like(r"\S(.*\S)?", "not one line of text without blanks around it")]
_LineOrNone = Annotated[str, _like(r"(\S(.*\S)?)?", "not one line without blanks around it")]
_Text = Annotated[str, Field(min_length=1)]
_Name = Annotated[str, _like(r"[a-z0-9]+(-[a-z0-9]+)*", "no name: use a-z, 0-9 and hyphens")]
_Parameter = Annotated[str, _like(r"[a-z][a-z0-9_]*", "no parameter's name")]
# They go onto the kernel's command line.
_Argument = Annotated[int | str, _like(r'[^\s"]+', "no text without blanks and quotes")]
_Function = Annotated[str, _like(r"[A-Za-z_][A-Za-z0-9_.]*", "no function's name")]
_Watched = Annotated[
    str, _like(r"[A-Za-z_]\w*(>[A-Za-z_]\w*)?|slow\([a-z_]+\)", "neither f, f>g nor slow(NAME)")
]
_Member = Annotated[str, _like(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "no name of a struct or member")]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a struct must lie in memory; checked by DWARF after a build with config base.

    Attributes:
        size: Its size in bytes, or None if it does not matter.
        apart: Pairs of fields that must not share a 64-byte line.
        together: Pairs of fields that must share one.
    """

    size: Annotated[int, Field(ge=1)] | None = None
    apart: tuple[tuple[_Member, _Member], ...] = ()
    together: tuple[tuple[_Member, _Member], ...] = ()


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
        layout: What must be true of its structs, by their names without `struct`.
    """

    slug: str
    name: str
    summary: _Line
    patches: tuple[Path, ...] = ()
    cmdline: _LineOrNone = ""
    right: bool = False
    layout: Mapping[_Member, Layout] = field(default_factory=dict)

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
    workload: _Name
    args: Mapping[_Parameter, _Argument] = field(default_factory=dict)
    config: Config = "base"
    vcpus: Annotated[int, Field(ge=0, le=MAX_VCPUS)] = 0
    icount: bool = False
    calls: tuple[_Function, ...] = ()
    cmdline: _LineOrNone = ""
    profile: bool = False
    quantum: Annotated[int, Field(ge=0)] = 0
    watch: tuple[_Watched, ...] = ()


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
    expected: _Line
    metric: _Line
    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None
    equals: FiniteFloat | None = None
    contains: _Text | None = None
    lacks: _Text | None = None
    relative_to: str | None = None
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """All of one file; the variants and runs are in the file's order."""

    slug: str
    variants: Mapping[str, Variant]
    runs: Mapping[str, Run]
    outcomes: tuple[Outcome, ...]

    def pick(self, names: Iterable[str]) -> list[Variant]:
        """The variants of these names, each once.

        Raises:
            UsageError: there is none of a name; the message lists those that there are.
        """
        return [self._of("variant", self.variants, name) for name in dict.fromkeys(names)]

    def pick_runs(self, names: Iterable[str]) -> list[Run]:
        """The runs of these names, each once.

        Raises:
            UsageError: there is none of a name; the message lists those that there are.
        """
        return [self._of("run", self.runs, name) for name in dict.fromkeys(names)]

    def _of(self, kind: str, there: Mapping[str, _T], name: str) -> _T:
        if name not in there:
            known = ", ".join(there) or "none"
            raise UsageError(f"{self.slug} has no {kind} {name!r}; there are: {known}")
        return there[name]

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


@dataclass(frozen=True, slots=True)
class _File:
    variants: Annotated[dict[_Name, Variant], Field(min_length=1)]
    runs: dict[_Name, Run]
    outcomes: tuple[Outcome, ...] = ()


def read(file: Path) -> Case:
    """Read one variants.toml; its folder's name is the slug.

    Raises:
        UsageError: it cannot be read, or has a mistake; the message names the file and the key.
    """
    slug = file.parent.name
    content = records.toml(file)
    _name(file, content, "variants", slug=slug)
    _name(file, content, "runs")
    found = records.made(_File, content, str(file))
    try:
        for name, table in content["variants"].items():
            if "patches" not in table:  # a kernel without any says so
                raise ValueError(f"variants.{name}.patches is missing")
        variants = {name: _variant(file, each) for name, each in found.variants.items()}
        for run in found.runs.values():
            _see_that_it_fits(run)
        outcomes = tuple(
            _outcome(f"outcomes.{number}", each, variants, found.runs)
            for number, each in enumerate(found.outcomes)
        )
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from error
    return Case(slug, variants, found.runs, outcomes)


def _name(file: Path, content: dict[str, Any], kind: str, **more: str) -> None:
    """Write into each table of a kind what it is called: what is no table, pydantic will refuse."""
    tables = content.get(kind)
    for name, table in tables.items() if isinstance(tables, dict) else ():
        if isinstance(table, dict):
            known = {"name": name, **more}
            if odd := known.keys() & table.keys():
                raise UsageError(f"{file}: {kind}.{name}.{min(odd)} is not known here")
            table.update(known)


def _variant(file: Path, variant: Variant) -> Variant:
    """With the patches' places.

    Raises:
        ValueError: one is not there, or a layout says nothing.
    """
    place = f"variants.{variant.name}"
    patches: list[Path] = []
    for patch in map(str, variant.patches):
        if not _PATCH.fullmatch(patch):
            raise ValueError(
                f"{place}.patches {patch!r} is no .patch beside this file or in ../<another case>"
            )
        other, _, own = patch.rpartition("/")
        path = file.parent.parent / (other.removeprefix("../") or variant.slug) / own
        if not path.is_file():
            raise ValueError(f"{place}.patches there is no {patch}")
        if path in patches:
            raise ValueError(f"{place}.patches {patch} is named twice")
        patches.append(path)
    for struct, layout in variant.layout.items():
        if layout == Layout():
            raise ValueError(f"{place}.layout.{struct} has none of size, apart and together")
    return replace(variant, patches=tuple(patches))


def _see_that_it_fits(run: Run) -> None:
    """See that what a run says goes together.

    Raises:
        ValueError: it does not.
    """
    for wrong, what in (
        (
            (run.quantum or run.watch) and not run.profile,
            "profile must be true: quantum and watch are the profiler's",
        ),
        (
            run.profile and (run.icount or run.calls or run.config != "base"),
            "profile goes with config base, and without icount and calls",
        ),
        (run.icount and run.vcpus != 1, "icount needs vcpus = 1"),
        (run.config == "up" and run.vcpus != 1, 'vcpus must be 1 with config = "up"'),
    ):
        if wrong:
            raise ValueError(f"runs.{run.name}.{what}")


def _outcome(
    place: str, outcome: Outcome, variants: Mapping[str, Variant], runs: Mapping[str, Run]
) -> Outcome:
    """With what follows from it.

    Raises:
        ValueError: it names what is not there, or its conditions do not go together.
    """
    for key, name, there in (
        ("variant", outcome.variant, variants),
        ("run", outcome.run, runs),
        ("relative_to", outcome.relative_to, variants),
    ):
        if name is not None and name not in there:
            raise ValueError(
                f"{place}.{key} names {name!r}; there are: {', '.join(there) or 'none'}"
            )
    numeric = (outcome.at_least, outcome.at_most, outcome.equals) != (None, None, None)
    textual = (outcome.contains, outcome.lacks) != (None, None)
    for wrong, what in (
        (
            not numeric and not textual,
            " has no condition: at_least, at_most, equals, contains or lacks",
        ),
        (numeric and textual, " has conditions on a number and on a text"),
        (textual and outcome.relative_to, ".relative_to needs a number, not a text"),
        (outcome.relative_to == outcome.variant, ".relative_to is the variant itself"),
    ):
        if wrong:
            raise ValueError(f"{place}{what}")
    # Counted instructions stand for time under icount, and are the same on every host.
    by_clock = _TIME.search(outcome.metric) and not runs[outcome.run].icount
    return replace(outcome, timed=outcome.timed or bool(by_clock))
