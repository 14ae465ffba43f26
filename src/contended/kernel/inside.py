# SPDX-License-Identifier: MIT
"""`contended` inside a kernel of the lab: this Python, with the modules that it takes.

`contended host` says of a running kernel whether it has a bug; one that has it for sure is the
lab's.
"""

from __future__ import annotations

import json
import py_compile
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import contended
from contended import __version__, child, machine, records
from contended.errors import ContendedError
from contended.kernel import build, guest, qemu, source, variants
from contended.kernel.build import Kernel
from contended.kernel.make import Progress
from contended.kernel.observe import CONFIG, Said, look
from contended.records import Record
from contended.show.table import columns

SCHEMA = 1
#: Shows a tracing instance or a mount that it has left behind.
LEFT = "ls /sys/kernel/tracing/instances; grep contended /proc/mounts; true"

# What has been loaded when it is done; the controls are processes of their own.
_LIST = """\
import importlib, json, runpy, sys
sys.stdout, out = sys.stderr, sys.stdout
for name in ("cli", "measure.controls", "measure.tracing"):
    importlib.import_module("contended." + name)
from contended import cases, register
for slug in register.slugs():
    cases.study(slug)
sys.argv = ["contended", "host", "mount-hash", "--json"]
try:
    runpy.run_module("contended.cli", run_name="__main__")
except SystemExit:
    pass
found = {getattr(module, "__file__", None) for module in sys.modules.values()}
json.dump([sorted(found - {None}), sys.path], out)
"""
# Processors that a workload would have for itself are for everybody here.
_COMMAND = """\
mkdir -p /mnt
export PYTHONHOME={home} PYTHONPATH={path} CONTENDED_HOME=/none PYTHON='taskset ff {python} -S'
{command}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What `contended host` says of a case, as root on a kernel; `left` is what it left behind."""

    slug: str
    variant: str
    build_id: str
    verdict: str
    why: list[str]
    left: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts(Record):
    """What it says on some kernels."""

    told: list[Told]
    linux: str
    qemu: str
    cpu: str
    started: str
    contended: str = __version__
    commit: str | None = field(default_factory=machine.commit)
    schema: int = SCHEMA

    def __str__(self) -> str:
        """A line for each reason."""
        rows = [["kernel", "verdict", "because"]]
        for one in self.told:
            head = [f"{one.slug}/{one.variant}", one.verdict]
            for why in one.why:
                rows.append([*head, why])
                head = ["", ""]
        return columns(rows)


def load(path: Path) -> Hosts:
    """Read what was saved; raises ContendedError if it is nothing such."""
    return records.load(Hosts, path, "verdicts", SCHEMA, "run it again")


def hosts(names: Sequence[str], progress: Progress | None = None) -> Hosts:
    """What `contended host` says of each SLUG/VARIANT's case on that kernel, built if need be."""
    chosen = [variants.pick(name) for name in names]
    started, origin = datetime.now(UTC).isoformat(timespec="seconds"), source.find()
    tell, told = progress or (lambda *_: None), []
    for variant in chosen:
        kernel = build.build(variant, CONFIG, origin, progress)
        tell(f"{variant}: contended host", 0, 0)
        command = f"$PYTHON -m contended.cli host {variant.slug} --json"
        said, left = look_with_python(kernel, [command, LEFT], cmdline=variant.cmdline)
        try:
            (found,) = json.loads(said.text[said.text.index("{") :])["cases"]
        except ValueError:
            last = (said.text.strip().splitlines() or ["nothing"])[-1]
            raise ContendedError(f"{variant}: contended host says: {last}") from None
        told.append(
            Told(
                slug=variant.slug,
                variant=variant.name,
                build_id=kernel.build_id,
                verdict=found["verdict"],
                why=found["why"],
                left=left.text.strip(),
            )
        )
    return Hosts(
        told=told,
        linux=origin.version,
        qemu=qemu.version(),
        cpu=machine.cpu_model(),
        started=started,
    )


def look_with_python(
    kernel: Kernel, commands: Sequence[str], *, cmdline: str = "", vcpus: int = 2
) -> list[Said]:
    """Run commands, in which $PYTHON has this package, as root on a kernel; what they said.

    Raises ContendedError if one does not end, or as `boot.boot` does.
    """
    files, path, more = _modules()
    python = Path(sys.executable).resolve()
    about = {
        "home": shlex.quote(sys.base_prefix),
        "path": shlex.quote(":".join(path)),
        "python": str(python),
    }
    programs = [python, *(file for file in files if file.suffix == ".so")]
    asked = [_COMMAND.format(command=command, **about) for command in commands]
    return look(kernel, asked, programs, cmdline=cmdline, vcpus=vcpus, files=more)[0]


@cache
def _modules() -> tuple[list[Path], list[str], list[guest.Entry]]:
    """The files of the modules that are loaded, where they are looked for, and those to pack."""
    done = subprocess.run(
        [sys.executable, "-c", _LIST],
        capture_output=True,
        text=True,
        env=child.environment(),
        check=False,
    )
    try:
        files, path = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ContendedError(f"which modules contended takes cannot be found out: {last}") from None
    data = Path(contended.__file__).parent.rglob("*.toml")
    found = sorted({*map(Path, files), *data})
    return found, [folder for folder in path if folder], list(_entries(found))


def _entries(files: Sequence[Path]) -> Iterator[guest.Entry]:
    """Files for the archive; modules without their source, which would be compiled in the guest."""
    with child.scratch() as work:
        for file in files:
            if file.suffix == ".so":
                continue  # goes with its libraries
            name = str(file)[1:]
            if file.suffix == ".py":
                py_compile.compile(str(file), cfile=str(work / "made"), doraise=True)
                yield name + "c", guest.PROGRAM, (work / "made").read_bytes()
            else:
                yield name, guest.PROGRAM, file.read_bytes()
