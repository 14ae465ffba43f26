# SPDX-License-Identifier: MIT
"""`contended host` inside a kernel of the lab: this Python, with the modules that it takes.

It says of a running kernel whether it has a bug; a kernel that has it for sure is the lab's.
"""

from __future__ import annotations

import json
import py_compile
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contended
from contended import child
from contended.errors import ContendedError
from contended.kernel import boot, build, guest, qemu, run, variants
from contended.kernel.observe import CONFIG

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
_SCRIPT = """\
export PATH=/bin PYTHONHOME={home} PYTHONPATH={path} CONTENDED_HOME=/none HOME=/root
mkdir -p /mnt
ifconfig lo up 2>/dev/null
echo "=== begin"
taskset ff {python} -S -m contended.cli host {slug} --json
echo "=== end $?"
"""


def host(slug: str, variant: variants.Variant, vcpus: int = 2) -> dict[str, Any]:
    """What `contended host SLUG --json` says, as root, in a kernel of configuration `observe`."""
    kernel = build.build(variant, CONFIG)
    files, path = _python()
    script = _SCRIPT.format(
        home=shlex.quote(sys.base_prefix),
        path=shlex.quote(":".join(path)),
        python=shlex.quote(str(Path(sys.executable).resolve())),
        slug=slug,
    )
    programs = [Path(sys.executable).resolve(), *(f for f in files if f.suffix == ".so")]
    more = list(_entries(files))
    with guest.tools_initrd(programs, script, more) as initrd:
        report = boot.boot(
            qemu.Boot(
                kernel=kernel,
                vcpus=vcpus,
                args={"run": "shell"},
                cmdline=variant.cmdline,
                accel="tcg",
                deadline_s=run.DEADLINE_S[CONFIG],
                initrd=initrd,
            )
        )
    found = re.search(r"^=== begin\n(.*?)^=== end (\d+)$", report.console, re.M | re.S)
    if found is None or found[2] != "0":
        raise ContendedError(f"contended host fails in {variant}: {report.console[-500:].strip()}")
    answer: dict[str, Any] = json.loads(found[1][found[1].index("{") :])
    return answer


def _python() -> tuple[list[Path], list[str]]:
    """The files of the modules that are loaded, and where they are looked for."""
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
    package = Path(contended.__file__).parent
    data = (file for file in package.rglob("*") if file.suffix in (".toml", ".json"))
    return sorted({*map(Path, files), *data}), [folder for folder in path if folder]


def _entries(files: list[Path]) -> Iterator[guest.Entry]:
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
