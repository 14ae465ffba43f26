# SPDX-License-Identifier: MIT
"""Data races that the kernel's own detector (KCSAN) reports, and which of them are a patch's.

Linux 6.1 has races of its own, and KCSAN looks at one access of hundreds: that a report came with a
patch and not without says little by itself. So a race is a finding only if one of its functions is
of a file that the patch changes, and if further boots of the reference do not show it either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from contended.kernel import patchfile, run
from contended.kernel.variants import GuestRun, Variant

CONFIG = "kcsan"
TIMES = 5  #: That each load is run, at least.
MORE = 4  #: Times that all of that is done again on the reference, for a race that it did not show.
#: What several processors do at once: the bugs' own calls, and those of chapter 11.
LOADS = (
    run.SMOKE,
    GuestRun("open-creat", "open-creat", {"ops": 2000}, vcpus=4),
    GuestRun("stat", "stat-perturbed", {"ops": 2000}, vcpus=4),
    GuestRun("faccessat", "faccessat", {"ops": 2000}, vcpus=4),
    GuestRun("lazy", "lazy-busy", {"ops": 12, "lookers": 1}, vcpus=4),
    GuestRun("calls", "calls", {"ops": 300}, vcpus=4),
)
_REPORT = re.compile(
    r"BUG: KCSAN: (?:data-race|assert: race) in (?P<one>\w\S*)(?: / (?P<two>\S+))?"
)
_DEFINED = re.compile(r"^\+?[A-Za-z_][^;=\n]*?\b(?P<name>\w+)\([^;\n]*$", re.M)
_SYSCALL = re.compile(r"^\+?(?:COMPAT_)?SYSCALL_DEFINE\d\((?P<name>\w+)", re.M)
_PARTS = tuple(
    f"__{part}_{kind}sys_" for kind in ("", "compat_") for part in ("do", "se", "x64", "ia32")
)


def split(reports: Iterable[str]) -> tuple[list[str], list[str]]:
    """The kernel's complaints that are no races, and the races."""
    found = list(reports)
    races = [line for line in found if _REPORT.search(line)]
    return [line for line in found if line not in races], races


def functions(race: str) -> tuple[str, ...]:
    """The functions that a report names, without what the compiler adds to a part of one."""
    match = _REPORT.search(race)
    return tuple(name.split(".")[0] for name in match.groups() if name) if match else ()


def changed(variant: Variant, tree: Path) -> frozenset[str] | None:
    """The functions of the files that a variant changes; None, which is any, if all are headers.

    A header's functions are reported under the names of those that they are compiled into.
    """
    changes = [change for patch in variant.patches for change in patchfile.read(patch)]
    if not any(change.file.endswith(".c") for change in changes):
        return None
    found = set[str]()
    for change in changes:
        file = tree / change.old
        old = file.read_text(errors="replace") if change.old and file.is_file() else ""
        new = "\n".join(line for hunk in change.hunks for line in hunk.lines)
        for text in (old, new):
            found |= {match["name"] for match in _DEFINED.finditer(text)}
            calls = [match["name"] for match in _SYSCALL.finditer(text)]
            found |= {part + call for part in _PARTS for call in calls}
    return frozenset(found)


def of_files(races: Iterable[str], names: frozenset[str] | None) -> list[str]:
    """The races in one of these functions; None is any."""
    return [race for race in races if names is None or not names.isdisjoint(functions(race))]


def unseen(races: Sequence[str], again: Callable[[], Iterable[str]]) -> list[str]:
    """Those that `again` does not report, which is run a few times as long as there are any."""
    left = list(races)
    for _ in range(MORE):
        if left:
            seen = set(again())
            left = [race for race in left if race not in seen]
    return left
