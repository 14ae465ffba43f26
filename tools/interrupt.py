#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Break off builds, runs, timings and gradings at random moments, and see what is left of them.

    PYTHONPATH=src:tests/kernel tools/interrupt.py [--tries 100] [--seed 1] [--only run,grade]

By SIGINT, SIGTERM or SIGKILL, to the process itself or, as if a machine was lost, to its QEMU. A
try is survived if nothing of it runs on after 20 seconds and no half record is there. At the end
each is done once more and not broken off: it must end well, and leave no temporary folder, of those
that were killed neither. The kernels of `mount-hash` and `open-creat-unlazy` must be built.
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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import toy

from contended import child
from contended.course import lab, prove

END_S, AGED_S = 20.0, 60.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


@dataclass(frozen=True)
class Work:
    """Something to break off: a command of ours, and for how long it is worth it."""

    name: str
    command: list[str]
    longest_s: float
    env: dict[str, str]
    out: Path  # a record, or a folder of them

    def start(self, temporary: Path) -> subprocess.Popen[bytes]:
        """Start it, with its temporary folders in a folder of their own."""
        env = {**child.environment(), **self.env, "TMPDIR": str(temporary)}
        call = [sys.executable, "-m", "contended.cli", *self.command]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(call, env=env, stdout=quiet, stderr=quiet, start_new_session=True)

    def half_records(self) -> list[str]:
        """The files that cannot be read."""
        files = [self.out] if self.out.is_file() else list(self.out.rglob("*.json"))
        found = []
        for file in files:
            try:
                json.loads(file.read_text())
            except ValueError:
                found.append(str(file))
        return found


def works(place: Path) -> Iterator[Work]:
    """All that is broken off."""
    with mock.MagicMock() as patch:
        kit = toy.make(place / "toy", patch)
    text = '[variants.before]\nsummary = "a toy"\npatches = []\n[runs]\n'
    (kit.home / "patches" / "toy").mkdir()
    (kit.home / "patches" / "toy" / "variants.toml").write_text(text)
    env = {"CONTENDED_HOME": str(kit.home), "CONTENDED_CACHE": str(kit.cache)}
    build = ["kernel", "build", "--source", str(kit.tree), "toy"]
    yield Work("build", build, 3.0, env, kit.cache)
    run = ["kernel", "run", "mount-hash", "--variants", "after", "--json"]
    yield Work("run", [*run, str(place / "run.json")], 30.0, {}, place / "run.json")
    timed = ["kernel", "time", "open-creat-unlazy", "--cpus", "2", "--variants", "before", "--json"]
    yield Work("time", [*timed, str(place / "time.json")], 30.0, {}, place / "time.json")
    about = lab.load(lab.folder() / "proc-mounts-seek")
    solution = next(iter(prove.known(about)))[2]
    home = place / "in" / "ada" / about.slug
    home.mkdir(parents=True)
    for name, content in solution.files.items():
        (home / name).write_bytes(content)
    grade = ["course", "grade", str(place / "in"), "--out", str(place / "out")]
    yield Work("grade", grade, 20.0, {}, place / "out")


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


def break_off(work: Work, temporary: Path, draw: random.Random) -> list[str]:
    """What is wrong after a try; it is none if it was done before it was broken off."""
    number, whom = draw.choice(SIGNALS), draw.choice(("itself", "itself", "its machine"))
    wait_s = draw.uniform(0.2, work.longest_s)
    process = work.start(temporary)
    with suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
    machines = [pid for pid in left(temporary) if "qemu" in Path(f"/proc/{pid}/comm").read_text()]
    if whom == "its machine" and machines:
        os.kill(machines[0], signal.SIGKILL)
    elif process.poll() is None:
        process.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        process.wait(work.longest_s + END_S)
    end = time.monotonic() + END_S
    while (running := left(temporary)) and time.monotonic() < end:
        time.sleep(0.2)
    wrong = [f"process {pid} goes on" for pid in running]
    wrong += [f"{file} is half a record" for file in work.half_records()]
    said = "; ".join(wrong) or "survived"
    tell(f"{work.name}, {wait_s:.1f} s, {number.name} to {whom}: {said}")
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    return wrong


def main() -> int:
    """Try, count, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="build,run,time,grade")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    # A shell that starts us in the background has it ignored, also by those that we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as scratch:
        place, temporary = Path(scratch), Path(scratch) / "tmp"
        temporary.mkdir()
        chosen = [work for work in works(place) if work.name in asked.only.split(",")]
        lost = sum(
            bool(break_off(draw.choice(chosen), temporary, draw)) for _ in range(asked.tries)
        )
        for folder in temporary.glob("contended.*"):
            os.utime(folder, (time.time() - AGED_S,) * 2)
        tell(f"{len(list(temporary.iterdir()))} temporary folders are left, by design")
        for work in chosen:
            if work.name == "grade":
                shutil.rmtree(work.out, ignore_errors=True)
            status = work.start(temporary).wait()
            lost += status != 0
            tell(f"{work.name}, not broken off: exit status {status}")
        still = [str(path) for path in temporary.iterdir()]
        tell(f"{asked.tries} tries, seed {asked.seed}: {lost} lost; left at the end: {still}")
    return 1 if lost or still else 0


if __name__ == "__main__":
    sys.exit(main())
