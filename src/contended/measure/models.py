# SPDX-License-Identifier: MIT
"""What a C model says of itself: its variants, parameters, counters and phases."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from contended import records
from contended.errors import UsageError, pick
from contended.measure import native
from contended.measure.runner import Runner


@dataclass(frozen=True, slots=True)
class Named:
    """A variant or a counter, and what it is."""

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
class ModelField:
    """A member of struct `of`: `size` bytes from `offset` on; `kind` says what touches it."""

    of: str
    name: str
    kind: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A compiled model: a shared object, `library`, and what it says of itself.

    `op` is what one operation is; `max_threads` is 0 for as many as there are CPUs. The phases run
    one after the other on the same state. `fields` tell the layout of structs, if it is the point.
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
    fields: tuple[ModelField, ...]
    library: Path

    def variant_index(self, name: str) -> int:
        """The variant's place in the table; raises UsageError if there is none of that name."""
        places = {variant.name: place for place, variant in enumerate(self.variants)}
        return pick(places, name, f"{self.slug} has no variant")

    def param_values(self, chosen: Mapping[str, int]) -> dict[str, int]:
        """All parameters by name: the chosen values, or UsageError, over the initial ones."""
        known = {param.name: param for param in self.params}
        for name, value in chosen.items():
            param = pick(known, name, f"{self.slug} has no parameter")
            if not param.min <= value <= param.max:
                span = f"{param.min} to {param.max} {param.unit}".rstrip()
                raise UsageError(f"{name}={value} is out of range: {span}")
        return {param.name: chosen.get(param.name, param.initial) for param in self.params}


def describe(model: str | Path, runner: Runner | None = None) -> Model:
    """Build a model, a slug or a C file, and ask it, in a runner's process, what it is."""
    library = native.build(model)
    with ExitStack() as stack:
        said = (runner or stack.enter_context(Runner())).describe(library)
    about: Model = records.adapter(Model).validate_python({**said, "library": library})
    return about
