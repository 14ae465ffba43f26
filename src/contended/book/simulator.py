# SPDX-License-Identifier: MIT
"""The tables of docs/simulators.md, from the code: `python -m contended.book.simulator`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from contended import cases, tree
from contended.errors import ContendedError
from contended.measure.results import number
from contended.simulate import grace, machines
from contended.simulate.caches import COST_NAMES
from contended.simulate.machines import Parameter
from contended.simulate.workload import SMT, Scenario

PAGE = Path("docs/simulators.md")
_WAYS = ("core", "near", "cross", "far", "fill", "pause")

_Rows = list[list[str]]


def _shown() -> list[str]:
    return [name for name in machines.names() if name != machines.HERE]


def _machines() -> _Rows:
    rows = [["name", "what it is", "CPUs", *(f"{way} (ns)" for way in _WAYS)]]
    for name in _shown():
        box = machines.get(name)
        costs = [number(getattr(box.costs, way), 3) for way in _WAYS]
        rows.append([f"`{name}`", box.title, str(box.cpus), *costs])
    return rows


_PLAIN = ("request", "take", "early", "grouped")  # no times


def _costs() -> _Rows:
    rows = [["cost", "machines", "value", "basis", "range", "source"]]
    for name in (*COST_NAMES, *_PLAIN):
        # A cost's sources and values, each with the machines that it holds for.
        found: dict[tuple[Parameter, float], list[str]] = {}
        for machine in _shown():
            box = machines.get(machine)
            choices = {"take": box.take, "early": box.early, "grouped": box.grouped}
            where = {**box.parameters, **choices}[name]
            key = where, getattr(box.costs, name, where.low)
            found.setdefault(key, []).append(f"`{machine}`")
        for (where, value), named in found.items():
            which = "all" if len(found) == 1 else ", ".join(named)
            unit = "" if name in _PLAIN else " ns"
            rows.append([f"`{name}`", which, f"{value:g}{unit}", *_where(where)])
    return rows


def _work() -> _Rows:
    scenarios = [each for each in cases.workloads().values() if isinstance(each, Scenario)]
    works = {name: work for each in scenarios for name, work in each.works.items()}
    return [["work", "value", "basis", "range", "source"]] + [
        [f"`{name}`", f"{number(work.value, 3)} {work.unit}", *_where(work.where)]
        for name, work in {**works, "smt": SMT}.items()
    ]


def _rcu() -> _Rows:
    return [["parameter", "value", "basis", "range", "source"]] + [
        [f"`{name}`", number(value, 3), *_where(where)] for name, value, where in grace.sources()
    ]


_KEY = r"\b(?:[a-z]+\d{4}[a-z]+|linux[0-9a-f]{12})\b"  # a citation's
TABLES = {"machines": _machines, "costs": _costs, "work": _work, "rcu": _rcu}


def _where(where: Parameter) -> list[str]:
    low, high = number(where.low, 3), number(where.high, 3)
    source = re.sub(_KEY, lambda key: f"{{cite}}`{key[0]}`", where.source)
    return [where.basis, low if low == high else f"{low} to {high}", source]


def render(text: str) -> str:
    """The page with its tables as the code has them now; one that there is not is an error."""

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name not in TABLES:
            raise ContendedError(f"no table {name!r}; choose one of: {', '.join(TABLES)}")
        head, *rows = TABLES[name]()
        lines = [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows)]
        return "\n".join([f"<!-- table {name} -->", *lines, "<!-- end -->"])

    return re.sub(r"<!-- table (\w+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main() -> int:
    """Write the page anew."""
    path = tree.home() / PAGE
    path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
