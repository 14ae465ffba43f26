# SPDX-License-Identifier: MIT
"""Profiles as tables in the shape of `perf c2c report --stdio`, and as a before/after difference.

Three tables, as perf's users know them: what happened in all, the shared cache lines, and which
instruction touched which byte of the worst. What perf samples is counted here, per operation; there
is one level of distance, so HITM is not split into local and remote; and there is a column that
perf cannot have: what the byte is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from contended.errors import UsageError
from contended.measure.results import number
from contended.profile.coherence import CacheLine, Profile, Site, Thing
from contended.show.table import columns

_SITES = 12  # rows of one line in the pareto
_CHAIN = 3  # names of inlined functions in one row
# Above this part of waits that gave up, two runs may differ by more than they should.
_ESCAPES = 0.01
# What is below this part of all HITMs before and after is left out of a difference.
_NOISE = 0.005
_EVENTS = {
    "Load operations": "loads",
    "Store operations": "stores",
    "HITM": "hitm",
    "HITM by loads": "hitm_loads",
    "HITM by stores": "hitm_stores",
    "Invalidations of shared lines": "invalidations",
}
_ROLES = {"root": "root directory", "overlay": "kept by overlayfs"}


def profile_text(profile: Profile, mode: str = "system", top: int = 10) -> str:
    """The three tables of one region with the `top` worst lines; in mode "user" of threads."""
    where = profile.provenance
    cpus = "CPUs" if mode == "system" else "threads"
    head = [
        f"{profile.name}: {where.workload}, {where.vcpus} {cpus}",
        f"{where.kernel}, build {where.build_id[:12]}, {where.qemu}, quantum {where.quantum}, "
        f"lines of {where.line} bytes",
        "counted in an idealised machine: infinite caches, sequential consistency, no prefetch, "
        "one distance between CPUs",
    ]
    if where.escapes > _ESCAPES * max(where.waits, 1):
        head.append(
            f"careful: {where.escapes} of {where.waits} waits for a slow CPU gave up, so that "
            "another run may differ; try it on an idle machine"
        )
    parts = _totals(profile), _table(profile, mode, top), _pareto(profile, top)
    return "\n\n".join(["\n".join(head), *parts])


def _titled(words: str, body: str) -> str:
    rule = "=" * 49
    return f"{rule}\n{words.center(49).rstrip()}\n{rule}\n{body}"


def _totals(profile: Profile) -> str:
    sides = profile.kernel, profile.user
    counted = {"Instructions": [side.instructions for side in sides]}
    counted |= {name: [getattr(s.counts, event) for s in sides] for name, event in _EVENTS.items()}
    rows = [["", "kernel", "user", "per operation"], ["  Operations", "", f"{profile.ops:,}", ""]]
    for name, (kernel, user) in counted.items():
        each = number(profile.per_op(kernel + user))
        rows.append([f"  {name}", f"{kernel:,}", f"{user:,}", each])
    rows.append(["  Shared cache lines", "", f"{len(profile.lines):,}", ""])
    for name, count in profile.calls.items():
        rows.append([f"  Calls of {name}", f"{count:,}", "", number(profile.per_op(count))])
    return _titled("Trace Event Information", _right(rows))


def _table(profile: Profile, mode: str, top: int) -> str:
    title = "Shared Data Cache Line Table"
    if not profile.lines:
        return _titled(title, "# no shared lines")
    above = "#,,Total,HITM,------,HITM,------,Inval,Total,Total,What"
    below = "# Index,Line,HITM,per op,share,Load,Store,dations,loads,stores,is there"
    rows = [above.split(","), below.split(",")]
    total = profile.counts.hitm
    for index, line in enumerate(profile.lines[:top]):
        c, each = line.counts, number(profile.per_op(line.counts.hitm), 3)
        share = f"{100 * c.hitm / total:.2f}%" if total else "-"
        rest = c.hitm_loads, c.hitm_stores, c.invalidations, c.loads, c.stores
        head = f"  {index}", f"{line.address:#x}", f"{c.hitm:,}", each, share
        rows.append([*head, *(f"{count:,}" for count in rest), _summary(line)])
    note = f"# {'physical' if mode == 'system' else 'virtual'} addresses"
    if len(profile.lines) > top:
        note += f"; {len(profile.lines) - top:,} more lines not shown"
    note += f"; the lines of {100 * profile.named_share:.0f}% of the HITMs have a name"
    return _titled(title, f"{_right(rows, -1)}\n{note}")


def _pareto(profile: Profile, top: int) -> str:
    title = "Shared Cache Line Distribution Pareto"
    if not profile.lines[:top]:
        return _titled(title, "# no shared lines")
    above = "#,----,HITM,----,Inval,,,,,,"
    below = "#   Num,Load,Store,per op,dations,Offset,Byte is,Code address,Symbol"
    rows = [above.split(","), [*below.split(","), "Source:Line", "Inlined"]]
    marks = []
    for index, line in enumerate(profile.lines[:top]):
        marks.append(len(rows))
        c, each = line.counts, number(profile.per_op(line.counts.hitm), 3)
        head = f"  {index:>5}", f"{c.hitm_loads:,}", f"{c.hitm_stores:,}", each
        rows.append([*head, f"{c.invalidations:,}", f"{line.address:#x}", *[""] * 5])
        rows += [_site(profile, line, site) for site in line.sites[:_SITES]]
        if rest := line.sites[_SITES:]:
            rows.append([*[""] * 6, f"... {len(rest)} more", *[""] * 4])
    shown = _right(rows, 5).splitlines()
    for at in marks:
        shown[at] = "\n".join(["  " + "-" * 60, shown[at], "  " + "-" * 60])
    return _titled(title, "\n".join(shown))


def _site(profile: Profile, line: CacheLine, site: Site) -> list[str]:
    loads, stores, taken = (
        f"{100 * getattr(site.counts, event) / (getattr(line.counts, event) or 1):.2f}%"
        for event in ("hitm_loads", "hitm_stores", "invalidations")
    )
    inlined = [frame.function for frame in site.frames[:-1]]
    if len(inlined) > _CHAIN:  # the middle of a long chain says little
        inlined = [inlined[0], "...", *inlined[-_CHAIN + 1 :]]
    return [
        *("", loads, stores, number(profile.per_op(site.counts.hitm), 3), taken),
        *(f"{site.offset:#x}", str(site.thing or "?"), f"{site.pc:#x}"),
        *(f"[{'k' if site.kernel else '.'}] {site.symbol}", site.source, " < ".join(inlined)),
    ]


def _summary(line: CacheLine) -> str:
    """What is on a line: the most contended thing, and how many others."""
    things = [thing for thing in line.things if thing.kind != "unknown"]
    if not things:
        return "unknown" if line.things else "not looked up"
    return str(things[0]) + (f", {len(things) - 1} more" if len(things) > 1 else "")


def _right(rows: Sequence[Sequence[str]], end: int | None = None) -> str:
    """Columns, those of numbers (from the second one to `end`) set to the right."""
    turned = list(zip(*rows, strict=True))
    for i in range(len(turned))[1:end]:
        width = max(map(len, turned[i]))
        turned[i] = tuple(cell.rjust(width) for cell in turned[i])
    return columns(list(zip(*turned, strict=True)))


# Differences


def owner(thing: Thing) -> str:
    """The struct or variable that a byte is part of."""
    if thing.kind == "per-cpu":
        return f"per-cpu {thing.name}"
    if thing.struct and thing.kind != "variable":
        return f"struct {thing.struct}"
    return thing.name or thing.kind


def meaning(thing: Thing | None) -> str:
    """What a byte is, whichever object of its kind it belongs to."""
    if thing is None or thing.kind == "unknown":
        return "unknown"
    name = owner(thing) + (f": {thing.field}" if thing.field else "")
    return f"{name} ({_ROLES[thing.role]})" if thing.role in _ROLES else name


def by(profile: Profile, what: str) -> dict[str, float]:
    """HITM per operation by "symbol" or by "meaning", the worst first; UsageError for others."""
    if what not in ("symbol", "meaning"):
        raise UsageError(f"no grouping {what!r}: give symbol or meaning")
    found: Counter[str] = Counter()
    for _, site in profile.sites():
        found[site.symbol if what == "symbol" else meaning(site.thing)] += site.counts.hitm
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return {key: profile.per_op(count) for key, count in ranked if count}


def diff(old: Profile, new: Profile, what: str = "meaning") -> list[tuple[str, float, float]]:
    """HITM per operation before and after, grouped as by `by`, what changed most first."""
    before, after = by(old, what), by(new, what)
    rows = [(key, before.get(key, 0.0), after.get(key, 0.0)) for key in {**before, **after}]
    return sorted(rows, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def diff_text(old: Profile, new: Profile, top: int = 10) -> str:
    """The difference as tables: totals, by what the bytes are, and by function."""

    def table(head: str, rows: Iterable[tuple[str, float, float]]) -> str:
        cells = [[f"# {head}", old.variant, new.variant, "change"]]
        for name, a, b in rows:
            cells.append([f"  {name}", number(a, 3), number(b, 3), f"{b - a:+,.3g}"])
        return _right(cells)

    totals = [("HITM", old.per_op(old.counts.hitm), new.per_op(new.counts.hitm))]
    for name, one, other in (("Kernel", old.kernel, new.kernel), ("User", old.user, new.user)):
        both = old.per_op(one.instructions), new.per_op(other.instructions)
        totals.append((f"{name} instructions", *both))
    title = f"HITM per operation: {old.variant} -> {new.variant}"
    parts = [_titled(title, "\n" + table("per operation", totals))]
    least = _NOISE * max(totals[0][1:])
    for what, head in (("meaning", "what"), ("symbol", "symbol")):
        if rows := [row for row in diff(old, new, what)[:top] if max(row[1:]) >= least]:
            parts.append(table(head, rows))
    return "\n\n".join(parts)
