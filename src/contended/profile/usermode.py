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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from contended import cc, child, tree
from contended.errors import ContendedError, UsageError
from contended.measure import models, native
from contended.profile import assemble, plugin
from contended.profile.coherence import Origin, Profile, Thing
from contended.profile.dwarf import Image
from contended.profile.entries import Type
from contended.profile.saved import Profiles

FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-pthread", "-no-pie")
#: Instructions that a thread may be ahead, fewer than an operation has, or they would not meet.
QUANTUM = 20
THREADS = 4
OPS = 300
DEADLINE_S = 120.0
MAX_THREADS = 128

# Where something lies that the model allocated, its bytes, the member of struct shared that points
# at it ("shared": that itself, "": unknown), and what lies there in a row, if that is known.
_Heap = tuple[int, int, str, Type | None]


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
    """Run variants (default: all) of a model under the profiler, with `ops` for each thread.

    A thread may be `quantum` instructions ahead of the slowest; `params` are set over the model's
    own; `progress` is told what is being done, how many are done, and of how many. Raises
    UsageError for what the model has not, plugin.NoPlugins without a QEMU for user programs that
    takes plugins, and NoRegion if the model ended before it was measured.
    """
    qemu = plugin.find("user")
    library = plugin.build(qemu)
    model = models.describe(slug)
    wanted = list(variants or [v.name for v in model.variants])
    for name in wanted:
        model.variant_index(name)
    settings = [f"{name}={value}" for name, value in model.param_values(params or {}).items()]
    threads = max(threads, model.min_threads)
    if not 1 <= threads <= MAX_THREADS or ops < 1:
        raise UsageError(f"give 1 to {MAX_THREADS} threads and at least 1 operation")
    threads = min(threads, model.max_threads or MAX_THREADS)
    program = build(slug)
    found: list[Profile] = []
    with Image(program) as image, child.scratch() as work:
        out = work / "profile.json"
        qemu_command = [str(qemu.path), "-plugin", plugin.option(library, out, quantum=quantum)]
        cache = tree.cache_dir() / "kernel" / "symbols"
        origin = Origin(
            qemu=f"{qemu.path.name} {qemu.version}",
            kernel=native.source(slug).name,
            build_id=image.build_id,
            vcpus=threads,
            quantum=quantum,
            line=plugin.LINE,
            workload=f"{slug} with {ops} operations of each thread",
        )
        for number, variant in enumerate(wanted):
            if progress:
                progress(f"{slug}/{variant}", number, len(wanted))
            out.unlink(missing_ok=True)
            model_command = [str(program), variant, str(threads), str(ops), *settings]
            said = _run([*qemu_command, *model_command], f"{slug}, variant {variant}")
            regions = plugin.load(out).regions
            results = [row for row in said if row["type"] == "result"]
            if len(results) != len(regions):
                raise assemble.NoRegion(f"{slug}, variant {variant}: no measured region: no table")
            objects = [row for row in said if row["type"] == "object"]
            heap = [
                (row["address"], row["size"], *_type_of(image, row, variant)) for row in objects
            ]
            for region, result in zip(regions, results, strict=True):
                made = assemble.assemble(
                    region,
                    variant=variant,
                    label=str(result["label"]),
                    provenance=origin,
                    frames=partial(assemble.frames, image, cache=cache),
                    resolve=partial(resolve, image, heap),
                )
                found.append(made)
    return Profiles(case=slug, run="user", mode="user", profiles=tuple(found))


def build(slug: str) -> Path:
    """Compile a model as a program, unless it is in the cache."""
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
        run = plugin.run(command, DEADLINE_S)
    except subprocess.TimeoutExpired as error:
        raise ContendedError(
            f"{what}: not done after {DEADLINE_S:.0f} s; try fewer operations or threads"
        ) from error
    said = []
    for line in run.stdout.splitlines():
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and row.get("type") == "error":
                raise ContendedError(f"{what}: {row.get('what')}")
            if isinstance(row, dict) and isinstance(row.get("type"), str):
                said.append(row)
    if run.returncode:
        words = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise ContendedError(f"{what}: QEMU ended with status {run.returncode}: {words}")
    return said


def _type_of(image: Image, row: Mapping[str, Any], variant: str) -> tuple[str, Type | None]:
    """What an allocation is for, by the expression for its size."""
    expression, name, kind = row["expression"], "", None
    member = re.search(r"sizeof\(\*?s->(\w+)(?:\[0\])?\)", expression)
    with suppress(UsageError):
        if member:
            name = member[1]
            kind = image.type("shared").target(name)
        elif re.search(r"sizeof\((\*s|struct shared)\)", expression):
            name, kind = "shared", image.type("shared")
        elif "workers" in expression:
            name, kind = "workers", image.type("ct_worker")
        else:  # a struct that has a layout for each variant
            kind = image.type(variant.replace("-", "_"))
    if kind and kind.size and (name or kind.size == row["size"]):
        return name, kind
    return (member[1] if member else ""), None


def resolve(image: Image, heap: Sequence[_Heap], address: int, virtual: int = 0) -> Thing:
    """What is at an address of a model: a variable, or a member of what it allocated."""
    address = virtual or address
    for start, length, name, kind in heap:
        inside = address - start
        if not 0 <= inside < length:
            continue
        if kind is None:
            return Thing("heap", name or "heap", offset=inside, object=start)
        # what follows a struct with a flexible array is the array
        if name == "shared":
            field = kind.at(inside) or kind.tail(inside)
            return Thing("heap", name, kind.name, inside, field, start)
        index, offset = divmod(inside, kind.size)
        label = f"{name}[{index}]" if length >= 2 * kind.size and name else ""
        where = offset, kind.at(offset), start + index * kind.size
        return Thing("heap", name or kind.name, kind.name, *where, label)
    return image.thing_at(address) or Thing("unknown")
