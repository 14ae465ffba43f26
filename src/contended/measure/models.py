# SPDX-License-Identifier: MIT
"""What a C model says of itself: its variants, parameters, counters and phases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from contended import records
from contended.errors import UsageError
from contended.measure import native
from contended.measure.runner import Runner


@dataclass(frozen=True, slots=True)
class Named:
    """A variant or a counter: its name and what it is."""

    name: str
    help: str


@dataclass(frozen=True, slots=True)
class Param:
    """A number that the reader may set, from `min` to `max`, in `unit`."""

    name: str
    unit: str
    help: str
    initial: int
    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Field:
    """A member of struct `of`: `size` bytes from `offset` on; `kind` says what touches it."""

    of: str
    name: str
    kind: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A compiled model.

    Attributes:
        slug: Its name.
        summary: What it does, in a line.
        op: What one operation is.
        min_threads: The fewest threads it runs with.
        max_threads: The most, or 0 for as many as there are CPUs.
        variants: The versions of the code under study; the first is the base of ratios.
        params: What may be set.
        counters: What each thread counts.
        phases: What runs one after the other on the same state.
        fields: Where the members of its structs lie, by `offsetof`, if the layout is the point.
        library: The shared object.
    """

    slug: str
    summary: str
    op: str
    min_threads: int
    max_threads: int
    variants: tuple[Named, ...]
    params: tuple[Param, ...]
    counters: tuple[Named, ...]
    phases: tuple[str, ...]
    fields: tuple[Field, ...]
    library: Path

    def variant_index(self, name: str) -> int:
        """The variant's place in the table.

        Raises:
            UsageError: there is none of that name; the message lists those there are.
        """
        return _index("variant", name, [v.name for v in self.variants], self.slug)

    def param_values(self, chosen: Mapping[str, int]) -> dict[str, int]:
        """All parameters by name: the chosen values over the initial ones.

        Raises:
            UsageError: an unknown name (the message lists the names) or a value out of range.
        """
        values = {p.name: p.initial for p in self.params}
        for name, value in chosen.items():
            param = self.params[_index("parameter", name, list(values), self.slug)]
            if not param.min <= value <= param.max:
                span = f"{param.min} to {param.max} {param.unit}".rstrip()
                raise UsageError(f"{name}={value} is out of range: {span}")
            values[name] = value
        return values


def describe(model: str | Path, runner: Runner | None = None) -> Model:
    """Build a model and ask it for its description.

    Args:
        model: A slug, or the path of a C file.
        runner: The child process to ask in; without one, a process is started and ended.
    """
    library = native.build(model)
    with ExitStack() as stack:
        said = (runner or stack.enter_context(Runner())).describe(library)
    about: Model = records.adapter(Model).validate_python({**said, "library": library})
    return about


def _index(what: str, name: str, names: Iterable[str], slug: str) -> int:
    known = list(names)
    if name not in known:
        listed = ", ".join(known) or "none"
        raise UsageError(f"{slug} has no {what} {name!r}; it has: {listed}")
    return known.index(name)
