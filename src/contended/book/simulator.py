# SPDX-License-Identifier: MIT
"""The tables of docs/simulators.md, made from the code: `python -m contended.book.simulator`.

What stands between `<!-- table NAME -->` and `<!-- end -->` is replaced; a test holds the page and
the code together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
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


def _shown_machines() -> str:
    rows = []
    for name in machines.names():
        if name == machines.HERE:
            continue
        box = machines.get(name)
        costs = [number(getattr(box.costs, way), 3) for way in _WAYS]
        rows.append([f"`{name}`", box.title, str(box.cpus), *costs])
    return _table(["name", "what it is", "CPUs", *(f"{way} (ns)" for way in _WAYS)], rows)


def _shown_costs() -> str:
    rows = []
    for name in (*COST_NAMES, "request"):
        for where_from, value, which in _different(name):
            shown = f"{value:g}" if name == "request" else f"{value:g} ns"
            rows.append([f"`{name}`", which, shown, *_where(where_from)])
    return _table(["cost", "machines", "value", "basis", "range", "source"], rows)


def _different(name: str) -> list[tuple[Parameter, float, str]]:
    """A cost's sources and values, each with the machines that it holds for."""
    found: dict[tuple[Parameter, float], list[str]] = {}
    for machine in machines.names():
        if machine == machines.HERE:
            continue
        box = machines.get(machine)
        found.setdefault((box.parameters[name], getattr(box.costs, name)), []).append(machine)
    if len(found) == 1:
        return [(*key, "all") for key in found]
    return [(*key, ", ".join(f"`{n}`" for n in names)) for key, names in found.items()]


def _shown_work() -> str:
    works = {
        name: work
        for each in cases.workloads().values()
        if isinstance(each, Scenario)
        for name, work in each.works.items()
    }
    rows = [
        [f"`{name}`", f"{number(work.value, 3)} {work.unit}", *_where(work.where)]
        for name, work in {**works, "smt": SMT}.items()
    ]
    return _table(["work", "value", "basis", "range", "source"], rows)


def _shown_rcu() -> str:
    rows = [
        [f"`{name}`", number(value, 3), *_where(where)] for name, value, where in grace.sources()
    ]
    return _table(["parameter", "value", "basis", "range", "source"], rows)


TABLES = {
    "machines": _shown_machines,
    "costs": _shown_costs,
    "work": _shown_work,
    "rcu": _shown_rcu,
}


def _where(where: Parameter) -> list[str]:
    low, high = number(where.low, 3), number(where.high, 3)
    source = re.sub(r"\b[a-z]+\d{4}[a-z]+\b", lambda key: f"{{cite}}`{key[0]}`", where.source)
    return [where.basis, low if low == high else f"{low} to {high}", source]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def render(text: str) -> str:
    """The page with its tables as the code has them now.

    Raises:
        ContendedError: the page asks for a table that there is not.
    """

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name not in TABLES:
            raise ContendedError(f"no table {name!r}; choose one of: {', '.join(TABLES)}")
        return f"<!-- table {name} -->\n{TABLES[name]()}\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main() -> int:
    """Write the page anew."""
    path = tree.home() / PAGE
    path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
