# SPDX-License-Identifier: MIT
"""Patches in a kernel tree: applied to copies first, then put into the tree with a journal.

The journal says what to undo; whoever finds one puts everything back, times of modification
included: what was not touched is then not compiled again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from contended.errors import ContendedError
from contended.kernel import patchfile, store

TESTED = "6.1.192"
"""The version that the patches were made for; others are tried."""


def stage(tree: Path, version: str, patches: Sequence[Path], scratch: Path) -> list[str]:
    """Apply the patches to copies of what they touch; returns the files that then differ."""
    changed = [change for patch in patches for change in patchfile.read(patch)]
    names = sorted({name for change in changed for name in (change.old, change.new) if name})
    for name in names:
        _copy(tree / name, scratch / name)
    for patch in patches:
        done = store.ask(
            ["patch", "-p1", "-F0", "-N", "--no-backup-if-mismatch", "-r", "-", "-i", str(patch)],
            cwd=scratch,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            error = ContendedError(
                f"{patch.parent.name}/{patch.name} does not apply: {_reason(done.stdout)}; "
                f"the source is Linux {version}, the patches were tested with {TESTED}"
            )
            error.add_note(done.stdout.rstrip())
            raise error
    return [name for name in names if _content(tree / name) != _content(scratch / name)]


def _copy(file: Path, copy: Path) -> None:
    if file.is_file():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _reason(output: str) -> str:
    """Why patch(1) refused, by the first line of its output that says it."""
    file = "?"
    for line in output.splitlines():
        if match := re.match(r"(?:checking|patching) file '?([^']+?)'?$", line):
            file = match[1]
        elif match := re.match(r"Hunk #(\d+) (?:FAILED|ignored) at (\d+)", line):
            return f"hunk {match[1]} (line {match[2]}) of {file}"
        elif match := re.match(r"\|\+\+\+ \w+/(\S+)", line):
            return f"there is no {match[1]}"
        elif "previously applied" in line:
            return f"{file} has this change already"
        elif line.startswith("patch: **** "):
            return line.removeprefix("patch: **** ").rstrip(".")
    return next(iter(output.splitlines()), "no reason given")


def put(tree: Path, staged: Path, changed: Sequence[str], mtime_ns: int) -> None:
    """Replace files of the tree by staged ones (or remove them), with a journal to undo it."""
    saved, journal = tree.parent / "saved", tree.parent / "journal.json"
    shutil.rmtree(saved, ignore_errors=True)
    for name in changed:
        _copy(tree / name, saved / name)
    new = journal.with_suffix(".new")
    with new.open("w") as stream:
        json.dump([[name, (tree / name).exists()] for name in changed], stream)
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(journal)
    for name in changed:
        if (staged / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(staged / name, tree / name)
            os.utime(tree / name, ns=(mtime_ns, mtime_ns))
        else:
            (tree / name).unlink()


def restore(tree: Path) -> None:
    """Undo what the journal says was done; safe to repeat, since it only goes when all is done."""
    saved, journal = tree.parent / "saved", tree.parent / "journal.json"
    if journal.exists():
        for name, existed in json.loads(journal.read_text()):
            file = tree / name
            if existed:
                shutil.copy2(saved / name, file)
                continue
            file.unlink(missing_ok=True)
            for parent in file.relative_to(tree).parents:
                with suppress(OSError):  # not empty: it was there before
                    (tree / parent).rmdir()
        journal.unlink()
    shutil.rmtree(saved, ignore_errors=True)
