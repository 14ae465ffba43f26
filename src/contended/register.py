# SPDX-License-Identifier: MIT
"""The register of the book's cases: what each bug is, what was published, what became of the fix.

The facts stand in `register.toml` beside this module, and nowhere else. They are read once, on
first use, and checked: what is wrong is refused with one line that says where.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import asdict, dataclass
from datetime import date as day
from functools import cache
from pathlib import Path
from typing import Any, Literal

from contended import records
from contended.errors import UsageError, pick

Status = Literal["merged", "superseded", "dropped", "not-merged"]

PATH = Path(__file__).with_name("register.toml")
# The form of a text, by the field's name, in all entries alike.
_FORMS = {
    **dict.fromkeys(("slug", "id", "name"), r"[a-z0-9]+(-[a-z0-9]+)*"),
    **dict.fromkeys(("key", "source"), r"[a-z][a-z0-9]*"),
    "url": r"https://\S+",
    "message_id": r"[^\s<>@]+@[^\s<>@]+",
    "commit": r"[0-9a-f]{12,40}",
}


class _Entry:
    """A part of the register; what is wrong is a `ValueError`: pydantic adds where it stands."""

    __slots__: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields |= {f"source {source}": source for source in fields.get("sources", ())}
        for name, text in fields.items():
            if isinstance(text, str):
                if text != text.strip() or not text or "\n" in text:
                    raise ValueError(f"{name} must be one line of text, not {text!r}")
                if not re.fullmatch(_FORMS.get(name.partition(" ")[0], ".*"), text):
                    raise ValueError(f"{name} is malformed: {text!r}")
        self._check()

    def _check(self) -> None: ...


def _unique(what: str, names: Iterable[object]) -> None:
    for name, number in Counter(names).items():
        if number > 1:
            raise ValueError(f"{what} {name!r} stands there {number} times")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed(_Entry):
    """The public message that a case starts from; `key` is the one in `docs/references.bib`."""

    key: str
    author: str
    date: str
    mailing_list: str
    subject: str
    url: str
    message_id: str | None = None

    def _check(self) -> None:
        day.fromisoformat(self.date)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value(_Entry):
    """A published number or range.

    `plus_minus` is the spread that the source states, if any, `between` the least and the most of
    the other runs that it tells of, or of what it has rounded; `contradicted` is a sentence about
    what else the source says that the value cannot be squared with.
    """

    name: str
    low: float
    high: float
    plus_minus: float | None = None
    between: tuple[float, float] | None = None
    contradicted: str | None = None

    def _check(self) -> None:
        pm, (least, most) = self.plus_minus or 0, self.between or (self.low, self.high)
        if not math.isfinite(self.low + self.high + pm + least + most):
            raise ValueError("a value must be finite")
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        if pm < 0:
            raise ValueError("plus_minus must not be negative")
        if not least <= self.low <= self.high <= most:
            raise ValueError(f"the value is not between {least:g} and {most:g}")

    @property
    def spread(self) -> tuple[float, float]:
        """What may as well have been published, with what is stated, or between the runs told."""
        pm = self.plus_minus or 0.0
        return self.between or (self.low - pm, self.high + pm)

    @property
    def middle(self) -> float:
        """The number, or the middle of the range."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Published(_Entry):
    """A figure somebody else measured or stated; None where the source does not say.

    `workers` are the threads or processes that ran, `cpus` the machine's logical CPUs, `machine`
    what else is told of it. Each value is a mean of `runs`, and a `plus_minus` then that mean's
    standard error.
    """

    id: str
    what: str
    unit: str
    workload: str
    source: str
    values: tuple[Value, ...]
    workers: int | None = None
    cpus: int | None = None
    machine: str | None = None
    kernel: str | None = None
    runs: int | None = None

    def _check(self) -> None:
        if not self.values:
            raise ValueError("values must be at least one")
        _unique("value", (value.name for value in self.values))
        for name in ("workers", "cpus", "runs"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1")

    def value(self, name: str) -> Value:
        """The value of that name; raises UsageError if there is none."""
        values = {value.name: value for value in self.values}
        return pick(values, name, f"figure {self.id!r} has no value")

    def range(self, name: str) -> tuple[float, float]:
        """A value's spread in the figure's unit, or by "a/b" that of a quotient, no unit."""
        top, _, base = name.partition("/")
        return self.ratio(top, base, spread=True) if base else self.value(name).spread

    def ratio(self, top: str, base: str, *, spread: bool = False) -> tuple[float, float]:
        """The lowest and the highest `top` / `base` that two values, or spreads, allow, no unit."""
        values = self.value(top), self.value(base)
        above, below = (v.spread if spread else (v.low, v.high) for v in values)
        if below[0] <= 0 <= below[1]:
            raise UsageError(f"figure {self.id!r}: {base!r} is zero or spans it: no ratio over it")
        quotients = [a / b for a in above for b in below]
        return min(quotients), max(quotients)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(_Entry):
    """A change in the kernel; `version` is the first release that has it, if it reached any.

    It is `unverified` if no stored public source confirms commit or version. With one that `ends`
    it, the bug is gone, or no longer met by what the case does.
    """

    what: str
    commit: str | None = None
    version: str | None = None
    unverified: bool = False
    ends: bool = False

    def _check(self) -> None:
        if self.ends and not self.version:
            raise ValueError("a step that ends a bug needs a version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(_Entry):
    """What became of the fix; "superseded" was merged first, "dropped" tried in a tree."""

    status: Status
    summary: str
    sources: tuple[str, ...]
    steps: tuple[Step, ...]

    def _check(self) -> None:
        if not self.sources or not self.steps:
            raise ValueError("there must be at least one source and one step")

    @property
    def unverified(self) -> bool:
        """Whether any step is; whoever prints the summary then says so."""
        return any(step.unverified for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(_Entry):
    """One bug of the book; as a dictionary, it is what `contended cases --json` prints."""

    slug: str
    title: str
    chapter: int
    bug: str
    model: str
    seed: Seed
    published: tuple[Published, ...]
    outcome: Outcome

    def _check(self) -> None:
        if self.chapter < 2:
            raise ValueError("chapter must be 2 or more: 00 and 01 are the introduction")
        if not self.published:
            raise ValueError("there must be at least one published figure")
        _unique("published id", (figure.id for figure in self.published))

    @property
    def notebook(self) -> str:
        """The chapter's file name in `notebooks`, without its suffix."""
        return f"{self.chapter:02d}-{self.slug}"

    @property
    def sources(self) -> tuple[str, ...]:
        """Every key of `docs/references.bib` the case cites, each once, in order."""
        keys = (self.seed.key, *(p.source for p in self.published), *self.outcome.sources)
        return tuple(dict.fromkeys(keys))

    def figure(self, figure_id: str) -> Published:
        """The published figure of that id; raises UsageError if there is none."""
        known = {figure.id: figure for figure in self.published}
        return pick(known, figure_id, f"case {self.slug!r} has no published figure")


# `cases.all()` reads as what it is, and nothing in this module needs the builtin.
@cache
def all() -> tuple[Case, ...]:  # noqa: A001
    """All cases in chapter order."""
    return read(PATH)


def slugs() -> tuple[str, ...]:
    """The slugs of all cases in chapter order."""
    return tuple(case.slug for case in all())


def get(slug: str) -> Case:
    """The case of that slug; raises UsageError, with the valid slugs, if there is none."""
    for case in all():
        if case.slug == slug:
            return case
    raise UsageError(f"no case {slug!r}; choose one of: {', '.join(slugs())}")


@dataclass(frozen=True)
class _File:
    seeds: dict[str, dict[str, Any]]
    case: tuple[dict[str, Any], ...]


def read(path: Path) -> tuple[Case, ...]:
    """Read a file in the layout of `register.toml`, or raise UsageError; in chapter order."""
    file = records.made(_File, records.toml(path), path.name)
    cases = [_case(entry, file.seeds, path.name) for entry in file.case]
    try:
        for name in ("slug", "chapter"):
            _unique(name, (getattr(case, name) for case in cases))
    except ValueError as error:
        raise UsageError(f"{path.name}: {error}") from error
    if unused := file.seeds.keys() - {case.seed.key for case in cases}:
        raise UsageError(f"{path.name}: no case uses the seed {min(unused)!r}")
    return tuple(sorted(cases, key=lambda case: case.chapter))


def _case(entry: dict[str, Any], seeds: dict[str, dict[str, Any]], where: str) -> Case:
    """An entry with its seed, its model's name, and both ends of each value, put in."""
    where = f"{where}: case {entry.get('slug')}"
    key = entry.get("seed")
    if key not in seeds:
        known = ", ".join(seeds)
        raise UsageError(f"{where}: seed {key!r} is not under [seeds]; there are: {known}")
    seed = records.made(Seed, {**seeds[key], "key": key}, f"{where}: seed {key}")
    published = deepcopy(entry.get("published", []))
    try:
        for value in (value for figure in published for value in figure.get("values", [])):
            if (both := value.pop("value", None)) is not None:
                value.update({"low": both, "high": both, **value})
    except (AttributeError, TypeError) as error:
        raise UsageError(f"{where}: a figure or a value is no table") from error
    model = f"{str(entry.get('slug')).replace('-', '_')}.c"
    content = {**entry, "seed": asdict(seed), "published": published, "model": model}
    return records.made(Case, content, where)
