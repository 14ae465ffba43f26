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

Config = Literal[
    "base",
    "users",
    "handles",
    "many",
    "distribution",
    "distribution-ima",
    "distribution-disk",
    "distribution-network",
    "distribution-many",
    "distribution-1000",
    "debug",
    "up",
    "kasan",
    "kcsan",
    "selftests",
    "hz-250",
    "hz-1000",
    "preempt",
    "preempt-250",
    "saving",
    "saving-250",
    "rt",
    "rt-100",
    "rt-250",
    "observe",
]
CONFIGS = get_args(Config)
#: What a layout, and the profiler, must have.
WITH_DWARF = (
    *("base", "users", "handles", "many", "observe"),
    *("distribution", "distribution-ima", "distribution-disk"),
    *("distribution-network", "distribution-many", "distribution-1000"),
)
#: The first release that has what a configuration asks for.
SINCE: dict[str, str] = dict.fromkeys(("rt", "rt-100", "rt-250"), "6.12")
#: The first that no longer has it.
BEFORE: dict[str, str] = {"saving": "5.17", "saving-250": "5.17"}
MAX_VCPUS = 128  #: What the kernels are configured for.
#: Those of `many`: 255 is what an emulated APIC's number of eight bits can name, one of them all.
MANY_VCPUS = 255
#: Of a configuration the one that differs by knowing more CPUs.
MANY: dict[str, Config] = {
    "base": "many",
    "handles": "many",
    "distribution": "distribution-many",
}
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
    """How a struct must lie in memory; checked by DWARF after a build with config base or users."""

    size: Annotated[int, Field(ge=1)] | None = None  # Bytes; None if it does not matter.
    apart: tuple[tuple[_Member, _Member], ...] = ()  # Fields that must not share a 64-byte line.
    together: tuple[tuple[_Member, _Member], ...] = ()  # Fields that must share one.


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel of a case: `before`, `after`, or named by what it does."""

    slug: str
    name: str
    summary: _Line
    patches: tuple[Path, ...] = ()  #: Applied in this order.
    cmdline: _LineOrNone = ""  # Added to the standard command line.
    right: bool = False  #: Whether it is a right fix, of which debugging options do not complain.
    layout: Mapping[_Member, Layout] = field(default_factory=dict)  # By structs' names.

    def __str__(self) -> str:
        return f"{self.slug}/{self.name}"


@dataclass(frozen=True, slots=True)
class GuestRun:
    """How a workload of the guest is run, with its parameters: one boot."""

    name: str  #: As outcomes name it.
    workload: _Name
    args: Mapping[_Parameter, _Argument] = field(default_factory=dict)
    config: Config = "base"
    vcpus: Annotated[int, Field(ge=0, le=MAX_VCPUS)] = 0  # With 0 as many as are asked for.
    icount: bool = False  #: Count instructions instead of time; needs one vCPU.
    calls: tuple[_Function, ...] = ()  # Kernel functions whose calls are counted.
    cmdline: _LineOrNone = ""  # Added to the command line after the variant's.
    profile: bool = False  #: Under the profiler; its metrics are those of `profile.query`.
    # Instructions that a CPU may be ahead of the others there; 0 is its default.
    quantum: Annotated[int, Field(ge=0)] = 0
    watch: tuple[_Watched, ...] = ()  # What it counts, as `f`, `f>g` or `slow(lockref)`.

    @property
    def workers(self) -> int:
        """The most vCPUs that can work, as one more does the kernel's chores."""
        return (MANY_VCPUS if self.config in MANY.values() else MAX_VCPUS) - 1

    def of_many(self) -> GuestRun:
        """The same on kernels for more CPUs; itself if there are none of its configuration."""
        return replace(self, config=MANY.get(self.config, self.config))

    def told(self) -> dict[str, str]:
        """The guest's parameters."""
        return {"run": self.workload, **{name: str(value) for name, value in self.args.items()}}


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a metric, in a run of a variant, is expected to be; a condition that is None is none."""

    variant: str
    run: str
    expected: _Line  # In words.
    metric: _Line
    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None
    equals: FiniteFloat | None = None
    contains: _Text | None = None
    lacks: _Text | None = None
    relative_to: str | None = None  #: A variant by whose metric, in that run, it is divided.
    timed: bool = False  #: Whether a busy host can spoil it, since it rests on time or on races.
    control: bool = False  #: True if false for no kernel here; it then shows what stays the same.


@dataclass(frozen=True, slots=True)
class KernelCase:
    """All of one file; the variants and runs are in the file's order."""

    slug: str
    variants: Mapping[str, Variant]
    runs: Mapping[str, GuestRun]
    outcomes: tuple[Expectation, ...]

    def pick(self, names: Iterable[str]) -> list[Variant]:
        """The variants of these names, each once; raises UsageError if there is none of a name."""
        return self._of("variant", self.variants, names)

    def pick_runs(self, names: Iterable[str]) -> list[GuestRun]:
        """The runs of these names, each once; raises UsageError if there is none of a name."""
        return self._of("run", self.runs, names)

    def _of(self, kind: str, there: Mapping[str, _T], names: Iterable[str]) -> list[_T]:
        names = dict.fromkeys(names)
        if unknown := [name for name in names if name not in there]:
            known = ", ".join(there) or "none"
            raise UsageError(f"{self.slug} has no {kind} {unknown[0]!r}; there are: {known}")
        return [there[name] for name in names]


def folder() -> Path:
    """Where the patches are; raises ContendedError if the package is away from its repository."""
    place = tree.home() / "patches"
    if not place.is_dir():
        raise ContendedError(f"no kernel patches in {place}: set CONTENDED_HOME to a whole clone")
    return place


def slugs() -> list[str]:
    """The cases that have variants of the kernel, sorted."""
    return sorted(file.parent.name for file in folder().glob("*/variants.toml"))


def load(slug: str) -> KernelCase:
    """Read a case's variants; raises UsageError if there is no such case, or as `read` does."""
    if slug not in slugs():
        raise UsageError(f"no kernel variants of {slug!r}; there are: {', '.join(slugs())}")
    return read(folder() / slug / "variants.toml")


def pick(name: str) -> Variant:
    """The variant that `SLUG/VARIANT` names; raises UsageError, which lists those there are."""
    there = {str(variant): variant for variant in load(name.partition("/")[0]).variants.values()}
    if name not in there:
        raise UsageError(f"no kernel variant {name!r}; there are: {', '.join(there)}")
    return there[name]


@dataclass(frozen=True, slots=True)
class _VariantsFile:
    variants: Annotated[dict[_Name, Variant], Field(min_length=1)]
    runs: dict[_Name, GuestRun]
    outcomes: tuple[Expectation, ...] = ()


def read(file: Path) -> KernelCase:
    """Read one variants.toml; its folder's name is the slug. A mistake is a UsageError."""
    slug = file.parent.name
    content = records.toml(file)
    _name(file, content, "variants", slug=slug)
    _name(file, content, "runs")
    found = records.made(_VariantsFile, content, str(file))
    try:
        for name, table in content["variants"].items():
            if "patches" not in table:  # a kernel without any says so
                raise ValueError(f"variants.{name}.patches is missing")
        variants = {name: _variant(file, each) for name, each in found.variants.items()}
        for run in found.runs.values():
            if mistake := _mistake_of_run(run):
                raise ValueError(f"runs.{run.name}.{mistake}")
        for number, each in enumerate(found.outcomes):
            if mistake := _mistake_of_outcome(each, variants, found.runs):
                raise ValueError(f"outcomes.{number}{mistake}")
    except ValueError as error:
        raise UsageError(f"{file}: {error}") from error
    # Counted instructions stand for time under icount, and are the same on every host.
    outcomes = tuple(
        replace(o, timed=o.timed or bool(_TIME.search(o.metric) and not found.runs[o.run].icount))
        for o in found.outcomes
    )
    return KernelCase(slug, variants, found.runs, outcomes)


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
    """With the patches' places; raises ValueError if one is not there, or a layout says nothing."""
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


def _mistake_of_run(run: GuestRun) -> str:
    """What of it does not go together, with the key; empty if all does."""
    if (run.quantum or run.watch) and not run.profile:
        return "profile must be true: quantum and watch are the profiler's"
    if run.profile and (run.icount or run.calls or run.config not in WITH_DWARF):
        return f"profile goes with config {', '.join(WITH_DWARF)}, and without icount and calls"
    if run.icount and run.vcpus != 1:
        return "icount needs vcpus = 1"
    if run.config == "up" and run.vcpus != 1:
        return 'vcpus must be 1 with config = "up"'
    return ""


def _mistake_of_outcome(
    outcome: Expectation, variants: Mapping[str, Variant], runs: Mapping[str, GuestRun]
) -> str:
    for key, there in (("variant", variants), ("run", runs), ("relative_to", variants)):
        name = getattr(outcome, key)
        if name is not None and name not in there:
            return f".{key} names {name!r}; there are: {', '.join(there) or 'none'}"
    numeric = (outcome.at_least, outcome.at_most, outcome.equals) != (None, None, None)
    textual = (outcome.contains, outcome.lacks) != (None, None)
    if not numeric and not textual:
        return " has no condition: at_least, at_most, equals, contains or lacks"
    if numeric and textual:
        return " has conditions on a number and on a text"
    if textual and outcome.relative_to:
        return ".relative_to needs a number, not a text"
    if outcome.relative_to == outcome.variant:
        return ".relative_to is the variant itself"
    return ""
