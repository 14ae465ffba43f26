# SPDX-License-Identifier: MIT
"""What is known of each case beyond the register: a module for each, named by its slug.

`contended.cases.mount_hash` has a `STUDY` of the case `mount-hash`. Of a case without a module, or
with parts missing, nothing is simulated or read; adding the module is all it takes to change that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from contended import register
from contended.cases.evidence import Evidence
from contended.cases.host import Host
from contended.errors import ContendedError, UsageError
from contended.register import Case
from contended.simulate.curves import Sweep
from contended.simulate.predict import CasePrediction, Predicted, cannot
from contended.simulate.validate import Modelled
from contended.simulate.workload import Workload

ONLY_STEPS = "the cost is in the algorithm's steps, which the model counts; no line is fought over"


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is known of a case; each part may be missing."""

    workloads: tuple[Workload, ...] = ()  # what can be simulated, the case's own first
    sweep: Sweep | None = None  # what the chapter's figure of many CPUs is made of
    predictions: Callable[[Case], Iterator[Predicted]] | None = None  # of its published values
    unsimulated: str = "nobody has simulated this case yet"  # why there are no predictions
    evidence: Mapping[str, Evidence] = field(default_factory=dict)  # by the id of the figure
    host: Host | None = None  # how to find it on a running kernel
    modelled: tuple[Modelled, ...] = ()  # what of its C model is held against the simulator


@cache
def study(slug: str) -> Study:
    """What is known of a case; raises UsageError if there is no such case.

    It is a ContendedError if its module has no study, or one of figures that there are not.
    """
    case = register.get(slug)
    name = f"{__name__}.{slug.replace('-', '_')}"
    if find_spec(name) is None:
        return Study()
    found = getattr(import_module(name), "STUDY", None)
    if not isinstance(found, Study):
        raise ContendedError(f"{name} has no STUDY: give it one, if only `STUDY = Study()`")
    for figure in found.evidence:
        case.figure(figure)
    return found


def workloads() -> dict[str, Workload]:
    """All that can be simulated, by name, in the register's order."""
    return {each.name: each for slug in register.slugs() for each in study(slug).workloads}


def workload(name: str) -> Workload:
    """What can be simulated under a name; raises UsageError if that is nothing."""
    known = workloads()
    if name not in known:
        raise UsageError(f"{name!r} cannot be simulated; choose one of: {', '.join(known)}")
    return known[name]


def case_of(name: str) -> str:
    """The slug of the case that a workload belongs to."""
    chosen = workload(name)
    return next(slug for slug in register.slugs() if chosen in study(slug).workloads)


@cache
def prediction(slug: str) -> CasePrediction:
    """Simulate what was published of a case; takes seconds."""
    case, known = register.get(slug), study(slug)
    if known.predictions is not None:
        return CasePrediction(tuple(known.predictions(case)))
    rows = (row for figure in case.published for row in cannot(figure, known.unsimulated))
    return CasePrediction(tuple(rows))


def modelled() -> list[Modelled]:
    """What of all cases' C models is held against the simulator."""
    return [each for slug in register.slugs() for each in study(slug).modelled]
