# SPDX-License-Identifier: MIT
"""Models run elsewhere: whatever one does comes back as a result or a reason, and ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import CPUS, MODELS, PATIENCE_S, Cli, children, eventually, two_cpus

from contended import tree
from contended.errors import ContendedError, UsageError
from contended.measure import models
from contended.measure import runner as runners
from contended.measure.models import Model
from contended.measure.runner import Config, RunFailed, Runner


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A cache of these tests' own, by which their processes are known."""
    cache = tmp_path_factory.mktemp("runner")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTENDED_CACHE", str(cache))
        yield Cli(tree.home(), cache)


@pytest.fixture(scope="module")
def hostile(world: Cli) -> Model:
    return models.describe(MODELS / "hostile.c")


@pytest.fixture
def runner(world: Cli) -> Iterator[Runner]:
    with Runner() as runner:
        yield runner
    assert world.alive() == {}, "nothing outlives the block"


def config(model: Model, variant: str, **changes: object) -> Config:
    """A quick run with one thread; without SCHED_FIFO, whose runaways the kernel ends itself."""
    usual = Config(
        variant=model.variant_index(variant) if variant else 99,
        threads=1,
        cpus=CPUS[:1],
        params=[p.initial for p in model.params],
        slices=2,
        sched=2,
        pin=True,
        think_ns=0,
        warmup_ns=0,
        slice_ns=1_000_000,
        ops=0,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def test_a_model_describes_itself(hostile: Model) -> None:
    assert hostile.slug == "hostile"
    assert hostile.variants[0].name == "good"
    assert (hostile.min_threads, hostile.max_threads) == (1, 0)
    assert [(p.name, p.unit, p.initial, p.min, p.max) for p in hostile.params] == [
        ("level", "m", 5, 1, 10)
    ]
    assert [c.name for c in hostile.counters] == ["updates"]
    assert hostile.phases == ("run",)


def test_names_and_ranges(hostile: Model) -> None:
    assert hostile.param_values({}) == {"level": 5}
    assert hostile.param_values({"level": 10}) == {"level": 10}
    with pytest.raises(UsageError, match=r"level=11 is out of range: 1 to 10 m$"):
        hostile.param_values({"level": 11})
    with pytest.raises(UsageError, match=r"no parameter 'depth'; it has: level$"):
        hostile.param_values({"depth": 1})
    with pytest.raises(UsageError, match=r"no variant 'bad'; it has: good, segfault, "):
        hostile.variant_index("bad")


def test_a_good_run(hostile: Model, runner: Runner) -> None:
    run = runner.run(hostile.library, config(hostile, "good"), deadline_s=30)
    (phase,) = run.phases
    assert phase.ops == phase.counts[0] > 0
    assert 0 < phase.rate_min <= phase.rate_median <= phase.rate_max
    assert run.sched == "SCHED_OTHER (as asked)"


def test_fixed_work_is_exact(hostile: Model, runner: Runner) -> None:
    fixed = config(hostile, "good", ops=1234, slice_ns=0, slices=3)
    run = runner.run(hostile.library, fixed, deadline_s=30)
    assert run.phases[0].ops == run.phases[0].counts[0] == 3 * 1234


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("segfault", "was killed by SIGSEGV"),
        ("exits", "ended early with exit status 0"),
        ("miscount", r"the counter says \d+, \d+ operations were made"),
        ("no-setup", "there is no memory for this"),
        ("silent-setup", "setup failed"),
        ("spin", r"did not finish within 0\.3 s and was stopped"),
        ("forks-and-spins", r"did not finish within 0\.3 s and was stopped"),
    ],
)
def test_a_failure_is_a_reason_and_the_next_run_is_good(
    hostile: Model, runner: Runner, variant: str, reason: str
) -> None:
    with pytest.raises(RunFailed, match=reason) as caught:
        runner.run(
            hostile.library,
            config(hostile, variant),
            deadline_s=0.3 if "spin" in variant else 30,
        )
    assert "\n" not in str(caught.value)
    assert runner.run(hostile.library, config(hostile, "good"), deadline_s=30).phases[0].ops > 0


@pytest.mark.parametrize("variant", ["forks", "daemonises"])
def test_processes_of_a_model_end_with_its_run(
    world: Cli, hostile: Model, runner: Runner, variant: str
) -> None:
    """They hold the answer's pipe open, too; that must not be mistaken for a run that hangs."""
    run = runner.run(hostile.library, config(hostile, variant), deadline_s=30)
    assert run.phases[0].ops > 0
    assert not any(a.startswith("lingers:") for a in world.alive().values())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"threads": 0}, "0 threads are out of this model's range"),
        ({"slices": 0}, "slices must be 1 to 64"),
        ({"slices": 65}, "slices must be 1 to 64"),
        ({"slice_ns": 0}, "needs a slice time or an operation count"),
        ({"params": [11]}, "level must be 1 to 10"),
        ({"cpus": [max(CPUS) + 1000]}, r"cannot pin a thread to CPU \d+: "),
    ],
)
def test_the_harness_refuses_nonsense(
    hostile: Model, runner: Runner, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(RunFailed, match=reason):
        runner.run(hostile.library, config(hostile, "good", **changes), deadline_s=30)


def test_the_harness_refuses_a_variant_that_is_not_there(hostile: Model, runner: Runner) -> None:
    with pytest.raises(RunFailed, match="there is no variant 99"):
        runner.run(hostile.library, config(hostile, ""), deadline_s=30)


@two_cpus
def test_two_threads_on_one_cpu_never_get_sched_fifo(hostile: Model, runner: Runner) -> None:
    """A real-time thread that spins would keep the other from ever coming."""
    shared = config(hostile, "good", threads=2, cpus=[CPUS[0], CPUS[0]], sched=0)
    run = runner.run(hostile.library, shared, deadline_s=30)
    assert run.sched == "SCHED_OTHER (two threads share a CPU)"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pin": False}, "threads are not pinned"),
        ({"ops": 100, "slice_ns": 0}, "a run of fixed work has no time limit"),
        ({"slice_ns": 500_000_000}, "the run is longer than the 0.9 s that is safe"),
    ],
)
def test_sched_fifo_is_refused_where_it_is_not_safe(
    hostile: Model, runner: Runner, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(RunFailed, match=f"SCHED_FIFO: {reason}"):
        runner.run(hostile.library, config(hostile, "good", sched=1, **changes), deadline_s=30)


def test_a_library_that_is_gone(runner: Runner, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="is no model"):
        runner.describe(tmp_path / "gone.so")
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(RunFailed, match="is no model"):
        runner.describe(tmp_path / "text.so")


def hosts(world: Cli) -> list[int]:
    return [pid for pid, name in world.alive().items() if "contended.measure.host" in name]


def test_a_child_that_is_killed_is_an_error_and_no_hang(world: Cli, hostile: Model) -> None:
    with Runner() as runner:
        # A process that was started just now may not have its command line yet.
        assert eventually(lambda: bool(hosts(world)))
        for pid in hosts(world):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(ContendedError, match="the process that runs the models ended"):
            runner.run(hostile.library, config(hostile, "good"), deadline_s=30)
    assert world.alive() == {}


def test_leaving_the_block_in_a_run_ends_everything(world: Cli, hostile: Model) -> None:
    """As Ctrl-C does: the exception comes while the answer is awaited."""
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        eventually(lambda: any(a.startswith("lingers:") for a in world.alive().values()))
        signal.pthread_kill(main, signal.SIGINT)

    def run() -> None:
        with Runner() as runner:
            thread.start()
            runner.run(hostile.library, config(hostile, "forks-and-spins"), deadline_s=60)

    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        run()
    thread.join()
    assert world.alive() == {}


def test_a_second_signal_does_not_keep_it_from_clearing_up(world: Cli, hostile: Model) -> None:
    """A parent with threads signals its child's end once for each of them that ends."""

    def signals() -> None:
        eventually(lambda: any(a.startswith("lingers:") for a in world.alive().values()))
        host = min(hosts(world))
        while host in hosts(world):
            with contextlib.suppress(ProcessLookupError):
                os.kill(host, signal.SIGTERM)
            time.sleep(0.0003)

    with Runner() as runner:
        thread = threading.Thread(target=signals)
        thread.start()
        with pytest.raises(ContendedError, match="the process that runs the models ended"):
            runner.run(hostile.library, config(hostile, "forks-and-spins"), deadline_s=60)
        thread.join()
    assert world.alive() == {}


def test_when_its_parent_is_killed_everything_ends(world: Cli) -> None:
    """Long before the deadline, which would end it, too."""
    code = (
        "from pathlib import Path; from test_runner import *; from contended.measure import models;"
        "model = models.describe(MODELS / 'hostile.c'); runner = Runner().__enter__();"
        "runner.run(model.library, config(model, 'forks-and-spins'), deadline_s=3600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], env=world.env) as process:
        eventually(
            lambda: (
                process.poll() is not None
                or any(a.startswith("lingers:") for a in world.alive().values())
            )
        )
        assert process.poll() is None
        assert len(world.alive()) >= 4, "the parent, the child, its fork, and what that started"
        process.kill()
    assert eventually(lambda: not world.alive()), world.alive()


def test_many_runs_leave_no_open_files_and_no_zombies(
    world: Cli, hostile: Model, runner: Runner
) -> None:
    runner.run(hostile.library, config(hostile, "good"), deadline_s=30)
    (pid,) = world.alive()
    files = Path(f"/proc/{pid}/fd")
    before = len(list(files.iterdir()))
    for _ in range(10):
        runner.run(hostile.library, config(hostile, "good"), deadline_s=30)
    with pytest.raises(RunFailed):
        runner.run(hostile.library, config(hostile, "segfault"), deadline_s=30)
    assert len(list(files.iterdir())) == before
    assert children(pid) == []


def test_a_deadline_is_kept(hostile: Model, runner: Runner) -> None:
    """Only that it ends long before the loop would: never how soon."""
    started = time.monotonic()
    with pytest.raises(RunFailed, match="did not finish"):
        runner.run(hostile.library, config(hostile, "spin"), deadline_s=0.1)
    assert time.monotonic() - started < 20


def test_runs_of_two_processes_never_overlap(
    hostile: Model, runner: Runner, tmp_path: Path
) -> None:
    """A neighbour locks as a run does; ours begins when it lets go, or when patience ends."""
    code = (
        "import sys, time; from contended.measure import runner\n"
        "with runner.Runner()._alone():\n"
        "    print('locked', flush=True); sys.stdin.readline()\n"
    )
    neighbour = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert neighbour.stdin is not None
    assert neighbour.stdout is not None
    done = threading.Event()

    def measure() -> None:
        runner.run(hostile.library, config(hostile, "good"), deadline_s=30)
        done.set()

    try:
        assert neighbour.stdout.readline() == "locked\n"
        thread = threading.Thread(target=measure)
        thread.start()
        assert not done.wait(0.5)
        neighbour.stdin.write("\n")
        neighbour.stdin.flush()
        assert done.wait(PATIENCE_S)
        thread.join()
    finally:
        neighbour.kill()
        neighbour.communicate()


def test_a_run_does_not_wait_for_ever(hostile: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Runner()  # which waits for as long as it takes
    monkeypatch.setattr(runners, "PATIENCE_S", 0.5)
    with first._alone(), Runner() as late:
        for least, most in ((0.5, 30.0), (0.0, 0.5)):
            started = time.monotonic()
            with late._alone():
                assert least <= time.monotonic() - started < most, "waited for once"
