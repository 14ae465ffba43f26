# SPDX-License-Identifier: MIT
"""The profiler on a C model: the same tables as for a kernel, by virtual address.

The model is compiled with `csrc/qemu/user_main.c` into a program that says what it allocates. With
the expression for a size, such as `s->n * sizeof(*s->task)`, goes a member of the model's `struct
shared`, and with that, by the debug information, the struct that lies there.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from contended import cc, tree
from contended.errors import ContendedError, UsageError
from contended.measure import models, native
from contended.profile import assemble, coherence, output, plugin, symbolize
from contended.profile.assemble import NoRegion
from contended.profile.coherence import Provenance
from contended.profile.dwarf import Image
from contended.profile.layouts import Type
from contended.profile.saved import Profiles
from contended.profile.thing import Thing

FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-pthread", "-no-pie")
#: Instructions that a thread may be ahead, fewer than an operation has, or they would not meet.
QUANTUM = 20
THREADS = 4
OPS = 300
DEADLINE_S = 120.0
MAX_THREADS = 128


@dataclass(frozen=True, slots=True)
class Heap:
    """Something that the model allocated.

    Attributes:
        address: Where.
        size: Bytes.
        name: The member of struct shared that points at it, "shared" itself, or "".
        type: What lies there, one behind the other; None if unknown.
    """

    address: int
    size: int
    name: str
    type: Type | None


def profile(
    slug: str,
    variants: Sequence[str] | None = None,
    *,
    threads: int = THREADS,
    ops: int = OPS,
    quantum: int = QUANTUM,
    params: Mapping[str, int] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Profiles:
    """Run variants of a model under the profiler.

    Args:
        slug: The model.
        variants: Their names; default: all.
        threads: How many.
        ops: Operations of each thread.
        quantum: Instructions that a thread may be ahead of the slowest.
        params: Of the model, over the initial ones.
        progress: Called with what is being done, how many are done, and of how many.

    Raises:
        UsageError: no such model, variant or parameter, or a number out of range.
        plugin.NoPlugins: QEMU for user programs is missing, or takes no plugins.
        NoRegion: the model ended before it was measured.
        ContendedError: the model does not compile, or fails.
    """
    qemu = plugin.find("user")
    library = plugin.build(qemu)
    model = models.describe(slug)
    wanted = list(variants or [v.name for v in model.variants])
    for name in wanted:
        model.variant_index(name)
    values = model.param_values(params or {})
    most = min(model.max_threads or MAX_THREADS, MAX_THREADS)
    threads = max(threads, model.min_threads)
    if not 1 <= threads <= MAX_THREADS or ops < 1:
        raise UsageError(f"give 1 to {MAX_THREADS} threads and at least 1 operation")
    threads = min(threads, most)
    program = build(slug)
    found: list[coherence.Profile] = []
    with Image(program) as image:
        for number, variant in enumerate(wanted):
            if progress:
                progress(f"{slug}/{variant}", number, len(wanted))
            with tempfile.TemporaryDirectory(prefix="contended-") as work:
                out = Path(work) / "profile.json"
                option = plugin.option(library, out, quantum=quantum)
                command = [str(qemu.path), "-plugin", option, str(program), variant]
                command += [str(threads), str(ops), *(f"{k}={v}" for k, v in values.items())]
                said = _run(command, f"{slug}, variant {variant}")
                report = output.load(out)
            provenance = Provenance(
                qemu=f"{qemu.path.name} {qemu.version}",
                kernel=native.source(slug).name,
                build_id=image.build_id,
                vcpus=threads,
                quantum=quantum,
                line=report.line,
                workload=f"{slug} with {ops} operations of each thread",
                waits=0,
                escapes=0,
            )
            results = [row for row in said if row["type"] == "result"]
            if len(results) != len(report.regions):
                raise NoRegion(f"{slug}, variant {variant}: no measured region: no table")
            heap = _heap(image, said, variant)
            for region, result in zip(report.regions, results, strict=True):
                found.append(
                    assemble.assemble(
                        region,
                        variant=variant,
                        label=str(result["label"]),
                        size=0,
                        provenance=provenance,
                        frames=partial(symbolize.frames, image, cache=_cache() / "symbols"),
                        names=partial(symbolize.names, image),
                        resolve=partial(resolve, image, heap),
                    )
                )
    return Profiles(case=slug, run="user", mode="user", profiles=tuple(found))


def build(slug: str) -> Path:
    """Compile a model as a program, unless it is in the cache.

    Raises:
        ContendedError: no compiler, or an error in the C; its words are attached as a note.
    """
    file = native.source(slug)
    home = tree.home() / "csrc"
    return cc.compiled(
        "kernel/user",
        file.stem,
        [home / "qemu" / "user_main.c"],
        (*FLAGS, f'-DMODEL="models/{file.name}"', f"-I{home}", "-Wl,--build-id"),
        headers=(file, *home.glob("*.h"), *(home / "qemu").glob("*.h")),
        what=f"{file.name} as a program",
        libraries=native.link_flags(file),
    )


def _run(command: Sequence[str], what: str) -> list[dict[str, Any]]:
    """Run the program to its end; its JSON lines."""
    try:
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ContendedError(
            f"{what}: not done after {DEADLINE_S:.0f} s; try fewer operations or threads"
        ) from error
    said = []
    for line in run.stdout.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("type"), str):
            said.append(row)
    for row in said:
        if row["type"] == "error":
            raise ContendedError(f"{what}: {row.get('what')}")
    if run.returncode:
        words = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise ContendedError(f"{what}: QEMU ended with status {run.returncode}: {words}")
    return said


def _heap(image: Image, said: Sequence[Mapping[str, Any]], variant: str) -> list[Heap]:
    found = []
    for row in said:
        if row["type"] == "object":
            name, kind = _type_of(image, row["expression"], row["size"], variant)
            found.append(Heap(row["address"], row["size"], name, kind))
    return found


def _type_of(image: Image, expression: str, size: int, variant: str) -> tuple[str, Type | None]:
    """What an allocation is for, by the expression for its size."""
    own = variant.replace("-", "_")
    member = re.search(r"sizeof\(\*?s->(\w+)(?:\[0\])?\)", expression)
    tries: list[tuple[str, Callable[[], Type | None]]] = []
    if member:
        tries.append((member[1], lambda: image.type("shared").target(member[1])))
    elif re.search(r"sizeof\((\*s|struct shared)\)", expression):
        tries.append(("shared", lambda: image.type("shared")))
    elif "workers" in expression:
        tries.append(("workers", lambda: image.type("ct_worker")))
    else:  # a struct that has a layout for each variant
        tries.append(("", lambda: image.type(own)))
    for name, find in tries:
        try:
            kind = find()
        except UsageError:
            continue
        if kind and kind.size and (name or kind.size == size):
            return name, kind
    return (member[1] if member else ""), None


def resolve(image: Image, heap: Sequence[Heap], address: int, virtual: int = 0) -> Thing:
    """What is at an address of a model: a variable, or a member of what it allocated."""
    address = virtual or address
    for part in heap:
        if part.address <= address < part.address + part.size:
            inside = address - part.address
            if part.type is None:
                return Thing("heap", part.name or "heap", offset=inside, object=part.address)
            size = part.type.size
            # what follows a struct with a flexible array is the array
            if part.name == "shared":
                field = part.type.at(inside) or part.type.tail(inside)
                return Thing("heap", "shared", part.type.name, inside, field, part.address)
            index, offset = divmod(inside, size)
            label = f"{part.name}[{index}]" if part.size >= 2 * size and part.name else ""
            return Thing(
                "heap",
                part.name or part.type.name,
                part.type.name,
                offset,
                part.type.at(offset),
                part.address + index * size,
                label,
            )
    symbol = image.symbol_at(address)
    if symbol is None:
        return Thing("unknown")
    layout = image.variable(symbol.name)
    offset = address - symbol.address
    field = layout.at(offset) if layout and offset < layout.size else ""
    struct = layout.name if layout else ""
    return Thing("variable", symbol.name, struct, offset, field, symbol.address)


def _cache() -> Path:
    return tree.cache_dir() / "kernel"
