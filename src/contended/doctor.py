# SPDX-License-Identifier: MIT
"""What this machine has, what it lacks, and the one command that adds it.

Standard library only, and no syntax newer than Python 3.8, so that it runs before anything is
installed, and on a Python too old for the rest can say so.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from contended import packages, state
from contended.packages import PACKAGES, TARGETS, Package, cache_directory
from contended.state import Check

__all__ = ["PACKAGES", "Check", "Package", "Report", "cache_directory", "report"]

PACKED = Path(__file__).resolve().parent / "_tree"
OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 14)
_TRIAL = """#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
int doctor(void) { atomic_int n = 41; return atomic_fetch_add(&n, 1) + 1; }
"""


@dataclass(frozen=True)
class Report:
    """All that the doctor saw; of each package whether it is there."""

    packages: dict[Package, bool]
    checks: tuple[Check, ...]

    @property
    def missing(self) -> tuple[Package, ...]:
        """The packages that are not there, required or not."""
        return tuple(package for package, there in self.packages.items() if not there)

    def apt_get(self, *, kernels: bool = False) -> str:
        """The command that installs what the book lacks, or what else the kernel lab; or empty."""
        wanted = [p for p in self.missing if (p.needed_for == ("kernels",)) == kernels]
        return packages.advice(wanted).install

    def blockers(self, target: str) -> tuple[str, ...]:
        """What `make target` cannot do without and is not there."""
        lacking = [p.name for p in self.missing if p.required and target in p.needed_for]
        return (*lacking, *(c.name for c in self.checks if c.required and not c.ok))

    def to_json(self) -> str:
        """The report as JSON text."""
        advice = packages.advice(self.missing)
        checks = [{k: v for k, v in asdict(c).items() if k != "packages"} for c in self.checks]
        value = {
            "packages": [{**asdict(p), "there": there} for p, there in self.packages.items()],
            "checks": checks,
            "apt_get_first": advice.refresh,
            "apt_get": self.apt_get(),
            "apt_get_kernels": self.apt_get(kernels=True),
            "elsewhere": advice.elsewhere,
            "blockers": {target: self.blockers(target) for target in TARGETS},
        }
        return json.dumps(value, indent=2) + "\n"

    def to_text(self) -> str:
        """The report as tables for a terminal, ending in what to do."""
        rows: list[tuple[str, ...]] = [("package", "there", "for", "what it does")]
        for p, there in self.packages.items():
            state = "yes" if there else "MISSING" if p.required else "no (optional)"
            rows.append((p.name, state, ", ".join(p.needed_for), p.purpose))
        checks: list[tuple[str, ...]] = [("machine", "", "")]
        for c in self.checks:
            checks.append((c.name, "yes" if c.ok else "NO" if c.required else "no", c.detail))
        advice = packages.advice(self.missing)
        commands = {
            "No package lists: first  ": advice.refresh,
            "To add what is missing:  ": self.apt_get(),
            "And for the kernel lab:  ": self.apt_get(kernels=True),
        }
        lines = [*_table(rows), "", *_table(checks), ""]
        lines += [what + command for what, command in commands.items() if command]
        lines += advice.elsewhere
        goals = {f"make {target}": self.blockers(target) for target in ("book", "test", "kernels")}
        if PACKED.is_dir():  # installed from a wheel: there is no Makefile
            models = [name for name in self.blockers("labs") if name != "make"]
            kernels = [name for name in self.blockers("kernels") if name != "ca-certificates"]
            goals = {"contended measure": tuple(models), "contended kernel build": tuple(kernels)}
        for goal, blockers in goals.items():
            state = f"cannot run without {', '.join(blockers)}" if blockers else "ready"
            lines.append(f"{goal}: {state}")
        return "\n".join(lines) + "\n"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]  # noqa: B905 (Python 3.8 has no strict)
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def check_python() -> Check:
    """The Python that runs this is one that the pinned packages are for."""
    ok = OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON
    detail = f"{platform.python_version()} ({sys.executable})"
    if not ok:
        oldest, newest = (".".join(map(str, part)) for part in (OLDEST_PYTHON, NEWEST_PYTHON))
        detail += f": needs {oldest} to {newest}; name another with make PYTHON=/path/to/python3"
    return Check("Python", ok, True, detail)


def check_compiler() -> Check:
    """The compiler makes a shared object with threads and atomics that loads here."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), "cc")
    command, ok = compiler.split(), False
    run = functools.partial(subprocess.run, capture_output=True, text=True, timeout=60)
    with tempfile.TemporaryDirectory(prefix="contended-doctor-") as scratch:
        target = f"{scratch}/doctor.so"
        flags = ["-O2", "-fPIC", "-shared", "-pthread", "-x", "c", "-", "-o", target]
        try:
            run([*command, *flags], input=_TRIAL, check=True)
            ok = ctypes.CDLL(target).doctor() == 42
            detail = run([*command, "--version"]).stdout.partition("\n")[0]
        except FileNotFoundError:
            detail = f"no {compiler} on PATH"
        except subprocess.CalledProcessError as error:
            said = (line for line in error.stderr.splitlines() if "error" in line)
            detail = f"{compiler} fails: {next(said, 'no reason').strip()}"
        except (OSError, subprocess.TimeoutExpired) as error:
            detail = f"{compiler}: {error}"
    return Check("C compiler", ok, True, detail)


def check_cpus() -> Check:
    """At least two CPUs are allowed, so that two threads can contend."""
    cpus = sorted(os.sched_getaffinity(0))
    detail = f"{len(cpus)} allowed: {', '.join(map(str, cpus))}"
    if len(cpus) < 2:
        detail += "; contention needs two, so the chapters show recorded runs"
    return Check("CPUs", len(cpus) >= 2, False, detail)


def check_fifo() -> Check:
    """SCHED_FIFO is allowed: measuring threads then cannot be preempted by ordinary ones."""
    # In a child, so that this process keeps its scheduling class whatever happens.
    attempt = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    done = subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False)
    detail = "allowed: measurements are quieter with it"
    if done.returncode:
        detail = "not permitted (root, or ulimit -r 1); measurements wait for quiet moments instead"
    return Check("SCHED_FIFO", not done.returncode, False, detail)


def check_cache() -> Check:
    """What is compiled can be kept between runs."""
    directory = cache_directory()
    existing = next(p for p in (directory, *directory.absolute().parents) if p.exists())
    detail = str(directory)
    if not (ok := existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        detail += f": cannot write to {existing}; set CONTENDED_CACHE to a directory of yours"
    return Check("cache directory", ok, True, detail)


def report() -> Report:
    """Look at the machine; takes about a third of a second, most of it the compiler's."""
    found = (check_python(), check_compiler(), check_cpus(), check_fifo(), check_cache())
    checks = (*found, *state.checks())
    return Report({package: package.there() for package in PACKAGES}, checks)


def main(argv: list[str] | None = None) -> int:
    """Print the report; 1 if `make book` cannot run here: what only tests need is not fatal."""
    about = __doc__.partition("\n")[0]
    parser = argparse.ArgumentParser(prog="contended doctor", description=about)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="the report as JSON")
    names = "what this system can install of the table, on one line"
    group.add_argument("--packages", action="store_true", help=names)
    options = parser.parse_args(argv)
    if options.packages:
        sys.stdout.write(" ".join(filter(None, map(packages.system().name, PACKAGES))) + "\n")
        return 0
    seen = report()
    sys.stdout.write(seen.to_json() if options.json else seen.to_text())
    return 1 if seen.blockers("book") else 0


if __name__ == "__main__":
    sys.exit(main())
