# SPDX-License-Identifier: MIT
"""The register of the book's cases: what each bug is, what was published, what became of the fix.

The facts stand in `register.toml`, package data beside this module, and nowhere else in the
repository. They are read once, on first use, and checked: a register with an unknown key, a
missing source or a slug used twice is refused with one line that says where.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeVar, cast, get_args

from contended.errors import ContendedError, UsageError

Status = Literal["merged", "superseded", "dropped", "not-merged"]

_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_KEY = re.compile(r"[a-z][a-z0-9]*")
_T = TypeVar("_T")
_KINDS: dict[type, str] = {
    bool: "boolean",
    date: "day, such as 2024-06-13",
    dict: "table",
    float: "number",
    int: "whole number",
    list: "list",
    str: "string",
}
_COMMIT = re.compile(r"[0-9a-f]{12,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
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
    message_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
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
    plus_minus: float | None

    @property
    def middle(self) -> float:
        """The number, or the middle of the range."""
        return (self.low + self.high) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
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
    workers: int | None
    cpus: int | None
    kernel: str | None

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
class Step:
    """A change in the kernel that made, fixed or replaced the code in question.

    Attributes:
        what: The change's subject, with a remark where one is needed.
        commit: Abbreviated commit id; None where no source gives it.
        version: First release that has it; None where it reached none.
        unverified: True if no stored public source confirms commit or version.
    """

    what: str
    commit: str | None
    version: str | None
    unverified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
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

    @property
    def unverified(self) -> bool:
        """Whether any step is; whoever prints the summary then says so."""
        return any(step.unverified for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
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


class _Table:
    """A TOML table that hands out each entry once, checked, and knows where it stands.

    `close` refuses what nobody asked for, so a mistyped key cannot pass unnoticed.
    """

    def __init__(self, entries: dict[str, Any], where: str, name: str = "") -> None:
        self.name = name
        self.where = where
        self._entries = dict(entries)

    def error(self, message: str) -> ContendedError:
        return ContendedError(f"{self.where}: {message}")

    def has(self, key: str) -> bool:
        return key in self._entries

    def take(self, key: str, kind: type[_T]) -> _T:
        if key not in self._entries:
            raise self.error(f"{key!r} is missing")
        value = self._entries.pop(key)
        # `type() is`, not isinstance: True is no chapter number and a time stamp is no day.
        if type(value) is not kind:
            raise self.error(f"{key!r} must be a {_KINDS[kind]}, not {value!r}")
        return value

    def text(self, key: str, form: re.Pattern[str] | None = None) -> str:
        value = self.take(key, str)
        if not value or value != value.strip() or "\n" in value:
            raise self.error(f"{key!r} must be one line of text, not {value!r}")
        if form is not None and not form.fullmatch(value):
            raise self.error(f"{key!r} is malformed: {value!r}")
        return value

    def optional_text(self, key: str, form: re.Pattern[str] | None = None) -> str | None:
        return self.text(key, form) if self.has(key) else None

    def optional_count(self, key: str) -> int | None:
        if not self.has(key):
            return None
        value = self.take(key, int)
        if value < 1:
            raise self.error(f"{key!r} must be at least 1, not {value}")
        return value

    def number(self, key: str) -> float:
        value = float(self.take(key, int if type(self._entries.get(key)) is int else float))
        if not math.isfinite(value):
            raise self.error(f"{key!r} must be finite, not {value}")
        return value

    def table(self, key: str) -> _Table:
        return _Table(self.take(key, dict), f"{self.where}: {key}")

    def named_tables(self, key: str) -> list[_Table]:
        found = self.take(key, dict)
        for name, value in found.items():
            if type(value) is not dict or not _KEY.fullmatch(name):
                raise self.error(f"{key}.{name} must be a table named by a citation key")
        return [_Table(value, f"{self.where}: {key}.{name}", name) for name, value in found.items()]

    def tables(self, key: str, *, label: str) -> list[_Table]:
        """The tables of a list, at least one; messages call each by its `label` entry."""
        found = self.take(key, list)
        if not found or any(type(value) is not dict for value in found):
            raise self.error(f"{key!r} must be a list of tables, at least one")
        return [
            _Table(value, f"{self.where}: {key} {value.get(label, f'number {number}')}")
            for number, value in enumerate(found, start=1)
        ]

    def close(self) -> None:
        if self._entries:
            raise self.error(f"unknown key {min(self._entries)!r}")


# `cases.all()` reads as what it is, and nothing in this module needs the builtin.
@cache
def all() -> tuple[Case, ...]:  # noqa: A001
    """All cases in chapter order.

    Raises:
        ContendedError: the register that was installed is broken.
    """
    return parse(resources.files("contended").joinpath("register.toml").read_text(encoding="utf-8"))


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


def parse(text: str) -> tuple[Case, ...]:
    """Read and check a register.

    Args:
        text: The register as TOML; `register.toml` shows the layout.

    Returns:
        The cases in chapter order.

    Raises:
        ContendedError: it is no TOML, or an entry is missing, unknown, of the wrong kind, out of
            range or there twice. The message is one line and names the place.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ContendedError(f"register.toml is no TOML: {error}") from error
    top = _Table(raw, "register.toml")
    seeds = {table.name: _seed(table) for table in top.named_tables("seeds")}
    cases = [_case(table, seeds) for table in top.tables("case", label="slug")]
    top.close()
    _unique((case.slug for case in cases), "register.toml: slug")
    _unique((str(case.chapter) for case in cases), "register.toml: chapter")
    unused = seeds.keys() - {case.seed.key for case in cases}
    if unused:
        raise ContendedError(f"register.toml: no case uses the seed {min(unused)!r}")
    return tuple(sorted(cases, key=lambda case: case.chapter))


def _seed(table: _Table) -> Seed:
    day = table.take("date", date)
    seed = Seed(
        key=table.name,
        author=table.text("author"),
        date=day.isoformat(),
        mailing_list=table.text("list"),
        subject=table.text("subject"),
        url=table.text("url", re.compile(r"https://\S+")),
        message_id=table.optional_text("message_id", re.compile(r"[^\s<>@]+@[^\s<>@]+")),
    )
    table.close()
    return seed


def _case(table: _Table, seeds: dict[str, Seed]) -> Case:
    slug = table.text("slug", _SLUG)
    chapter = table.take("chapter", int)
    if chapter < 2:
        raise table.error("chapter must be 2 or more: 00 and 01 are the introduction")
    key = table.text("seed")
    if key not in seeds:
        raise table.error(f"seed {key!r} is not under [seeds]; there are: {', '.join(seeds)}")
    published = tuple(_published(t) for t in table.tables("published", label="id"))
    _unique((p.id for p in published), f"{table.where}: published id")
    case = Case(
        slug=slug,
        title=table.text("title"),
        chapter=chapter,
        bug=table.text("bug"),
        model=f"{slug.replace('-', '_')}.c",
        seed=seeds[key],
        published=published,
        outcome=_outcome(table.table("outcome")),
    )
    table.close()
    return case


def _published(table: _Table) -> Published:
    figure = Published(
        id=table.text("id", _SLUG),
        what=table.text("what"),
        unit=table.text("unit"),
        workload=table.text("workload"),
        source=table.text("source", _KEY),
        values=tuple(_value(t) for t in table.tables("values", label="name")),
        workers=table.optional_count("workers"),
        cpus=table.optional_count("cpus"),
        kernel=table.optional_text("kernel"),
    )
    table.close()
    _unique((value.name for value in figure.values), f"{table.where}: value")
    return figure


def _value(table: _Table) -> Value:
    name = table.text("name", _SLUG)
    if table.has("value"):
        low = high = table.number("value")
    else:
        low, high = table.number("low"), table.number("high")
    spread = table.number("plus_minus") if table.has("plus_minus") else None
    table.close()
    if low > high:
        raise table.error(f"low {low:g} is above high {high:g}")
    if spread is not None and spread < 0:
        raise table.error("plus_minus must not be negative")
    return Value(name=name, low=low, high=high, plus_minus=spread)


def _outcome(table: _Table) -> Outcome:
    status = table.text("status")
    if status not in get_args(Status):
        raise table.error(f"status {status!r} is none of: {', '.join(get_args(Status))}")
    sources = table.take("sources", list)
    if not sources or any(not isinstance(s, str) or not _KEY.fullmatch(s) for s in sources):
        raise table.error("sources must be a list of keys of references.bib, at least one")
    outcome = Outcome(
        status=cast(Status, status),
        summary=table.text("summary"),
        sources=tuple(sources),
        steps=tuple(_step(t) for t in table.tables("steps", label="what")),
    )
    table.close()
    return outcome


def _step(table: _Table) -> Step:
    step = Step(
        what=table.text("what"),
        commit=table.optional_text("commit", _COMMIT),
        version=table.optional_text("version"),
        unverified=table.take("unverified", bool) if table.has("unverified") else False,
    )
    table.close()
    return step


def _unique(names: Iterable[str], where: str) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise ContendedError(f"{where} {name!r} stands there {times} times")
