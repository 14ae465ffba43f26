# SPDX-License-Identifier: MIT
"""What this machine has, what it lacks, and the one command that adds it.

`make doctor`, `contended doctor` and the CI script all read the one table of system packages, in
`contended.packages`, and the command names only what this system can install. Standard library
only, and no syntax newer than Python 3.8, so that it runs before anything is installed, and on a
Python too old for the rest can say so.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from contended import packages
from contended.packages import PACKAGES, TARGETS, Package, cache_directory, package_of_header

__all__ = [
    "PACKAGES",
    "TARGETS",
    "Check",
    "Finding",
    "Package",
    "Report",
    "cache_directory",
    "package_of_header",
    "report",
]

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 14)


@dataclass(frozen=True)
class Check:
    """One finding about the machine.

    Attributes:
        name: What was looked at.
        ok: Whether all is well.
        required: Whether nothing works if it is not.
        detail: What was found and, where it is wanting, what to do.
    """

    name: str
    ok: bool
    required: bool
    detail: str


@dataclass(frozen=True)
class Finding:
    """One row of the package table together with whether it is there."""

    package: Package
    there: bool


@dataclass(frozen=True)
class Report:
    """All that the doctor saw."""

    packages: tuple[Finding, ...]
    checks: tuple[Check, ...]

    @property
    def missing(self) -> tuple[Package, ...]:
        """The packages that are not there, required or not."""
        return tuple(f.package for f in self.packages if not f.there)

    @property
    def apt_get(self) -> str:
        """The command that installs what is missing of the book, as far as it can; or empty."""
        return packages.advice([p for p in self.missing if p.needed_for != ("kernels",)]).install

    @property
    def apt_get_kernels(self) -> str:
        """The command that installs what else the kernel lab lacks, as far as it can; or empty."""
        return packages.advice([p for p in self.missing if p.needed_for == ("kernels",)]).install

    def blockers(self, target: str = "book") -> tuple[str, ...]:
        """What `make target` cannot do without and is not there."""
        lacking = [p.name for p in self.missing if p.required and target in p.needed_for]
        return (*lacking, *(c.name for c in self.checks if c.required and not c.ok))

    def to_json(self) -> str:
        """The report as JSON text."""
        advice = packages.advice(self.missing)
        value = {
            "packages": [{**asdict(f.package), "there": f.there} for f in self.packages],
            "checks": [asdict(check) for check in self.checks],
            "apt_get_first": advice.refresh,
            "apt_get": self.apt_get,
            "apt_get_kernels": self.apt_get_kernels,
            "elsewhere": advice.elsewhere,
            "blockers": {target: self.blockers(target) for target in TARGETS},
        }
        return json.dumps(value, indent=2) + "\n"

    def to_text(self) -> str:
        """The report as tables for a terminal, ending in what to do."""
        rows: list[tuple[str, ...]] = [("package", "there", "for", "what it does")]
        for finding in self.packages:
            p = finding.package
            state = "yes" if finding.there else "MISSING" if p.required else "no (optional)"
            rows.append((p.name, state, ", ".join(p.needed_for), p.purpose))
        checks: list[tuple[str, ...]] = [("machine", "", "")]
        for check in self.checks:
            state = "yes" if check.ok else "NO" if check.required else "no"
            checks.append((check.name, state, check.detail))
        lines = [*_table(rows), "", *_table(checks), ""]
        advice = packages.advice(self.missing)
        if advice.refresh:
            lines.append(f"No package lists: first  {advice.refresh}")
        if self.apt_get:
            lines.append(f"To add what is missing:  {self.apt_get}")
        if self.apt_get_kernels:
            lines.append(f"And for the kernel lab:  {self.apt_get_kernels}")
        lines += advice.elsewhere
        for target in ("book", "test", "kernels"):
            blockers = ", ".join(self.blockers(target))
            lines.append(
                f"make {target}: {'cannot run without ' + blockers if blockers else 'ready'}"
            )
        return "\n".join(lines) + "\n"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines with aligned columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(row[i].ljust(width) for i, width in enumerate(widths)).rstrip() for row in rows
    ]


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
    source = (
        "#include <pthread.h>\n#include <stdatomic.h>\n#include <stdio.h>\n"
        "int doctor(void) { atomic_int n = 41; return atomic_fetch_add(&n, 1) + 1; }\n"
    )
    found = (name for name in ("cc", "gcc", "clang") if shutil.which(name))
    compiler = os.environ.get("CC") or next(found, "cc")
    with tempfile.TemporaryDirectory(prefix="contended-doctor-") as scratch:
        target = str(Path(scratch) / "doctor.so")
        command = [*compiler.split(), "-O2", "-fPIC", "-shared", "-pthread", "-x", "c", "-"]
        try:
            subprocess.run([*command, "-o", target], input=source, capture_output=True, text=True,
                           check=True, timeout=60)  # fmt: skip
            answer = ctypes.CDLL(target).doctor()
        except FileNotFoundError:
            return Check("C compiler", False, True, f"no {compiler} on PATH")
        except subprocess.CalledProcessError as error:
            said = next(
                (line for line in error.stderr.splitlines() if "error" in line), "no reason"
            )
            return Check("C compiler", False, True, f"{compiler} fails: {said.strip()}")
        except (OSError, subprocess.TimeoutExpired) as error:
            return Check("C compiler", False, True, f"{compiler}: {error}")
        version = subprocess.run([*compiler.split(), "--version"], capture_output=True, text=True,
                                 check=False, timeout=60).stdout.partition("\n")[0]  # fmt: skip
    return Check("C compiler", answer == 42, True, version)


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
    if done.returncode == 0:
        return Check("SCHED_FIFO", True, False, "allowed: measurements are quieter with it")
    return Check("SCHED_FIFO", False, False, "not permitted (root, or ulimit -r 1); "
                 "measurements wait for quiet moments instead")  # fmt: skip


def check_cache() -> Check:
    """Compiled models can be kept between runs."""
    directory = cache_directory()
    existing = next(p for p in (directory, *directory.absolute().parents) if p.exists())
    ok = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    advice = (
        "" if ok else f": cannot write to {existing}; set CONTENDED_CACHE to a directory of yours"
    )
    return Check("cache directory", ok, True, f"{directory}{advice}")


def report() -> Report:
    """Look at the machine; takes about a quarter of a second, most of it the compiler's."""
    return Report(
        packages=tuple(Finding(package, package.there()) for package in PACKAGES),
        checks=(check_python(), check_compiler(), check_cpus(), check_fifo(), check_cache()),
    )


def main(argv: list[str] | None = None) -> int:
    """Print the report.

    Args:
        argv: Arguments after the program's name; None means the process's own.

    Returns:
        1 if `make book` cannot run here, else 0: what only the tests need is named, not fatal.
    """
    parser = argparse.ArgumentParser(
        prog="contended doctor", description=__doc__.partition("\n")[0]
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="the report as JSON")
    group.add_argument(
        "--packages",
        action="store_true",
        help="what this system can install of the table, on one line",
    )
    options = parser.parse_args(argv)
    if options.packages:
        here = packages.system()
        sys.stdout.write(" ".join(filter(None, map(here.name, PACKAGES))) + "\n")
        return 0
    seen = report()
    sys.stdout.write(seen.to_json() if options.json else seen.to_text())
    return 1 if seen.blockers("book") else 0


if __name__ == "__main__":
    sys.exit(main())
