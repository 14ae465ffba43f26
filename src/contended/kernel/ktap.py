# SPDX-License-Identifier: MIT
"""Outcomes as KTAP, version 1, for those who collect what kernel tests say.

The format is Linux's own, https://docs.kernel.org/dev-tools/ktap.html: a case is the plan, a
variant a test, and each outcome a subtest of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from contended.kernel.record import BootRecord, KernelRun, OutcomeRecord
from contended.measure.results import number

VERSION = "KTAP version 1"
_INDENT = "  "
# A word that a parser would take for a directive, where only data may stand.
_DIRECTIVE = re.compile(r"(SKIP|TODO|XFAIL|TIMEOUT|ERROR)\b", re.I)


def report(done: KernelRun, variants: Iterable[str] = ()) -> str:
    """A run's outcomes; of these variants, those that were not run are skipped tests."""
    names = list(dict.fromkeys([*variants, *(outcome.variant for outcome in done.outcomes)]))
    lines = [VERSION, f"1..{len(names)}", f"# {_words(done.case)}: {_words(repr(done))}"]
    for number_, name in enumerate(names, 1):
        found = [outcome for outcome in done.outcomes if outcome.variant == name]
        if found:
            lines += [f"{_INDENT}{line}" for line in _subtests(done, found)]
            lines.append(_result(all(o.held for o in found), number_, name))
        else:
            ran = any(boot.variant == name for boot in done.boots)
            why = "nothing is expected of it" if ran else "it was not asked for"
            lines.append(_result(True, number_, name, f"SKIP {why}"))
    return "\n".join(lines)


def _subtests(done: KernelRun, found: list[OutcomeRecord]) -> Iterator[str]:
    yield VERSION
    yield f"1..{len(found)}"
    for count, outcome in enumerate(found, 1):
        seen = number(outcome.seen) if isinstance(outcome.seen, float | int) else outcome.seen
        yield f"# {_words(outcome.condition)}; seen: {_words(str(seen))}"
        boots = done.of(outcome.variant, outcome.run)
        data = "" if outcome.held else _why(outcome, boots)
        yield _result(outcome.held, count, f"{outcome.run}: {outcome.said}", data)


def _why(outcome: OutcomeRecord, boots: list[BootRecord]) -> str:
    failed = next((boot.failed for boot in boots if boot.failed), "")
    reason = _words(outcome.reason)
    # Without a number the boot is to blame; what a panic was expected to show is judged as usual.
    if failed and outcome.seen is None:
        return f"{'TIMEOUT' if failed.startswith('hang') else 'ERROR'} {reason}"
    return f"({reason})" if _DIRECTIVE.match(reason) else reason


def _result(held: bool, count: int, name: str, data: str = "") -> str:
    line = f"{'ok' if held else 'not ok'} {count} {_words(name)}"
    return f"{line} # {data}" if data else line


def _words(text: str) -> str:
    """A text for one line, without the sign that ends a description."""
    return " ".join(text.replace("#", "no. ").split())
