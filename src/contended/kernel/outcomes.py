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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contended.errors import ContendedError
from contended.kernel.boot import GuestReport
from contended.kernel.record import OutcomeRecord
from contended.kernel.variants import Expectation, KernelCase
from contended.kernel.vm import plain
from contended.measure.results import number
from contended.profile import query
from contended.profile.saved import Profiles

Value = float | str
Metrics = dict[str, list[Value]]  #: Each metric's value in each repeat.
# How the kernel's checks begin what they have to say.
_SPLAT = re.compile(
    r"WARNING: |BUG: |kernel BUG at |Oops: |general protection fault|UBSAN: |list_(add|del) corr"
    r"|INFO: (task .* blocked|trying to register non-static)|rcu: INFO: |Kernel panic - "
)
#: Complaints that a guest makes, too, whose host gives it no processor for seconds.
STALL = re.compile(r"rcu: INFO: |BUG: soft lockup|BUG: workqueue lockup|INFO: task .* blocked")
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


#: What a boot gave; under the profiler, its metrics are those of the profiles.
Report = GuestReport | Failed | Profiles
Boots = Mapping[tuple[str, str], Sequence[Report]]  #: What the repeats gave, by variant and run.


def metrics(boots: Sequence[Report]) -> Metrics:
    """What repeats of one run gave, by name; a metric that a repeat lacks is left out."""
    each = [_of_boot(boot) for boot in boots if not isinstance(boot, Profiles)]
    names = each[0] if each else ()
    return {name: [one[name] for one in each] for name in names if all(name in x for x in each)}


def look_up(known: Metrics, name: str) -> list[Value]:
    """A metric's value in each repeat; raises NoMetric if there is none of that name."""
    if name in known:
        return known[name]
    if match := _RATIO.fullmatch(name):
        metric, labels = match["metric"], (match["above"], match["below"])
        names = [f"{label}/{metric}" if label else metric for label in labels]
        return _divided(*(look_up(known, each) for each in names))
    there = ", ".join(sorted(known)) or "none"
    raise NoMetric(f"no metric {name!r}; there are: {there}")


def judge(case: KernelCase, boots: Boots) -> list[OutcomeRecord]:
    """Judge the outcomes of variants that were run; whatever cannot be judged did not hold."""
    ran = {variant for variant, _ in boots}
    return [_judge(outcome, boots) for outcome in case.outcomes if outcome.variant in ran]


def splats(console: str) -> list[str]:
    """The first lines of the kernel's complaints: warnings, lockdep reports, oopses, stalls."""
    return [line for line in map(plain, console.splitlines()) if _SPLAT.match(line)]


def excerpt(console: str) -> str:
    """The console from just before the first complaint, bounded; empty if there is none."""
    lines = list(map(plain, console.splitlines()))
    first = next((i for i, line in enumerate(lines) if _SPLAT.match(line)), len(lines))
    # A report has a ruler and a title above the line that is recognized.
    while 0 < first < len(lines) and re.match(r"[=\-]{5,}|-+\[ cut here", lines[first - 1]):
        first -= 1
    return "\n".join(lines[first : first + EXCERPT_LINES])[:EXCERPT_CHARS]


def condition(outcome: Expectation) -> str:
    """An outcome's condition as text, e.g. "calls_per_op.f >= 1.9"."""
    about = outcome.metric + (f" / {outcome.relative_to}'s" if outcome.relative_to else "")
    numbers = {">=": outcome.at_least, "<=": outcome.at_most, "=": outcome.equals}
    texts = {"contains": outcome.contains, "lacks": outcome.lacks}
    wanted = [f"{sign} {number(value)}" for sign, value in numbers.items() if value is not None]
    wanted += [f"{sign} {value!r}" for sign, value in texts.items() if value is not None]
    return f"{about} {' and '.join(wanted)}"


def _judge(outcome: Expectation, boots: Boots) -> OutcomeRecord:
    seen: Value | None = None
    low = high = None
    try:
        values = _values(outcome, outcome.variant, boots)
        if outcome.relative_to is not None:
            values = _divided(values, _values(outcome, outcome.relative_to, boots))
        if outcome.contains is not None or outcome.lacks is not None:
            if len(texts := [v for v in values if isinstance(v, str)]) != len(values):
                raise ContendedError(f"{outcome.metric} is a number: give it a bound")
            seen = _line_of_interest(outcome, texts)
            reason = " and ".join(_broken(outcome, 0, texts))
        else:
            if len(numbers := [v for v in values if isinstance(v, float)]) != len(values):
                advice = "ask whether it contains or lacks something"
                raise ContendedError(f"{outcome.metric} is a text: {advice}")
            if any(map(math.isnan, numbers)):
                raise ContendedError(f"{outcome.metric} is a ratio to 0")
            seen, low, high = statistics.median(numbers), min(numbers), max(numbers)
            reason = " and ".join(_broken(outcome, seen, ()))
            if reason and outcome.metric == "smoke.failed":
                reason += f" ({_failed_checks(boots[outcome.variant, outcome.run])})"
    except ContendedError as error:
        reason = str(error)
    kept = ("variant", "run", "expected", "metric", "timed", "control")
    same = {name: getattr(outcome, name) for name in kept}
    about = condition(outcome)
    return OutcomeRecord(
        **same, condition=about, seen=seen, low=low, high=high, held=not reason, reason=reason
    )


def _values(outcome: Expectation, variant: str, boots: Boots) -> list[Value]:
    done = boots.get((variant, outcome.run))
    if not done:
        raise ContendedError(f"variant {variant} was not run with {outcome.run}")
    profiled = [boot for boot in done if isinstance(boot, Profiles)]
    if len(profiled) == len(done):
        return [query.value(each, variant, outcome.metric) for each in profiled]
    try:
        return look_up(metrics(done), outcome.metric)
    except NoMetric:
        # What a boot that failed lacks is not a misspelt name.
        if failed := next((boot for boot in done if isinstance(boot, Failed)), None):
            raise ContendedError(f"{failed.kind}: {failed.reason}") from None
        raise


def _broken(outcome: Expectation, seen: float, texts: Sequence[str]) -> Iterator[str]:
    if outcome.at_least is not None and seen < outcome.at_least:
        yield f"{number(seen)} is below {number(outcome.at_least)}"
    if outcome.at_most is not None and seen > outcome.at_most:
        yield f"{number(seen)} is above {number(outcome.at_most)}"
    if outcome.equals is not None and not math.isclose(seen, outcome.equals, rel_tol=1e-9):
        yield f"{number(seen)} is not {number(outcome.equals)}"
    if outcome.contains is not None and not all(outcome.contains in text for text in texts):
        yield f"{outcome.contains!r} is not in it"
    if outcome.lacks is not None and any(outcome.lacks in text for text in texts):
        yield f"{outcome.lacks!r} is in it"


def _failed_checks(boots: Sequence[Report]) -> str:
    checks = [check for boot in boots if isinstance(boot, GuestReport) for check in boot.checks]
    failed = [check for check in checks if not check.get("ok")]
    return "; ".join(f"{one.get('name', '?')}: {one.get('detail', '?')}" for one in failed)


def _line_of_interest(outcome: Expectation, texts: Sequence[str]) -> str:
    """What to show of a text: the line that was looked for, or the first complaint, or nothing."""
    for wanted in filter(None, (outcome.contains, outcome.lacks)):
        for text in texts:
            for line in text.splitlines():
                if wanted.splitlines()[0] in line:
                    return plain(line)
    return next((line for text in texts for line in splats(text)), "")


def _of_boot(boot: GuestReport | Failed) -> dict[str, Value]:
    console = boot.console
    found: dict[str, Value] = {"console": console, "splats": float(len(splats(console)))}
    if isinstance(boot, Failed):
        return {**found, "ended": boot.reason}
    found |= {"ended": "", "dmesg": boot.dmesg}
    if boot.checks:
        found["smoke.failed"] = float(sum(not check.get("ok") for check in boot.checks))
        found["smoke.checks"] = float(len(boot.checks))
    return found | _of_results(boot.results)


def _of_results(results: Sequence[Mapping[str, Any]]) -> dict[str, Value]:
    # label -> size -> metric -> values; equal labels and sizes are repeats within the boot
    grouped: dict[str, dict[int, dict[str, list[float]]]] = defaultdict(dict)
    for result in results:
        sizes = grouped[str(result.get("label", ""))]
        place = sizes.setdefault(int(result.get("size", 0)), defaultdict(list))
        for name, value in _of_result(result).items():
            place[name].append(value)
    found: dict[str, Value] = {}
    points: list[tuple[int, dict[str, float]]] = []
    for label, sizes in grouped.items():
        prefix = f"{label}/" if label else ""
        own = [
            (size, {name: statistics.median(each) for name, each in values.items()})
            for size, values in sizes.items()
        ]
        for size, middle in own:
            at = prefix if len(own) == 1 else f"{label}@{size}/"
            found |= {at + name: value for name, value in middle.items()}
        own = [point for point in own if point[0] > 0]
        found |= {f"{prefix}{name}": slope for name, slope in _slopes(own).items()}
        points += own
    # Labels that differ in nothing but the size belong to one line.
    if len({size for size, _ in points}) == len(points) and len(grouped) > 1:
        found |= _slopes(points)
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


def _slopes(points: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """The slope of each metric over the size, both logarithmic: 1 is linear, 2 quadratic."""
    if len({size for size, _ in points}) < 2:
        return {}
    x = [math.log(size) for size, _ in points]
    found = {}
    for name in points[0][1]:
        line = [values.get(name, 0) for _, values in points]
        if min(line) > 0:
            fit = statistics.linear_regression(x, [math.log(y) for y in line])
            found[f"slope.{name}"] = fit.slope
    return found


def _divided(above: Sequence[Value], below: Sequence[Value]) -> list[Value]:
    found: list[Value] = []
    for a, b in zip(above, below, strict=False):
        if isinstance(a, str) or isinstance(b, str):
            raise NoMetric("a text cannot be divided by another")
        found.append(a / b if b else math.nan)
    return found
