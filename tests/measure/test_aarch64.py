# SPDX-License-Identifier: MIT
"""The models on the other common architecture, cross-compiled and emulated: they count the same.

QEMU orders memory as the machine that it runs on does, so what is missing is what a weaker order
would break.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ctools import execute, libraries, runner

from contended import cc
from contended.measure import native

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"

# Debian has liburcu for arm64 only as a foreign architecture's package, and that would have dpkg
# told of a second architecture on every machine that runs the tests.
LACKING = {"umount-grace-period"}
MODELS = sorted(set(native.available()) - LACKING)
# Threads that race count how often they met; one alone counts the same everywhere.
THREADS = dict.fromkeys(MODELS, 1) | {"pingpong": 2}
# In each slice; what these do once is a whole history.
OPS = dict.fromkeys(MODELS, 200)
OPS |= {"mount-propagation": 5, "percpu-area-map": 1, "proc-mounts-seek": 20}
SMALL = {"percpu-area-map": ["areas=512"]}
SLICES = 3  # as tests/c/run_model.c has it


def cross(place: Path, slug: str) -> Path:
    """A model for the other architecture, without libraries to be found when it runs."""
    for command in (COMPILER, EMULATOR):
        if shutil.which(command) is None:
            pytest.skip(f"no {command}: see make doctor")
    (place / "aarch64").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cc, "compiler", lambda: cc.Compiler(COMPILER, ""))
        return runner(place / "aarch64", native.source(slug), "-O1", "-static")


def account(printed: str) -> dict[str, dict[str, int]]:
    """What each variant's phases counted, but for what it timed."""
    lines = (line.split(": ") for line in printed.splitlines())
    counted = {name: [n.split("=") for n in rest.split()] for name, rest in lines if rest != "good"}
    return {
        where: {name: int(n) for name, n in each if not name.endswith("_ns")}
        for where, each in counted.items()
    }


@pytest.mark.parametrize("slug", MODELS)
def test_a_model_counts_as_it_does_here(slug: str, tmp_path: Path) -> None:
    work = [str(THREADS[slug]), str(OPS[slug]), "0", *SMALL.get(slug, ())]
    run = execute(EMULATOR, cross(tmp_path, slug), *work)
    assert run.returncode == 0, run.stdout + run.stderr
    assert (counted := account(run.stdout))
    operations = THREADS[slug] * OPS[slug] * SLICES
    assert {name: each["ops"] for name, each in counted.items()} == dict.fromkeys(
        counted, operations
    )
    here = runner(tmp_path, native.source(slug), "-O0", link=libraries(slug))
    assert counted == account(execute(here, *work).stdout)


def test_threads_lose_no_count(tmp_path: Path) -> None:
    """Its check at the end is that the sum of the counters is the value."""
    run = execute(EMULATOR, cross(tmp_path, "overlay-creds"), "2", "2000", "0")
    assert run.returncode == 0, run.stdout + run.stderr
    assert {each["ops"] for each in account(run.stdout).values()} == {2 * 2000 * SLICES}


def test_every_model_that_needs_no_library_is_tried() -> None:
    linked = {slug for slug in native.available() if native.link_flags(native.source(slug))}
    assert linked == LACKING
