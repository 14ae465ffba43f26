# SPDX-License-Identifier: MIT
"""Case 5: what the caller waits for, who releases when, and that a wrong wait never goes unseen."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ctools import mutant
from support import Cli, fed, one_line, patient, raced, two_cpus

from contended import cc, doctor, stats, tree
from contended.errors import ContendedError, UsageError
from contended.measure import measure, native
from contended.measure.results import Measurement
from contended.show import claims, lesson, report

SLUG = "umount-grace-period"
QSBR, MEMB = 0, 1
DEFERRED = ("call-rcu", "queue-rcu-work")
SAFE = ("before", *DEFERRED)
# A few umounts among readers that are quiescent often: counts need no more.
QUICK = {"umounts": 8, "pace": 500, "quiescent": 1000}

liburcu = pytest.mark.skipif(
    not next(p for p in doctor.PACKAGES if p.name == "liburcu-dev").there(),
    reason="no liburcu: apt-get install liburcu-dev",
)


def once(
    params: dict[str, int] | None = None, model: str | Path = SLUG, **more: Any
) -> Measurement:
    """Fixed work, so that every count is known: each repeat is one operation of the caller."""
    choice: dict[str, Any] = {"threads": [2], "repeats": 1, "slices": 1, "ops": 1, **more}
    return measure(model, params={**QUICK, **(params or {})}, **choice)


def p50(run: Measurement, variant: str) -> float:
    return stats.median([s.latency_ns["p50"] for s in run.samples(variant)])


# --- what must hold ------------------------------------------------------------------------------


@raced
@liburcu
@two_cpus
@pytest.mark.parametrize("flavour", [QSBR, MEMB], ids=["qsbr", "memb"])
def test_who_waits_and_what_is_finished_on_return(flavour: int) -> None:
    run = once({"flavour": flavour}, repeats=3)
    assert run.failures == []
    for name in run.variants:
        umounts = run.count(name, "umounts")
        assert umounts == 3 * QUICK["umounts"]
        assert run.count(name, "waited") == (umounts if name == "before" else 0)
        busy = run.count(name, "busy")
        # A callback may just about overtake a caller that was interrupted.
        assert busy >= 0.8 * umounts if name in DEFERRED else busy == 0
        assert run.count(name, "found") > umounts


@raced
@liburcu
@two_cpus
def test_deferred_umounts_return_a_hundred_times_sooner() -> None:
    run = once({"quiescent": 4000}, repeats=3, variants=SAFE)
    for name in DEFERRED:
        assert p50(run, "before") > 100 * p50(run, name)
    assert "latency (us)" in report.measurement_text(run)


@raced
@liburcu
@two_cpus
def test_blocking_callbacks_delay_neighbours_unless_a_worker_blocks() -> None:
    run = once(
        {"umounts": 32, "block-every": 4, "block": 50, "pace": 1000, "quiescent": 4000},
        variants=DEFERRED,
        repeats=2,
    )
    assert run.count("call-rcu", "blocked") == run.count("queue-rcu-work", "blocked") == 16
    delay = {name: run.count(name, "neighbour-us") for name in DEFERRED}
    assert delay["call-rcu"] > 5 * delay["queue-rcu-work"]


@raced
@liburcu
@two_cpus
@pytest.mark.parametrize("flavour", [QSBR, MEMB], ids=["qsbr", "memb"])
def test_not_waiting_is_caught_in_every_run_and_waiting_never_is(flavour: int) -> None:
    run = once({"flavour": flavour, "quiescent": 4000}, repeats=3)
    assert run.failures == []
    assert all(s.counts["caught"] > 0 for s in run.samples("no-wait"))
    assert all(run.count(name, "caught") == 0 for name in SAFE)


@raced
@liburcu
@two_cpus
def test_a_barrier_under_a_mutex_that_callbacks_take_never_ends() -> None:
    run = once({"barrier": 1}, variants=SAFE, deadline_s=2.0)
    assert [f.variant for f in run.failures] == ["call-rcu"]
    assert run.failures[0].reason == "did not finish within 2 s and was stopped"
    assert run.count("queue-rcu-work", "umounts") == QUICK["umounts"]


@patient
@liburcu
@two_cpus
def test_timed_runs_and_runs_without_real_time_priority_work() -> None:
    run = fed(measure(SLUG, threads=[2], repeats=1, slices=2, params=QUICK, sched="other"))
    assert run.failures == []
    assert run.provenance.scheduler.startswith("SCHED_OTHER")
    assert set(run.variants) == {*SAFE, "no-wait"}


@patient
@liburcu
@two_cpus
def test_a_reader_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    """As on a machine that has other things to do: fixed work has all its readers in each turn."""
    wait = "const uint64_t done = wait_for_caller(w, s);"
    late = f"sleep_us(150000);\n\t{wait}"
    run = fed(once(ops=2, model=mutant(tmp_path, SLUG, (wait, late)), variants=SAFE))
    assert run.failures == []
    assert run.count("before", "umounts") == 2 * QUICK["umounts"]


@raced
@liburcu
def test_alone_there_is_nobody_to_wait_for() -> None:
    run = once({"quiescent": 4000}, threads=[1])
    assert run.failures == []
    assert run.count("no-wait", "caught") == run.count("before", "looked") == 0
    assert p50(run, "before") < 1e6  # a reader would have cost it milliseconds


# --- against a plain account of what must happen -------------------------------------------------


@patient
@liburcu
@two_cpus
@pytest.mark.parametrize("seed", range(4))
def test_counts_are_those_of_a_plain_account(seed: int) -> None:
    draw = random.Random(seed)
    params = {
        "flavour": draw.choice([QSBR, MEMB]),
        "umounts": draw.randint(1, 20),
        "pace": draw.randint(0, 1000),
        "quiescent": draw.randint(50, 2000),
        "walk": draw.randint(0, 5000),
        "block-every": draw.choice([0, 1, 3, 7]),
        "block": 1,
        "pool": draw.randint(1, 4),
    }
    operations = draw.randint(1, 3)
    run = fed(once(params, ops=operations, variants=SAFE))
    assert run.failures == []
    umounts, every = params["umounts"], params["block-every"]
    for name in SAFE:
        assert run.count(name, "umounts") == operations * umounts
        assert run.count(name, "blocked") == (operations * (umounts // every) if every else 0)
        assert run.count(name, "waited") == (operations * umounts if name == "before" else 0)
        assert run.count(name, "caught") == 0
        assert run.count(name, "busy") <= operations * umounts
        assert run.count(name, "found") <= run.count(name, "looked")
        worst, total = run.count(name, "late-worst-us"), run.count(name, "late-us")
        assert worst <= total + operations  # each is rounded down to a microsecond


# --- a wrong model fails -------------------------------------------------------------------------


@raced
@liburcu
@two_cpus
@pytest.mark.parametrize(
    ("change", "variant", "reason"),
    [
        (("s->rcu->update_synchronize_rcu();", ""), "before", "a reader saw freed memory"),
        (
            ("s->rcu->update_call_rcu(&m->rcu, release_callback);", "release_here(s, m);"),
            "call-rcu",
            "a reader saw freed memory",
        ),
        (
            ("s->rcu->update_call_rcu(&m->rcu, queue_callback);", "queue_callback(&m->rcu);"),
            "queue-rcu-work",
            "a reader saw freed memory",
        ),
        (
            ("\t\tw->count[CAUGHT]++;", "\t\t(void)w;"),
            "no-wait",
            "no reader saw freed memory: the race was missed",
        ),
        (("\t\t\tlook(w, s);\n", ""), "before", "never came upon a mount"),
        (("\tnote(&n->shared->innocent,", "\tif (0)\n\t\tnote(&n->shared->innocent,"), "before",
         "0 callbacks of neighbours for 8 umounts"),
    ],
    ids=["no-grace-period", "no-call-rcu", "no-rcu-work", "unseen", "no-readers", "no-neighbours"],
)  # fmt: skip
def test_a_wrong_model_fails(
    change: tuple[str, str], variant: str, reason: str, tmp_path: Path
) -> None:
    run = measure(
        mutant(tmp_path, SLUG, change),
        variants=[variant],
        threads=[2],
        repeats=1,
        slices=1,
        ops=1,
        # A walk that takes longer than to wake a worker: it must be met on the mount.
        params={**QUICK, "walk": 200_000},
    )
    assert len(run.failures) == 1
    assert reason in run.failures[0].reason


# --- bad input -----------------------------------------------------------------------------------


@liburcu
@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"umounts": 0}, "umounts=0 is out of range: 1 to 512 mounts"),
        ({"flavour": 2}, "flavour=2 is out of range: 0 to 1"),
        ({"pool": 17}, "pool=17 is out of range: 1 to 16 threads"),
        ({"quiescent": -1}, "quiescent=-1 is out of range: 10 to 50000 us"),
    ],
)
def test_parameters_out_of_range_are_refused(params: dict[str, int], says: str) -> None:
    with pytest.raises(UsageError, match=f"^{says}$"):
        measure(SLUG, params=params, threads=[1], repeats=1)


@liburcu
def test_more_than_a_run_can_take_is_refused() -> None:
    run = once({"umounts": 512, "pace": 50000}, threads=[1], variants=["before"])
    assert "take up to 26624 ms an operation: choose less than 800 ms" in run.failures[0].reason


@pytest.mark.parametrize("deadline", [0, -1, 1e6])
def test_a_deadline_out_of_range_is_refused(deadline: float) -> None:
    with pytest.raises(UsageError, match=r"deadline_s is .*: choose 0\.1 to 3600"):
        measure("measuring", threads=[1], deadline_s=deadline)


# --- a machine without liburcu -------------------------------------------------------------------


@pytest.fixture
def no_liburcu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A compiler that finds every header of this machine except those of liburcu."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("needs gcc, whose search path can be replaced")
    said = subprocess.run(
        [gcc, "-E", "-Wp,-v", "-x", "c", "/dev/null"], capture_output=True, text=True, check=True
    ).stderr
    seen = []
    for number, place in enumerate(x.strip() for x in said.splitlines() if x.startswith(" /")):
        copy = tmp_path / "include" / str(number)
        copy.mkdir(parents=True)
        for entry in Path(place).iterdir():
            if not entry.name.startswith("urcu"):
                (copy / entry.name).symlink_to(entry)
        seen.append(f"-isystem {copy}")
    wrapper = tmp_path / "cc-without-liburcu"
    wrapper.write_text(f'#!/bin/sh\nexec {gcc} -nostdinc {" ".join(seen)} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path / "cache"))
    cc.compiler.cache_clear()
    yield wrapper
    cc.compiler.cache_clear()


def test_without_liburcu_only_this_model_is_missing(no_liburcu: Path, tmp_path: Path) -> None:
    assert native.build("lockref-degrade").exists()
    with pytest.raises(native.MissingPackage, match=r"urcu/urcu-qsbr\.h: apt-get install liburcu"):
        native.build(SLUG)
    assert [p.name for p in doctor.report().missing if p.header] == ["liburcu-dev"]
    assert doctor.report().blockers("book") == ()
    said = Cli(tree.home(), tmp_path / "cache").run("measure", SLUG)
    assert said.returncode == 1
    assert one_line(said.stderr).endswith("apt-get install liburcu-dev")


def test_without_liburcu_a_chapter_shows_the_reference_run(
    no_liburcu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    run = measure("measuring", threads=[1], repeats=1, slices=1, slice_ms=1.0)
    monkeypatch.setattr(lesson, "reference", lambda name: tmp_path / "kept.json")
    with pytest.raises(native.MissingPackage):  # there is nothing to show instead
        lesson.live("umount/x", lambda: measure(SLUG, threads=[1]))
    run.save(tmp_path / "kept.json")
    assert lesson.live("umount/x", lambda: measure(SLUG, threads=[1])).recorded
    assert "apt-get install liburcu-dev" in shown[0].text
    assert "Once the package is installed, run the notebook again." in shown[0].text


@liburcu
@two_cpus
def test_a_chapter_may_show_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(claims.RECORD, raising=False)

    stuck = once({"barrier": 1}, variants=["call-rcu"], deadline_s=1.0)
    with pytest.raises(ContendedError, match=r"call-rcu: did not finish within 1 s"):
        lesson.live("umount/x", lambda: stuck)
    assert lesson.live("umount/x", lambda: stuck, may_fail=True) is stuck


def test_the_libraries_stand_in_the_comment_at_the_top(tmp_path: Path) -> None:
    assert native.link_flags(native.source(SLUG)) == ("-lurcu-qsbr", "-lurcu-memb")
    assert native.link_flags(native.source("lockref-degrade")) == ()
    odd = tmp_path / "odd.c"
    odd.write_text("/*\n * Link: -lm -Wl,-evil\n */\n")
    assert native.link_flags(odd) == ()  # libraries, and nothing else
    odd.write_text('/* a */\n#include "x.h"\n/*\n * Link: -lm\n */\n')
    assert native.link_flags(odd) == ()  # not at the top
    odd.write_text("/* SPDX */\n/*\n * b\n * Link: -lm\n */\nint x;\n")
    assert native.link_flags(odd) == ("-lm",)
