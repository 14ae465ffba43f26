# SPDX-License-Identifier: MIT
"""The machine as the kernel describes it: gaps, missing files, no git."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import CPUS

from contended import machine, state


def kernel_list(numbers: list[int]) -> str:
    """CPU numbers as the kernel writes them: runs as "first-last"."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in runs)


@given(st.sets(st.integers(0, 600)))
def test_a_cpu_list_reads_back(numbers: set[int]) -> None:
    ordered = sorted(numbers)
    assert state.parse_cpu_list(kernel_list(ordered) + "\n") == tuple(ordered)


@pytest.mark.parametrize(
    ("text", "numbers"), [("", ()), ("\n", ()), ("3", (3,)), ("0-2,5", (0, 1, 2, 5)), ("7-7", (7,))]
)
def test_cpu_lists(text: str, numbers: tuple[int, ...]) -> None:
    assert state.parse_cpu_list(text) == numbers


def fake_sysfs(where: Path, cpu: int) -> Path:
    place = where / f"cpu{cpu}"
    files = {
        "topology/core_id": "3",
        "topology/physical_package_id": "1",
        "topology/thread_siblings_list": f"{cpu},{cpu + 8}",
        "cpufreq/scaling_governor": "powersave",
        "cache/index0/level": "1",
        "cache/index0/type": "Data",
        "cache/index0/size": "48K",
        "cache/index0/coherency_line_size": "64",
        "cache/index0/shared_cpu_list": f"{cpu}",
        "cache/index1/level": "3",
        "cache/index1/type": "Unified",
        "cache/index1/size": "32M",
        "cache/index1/coherency_line_size": "64",
        "cache/index1/shared_cpu_list": "0-3,8-11",
    }
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text + "\n")
    (place / "node1").mkdir()
    return place


def test_a_machine_whose_cpu_set_has_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (2, 5):
        fake_sysfs(tmp_path, number)
    monkeypatch.setattr(machine, "CPU_DIR", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 2})
    assert machine.allowed_cpus() == [2, 5]
    here = machine.this_machine()
    assert [c.number for c in here.cpus] == [2, 5]
    assert here.governor == "powersave"
    cpu = here.cpus[1]
    assert (cpu.core, cpu.package, cpu.node, cpu.siblings) == (3, 1, 1, (5, 13))
    assert [(c.level, c.kind, c.size, c.line) for c in cpu.caches] == [
        (1, "Data", 48 << 10, 64),
        (3, "Unified", 32 << 20, 64),
    ]
    assert cpu.caches[1].shared_by == (0, 1, 2, 3, 8, 9, 10, 11)


def test_what_the_kernel_does_not_say_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "CPU_DIR", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {7})
    here = machine.this_machine()
    assert here.governor is None
    assert here.cpus == (
        machine.Cpu(number=7, core=-1, package=-1, node=-1, siblings=(7,), caches=()),
    )
    (tmp_path / "cpu7" / "cache" / "index0").mkdir(parents=True)
    (cache,) = machine.this_machine().cpus[0].caches
    assert cache == machine.Cache(level=-1, kind="unknown", size=0, line=-1, shared_by=())


@pytest.mark.parametrize(
    ("cpuinfo", "model", "virtual"),
    [
        ("model name\t: Fast 9000\nflags\t\t: fpu hypervisor\n", "Fast 9000", True),
        ("model name\t: Fast 9000\nflags\t\t: fpu sse\n", "Fast 9000", False),
        ("processor: 0\nModel\t: Some Board\n", "Some Board", False),
        ("", None, False),
    ],
)
def test_cpuinfo(
    cpuinfo: str, model: str | None, virtual: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import platform

    real = state.says

    def read(file: Path) -> str:
        return cpuinfo.strip() if file == Path("/proc/cpuinfo") else real(file)

    monkeypatch.setattr(machine, "says", read)
    assert machine.cpu_model() == (model or platform.machine())
    assert (machine.hypervisor() is not None) == virtual


def test_this_machine_is_read() -> None:
    here = machine.this_machine()
    assert [c.number for c in here.cpus] == CPUS
    assert here.model
    assert here.kernel == os.uname().release
    for cpu in here.cpus:
        assert cpu.number in cpu.siblings


def git(where: Path, *args: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    subprocess.run(["git", *identity, *args], cwd=where, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="no git: apt-get install git")
def test_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "machine.py"
    module.write_text("")
    monkeypatch.setattr(machine, "__file__", str(module))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert machine.commit() is None, "outside a clone"
    git(tmp_path, "init", "-q")
    assert machine.commit() is None, "before the first commit"
    git(tmp_path, "add", "machine.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    clean = machine.commit()
    assert clean is not None
    assert len(clean) == 12
    module.write_text("# edited\n")
    assert machine.commit() == clean + "+"
    monkeypatch.setenv("PATH", "/nonexistent")
    assert machine.commit() is None, "without git"


def test_the_time_is_utc_to_the_second() -> None:
    said = datetime.fromisoformat(machine.now())
    assert said.tzinfo == UTC
    assert said.microsecond == 0
    assert abs((datetime.now(UTC) - said).total_seconds()) < 60
    assert machine.load_1min() >= 0
