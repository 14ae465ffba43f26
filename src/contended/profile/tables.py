# SPDX-License-Identifier: MIT
"""Profiles as tables in the shape of `perf c2c report --stdio`, and as a before/after difference.

Three tables, as perf's users know them: what happened in all, the shared cache lines, and for each
of the worst lines which instruction touched which byte. What perf samples is counted here, so there
are per-operation figures instead of percentages of samples; there is one level of distance, so
HITM is not split into local and remote; and there is a column perf cannot have: what the byte is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from contended.errors import UsageError
from contended.measure.results import number
from contended.profile.coherence import Line, Profile, Site
from contended.profile.thing import Thing
from contended.show.table import columns

_RULE = "=" * 49
_SITES = 12  # rows of one line in the pareto
_CHAIN = 3  # names of inlined functions in one row
_IDEAL = (
    "counted in an idealised machine: infinite caches, sequential consistency, no prefetch, "
    "one distance between CPUs"
)
# Above this part of waits that gave up, two runs may differ by more than they should.
_ESCAPES = 0.01
# What is below this part of all HITMs before and after is left out of a difference.
_NOISE = 0.005


def profile_text(profile: Profile, mode: str = "system", top: int = 10) -> str:
    """The three tables of one region.

    Args:
        profile: The region.
        mode: "system" or "user"; in user mode addresses are virtual.
        top: How many lines to show.
    """
    where = profile.provenance
    cpus = "CPUs" if mode == "system" else "threads"
    head = [
        f"{profile.name}: {where.workload}, {where.vcpus} {cpus}",
        f"{where.kernel}, build {where.build_id[:12]}, {where.qemu}, quantum {where.quantum}, "
        f"lines of {where.line} bytes",
        _IDEAL,
    ]
    if where.escapes > _ESCAPES * max(where.waits, 1):
        head.append(
            f"careful: {where.escapes} of {where.waits} waits for a slow CPU gave up, so that "
            "another run may differ; try it on an idle machine"
        )
    return "\n".join(
        [*head, "", _totals(profile), "", _table(profile, mode, top), "", _pareto(profile, top)]
    )


def _title(words: str) -> str:
    return f"{_RULE}\n{words.center(49).rstrip()}\n{_RULE}"


def _totals(profile: Profile) -> str:
    rows = [["", "kernel", "user", "per operation"]]
    sides = (profile.kernel, profile.user)

    def row(name: str, counts: Sequence[int]) -> None:
        each = number(profile.per_op(sum(counts)))
        rows.append([f"  {name}", *(f"{count:,}" for count in counts), each])

    rows.append(["  Operations", "", f"{profile.ops:,}", ""])
    row("Instructions", [side.instructions for side in sides])
    for name, attribute in _EVENTS:
        row(name, [getattr(side.counts, attribute) for side in sides])
    rows.append(["  Shared cache lines", "", f"{len(profile.lines):,}", ""])
    for name, count in profile.calls.items():
        rows.append([f"  Calls of {name}", f"{count:,}", "", number(profile.per_op(count))])
    return f"{_title('Trace Event Information')}\n{_right(rows, 1)}"


_EVENTS = (
    ("Load operations", "loads"),
    ("Store operations", "stores"),
    ("HITM", "hitm"),
    ("HITM by loads", "hitm_loads"),
    ("HITM by stores", "hitm_stores"),
    ("Invalidations of shared lines", "invalidations"),
)


def _table(profile: Profile, mode: str, top: int) -> str:
    above = "#,,Total,HITM,------,HITM,------,Inval,Total,Total,What"
    below = "# Index,Line,HITM,per op,share,Load,Store,dations,loads,stores,is there"
    rows = [above.split(","), below.split(",")]
    total = profile.counts.hitm
    for index, line in enumerate(profile.lines[:top]):
        counts = line.counts
        rows.append(
            [
                f"  {index}",
                f"{line.address:#x}",
                f"{counts.hitm:,}",
                number(profile.per_op(counts.hitm), 3),
                f"{100 * counts.hitm / total:.2f}%" if total else "-",
                f"{counts.hitm_loads:,}",
                f"{counts.hitm_stores:,}",
                f"{counts.invalidations:,}",
                f"{counts.loads:,}",
                f"{counts.stores:,}",
                _summary(line),
            ]
        )
    note = f"# {'physical' if mode == 'system' else 'virtual'} addresses"
    if len(profile.lines) > top:
        note += f"; {len(profile.lines) - top:,} more lines not shown"
    note += f"; the lines of {100 * profile.named_share:.0f}% of the HITMs have a name"
    body = "\n".join([_right(rows, 1, last=True), note]) if profile.lines else "# no shared lines"
    return f"{_title('Shared Data Cache Line Table')}\n{body}"


def _pareto(profile: Profile, top: int) -> str:
    below = "#   Num,Load,Store,per op,dations,Offset,Byte is,Code address,Symbol"
    below += ",Source:Line,Inlined"
    rows = [["#", "----", "HITM", "----", "Inval", *[""] * 6], below.split(",")]
    marks = []
    for index, line in enumerate(profile.lines[:top]):
        counts = line.counts
        marks.append(len(rows))
        rows.append(
            [
                f"  {index:>5}",
                f"{counts.hitm_loads:,}",
                f"{counts.hitm_stores:,}",
                number(profile.per_op(counts.hitm), 3),
                f"{counts.invalidations:,}",
                f"{line.address:#x}",
                *[""] * 5,
            ]
        )
        for site in line.sites[:_SITES]:
            rows.append(_site(profile, line, site))
        if len(line.sites) > _SITES:
            rest = len(line.sites) - _SITES
            rows.append(["", "", "", "", "", "", f"... {rest} more", "", "", "", ""])
    if len(rows) == 2:
        return f"{_title('Shared Cache Line Distribution Pareto')}\n# no shared lines"
    lines = _right(rows, 1, upto=5).splitlines()
    rule = "  " + "-" * 60
    out: list[str] = []
    for at, row in enumerate(lines):
        out += [rule, row, rule] if at in marks else [row]
    return "\n".join([_title("Shared Cache Line Distribution Pareto"), *out])


def _site(profile: Profile, line: Line, site: Site) -> list[str]:
    counts, whole = site.counts, line.counts
    return [
        "",
        _percent(counts.hitm_loads, whole.hitm_loads),
        _percent(counts.hitm_stores, whole.hitm_stores),
        number(profile.per_op(counts.hitm), 3),
        _percent(counts.invalidations, whole.invalidations),
        f"{site.offset:#x}",
        str(site.thing) if site.thing else "?",
        f"{site.pc:#x}",
        f"[{'k' if site.kernel else '.'}] {site.symbol}",
        site.source,
        _inlined(site),
    ]


def _inlined(site: Site) -> str:
    """What was inlined into what, from the innermost; the middle of a long chain says little."""
    names = [frame.function for frame in site.inlined]
    if len(names) > _CHAIN:
        names = [names[0], "...", *names[-_CHAIN + 1 :]]
    return " < ".join(names)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "0.00%"


def _summary(line: Line) -> str:
    """What is on a line: the most contended thing, and how many others."""
    things = [thing for thing in line.things if thing.kind != "unknown"]
    if not things:
        return "unknown" if line.things else "not looked up"
    more = len(things) - 1
    return str(things[0]) + (f", {more} more" if more else "")


def _right(
    rows: Sequence[Sequence[str]], first: int, *, last: bool = False, upto: int | None = None
) -> str:
    """Columns, those of numbers (from `first` up to the last or to `upto`) set to the right."""
    end = upto if upto is not None else len(rows[0]) - (1 if last else 0)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return columns(
        [
            [cell.rjust(widths[i]) if first <= i < end else cell for i, cell in enumerate(row)]
            for row in rows
        ]
    )


# Differences


def meaning(thing: Thing | None) -> str:
    """What a byte is, whichever object of its kind it belongs to."""
    if thing is None or thing.kind == "unknown":
        return "unknown"
    of = f"struct {thing.struct}" if thing.struct and thing.kind != "variable" else thing.name
    if thing.kind == "per-cpu":
        of = f"per-cpu {thing.name}"
    name = ": ".join(part for part in (of or thing.kind, thing.field) if part)
    return f"{name} ({_ROLES[thing.role]})" if thing.role in _ROLES else name


_ROLES = {"root": "root directory", "overlay": "kept by overlayfs"}


def by(profile: Profile, what: str) -> dict[str, float]:
    """HITM per operation by "symbol" or by "meaning", the worst first.

    Raises:
        UsageError: neither of the two.
    """
    if what not in ("symbol", "meaning"):
        raise UsageError(f"no grouping {what!r}: give symbol or meaning")
    found: dict[str, int] = {}
    for _, site in profile.sites():
        key = site.symbol if what == "symbol" else meaning(site.thing)
        found[key] = found.get(key, 0) + site.counts.hitm
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return {key: profile.per_op(count) for key, count in ranked if count}


def diff(old: Profile, new: Profile, what: str = "meaning") -> list[tuple[str, float, float]]:
    """HITM per operation before and after, what changed most first.

    Args:
        old: The profile before.
        new: The one after.
        what: By "meaning" (of the byte) or by "symbol".

    Raises:
        UsageError: neither of the two.
    """
    before, after = by(old, what), by(new, what)
    rows = [(key, before.get(key, 0.0), after.get(key, 0.0)) for key in {**before, **after}]
    return sorted(rows, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def diff_text(old: Profile, new: Profile, top: int = 10) -> str:
    """The difference as tables: totals, by what the bytes are, and by function."""
    totals = [("HITM", old.per_op(old.counts.hitm), new.per_op(new.counts.hitm))]
    for name, one, other in (("Kernel", old.kernel, new.kernel), ("User", old.user, new.user)):
        both = old.per_op(one.instructions), new.per_op(other.instructions)
        totals.append((f"{name} instructions", *both))
    parts = [_title(f"HITM per operation: {old.variant} -> {new.variant}")]
    parts.append(_diff_rows("per operation", old, new, totals))
    least = _NOISE * max(totals[0][1:])
    for what, head in (("meaning", "what"), ("symbol", "symbol")):
        if rows := [row for row in diff(old, new, what)[:top] if max(row[1:]) >= least]:
            parts.append(_diff_rows(head, old, new, rows))
    return "\n\n".join(parts)


def _diff_rows(
    head: str, old: Profile, new: Profile, rows: Iterable[tuple[str, float, float]]
) -> str:
    cells = [[f"# {head}", old.variant, new.variant, "change"]]
    for name, before, after in rows:
        change = f"{after - before:+,.3g}"
        cells.append([f"  {name}", number(before, 3), number(after, 3), change])
    return _right(cells, 1)
