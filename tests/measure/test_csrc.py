# SPDX-License-Identifier: MIT
"""The C code: no warning, silent sanitizers, locks that exclude, broken locks that are caught."""

from __future__ import annotations

from pathlib import Path

import pytest
from ctools import C, compile_c, execute, libraries, mutant, runner
from support import raced

from contended.measure import native

MODELS = native.available()
LOCKS = ("tas", "ticket", "queued")
# Fixed work for the models that need it: pingpong's threads take turns.
OPS = {"pingpong": "2000"}
# The models of algorithms: they have one thread.
THREADS = dict.fromkeys(
    ("percpu-area-map", "proc-mounts-seek", "mount-propagation", "mount-hash"), "1"
)


@pytest.mark.parametrize("slug", MODELS)
@pytest.mark.parametrize("level", ["-O0", "-O2", "-O3"])
def test_models_compile_without_a_warning(slug: str, level: str, tmp_path: Path) -> None:
    link = libraries(slug)
    compile_c(tmp_path / "model.so", native.source(slug), level, "-fPIC", "-shared", link=link)


@pytest.mark.parametrize("slug", MODELS)
@pytest.mark.parametrize(
    "sanitizer", ["-fsanitize=address,undefined", "-fsanitize=thread"], ids=["asan-ubsan", "tsan"]
)
def test_models_are_clean_under_sanitizers(slug: str, sanitizer: str, tmp_path: Path) -> None:
    flags = ("-g", "-O1", sanitizer, "-fno-sanitize-recover=all")
    binary = runner(tmp_path, native.source(slug), *flags, link=libraries(slug))
    ops = OPS.get(slug, "0")
    run = execute(binary, THREADS.get(slug, "2"), ops, "0" if ops != "0" else "3000000")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "good" in run.stdout
    assert not run.stderr


@pytest.mark.parametrize("lock", [0, 1, 2], ids=LOCKS)
def test_lockref_is_clean_over_each_lock(lock: int, tmp_path: Path) -> None:
    """With a stranger at every tenth operation, both ways through the code are exercised."""
    model = native.source("lockref-degrade")
    binary = runner(tmp_path, model, "-g", "-O1", "-fsanitize=thread")
    run = execute(binary, "2", "0", "3000000", f"lock={lock}", "every=10", "hold=500", "spin=3")
    assert run.returncode == 0, run.stdout + run.stderr
    assert not run.stderr


@pytest.mark.parametrize("kind", LOCKS)
@pytest.mark.parametrize("threads", [2, 4])
def test_locks_exclude(kind: str, threads: int, tmp_path: Path) -> None:
    stress = compile_c(tmp_path / "stress", C / "lock_stress.c", "-O2")
    run = execute(stress, kind, str(threads), "20000" if threads == 2 else "300")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("kind", LOCKS)
def test_locks_synchronise_for_the_thread_sanitizer(kind: str, tmp_path: Path) -> None:
    stress = compile_c(tmp_path / "stress", C / "lock_stress.c", "-g", "-O1", "-fsanitize=thread")
    run = execute(stress, kind, "2", "5000")
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_stress_catches_a_broken_lock(tmp_path: Path) -> None:
    """However long one of the two has to wait for its CPU: ten seconds."""
    stress = compile_c(tmp_path / "stress", C / "lock_stress.c", "-O2")
    run = execute(stress, "broken", "2", "1000000000")
    assert run.returncode == 1, run.stdout + run.stderr


@raced
def test_the_thread_sanitizer_catches_a_broken_lock(tmp_path: Path) -> None:
    stress = compile_c(tmp_path / "stress", C / "lock_stress.c", "-g", "-O1", "-fsanitize=thread")
    run = execute(stress, "broken", "2", "20000")
    assert run.returncode != 0
    assert "data race" in run.stderr


@raced
def test_a_lost_update_fails_the_run(tmp_path: Path) -> None:
    """A lockref whose slow path forgets the lock loses counts, and the model's check says so."""
    model = mutant(
        tmp_path,
        "lockref-degrade",
        ("lock_acquire(kind, &s->ref.lock, s->nodes, w->id);", ""),
        ("lock_release(kind, &s->ref.lock);", ""),
        # always under the "lock", so that the two threads meet there
        ("if (!lock_value_free(kind, old.lock)) {", "if (true) {"),
    )
    binary = runner(tmp_path, model, "-O2")
    run = execute(binary, "2", "0", "3000000", "hold=0", "spin=0")
    assert run.returncode == 1
    assert "updates were lost" in run.stdout
