# SPDX-License-Identifier: MIT
"""The numbers of a profile that expected outcomes in `variants.toml` are about.

A metric is written as::

    [LABEL/]COUNT_per_op[.FILTER(VALUE)]...    hitm_per_op.field(dentry.d_lockref).role(root)
    [LABEL/]share.COUNT[.FILTER(VALUE)]...     share.hitm.symbol(override_creds)
    [LABEL/]rank[.FILTER(VALUE)]...            rank.symbol(generic_permission)
    [LABEL/]calls_per_op.F, calls.F            calls_per_op.lockref_get_not_dead
    [LABEL/]share.calls(F,G)                   share.calls(f>_raw_spin_lock,f)
    [LABEL/]share.slow(lockref)
    [LABEL/]top.symbol, top.field, top.what, top.line
    slope.METRIC

COUNT is `hitm` (loads and stores), `hitm_loads`, `hitm_stores`, `invalidations`, and without a
filter by place also `instructions`, `loads` and `stores`. FILTERs, all of which must hold::

    field(STRUCT.MEMBER)   the byte is that member, or a part of it: dentry.d_lockref covers
                           dentry.d_lockref.count; without a member, any of the struct
    line(STRUCT.MEMBER)    the line has an access to that member, whatever this one is to
    role(R)                "root": of the processes' root directory; "overlay": what overlayfs keeps
    name(N)                the slab cache or variable
    symbol(F)              the instruction is in function F
    inline(F)              ... or is F's code, inlined into another function
    cpu(kernel), cpu(user) whose instruction; kernel unless said otherwise (user in user mode)

`share.COUNT` is the filtered part of all, 0 to 1. `rank` is the place of the first line that has an
access for which the filters hold, in the line table: 1 is the worst, 0 means none. `top.X` is text
about the worst line: the function with most HITMs on it, its most contended member
("dentry.d_lockref"), that in words, and everything on it. `slope.METRIC` is the log-log slope of a
metric over regions of different size: 1 linear, 2 quadratic. `share.slow(lockref)` is the part of
reference operations that found the lock taken and queued for it: calls of `_raw_spin_lock` in the
lockref functions over their executions; the run must watch them (see `SLOW`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from contended import stats
from contended.errors import UsageError
from contended.profile.coherence import Line, Mode, Profile, Site
from contended.profile.saved import Profiles

#: What `share.slow(NAME)` divides: functions with a fast path, and the call that ends it.
SLOW: Mapping[str, tuple[tuple[str, ...], str]] = {
    "lockref": (
        (
            "lockref_get",
            "lockref_get_not_zero",
            "lockref_get_not_dead",
            "lockref_put_not_zero",
            "lockref_put_or_lock",
        ),
        "_raw_spin_lock",
    )
}

_BY_PLACE = ("hitm", "hitm_loads", "hitm_stores", "invalidations")
_TOTAL = ("loads", "stores", "instructions")
_FILTER = re.compile(r"\.(\w+)\(([^()]*)\)")
_Test = Callable[[Line, Site], bool]


def value(profiles: Profiles, variant: str, metric: str) -> float | str:
    """A metric of a variant.

    Raises:
        UsageError: the metric is not one, or this run does not have it (a label or a watched
            function); the message says what there is.
    """
    if metric.startswith("slope."):
        return _slope(profiles, variant, metric.removeprefix("slope."))
    label, slash, rest = metric.rpartition("/")
    return of(profiles.of(variant, label if slash else None), rest, profiles.mode)


def of(profile: Profile, metric: str, mode: str = "system") -> float | str:
    """A metric of one region, without a label.

    Raises:
        UsageError: as in `value`.
    """
    head, dot, rest = metric.partition(".")
    if head == "top" and rest in ("symbol", "field", "what", "line"):
        return _top(profile, rest)
    if head == "share" and rest.startswith(("calls(", "slow(")):
        return _share_of_calls(profile, rest)
    if head in ("calls", "calls_per_op") and rest:
        count = _calls(profile, rest)
        return profile.per_op(count) if head == "calls_per_op" else float(count)
    if head == "share":
        head, dot, rest = rest.partition(".")
        part, whole = _count(profile, metric, head, dot + rest, mode)
        return part / whole if whole else 0.0
    if head == "rank":
        test = _tests(metric, dot + rest, mode)
        for place, line in enumerate(profile.lines, 1):
            if any(test(line, site) for site in line.sites):
                return float(place)
        return 0.0
    if head.endswith("_per_op"):
        part, _ = _count(profile, metric, head.removesuffix("_per_op"), dot + rest, mode)
        return profile.per_op(part)
    raise _unknown(metric)


def watch(names: str) -> list[tuple[str, str]]:
    """What a run must watch for `share.slow(names)`: functions, and (function, callee) pairs."""
    functions, callee = SLOW[names]
    return [(f, "") for f in functions] + [(f, callee) for f in functions]


def _count(
    profile: Profile, metric: str, count: str, filters: str, mode: str
) -> tuple[float, float]:
    """The filtered count and all of it."""
    places = _FILTER.findall(filters)
    if count in _TOTAL and all(name == "cpu" for name, _ in places):
        side = _side(profile, dict(places).get("cpu", _own(mode)), metric)
        whole = side.instructions if count == "instructions" else getattr(side.counts, count)
        _tests(metric, filters, mode)
        return whole, whole
    if count not in _BY_PLACE:
        raise _unknown(metric)
    side = _side(profile, dict(places).get("cpu", _own(mode)), metric)
    whole = getattr(side.counts, count)
    if all(name == "cpu" for name, _ in places):
        _tests(metric, filters, mode)
        return whole, whole
    test = _tests(metric, filters, mode)
    part = sum(getattr(s.counts, count) for line, s in profile.sites() if test(line, s))
    return part, whole


def _own(mode: str) -> str:
    return "kernel" if mode == "system" else "user"


def _side(profile: Profile, which: str, metric: str) -> Mode:
    if which not in ("kernel", "user"):
        raise _unknown(metric)
    return profile.kernel if which == "kernel" else profile.user


def _tests(metric: str, filters: str, mode: str) -> _Test:
    found = _FILTER.findall(filters)
    if "".join(f".{name}({text})" for name, text in found) != filters:
        raise _unknown(metric)
    if all(name != "cpu" for name, _ in found):
        found.append(("cpu", _own(mode)))
    tests = []
    for name, text in found:
        if name not in _FILTERS:
            raise _unknown(metric)
        tests.append(_FILTERS[name](text))
    return lambda line, site: all(test(line, site) for test in tests)


def is_field(site: Site, wanted: str) -> bool:
    """Whether the byte is a member ("dentry.d_lockref"), or in one, or any of a struct."""
    if site.thing is None:
        return False
    struct, _, member = wanted.partition(".")
    if struct not in (site.thing.struct, site.thing.name):
        return False
    # Of members that share a byte any may be meant.
    names = site.thing.field.split("/") if "." not in site.thing.field else [site.thing.field]
    return not member or any(
        name == member or name.startswith((f"{member}.", f"{member}[")) for name in names
    )


_FILTERS: Mapping[str, Callable[[str], _Test]] = {
    "field": lambda text: lambda _, site: is_field(site, text),
    "line": lambda text: lambda line, _: any(is_field(site, text) for site in line.sites),
    "role": lambda text: lambda _, site: site.thing is not None and site.thing.role == text,
    "name": lambda text: lambda _, site: site.thing is not None and site.thing.name == text,
    "symbol": lambda text: lambda _, site: site.symbol == text,
    "inline": lambda text: lambda _, site: any(f.function == text for f in site.frames),
    "cpu": lambda text: lambda _, site: site.kernel == (text == "kernel"),
}


def _top(profile: Profile, which: str) -> str:
    if not profile.lines or not profile.lines[0].counts.hitm:
        return "nothing"
    line = profile.lines[0]
    if which == "symbol":
        by: dict[str, int] = {}
        for site in line.sites:
            by[site.symbol] = by.get(site.symbol, 0) + site.counts.hitm
        return max(by, key=lambda name: by[name]) if by else "unknown"
    things = line.things
    if not things:
        return "unknown"
    if which == "field":
        first = things[0]
        return f"{first.struct or first.name or first.kind}.{first.field}".rstrip(".")
    return str(things[0]) if which == "what" else "; ".join(str(thing) for thing in things)


def _calls(profile: Profile, name: str) -> int:
    if name not in profile.calls:
        there = ", ".join(profile.calls) or "none"
        raise UsageError(f"the run does not watch {name!r}; it watches: {there}")
    return profile.calls[name]


def _share_of_calls(profile: Profile, text: str) -> float:
    found = re.fullmatch(r"(calls|slow)\(([^()]+)\)", text)
    if not found:
        raise _unknown(f"share.{text}")
    if found[1] == "slow":
        if found[2] not in SLOW:
            raise UsageError(f"no slow path {found[2]!r}; there are: {', '.join(SLOW)}")
        functions, callee = SLOW[found[2]]
        seen = [f for f in functions if f in profile.calls]
        if not seen:
            raise UsageError(f"the run does not watch any of {', '.join(functions)}")
        part = sum(_calls(profile, f"{f}>{callee}") for f in seen)
        whole = sum(profile.calls[f] for f in seen)
    else:
        top, comma, base = found[2].partition(",")
        if not comma:
            raise _unknown(f"share.{text}")
        part, whole = _calls(profile, top.strip()), _calls(profile, base.strip())
    return part / whole if whole else 0.0


def _slope(profiles: Profiles, variant: str, metric: str) -> float:
    sized = [p for p in profiles.profiles if p.variant == variant and p.size > 0]
    points = []
    for profile in sized:
        found = of(profile, metric, profiles.mode)
        if isinstance(found, str) or found <= 0:
            raise UsageError(f"no slope of {metric}: it is {found} at size {profile.size}")
        points.append((float(profile.size), found))
    if len({size for size, _ in points}) < 2:
        raise UsageError(f"a slope of {metric} needs regions of two sizes at least")
    return stats.loglog_slope([x for x, _ in points], [y for _, y in points]).estimate


def _unknown(metric: str) -> UsageError:
    return UsageError(f"no metric {metric!r}: see the grammar in contended/profile/query.py")
