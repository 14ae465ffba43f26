# SPDX-License-Identifier: MIT
"""The register of the book's cases: what each bug is, what was published, what became of the fix.

The facts stand in `register.toml`, package data beside this module, and nowhere else in the
repository. They are read once, on first use, and checked: a register with an unknown key, a
missing source or a slug used twice is refused with one line that says where.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date as day
from functools import cache
from pathlib import Path
from typing import Any, Literal

from contended import records
from contended.errors import UsageError

Status = Literal["merged", "superseded", "dropped", "not-merged"]

PATH = Path(__file__).with_name("register.toml")
_SLUG = r"[a-z0-9]+(-[a-z0-9]+)*"
_KEY = r"[a-z][a-z0-9]*"


class _Entry:
    """A part of the register, whose texts are one line each.

    What is wrong is a `ValueError` of one line: pydantic adds where it stands.
    """

    __slots__: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, str) and (value != value.strip() or not value or "\n" in value):
                raise ValueError(f"{name} must be one line of text, not {value!r}")
        self._check()

    def _check(self) -> None:
        """Refuse what only this kind of entry cannot be."""


def _like(form: str, **texts: str | None) -> None:
    for name, text in texts.items():
        if text is not None and not re.fullmatch(form, text):
            raise ValueError(f"{name} is malformed: {text!r}")


def _unique(what: str, names: Iterable[object]) -> None:
    for name, number in Counter(names).items():
        if number > 1:
            raise ValueError(f"{what} {name!r} stands there {number} times")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed(_Entry):
    """The public message that a case starts from.

    Attributes:
        key: The citation's key in `docs/references.bib`.
        author: Who wrote the message.
        date: Its day as the archive shows it, ISO 8601.
        mailing_list: The mailing list.
        subject: Its subject line.
        url: A public archive's copy.
        message_id: Without angle brackets; None where the archive does not show it.
    """

    key: str
    author: str
    date: str
    mailing_list: str
    subject: str
    url: str
    message_id: str | None = None

    def _check(self) -> None:
        _like(_KEY, key=self.key)
        _like(r"https://\S+", url=self.url)
        _like(r"[^\s<>@]+@[^\s<>@]+", message_id=self.message_id)
        day.fromisoformat(self.date)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value(_Entry):
    """One published number, or a range of them.

    Attributes:
        name: The variant it belongs to, or what distinguishes it in its figure.
        low: Lower end, in the figure's unit; equal to `high` for a single number.
        high: Upper end, in the figure's unit.
        plus_minus: The spread that the source itself states, same unit; None if it states none.
    """

    name: str
    low: float
    high: float
    plus_minus: float | None = None

    def _check(self) -> None:
        _like(_SLUG, name=self.name)
        if not math.isfinite(self.low + self.high + (self.plus_minus or 0)):
            raise ValueError("a value must be finite")
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        if self.plus_minus is not None and self.plus_minus < 0:
            raise ValueError("plus_minus must not be negative")

    @property
    def middle(self) -> float:
        """The number, or the middle of the range."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Published(_Entry):
    """A figure somebody else measured or stated: what a reproduction is compared with.

    Attributes:
        id: Unique within the case.
        what: What was measured, in words.
        unit: As it stands on an axis, e.g. "operations/s".
        workload: What ran.
        source: A key of `docs/references.bib`.
        values: In reading order.
        workers: Threads or processes that ran it; None where the source does not say.
        cpus: Logical CPUs of the machine; None where the source does not say.
        kernel: Kernel version; None where the source does not say.
    """

    id: str
    what: str
    unit: str
    workload: str
    source: str
    values: tuple[Value, ...]
    workers: int | None = None
    cpus: int | None = None
    kernel: str | None = None

    def _check(self) -> None:
        _like(_SLUG, id=self.id)
        _like(_KEY, source=self.source)
        if not self.values:
            raise ValueError("values must be at least one")
        _unique("value", (value.name for value in self.values))
        for name in ("workers", "cpus"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")

    def value(self, name: str) -> Value:
        """The value of that name.

        Raises:
            UsageError: there is none; the message lists those there are.
        """
        for value in self.values:
            if value.name == name:
                return value
        names = ", ".join(v.name for v in self.values)
        raise UsageError(f"figure {self.id!r} has no value {name!r}; it has: {names}")

    def ratio(self, top: str, base: str) -> tuple[float, float]:
        """The lowest and the highest `top` / `base` that the two ranges allow, without unit.

        The spread in `plus_minus` is not part of it: sources state it in different ways.

        Raises:
            UsageError: one of the names is unknown, or `base` is or spans 0.
        """
        above, below = self.value(top), self.value(base)
        if below.low <= 0 <= below.high:
            raise UsageError(f"figure {self.id!r}: {base!r} is zero or spans it: no ratio over it")
        quotients = [a / b for a in (above.low, above.high) for b in (below.low, below.high)]
        return min(quotients), max(quotients)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(_Entry):
    """A change in the kernel that made, fixed or replaced the code in question.

    Attributes:
        what: The change's subject, with a remark where one is needed.
        commit: Abbreviated commit id; None where no source gives it.
        version: First release that has it; None where it reached none.
        unverified: True if no stored public source confirms commit or version.
    """

    what: str
    commit: str | None = None
    version: str | None = None
    unverified: bool = False

    def _check(self) -> None:
        _like(r"[0-9a-f]{12,40}", commit=self.commit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(_Entry):
    """What became of the fix upstream.

    Attributes:
        status: "merged", "superseded" (merged, then replaced by something else), "dropped" (tried
            in a tree, taken out again) or "not-merged".
        summary: One sentence, with commit ids and versions.
        sources: Keys of `docs/references.bib`.
        steps: The commits, oldest first.
    """

    status: Status
    summary: str
    sources: tuple[str, ...]
    steps: tuple[Step, ...]

    def _check(self) -> None:
        if not self.sources or not self.steps:
            raise ValueError("there must be at least one source and one step")
        _like(_KEY, **{f"source {source}": source for source in self.sources})

    @property
    def unverified(self) -> bool:
        """Whether any step is; whoever prints the summary then says so."""
        return any(step.unverified for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(_Entry):
    """One bug of the book; `dataclasses.asdict` of it is what `contended cases --json` prints.

    Attributes:
        slug: Names the case in every folder.
        title: The chapter's title.
        chapter: The chapter's number, from 2.
        bug: The bug in one sentence.
        model: File name of the C model in `csrc/models`.
        seed: The message it starts from.
        published: Figures to compare with, at least one.
        outcome: What became of the fix.
    """

    slug: str
    title: str
    chapter: int
    bug: str
    model: str
    seed: Seed
    published: tuple[Published, ...]
    outcome: Outcome

    def _check(self) -> None:
        _like(_SLUG, slug=self.slug)
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
        """The published figure of that id.

        Raises:
            UsageError: there is none; the message lists those there are.
        """
        for figure in self.published:
            if figure.id == figure_id:
                return figure
        ids = ", ".join(p.id for p in self.published)
        raise UsageError(f"case {self.slug!r} has no published figure {figure_id!r}; it has: {ids}")


# `cases.all()` reads as what it is, and nothing in this module needs the builtin.
@cache
def all() -> tuple[Case, ...]:  # noqa: A001
    """All cases in chapter order.

    Raises:
        UsageError: the register that was installed is broken.
    """
    return read(PATH)


def slugs() -> tuple[str, ...]:
    """The slugs of all cases in chapter order."""
    return tuple(case.slug for case in all())


def get(slug: str) -> Case:
    """The case of that slug.

    Raises:
        UsageError: there is none; the message lists the valid slugs.
    """
    for case in all():
        if case.slug == slug:
            return case
    raise UsageError(f"no case {slug!r}; choose one of: {', '.join(slugs())}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    seeds: dict[str, dict[str, Any]]
    case: tuple[dict[str, Any], ...]


def read(path: Path) -> tuple[Case, ...]:
    """Read and check a register.

    Args:
        path: A TOML file in the layout of `register.toml`.

    Returns:
        The cases in chapter order.

    Raises:
        UsageError: it is no TOML, or an entry is missing, unknown, of the wrong kind, out of range
            or there twice. The message is one line and names the place.
    """
    file = records.made(_File, records.toml(path), path.name)
    cases = [_case(entry, file.seeds, path.name) for entry in file.case]
    try:
        _unique("slug", (case.slug for case in cases))
        _unique("chapter", (case.chapter for case in cases))
    except ValueError as error:
        raise UsageError(f"{path.name}: {error}") from error
    unused = file.seeds.keys() - {case.seed.key for case in cases}
    if unused:
        raise UsageError(f"{path.name}: no case uses the seed {min(unused)!r}")
    return tuple(sorted(cases, key=lambda case: case.chapter))


def _case(entry: dict[str, Any], seeds: dict[str, dict[str, Any]], where: str) -> Case:
    """An entry with its seed, its model's name, and both ends of each value, put in."""
    where = f"{where}: case {entry.get('slug')}"
    key = entry.get("seed")
    if key not in seeds:
        raise UsageError(
            f"{where}: seed {key!r} is not under [seeds]; there are: {', '.join(seeds)}"
        )
    seed = records.made(Seed, {**seeds[key], "key": key}, f"{where}: seed {key}")
    try:
        published = [
            {**figure, "values": [_ends(value) for value in figure.get("values", [])]}
            for figure in entry.get("published", [])
        ]
    except (AttributeError, TypeError) as error:
        raise UsageError(f"{where}: a figure or a value is no table") from error
    model = f"{str(entry.get('slug')).replace('-', '_')}.c"
    content = {**entry, "seed": asdict(seed), "published": published, "model": model}
    return records.made(Case, content, where)


def _ends(value: dict[str, Any]) -> dict[str, Any]:
    """`value = X` is both ends."""
    rest = {key: each for key, each in value.items() if key != "value"}
    return {"low": value["value"], "high": value["value"], **rest} if "value" in value else rest
