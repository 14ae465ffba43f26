# SPDX-License-Identifier: MIT
"""The profiles of a case's variants: what `contended c2c` prints, `--json` saves, chapters show."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from contended import records
from contended.errors import UsageError
from contended.measure.results import number
from contended.profile import tables
from contended.profile.coherence import Line, Profile
from contended.records import Record
from contended.show.table import Table

if TYPE_CHECKING:
    import pandas

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles(Record):
    """All regions of the variants of a case.

    Attributes:
        case: The slug.
        run: The run's name in `variants.toml`; "user" for C models.
        mode: "system" (a kernel) or "user" (a program).
        profiles: In the order they were made.
        schema: Of the JSON.
        recorded: Whether they were loaded rather than made just now.
    """

    case: str
    run: str
    mode: str
    profiles: tuple[Profile, ...]
    schema: int = SCHEMA
    recorded: bool = field(default=False)

    @property
    def variants(self) -> list[str]:
        """The variants' names in order."""
        return list(dict.fromkeys(p.variant for p in self.profiles))

    @property
    def labels(self) -> list[str]:
        """The regions' labels in order."""
        return list(dict.fromkeys(p.label for p in self.profiles))

    def of(self, variant: str, label: str | None = None) -> Profile:
        """The profile of a variant; the first of its regions unless a label is given.

        Raises:
            UsageError: there is none.
        """
        for profile in self.profiles:
            if profile.variant == variant and label in (None, profile.label):
                return profile
        there = "; ".join(p.name for p in self.profiles) or "none"
        raise UsageError(f"no profile of {variant!r}, {label or 'any region'}; there are: {there}")

    def frame(self) -> pandas.DataFrame:
        """`Profile.frame` of all, one below the other."""
        import pandas  # half a second, for those who ask for a frame

        return pandas.concat([p.frame() for p in self.profiles], ignore_index=True)

    def trimmed(self, top: int) -> Profiles:
        """With only the worst lines of each profile, for keeping; the totals stay whole."""
        return replace(self, profiles=tuple(replace(p, lines=p.lines[:top]) for p in self.profiles))

    def worst_lines(self, label: str | None = None, top: int = 5) -> Table:
        """The lines that were taken from other CPUs most often, a few of each variant.

        Args:
            label: The region, if there are several; None takes each variant's first.
            top: Lines of each variant.

        Raises:
            UsageError: an unknown region.
        """
        rows: list[tuple[str | int, ...]] = []
        for variant in self.variants:
            profile = self.of(variant, label)
            total = profile.counts.hitm
            for place, line in enumerate(profile.lines[:top], 1):
                hitm = line.counts.hitm
                rows.append(
                    (
                        variant,
                        place,
                        number(profile.per_op(hitm), 3),
                        f"{100 * hitm / total:.0f} %" if total else "",
                        _what(line),
                        _who(line),
                    )
                )
            # of how many lines a record does not tell: only the worst are kept
            rows.append((variant, "all", number(profile.per_op(total), 3), "", "", ""))
        where = self.profiles[0].provenance if self.profiles else None
        caption = f"{self.case}: cache lines taken from another CPU"
        if where:
            what = "recorded reference run" if self.recorded else "counted now"
            cpus = "CPUs" if self.mode == "system" else "threads"
            caption += (
                f" ({what}; {where.kernel}, {where.vcpus} {cpus}, {where.qemu}, idealised caches)"
            )
        return Table(
            caption,
            ("variant", "line", "HITM per operation", "share", "what it is", "who takes it"),
            rows,
        )

    def text(self, top: int = 10) -> str:
        """All tables of all profiles, and how the first variant differs from the others.

        Args:
            top: How many lines to show of each.
        """
        parts = [tables.profile_text(profile, self.mode, top) for profile in self.profiles]
        parts += [
            tables.diff_text(self.of(self.variants[0]), self.of(variant), top)
            for variant in self.variants[1:]
        ]
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.worst_lines()._repr_html_()


def load(path: Path) -> Profiles:
    """Read saved profiles; `recorded` is set.

    Raises:
        ContendedError: the file is missing, is not JSON, or does not fit the schema.
    """
    found = records.load(Profiles, path, "profiles", SCHEMA, "profile again", strict=False)
    return replace(found, recorded=True)


_NAMES = 3  # members, or functions, that are named


def _what(line: Line) -> str:
    """The struct, which one it is, and its members that were fought for, the worst first."""
    things = [site.thing for site in line.sites if site.thing and site.counts.hitm]
    if not things or things[0].kind == "unknown":
        return "unknown"
    first = things[0]
    # of members within members, and of elements, the whole is what a reader knows
    members = dict.fromkeys(
        re.split(r"[.[]", thing.field)[0]
        for thing in things
        if thing.object == first.object and thing.field
    )
    name = f"struct {first.struct}" if first.struct and first.kind != "variable" else first.name
    name = name if first.kind != "per-cpu" else f"per-CPU {first.name}"
    text = name or first.kind
    text += f" {first.label}" if first.label else ""
    text += f": {_first(list(members))}" if members else ""
    others = len({thing.object for thing in things} - {first.object})
    return text + (f", and {others} more" if others else "")


def _who(line: Line) -> str:
    return _first(list(dict.fromkeys(site.symbol for site in line.sites if site.counts.hitm)))


def _first(names: list[str]) -> str:
    return ", ".join(names[:_NAMES]) + (", ..." if len(names) > _NAMES else "")
