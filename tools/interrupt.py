#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Break off builds, runs, timings, gradings and books at random moments: what is left of them?

    PYTHONPATH=src:tests/kernel tools/interrupt.py [--tries 100] [--seed 1] [--only run,grade]

By SIGINT, SIGTERM or SIGKILL, to the process itself or, as if a machine was lost, to its QEMU; by
a disk that fills up, a tmpfs of some kilobytes in a mount namespace of the try's own; or by a clock
that was moved: what was made before is then of last or next year. A try is survived if nothing of
it runs on after 20 seconds, nothing is mounted that was not, and no half record is there. At the
end each is done once more and not broken off: it must end well, and leave no temporary folder, of
those that were killed neither. The book is the recorded one, of a copy of the tree. The kernels of
`mount-hash` and `open-creat-unlazy` must be built.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import toy

from contended import child, tree
from contended.course import lab, prove

END_S, AGED_S, YEAR_S, PAGE = 20.0, 60.0, 365 * 86_400.0, 4096
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
WAYS = (*SIGNALS, "machine", "disk", "clock")
ALL = ("build", "run", "time", "grade", "patch", "book")
# A tmpfs over the folder, of which a copy is looked at: with the last process it is gone.
FULL = """
mount -t tmpfs -o size="$1" tmpfs "$2" && cp -a "$3/." "$2" || exit 99
place=$2 copy=$3; shift 3
"$@"; status=$?
rm -rf "$copy"; cp -a "$place" "$copy"; exit $status
"""


Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class Work:
    """Something to break off: a command of ours, and for how long it is worth it."""

    name: str
    command: list[str]
    longest_s: float
    env: dict[str, str]
    out: Path  # the folder of what it makes
    made: str = ""  # what of it is removed, so that there is something to do
    module: str = "contended.cli"

    def start(self, temporary: Path, room: int = 0, copy: Path | None = None) -> Process:
        """Start it, with its temporary folders in a folder of their own.

        With `room`, so many bytes are all that `out` has left, and `copy` is what it holds.
        """
        env = {**child.environment(), **self.env, "TMPDIR": str(temporary)}
        call = [sys.executable, "-m", self.module, *self.command]
        if copy is not None:
            held = sum(-(-file.lstat().st_size // PAGE) * PAGE for file in copy.rglob("*"))
            full = ["sh", "-c", FULL, "sh", str(held + room), str(self.out), str(copy)]
            call = ["unshare", "--mount", "--propagation", "private", *full, *call]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(call, env=env, stdout=quiet, stderr=quiet, start_new_session=True)

    def half_records(self, folder: Path) -> list[str]:
        """The files that cannot be read."""
        found = []
        for file in folder.rglob("*.json"):
            try:
                json.loads(file.read_text())
            except ValueError:
                found.append(str(file))
        return found


def works(place: Path, asked: Collection[str]) -> Iterator[Work]:
    """All that is broken off, of which some is asked for."""
    with mock.MagicMock() as patch:
        kit = toy.make(place / "toy", patch)
    text = '[variants.before]\nsummary = "a toy"\npatches = []\n[runs]\n'
    (kit.home / "patches" / "toy").mkdir()
    (kit.home / "patches" / "toy" / "variants.toml").write_text(text)
    env = {"CONTENDED_HOME": str(kit.home), "CONTENDED_CACHE": str(kit.cache)}
    build = ["kernel", "build", "--source", str(kit.tree), "toy"]
    yield Work("build", build, 3.0, env, kit.cache, "kernel/kernels")
    run = ["kernel", "run", "mount-hash", "--variants", "after", "--json"]
    yield Work("run", [*run, str(place / "run" / "run.json")], 30.0, {}, place / "run")
    timed = ["kernel", "time", "open-creat-unlazy", "--cpus", "2", "--variants", "before", "--json"]
    yield Work("time", [*timed, str(place / "time" / "time.json")], 30.0, {}, place / "time")
    for name, slug, longest in (
        ("grade", "proc-mounts-seek", 20.0),
        ("patch", "umount-grace-period", 120.0),
    ):
        about = lab.load(lab.folder() / slug)
        solution = next(iter(prove.known(about)))[2]
        home = place / f"{name}-in" / "ada" / about.slug
        home.mkdir(parents=True)
        for file, content in solution.files.items():
            (home / file).write_bytes(content)
        out = place / f"{name}-out"
        grade = ["course", "grade", str(place / f"{name}-in"), "--out", str(out)]
        yield Work(name, grade, longest, {}, out, "grades")
    copy = place / "book"
    if "book" in asked:
        shutil.copytree(tree.home(), copy, ignore=shutil.ignore_patterns(".*", "_build"))
    env = {"CONTENDED_HOME": str(copy)}
    book = [str(copy), "--recorded"]
    yield Work("book", book, 90.0, env, copy / "_build", "recorded/doctrees", "contended.book")


def tell(line: str) -> None:
    """Say it at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def left(temporary: Path) -> list[int]:
    """The processes that work for a try."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"TMPDIR={temporary}".encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def kill_all(temporary: Path) -> None:
    """End what works for a try."""
    for pid in left(temporary):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def mounts() -> list[str]:
    """Where something of ours is mounted: other programs mount, too."""
    found = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [
        place
        for source, place, *_ in found
        if source == "contended" or place.startswith(("/mnt", tempfile.gettempdir()))
    ]


def called(pid: int) -> str:
    """How a process was called."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
    return "it ended now"


def is_machine(pid: int) -> bool:
    """Whether a process is a QEMU."""
    with suppress(OSError):
        return "qemu" in Path(f"/proc/{pid}/comm").read_text()
    return False


def move_clock(folder: Path, by_s: float) -> None:
    """Make all that is in a folder so much later."""
    for file in folder.rglob("*"):
        with suppress(OSError):
            when = file.lstat().st_mtime + by_s
            os.utime(file, (when, when), follow_symlinks=False)


def break_off(work: Work, temporary: Path, draw: random.Random) -> list[str]:
    """What is wrong after a try; it is none if it was done before it was broken off."""
    way, wait_s = draw.choice(WAYS), draw.uniform(0.2, work.longest_s)
    if work.made:
        shutil.rmtree(
            work.out / draw.choice((work.made, work.made.split("/")[0])), ignore_errors=True
        )
    room, by_s, before = (
        draw.choice((1, 4, 16, 64)) * PAGE,
        draw.choice((-YEAR_S, YEAR_S)),
        mounts(),
    )
    copy = temporary.parent / "copy" if way == "disk" else None
    if copy:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(work.out, copy, symlinks=True)
    if way == "clock":
        move_clock(work.out, by_s)
    # A full disk, and another time, are trouble enough.
    process = work.start(temporary, room, copy)
    with suppress(subprocess.TimeoutExpired):
        process.wait(work.longest_s + END_S if way in ("disk", "clock") else wait_s)
    machines = [pid for pid in left(temporary) if is_machine(pid)]
    if way == "machine" and machines:
        os.kill(machines[0], signal.SIGKILL)
    elif process.poll() is None and copy:
        os.killpg(process.pid, signal.SIGTERM)  # the shell does not hand it on
    elif process.poll() is None:
        process.send_signal(way if isinstance(way, signal.Signals) else signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(work.longest_s + END_S)
    end = time.monotonic() + END_S
    while (running := left(temporary)) and time.monotonic() < end:
        time.sleep(0.2)
    wrong = [f"process {pid} goes on: {called(pid)}" for pid in running]
    wrong += [f"{file} is half a record" for file in work.half_records(copy or work.out)]
    wrong += [f"{place} is still mounted" for place in set(mounts()) - set(before)]
    said = "; ".join(wrong) or "survived"
    told = way.name if isinstance(way, signal.Signals) else way
    tell(f"{work.name}, {wait_s:.1f} s, {told}, exit status {process.poll()}: {said}")
    kill_all(temporary)
    return wrong


def main() -> int:
    """Try, count, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(ALL))
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    # A shell that starts us in the background has it ignored, also by those that we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    child.end_in_order(143)
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as ends:
        place, temporary = Path(scratch), Path(scratch) / "tmp"
        temporary.mkdir()
        ends.callback(kill_all, temporary)
        only = asked.only.split(",")
        chosen = [work for work in works(place, only) if work.name in only]
        for work in chosen:
            work.out.mkdir(parents=True, exist_ok=True)
        lost = sum(
            bool(break_off(draw.choice(chosen), temporary, draw)) for _ in range(asked.tries)
        )
        for folder in temporary.glob("contended.*"):
            os.utime(folder, (time.time() - AGED_S,) * 2)
        tell(f"{len(list(temporary.iterdir()))} temporary folders are left, by design")
        for work in chosen:
            if work.made == "grades":
                shutil.rmtree(work.out, ignore_errors=True)
            status = work.start(temporary).wait()
            lost += status != 0
            tell(f"{work.name}, not broken off: exit status {status}")
        still = [str(path) for path in temporary.iterdir()]
        tell(f"{asked.tries} tries, seed {asked.seed}: {lost} lost; left at the end: {still}")
    return 1 if lost or still else 0


if __name__ == "__main__":
    sys.exit(main())
