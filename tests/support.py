# SPDX-License-Identifier: MIT
"""What the tests of measuring share: a scratch home, the command line, who is still alive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from contended import tree
from contended.measure import measure
from contended.measure.results import Measurement, Provenance, Sample

MODELS = Path(__file__).resolve().parent / "models"
CPUS = sorted(os.sched_getaffinity(0))

two_cpus = pytest.mark.skipif(
    len(CPUS) < 2, reason=f"needs two CPUs, and only CPU {CPUS[0]} may be used"
)


#: For tests in which threads must meet, or one must be sooner than another: on a busy machine that
#: takes more than one try. Wrong code fails each time.
raced = pytest.mark.flaky(reruns=7, reruns_delay=1)


class Starved(Exception):
    """A busy machine kept a run from its end, so nothing was learned."""


#: For tests of exact counts: only what starved is tried again.
patient = pytest.mark.flaky(reruns=7, reruns_delay=1, only_rerun=["Starved"])


def fed(run: Measurement) -> Measurement:
    """The run, if no part of it starved.

    Raises:
        Starved: the machine was too busy for it.
    """
    for failure in run.failures:
        if failure.late:
            raise Starved(f"{failure.variant}: {failure.reason}")
    return run


#: For results that no run made.
PROVENANCE = Provenance(
    cpu="Example CPU",
    cpus_allowed=[0, 1],
    kernel="6.1.0",
    compiler="gcc 12.2.0",
    compiler_flags="-O2",
    python="3.11.2",
    contended="0.1.0",
    commit=None,
    governor=None,
    virtualized="kvm",
    load_1min=0.25,
    scheduler="SCHED_FIFO",
    started="2026-01-01T00:00:00+00:00",
    seconds=1.25,
)


def sample(
    value: float,
    *,
    threads: int = 1,
    repeat: int = 0,
    phase: str = "run",
    pingpong_ns: float | None = None,
    counts: dict[str, int] | None = None,
) -> Sample:
    """A sample that no run made: a run of one slice that nothing disturbed."""
    return Sample(
        threads=threads,
        repeat=repeat,
        phase=phase,
        value=value,
        low=value,
        high=value,
        pingpong_ns=pingpong_ns,
        start_skew_ns=0.0,
        stop_skew_ns=0.0,
        runq_wait_ns=0.0,
        counts=counts or {"ops": 1},
    )


def fifo_allowed() -> bool:
    """May this process use SCHED_FIFO, and does the kernel keep such tasks in bounds?"""
    limit = Path("/proc/sys/kernel/sched_rt_runtime_us")
    if not limit.exists() or int(limit.read_text()) < 0:
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return True


def without_sched_fifo(command: Sequence[str]) -> list[str]:
    """The command, as somebody who may not use SCHED_FIFO would run it."""
    without = ["prlimit", "--rtprio=0:0"]
    return [*without, *_without_capability("sys_nice"), *command]


def without_overrides(command: Sequence[str]) -> list[str]:
    """The command, for whom file permissions count even if it is root's."""
    return [*_without_capability("dac_override", "dac_read_search"), *command]


def _without_capability(*names: str) -> list[str]:
    if os.geteuid() != 0:
        return []
    dropped = ",".join(f"-{name}" for name in names)
    return ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"]


@dataclass(frozen=True)
class Cli:
    """`contended` in a process of its own, with a home and a cache of its own."""

    home: Path
    cache: Path
    python: Sequence[str] = (sys.executable, "-m", "contended.cli")

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "CONTENDED_HOME": str(self.home),
            "CONTENDED_CACHE": str(self.cache),
            "PYTHONUNBUFFERED": "",  # it changes C's buffering as well
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }

    def run(
        self,
        *args: str | Path,
        env: Mapping[str, str] | None = None,
        wrap: Callable[[Sequence[str]], list[str]] = list,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            wrap([*self.python, *map(str, args)]),
            env={**self.env, **(env or {})},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        done.stderr = unsaid(done.stderr)
        return done

    def start(
        self, *args: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """In a session of its own, as a terminal would start it."""
        return subprocess.Popen(
            [*self.python, *map(str, args)],
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def alive(self) -> dict[int, str]:
        """Every process that was started with this object's environment, however indirectly.

        By its number: its name and its command line.
        """
        mark = f"CONTENDED_CACHE={self.cache}".encode()
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(place.name)] = (place / "comm").read_text().strip() + ": " + command
            except OSError:
                continue  # it ended just now, or is somebody else's
        return found

    def files(self) -> list[str]:
        """What is in the cache, without folders."""
        return sorted(p.name for p in self.cache.rglob("*") if not p.is_dir())


def make_home(where: Path, *models: str) -> Path:
    """A copy of csrc with three of its models, and models of tests/models added to it."""
    shutil.copytree(tree.home() / "csrc", where / "csrc")
    for file in (where / "csrc" / "models").glob("*.c"):
        if file.stem not in ("lockref_degrade", "measuring", "pingpong"):
            file.unlink()
    for name in models:
        shutil.copy(MODELS / f"{name}.c", where / "csrc" / "models")
    return where


def brief(slug: str, threads: int = 1, **params: int) -> Measurement:
    """A run of a few milliseconds: what is counted per operation needs no more."""
    run = measure(
        slug, threads=[threads], repeats=1, slices=2, slice_ms=1, warmup_ms=1, params=params
    )
    assert not run.failures, run.failures
    return run


def counted(
    model: str | Path,
    params: Mapping[str, int],
    *,
    threads: int = 1,
    ops: int = 1,
    slices: int = 1,
    variants: Sequence[str] | None = None,
) -> Measurement:
    """Fixed work: the counts of one thread are the same on every machine and each time."""
    run = measure(
        model,
        variants=variants,
        params=params,
        threads=[threads],
        repeats=1,
        slices=slices,
        ops=ops,
        sched="other",
    )
    assert not run.failures, run.failures
    return run


def our_mounts() -> list[str]:
    """What is mounted here by us: other programs mount, too, at any time."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if " contended " in line or " - tracefs " in line]


PATIENCE_S = 300
"""Only what hangs takes so long: a machine that is busy gets its time."""


def eventually(condition: Callable[[], bool], *, seconds: float = PATIENCE_S) -> bool:
    """Wait for it. What would come by itself by then needs fewer seconds, or lives longer."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def unsaid(text: str) -> str:
    """Without what is said of the machine's state, which depends on who else works on it."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("machine: "))


def one_line(text: str) -> str:
    """The line, if it is just one beside those on the machine's state."""
    text = unsaid(text)
    assert text.endswith("\n"), text
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text.strip()


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`, zombies too."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = stat.read_text(errors="replace").rpartition(")")[2].split()[1]
        except OSError:
            continue  # it ended just now
        if int(parent) == pid:
            found.append(int(stat.parent.name))
    return found
