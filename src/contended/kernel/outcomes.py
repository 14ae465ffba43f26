# SPDX-License-Identifier: MIT
"""From what guests reported to "held" or "did not hold".

Names of metrics are flat. A result with a label is `LABEL/metric`; several results with one label
that differ in size are `LABEL@SIZE/metric`. Besides what is measured there are `slope.METRIC`, how
METRIC grows with the size, and `ratio.METRIC(LABEL,LABEL)`.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contended.errors import ContendedError
from contended.kernel.boot import GuestReport
from contended.kernel.record import OutcomeRecord
from contended.kernel.variants import Case, Outcome
from contended.kernel.vm import plain
from contended.measure.results import number
from contended.profile import query
from contended.profile.saved import Profiles

Value = float | str
Metrics = dict[str, list[Value]]
"""Each metric's value in each repeat."""

# How the kernel's checks begin what they have to say.
_SPLAT = re.compile(
    r"WARNING: |BUG: |kernel BUG at |Oops: |general protection fault|UBSAN: |list_(add|del) corr"
    r"|INFO: (task .* blocked|trying to register non-static)|rcu: INFO: |Kernel panic - "
)
STALL = re.compile(r"rcu: INFO: |BUG: soft lockup|BUG: workqueue lockup|INFO: task .* blocked")
"""Complaints that a guest makes, too, whose host gives it no processor for seconds."""
_RATIO = re.compile(r"ratio\.(?P<metric>[^(]+)\((?P<above>[^,()]*),(?P<below>[^,()]*)\)")
EXCERPT_LINES, EXCERPT_CHARS = 120, 12_000


class NoMetric(ContendedError):
    """A metric that the runs do not have; the message lists those that they have."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A boot that gave no report: `kind` is panic, hang or error."""

    kind: str
    reason: str
    console: str


Report = GuestReport | Failed | Profiles
"""What a boot gave; under the profiler, its metrics are those of the profiles."""
Boots = Sequence[Report]


def metrics(boots: Boots) -> Metrics:
    """What repeats of one run gave, by name; a metric that a repeat lacks is left out."""
    each = [_of_failed(b) if isinstance(b, Failed) else _of_report(b)
            for b in boots if not isinstance(b, Profiles)]  # fmt: skip
    if not each:
        return {}
    return {name: [one[name] for one in each] for name in each[0] if all(name in x for x in each)}


def look_up(known: Metrics, name: str) -> list[Value]:
    """A metric's value in each repeat.

    Raises:
        NoMetric: there is none of that name.
    """
    if name in known:
        return known[name]
    if match := _RATIO.fullmatch(name):
        metric, labels = match["metric"], (match["above"], match["below"])
        names = [f"{label}/{metric}" if label else metric for label in labels]
        above, below = (look_up(known, each) for each in names)
        return [_divide(a, b) for a, b in zip(above, below, strict=True)]
    there = ", ".join(sorted(known)) or "none"
    raise NoMetric(f"no metric {name!r}; there are: {there}")


def judge(case: Case, boots: Mapping[tuple[str, str], Boots]) -> list[OutcomeRecord]:
    """Judge a case's outcomes by what its boots, keyed (variant, run), gave.

    Outcomes of variants that were not run are left out. Whatever cannot be judged did not hold.
    """
    known = {key: metrics(done) for key, done in boots.items()}
    ran = {variant for variant, _ in boots}
    return [_judge(outcome, boots, known) for outcome in case.outcomes if outcome.variant in ran]


def splats(console: str) -> list[str]:
    """The first lines of the kernel's complaints: warnings, lockdep reports, oopses, stalls."""
    lines = (plain(line) for line in console.splitlines())
    return [line for line in lines if _SPLAT.match(line)]


def excerpt(console: str) -> str:
    """The console from just before the first complaint, bounded; empty if there is none."""
    lines = [plain(line) for line in console.splitlines()]
    first = next((i for i, line in enumerate(lines) if _SPLAT.match(line)), None)
    if first is None:
        return ""
    # A report has a ruler and a title above the line that is recognized.
    while first > 0 and re.match(r"[=\-]{5,}|-+\[ cut here", lines[first - 1]):
        first -= 1
    text = "\n".join(lines[first : first + EXCERPT_LINES])
    return text[:EXCERPT_CHARS]


def condition(outcome: Outcome) -> str:
    """An outcome's condition as text, e.g. "calls_per_op.f >= 1.9"."""
    about = outcome.metric
    if outcome.relative_to is not None:
        about += f" / {outcome.relative_to}'s"
    signs = (
        (">=", outcome.at_least),
        ("<=", outcome.at_most),
        ("=", outcome.equals),
        ("contains", None if outcome.contains is None else repr(outcome.contains)),
        ("lacks", None if outcome.lacks is None else repr(outcome.lacks)),
    )
    wanted = [f"{sign} {_short(value)}" for sign, value in signs if value is not None]
    return f"{about} {' and '.join(wanted)}"


def _judge(
    outcome: Outcome,
    boots: Mapping[tuple[str, str], Boots],
    known: Mapping[tuple[str, str], Metrics],
) -> OutcomeRecord:
    try:
        values = _values(outcome, outcome.variant, boots, known)
        if outcome.relative_to is not None:
            below = _values(outcome, outcome.relative_to, boots, known)
            values = [_divide(a, b) for a, b in zip(values, below, strict=False)]
    except ContendedError as error:
        return _judged(outcome, None, str(error))
    if outcome.contains is not None or outcome.lacks is not None:
        return _judge_text(outcome, values)
    judged = _judge_number(outcome, values)
    if outcome.metric == "smoke.failed" and not judged.held:
        return replace(judged, reason=f"{judged.reason} ({_failed_checks(outcome, boots)})")
    return judged


def _judged(
    outcome: Outcome,
    seen: Value | None,
    reason: str,
    spread: tuple[float, float] | tuple[None, None] = (None, None),
) -> OutcomeRecord:
    """What is kept of an outcome: it held unless there is a reason why not."""
    return OutcomeRecord(
        variant=outcome.variant,
        run=outcome.run,
        expected=outcome.expected,
        condition=condition(outcome),
        metric=outcome.metric,
        seen=seen,
        low=spread[0],
        high=spread[1],
        held=not reason,
        reason=reason,
        timed=outcome.timed,
    )


def _failed_checks(outcome: Outcome, boots: Mapping[tuple[str, str], Boots]) -> str:
    """The smoke checks that failed, each with its reason."""
    return "; ".join(
        f"{check.get('name', '?')}: {check.get('detail', '?')}"
        for boot in boots[outcome.variant, outcome.run]
        if isinstance(boot, GuestReport)
        for check in boot.checks
        if not check.get("ok")
    )


def _values(
    outcome: Outcome,
    variant: str,
    boots: Mapping[tuple[str, str], Boots],
    known: Mapping[tuple[str, str], Metrics],
) -> list[Value]:
    key = (variant, outcome.run)
    if key not in boots or not boots[key]:
        raise ContendedError(f"variant {variant} was not run with {outcome.run}")
    profiled = [boot for boot in boots[key] if isinstance(boot, Profiles)]
    if len(profiled) == len(boots[key]):
        return [query.value(each, variant, outcome.metric) for each in profiled]
    try:
        return look_up(known[key], outcome.metric)
    except NoMetric:
        # What a boot that failed lacks is not a misspelt name.
        if failed := next((b for b in boots[key] if isinstance(b, Failed)), None):
            raise ContendedError(f"{failed.kind}: {failed.reason}") from None
        raise


def _judge_number(outcome: Outcome, values: Sequence[Value]) -> OutcomeRecord:
    numbers = [value for value in values if isinstance(value, float)]
    if len(numbers) != len(values):
        return _judged(
            outcome, None, f"{outcome.metric} is a text: ask whether it contains or lacks something"
        )
    if any(math.isnan(value) for value in numbers):
        return _judged(outcome, None, f"{outcome.metric} is a ratio to 0")
    seen = statistics.median(numbers)
    broken = [
        f"{_short(seen)} is {how} {_short(bound)}"
        for how, bound, fails in (
            ("below", outcome.at_least, lambda bound: seen < bound),
            ("above", outcome.at_most, lambda bound: seen > bound),
            ("not", outcome.equals, lambda bound: not math.isclose(seen, bound, rel_tol=1e-9)),
        )
        if bound is not None and fails(bound)
    ]
    return _judged(outcome, seen, " and ".join(broken), (min(numbers), max(numbers)))


def _judge_text(outcome: Outcome, values: Sequence[Value]) -> OutcomeRecord:
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) != len(values):
        return _judged(outcome, None, f"{outcome.metric} is a number: give it a bound")
    broken = []
    if outcome.contains is not None and not all(outcome.contains in text for text in texts):
        broken.append(f"{outcome.contains!r} is not in it")
    if outcome.lacks is not None and any(outcome.lacks in text for text in texts):
        broken.append(f"{outcome.lacks!r} is in it")
    return _judged(outcome, _line_of_interest(outcome, texts), " and ".join(broken))


def _line_of_interest(outcome: Outcome, texts: Iterable[str]) -> str:
    """What to show of a text: the line that was looked for, or the first complaint, or nothing."""
    for wanted in filter(None, (outcome.contains, outcome.lacks)):
        for text in texts:
            for line in text.splitlines():
                if wanted.splitlines()[0] in line:
                    return plain(line)
    return next((line for text in texts for line in splats(text)), "")


def _of_failed(failed: Failed) -> dict[str, Value]:
    return {
        "console": failed.console,
        "splats": float(len(splats(failed.console))),
        "ended": failed.reason,
    }


def _of_report(report: GuestReport) -> dict[str, Value]:
    found: dict[str, Value] = {
        "console": report.console,
        "dmesg": report.dmesg,
        "splats": float(len(splats(report.console))),
        "ended": "",
    }
    if report.checks:
        failed = [check for check in report.checks if not check.get("ok")]
        found["smoke.failed"] = float(len(failed))
        found["smoke.checks"] = float(len(report.checks))
    found.update(_of_results(report.results))
    return found


def _of_results(results: Sequence[Mapping[str, Any]]) -> dict[str, Value]:
    # label -> size -> metric -> values; equal labels and sizes are repeats within the boot
    sorted_out: dict[str, dict[int, dict[str, list[float]]]] = defaultdict(dict)
    for result in results:
        label, size = str(result.get("label", "")), int(result.get("size", 0))
        place = sorted_out[label].setdefault(size, defaultdict(list))
        for name, value in _of_result(result).items():
            place[name].append(value)
    found: dict[str, Value] = {}
    points: list[tuple[int, dict[str, float]]] = []
    for label, sizes in sorted_out.items():
        prefix = f"{label}/" if label else ""
        own = []
        for size, values in sizes.items():
            middle = {name: statistics.median(v) for name, v in values.items()}
            if len(sizes) == 1:
                found.update({prefix + name: value for name, value in middle.items()})
            else:
                at = f"{label}@{size}/"
                found.update({at + name: value for name, value in middle.items()})
            if size > 0:
                own.append((size, middle))
        found.update({f"{prefix}{name}": slope for name, slope in _slopes(own).items()})
        points += own
    # Labels that differ in nothing but the size belong to one line.
    if len({size for size, _ in points}) == len(points) and len(sorted_out) > 1:
        found.update(_slopes(points))
    return found


def _of_result(result: Mapping[str, Any]) -> dict[str, float]:
    ops, ns = float(result.get("ops", 0)), float(result.get("ns", 0))
    found = {"ops": ops, "ns": ns}
    if ops:
        # As in the models: what one operation takes in the process that does it.
        found["ns_per_op"] = ns * float(result.get("procs", 1)) / ops
    for kind in ("calls", "counts"):
        for name, value in result.get(kind, {}).items():
            found[f"{kind}.{name}"] = float(value)
            if ops:
                found[f"{kind}_per_op.{name}"] = float(value) / ops
    for name, value in result.get("latency_ns", {}).items():
        found[f"latency_us.{name}"] = float(value) / 1e3
    return found


def _slopes(points: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, Value]:
    """The slope of each metric over the size, both logarithmic: 1 is linear, 2 quadratic."""
    if len({size for size, _ in points}) < 2:
        return {}
    found: dict[str, Value] = {}
    for name in points[0][1]:
        line = [(size, values[name]) for size, values in points if values.get(name, 0) > 0]
        if len(line) == len(points):
            x, y = zip(*((math.log(a), math.log(b)) for a, b in line), strict=True)
            found[f"slope.{name}"] = statistics.linear_regression(x, y).slope
    return found


def _divide(above: Value, below: Value) -> Value:
    if isinstance(above, str) or isinstance(below, str):
        raise NoMetric("a text cannot be divided by another")
    return above / below if below else math.nan


def _short(value: Value) -> str:
    return number(value) if isinstance(value, int | float) else value
