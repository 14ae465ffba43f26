# SPDX-License-Identifier: MIT
"""One run of the kernel's make: heard line by line, and over when we are."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contended.errors import ContendedError
from contended.kernel import config as configuration
from contended.kernel.source import KernelSource
from contended.kernel.store import need_space

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the objects done, and those expected or 0 if unknown."""

Boxed = Callable[[Sequence[str], Path, Path], list[str]]
"""Makes of a command one that runs it in a sandbox, with a tree to read and objects to write."""

# Told to end, it tells the whole process group, so that every make removes what is half made and
# every compiler stops; more than once, since a make may just be starting another one.
_SUPERVISOR = """\
trap 'trap : TERM; for i in 1 2 3 4 5; do kill -TERM 0; sleep 0.1; done; wait; exit 143' TERM
"$@" & wait $!
"""
_DIAGNOSTIC = re.compile(r"(?P<file>[^\s:]+\.[chSo]):.*?\b(?P<kind>warning|error): ")


class BuildError(ContendedError):
    """A kernel does not compile, or not without a warning."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is made: its name for messages, of which source, by which configuration, and where."""

    name: str
    source: KernelSource
    config: str
    objects: Path


def run(
    target: Target,
    lock: int,
    report: Progress,
    expected: int = 0,
    patched: Sequence[str] = (),
    boxed: Boxed | None = None,
) -> None:
    """Make a kernel.

    Args:
        target: Which, and where.
        lock: A descriptor that make's processes hold until the last has ended.
        report: Told what is done.
        expected: How many objects there will be; 0: unknown.
        patched: Files, relative to the tree, that must give no warning.
        boxed: How to run make in a sandbox.

    Raises:
        BuildError: it does not compile, or a patched file gives a warning; make's last words are
            attached as a note.
        ContendedError: the disk is full.
    """
    name, tree = target.name, target.source.tree
    # A build that goes on counts what is there.
    done = sum(1 for _ in target.objects.rglob("*.o")) if expected else 0
    said: list[str] = []
    report(f"{name}: compiling", done, expected)
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    flags = configuration.flags(target.config)
    command = configuration.make(target.source, target.objects, jobs, *flags, "bzImage")
    if boxed is not None:
        command = boxed(command, tree, target.objects)
    with _running(command, lock) as (process, lines):
        for line in lines:
            said.append(line)
            if re.match(r"  (CC|AS) ", line):
                done += 1
                report(f"{name}: compiling", done, expected)
            elif re.match(r"  LD +(vmlinux|\.tmp_vmlinux)", line):
                report(f"{name}: linking", done, expected)
            if (warning := _diagnostic(tree, line, "warning")) and warning[0] in patched:
                problem = f"{name} does not compile without a warning: {warning[1]}"
                raise _error(problem, said[-20:])
        process.wait()
    if process.returncode:
        # A full disk shows in many ways, most of them less clear than this.
        for where in (target.objects.parent, Path(tempfile.gettempdir())):
            need_space(where, 20_000_000, "a build")
        raise _error(f"{name} does not compile: {_reason(tree, said)}", said[-40:])


def _error(message: str, said: Sequence[str]) -> BuildError:
    error = BuildError(message)
    error.add_note("\n".join(said))
    return error


def _reason(tree: Path, said: Sequence[str]) -> str:
    """The line of make's output that is most likely to say why it failed."""
    for line in said:
        if found := _diagnostic(tree, line, "error"):
            return found[1].strip()
    for sign in ("undefined reference", "not found", "No such file", "rror", ""):
        for line in said:
            if sign in line and not line.startswith(("make", "  ")):
                return line.strip()
    return "make gives no reason"


def _diagnostic(tree: Path, line: str, kind: str) -> tuple[str, str] | None:
    """The file, relative to the tree, and the text of a compiler's warning or error."""
    match = _DIAGNOSTIC.match(line)
    if not match or match["kind"] != kind:
        return None
    file = match["file"]
    for prefix in (f"{tree}/", "../", "./"):
        file = file.removeprefix(prefix)
    if file.endswith(".o"):  # objtool's words
        file = file[:-1] + ("c" if (tree / f"{file[:-1]}c").exists() else "S")
    return file, line.replace(f"{tree}/", "")


@contextmanager
def _running(
    command: Sequence[str], lock: int
) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """A make and its output, line by line; nothing of it goes on when the block is left.

    It has a process group of its own, so that Ctrl-C comes to us and we end it in order; if we are
    killed it ends as well; and it holds the lock until its last process is gone.
    """
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "sh", "-c", _SUPERVISOR, "sh", *command],
        env=configuration.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=(lock,),
    )
    assert process.stdout
    try:
        yield process, (line.rstrip("\n") for line in process.stdout)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise BuildError("make did not end and was killed: build again") from None
