# SPDX-License-Identifier: MIT
"""The numbers of a profile that expected outcomes in `variants.toml` are about.

A metric is written as::

    [LABEL/]COUNT_per_op[.FILTER(VALUE)]...    hitm_per_op.field(dentry.d_lockref).role(root)
    [LABEL/]share.COUNT[.FILTER(VALUE)]...     share.hitm.symbol(override_creds)
    [LABEL/]rank[.FILTER(VALUE)]...            rank.symbol(generic_permission)
    [LABEL/]worst_per_op[.FILTER(VALUE)]...    worst_per_op.source(fs/)
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
    source(P+Q)            ... or is of a kernel's file whose name begins so, inlined or not
    cpu(kernel), cpu(user) whose instruction; kernel unless said otherwise (user in user mode)

`share.COUNT` is the filtered part of all, 0 to 1. `rank` is the place of the first line that has an
access for which the filters hold, in the line table: 1 is the worst, 0 means none. `worst_per_op`
is the highest filtered number of HITMs that one line has for an operation. `top.X` is text
about the worst line: the function with most HITMs on it, its most contended member
("dentry.d_lockref"), that in words, and everything on it. `slope.METRIC` is the log-log slope of a
metric over regions of different size: 1 linear, 2 quadratic. `share.slow(lockref)` is the part of
reference operations that found the lock taken and queued for it: calls of `_raw_spin_lock` in the
lockref functions over their executions; the run must watch them (see `SLOW`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from contended import stats
from contended.errors import UsageError
from contended.profile.coherence import CacheLine, Profile, Site
from contended.profile.saved import Profiles

#: What `share.slow(NAME)` divides: functions with a fast path, and the call that ends it.
SLOW: Mapping[str, tuple[tuple[str, ...], str]] = {
    "lockref": (
        (
            *("lockref_get", "lockref_get_not_zero", "lockref_get_not_dead"),
            *("lockref_put_not_zero", "lockref_put_or_lock"),
        ),
        "_raw_spin_lock",
    )
}

_BY_PLACE = ("hitm", "hitm_loads", "hitm_stores", "invalidations")
_TOTAL = (*_BY_PLACE, "loads", "stores", "instructions")
_FILTER = re.compile(r"\.(\w+)\(([^()]*)\)")


def value(profiles: Profiles, variant: str, metric: str) -> float | str:
    """A metric of a variant.

    Raises UsageError if it is none, or this run does not have it (a label or a watched function).
    """
    if metric.startswith("slope."):
        return _slope(profiles, variant, metric.removeprefix("slope."))
    end = metric.partition("(")[0].rfind("/")  # a filter may have one as well
    label = metric[:end] if end >= 0 else None
    return _of(profiles.of(variant, label), metric[end + 1 :], profiles.mode)


def watch(names: str) -> list[tuple[str, str]]:
    """What a run must watch for `share.slow(names)`: functions, and (function, callee) pairs."""
    functions, callee = SLOW[names]
    return [(function, called) for called in ("", callee) for function in functions]


def _of(profile: Profile, metric: str, mode: str) -> float | str:
    """A metric of one region, without a label."""
    head, dot, rest = metric.partition(".")
    if head == "top" and rest in ("symbol", "field", "what", "line"):
        return _top(profile, rest)
    if head == "calls" and rest:
        return float(_calls(profile, rest))
    if head == "calls_per_op" and rest:
        return profile.per_op(_calls(profile, rest))
    if head == "share":
        if found := re.fullmatch(r"slow\(([^()]+)\)", rest):
            part, whole = _slow(profile, found[1])
        elif found := re.fullmatch(r"calls\(([^(),]+),([^()]+)\)", rest):
            part, whole = (_calls(profile, name.strip()) for name in found.groups())
        else:
            head, dot, rest = rest.partition(".")
            part, whole = _count(profile, metric, head, dot + rest, mode)
        return part / whole if whole else 0.0
    if head == "rank":
        filters = _filters(metric, dot + rest, mode)
        places = enumerate(profile.lines, 1)
        held = (n for n, line in places if any(_hold(filters, line, site) for site in line.sites))
        return float(next(held, 0))
    if head == "worst_per_op":
        filters = _filters(metric, dot + rest, mode)
        each = (
            sum(site.counts.hitm for site in line.sites if _hold(filters, line, site))
            for line in profile.lines
        )
        return profile.per_op(max(each, default=0))
    if head.endswith("_per_op"):
        count, _ = _count(profile, metric, head.removesuffix("_per_op"), dot + rest, mode)
        return profile.per_op(count)
    raise _unknown(metric)


def _count(profile: Profile, metric: str, count: str, text: str, mode: str) -> tuple[int, int]:
    """The filtered count and all of it."""
    filters = _filters(metric, text, mode)
    everywhere = all(name == "cpu" for name, _ in filters)
    if count not in (_TOTAL if everywhere else _BY_PLACE):
        raise _unknown(metric)
    side = profile.kernel if dict(filters)["cpu"] == "kernel" else profile.user
    whole = side.instructions if count == "instructions" else getattr(side.counts, count)
    if everywhere:
        return whole, whole
    sites = [site for line, site in profile.sites() if _hold(filters, line, site)]
    return sum(getattr(site.counts, count) for site in sites), whole


def _filters(metric: str, text: str, mode: str) -> list[tuple[str, str]]:
    """The names and arguments of filters, one of the CPU among them."""
    found: list[tuple[str, str]] = _FILTER.findall(text)
    if "".join(f".{name}({argument})" for name, argument in found) != text:
        raise _unknown(metric)
    if all(name != "cpu" for name, _ in found):
        found.append(("cpu", "kernel" if mode == "system" else "user"))
    for name, argument in found:
        if name not in _FILTERS or (name == "cpu" and argument not in ("kernel", "user")):
            raise _unknown(metric)
    return found


def _hold(filters: list[tuple[str, str]], line: CacheLine, site: Site) -> bool:
    return all(_FILTERS[name](line, site, argument) for name, argument in filters)


def _is_field(site: Site, wanted: str) -> bool:
    """Whether the byte is a member ("dentry.d_lockref"), or in one, or any of a struct."""
    struct, _, member = wanted.partition(".")
    thing = site.thing
    if thing is None or struct not in (thing.struct, thing.name):
        return False
    # Of members that share a byte any may be meant.
    names = thing.field.split("/") if "." not in thing.field else [thing.field]
    inside = (f"{member}.", f"{member}[")
    return not member or any(name == member or name.startswith(inside) for name in names)


_FILTERS: Mapping[str, Callable[[CacheLine, Site, str], bool]] = {
    "field": lambda _, site, text: _is_field(site, text),
    "line": lambda line, _, text: any(_is_field(site, text) for site in line.sites),
    "role": lambda _, site, text: getattr(site.thing, "role", None) == text,
    "name": lambda _, site, text: getattr(site.thing, "name", None) == text,
    "symbol": lambda _, site, text: site.symbol == text,
    "inline": lambda _, site, text: any(frame.function == text for frame in site.frames),
    "source": lambda _, site, text: any(
        frame.file.startswith(tuple(text.split("+"))) for frame in site.frames
    ),
    "cpu": lambda _, site, text: site.kernel == (text == "kernel"),
}


def _top(profile: Profile, which: str) -> str:
    if not profile.lines or not profile.lines[0].counts.hitm:
        return "nothing"
    line = profile.lines[0]
    if which == "symbol":
        by: Counter[str] = Counter()
        for site in line.sites:
            by[site.symbol] += site.counts.hitm
        return max(by, key=lambda name: by[name], default="unknown")
    if not line.things:
        return "unknown"
    first = line.things[0]
    if which == "field":
        return f"{first.struct or first.name or first.kind}.{first.field}".rstrip(".")
    return str(first) if which == "what" else "; ".join(map(str, line.things))


def _calls(profile: Profile, name: str) -> int:
    if name not in profile.calls:
        there = ", ".join(profile.calls) or "none"
        raise UsageError(f"the run does not watch {name!r}; it watches: {there}")
    return profile.calls[name]


def _slow(profile: Profile, name: str) -> tuple[int, int]:
    """How often functions with a fast path left it, and were executed."""
    if name not in SLOW:
        raise UsageError(f"no slow path {name!r}; there are: {', '.join(SLOW)}")
    functions, callee = SLOW[name]
    seen = [f for f in functions if f in profile.calls]
    if not seen:
        raise UsageError(f"the run does not watch any of {', '.join(functions)}")
    return sum(_calls(profile, f"{f}>{callee}") for f in seen), sum(profile.calls[f] for f in seen)


def _slope(profiles: Profiles, variant: str, metric: str) -> float:
    sizes, values = [], []
    for profile in profiles.profiles:
        if profile.variant == variant and profile.size > 0:
            found = _of(profile, metric, profiles.mode)
            if isinstance(found, str) or found <= 0:
                raise UsageError(f"no slope of {metric}: it is {found} at size {profile.size}")
            sizes.append(float(profile.size))
            values.append(found)
    if len(set(sizes)) < 2:
        raise UsageError(f"a slope of {metric} needs regions of two sizes at least")
    return stats.loglog_slope(sizes, values).estimate


def _unknown(metric: str) -> UsageError:
    return UsageError(f"no metric {metric!r}: see the grammar in contended/profile/query.py")
