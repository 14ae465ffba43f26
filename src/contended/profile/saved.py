# SPDX-License-Identifier: MIT
"""The profiles of a case's variants: what `contended c2c` prints, `--json` saves, chapters show."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from contended import records
from contended.errors import UsageError
from contended.measure.results import number
from contended.profile import tables
from contended.profile.coherence import CacheLine, Profile
from contended.records import Record
from contended.show.table import Table

SCHEMA = 1
_NAMES = 3  # members, or functions, that are named


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles(Record):
    """All regions of the variants of a case, in the order they were made."""

    case: str
    run: str  # its name in `variants.toml`; "user" for C models
    mode: str  # "system" (a kernel) or "user" (a program)
    profiles: tuple[Profile, ...]
    schema: int = SCHEMA
    recorded: bool = False  # loaded rather than made just now

    @property
    def variants(self) -> list[str]:
        """The variants' names in order."""
        return list(dict.fromkeys(p.variant for p in self.profiles))

    @property
    def cpus(self) -> str:
        """How many CPUs or threads ran the operations, as in "4 CPUs"."""
        kind = "CPUs" if self.mode == "system" else "threads"
        return f"{self.profiles[0].provenance.vcpus} {kind}"

    def of(self, variant: str, label: str | None = None) -> Profile:
        """A variant's profile of the region `label`, or of its first; UsageError if none is."""
        for profile in self.profiles:
            if profile.variant == variant and label in (None, profile.label):
                return profile
        there = "; ".join(p.name for p in self.profiles) or "none"
        raise UsageError(f"no profile of {variant!r}, {label or 'any region'}; there are: {there}")

    def trimmed(self, top: int) -> Profiles:
        """With only the worst lines of each profile, for keeping; the totals stay whole."""
        return replace(self, profiles=tuple(replace(p, lines=p.lines[:top]) for p in self.profiles))

    def worst_lines(self, label: str | None = None, top: int = 5) -> Table:
        """The lines that were taken from other CPUs most often, `top` of each variant.

        They are of the region `label`, or of each variant's first; an unknown one is a UsageError.
        """
        rows: list[tuple[str | int, ...]] = []
        for variant in self.variants:
            profile = self.of(variant, label)
            total = profile.counts.hitm
            for place, line in enumerate(profile.lines[:top], 1):
                hitm = line.counts.hitm
                each = number(profile.per_op(hitm), 3)
                share = f"{100 * hitm / total:.0f} %" if total else ""
                who = _first(site.symbol for site in line.sites if site.counts.hitm)
                rows.append((variant, place, each, share, _what(line), who))
            # of how many lines a record does not tell: only the worst are kept
            rows.append((variant, "all", number(profile.per_op(total), 3), "", "", ""))
        caption = f"{self.case}: cache lines taken from another CPU"
        if self.profiles:
            where = self.profiles[0].provenance
            what = "recorded reference run" if self.recorded else "counted now"
            caption += f" ({what}; {where.kernel}, {self.cpus}, {where.qemu}, idealised caches)"
        head = "variant", "line", "HITM per operation", "share", "what it is", "who takes it"
        return Table(caption, head, rows)

    def text(self, top: int = 10) -> str:
        """All tables, with `top` lines of each, and how the first variant differs from others."""
        parts = [tables.profile_text(profile, self.mode, top) for profile in self.profiles]
        for variant in self.variants[1:]:
            parts.append(tables.diff_text(self.profiles[0], self.of(variant), top))
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.worst_lines()._repr_html_()


def load(path: Path) -> Profiles:
    """Read saved profiles, as `records.load` does; `recorded` is set."""
    found = records.load(Profiles, path, "profiles", SCHEMA, "profile again", strict=False)
    return replace(found, recorded=True)


def _what(line: CacheLine) -> str:
    """The struct, which one it is, and its members that were fought for, the worst first."""
    things = [site.thing for site in line.sites if site.thing and site.counts.hitm]
    if not things or things[0].kind == "unknown":
        return "unknown"
    first = things[0]
    # of members within members, and of elements, the whole is what a reader knows
    members = _first(
        re.split(r"[.[]", thing.field)[0]
        for thing in things
        if thing.object == first.object and thing.field
    )
    text = tables.owner(first).replace("per-cpu ", "per-CPU ", 1)
    text += f" {first.label}" if first.label else ""
    text += f": {members}" if members else ""
    others = len({thing.object for thing in things} - {first.object})
    return text + (f", and {others} more" if others else "")


def _first(names: Iterable[str]) -> str:
    several = list(dict.fromkeys(names))
    return ", ".join(several[:_NAMES]) + (", ..." if len(several) > _NAMES else "")
