# SPDX-License-Identifier: MIT
"""Sweeps on Dask, whatever happens to the workers, and the command line."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import eventually, raced

from contended import cases, cli
from contended.cases.lockref_degrade import STATS
from contended.cases.overlay_creds import CHECKS
from contended.cases.umount_grace_period import UMOUNTS
from contended.commands import simulate
from contended.errors import ContendedError, UsageError
from contended.simulate import grid, sweep

pandas = pytest.importorskip("pandas")
distributed = pytest.importorskip("distributed")

# Dask closes sockets and loops in its own time; pytest makes errors of such warnings.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers that do nothing else."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as found:
        yield found


def test_a_sweep_is_what_one_process_gets(cluster: Any) -> None:
    todo = sweep.tasks([CHECKS], machines=["2x20-smt", "1x24"], cpus=[2, 20], seeds=[0, 1])
    assert len(todo) == len(CHECKS.variants) * 2 * 2 * 2
    seen: list[tuple[int, int]] = []
    frame = sweep.run(todo, address=cluster.scheduler_address, progress=lambda *at: seen.append(at))
    rows = [row for task in todo for row in task.rows()]
    pandas.testing.assert_frame_equal(frame, pandas.DataFrame(rows))
    assert seen[0] == (0, len(todo))
    assert seen[-1] == (len(todo), len(todo))


def test_a_worker_that_dies_loses_nothing(cluster: Any) -> None:
    """One of two workers is killed in the middle; every row is there, and the same as ever."""
    todo = sweep.tasks([STATS], machines=["2x48-smt"], cpus=[192], seeds=range(12))
    with distributed.Client(cluster) as client:
        victim = min(client.run(os.getpid).values())
    killed = threading.Event()

    def kill(done: int, planned: int) -> None:
        if done >= 3 and not killed.is_set():
            killed.set()
            os.kill(victim, signal.SIGKILL)

    frame = sweep.run(todo, address=cluster.scheduler_address, progress=kill)
    assert killed.is_set()
    with distributed.Client(cluster) as client:
        assert victim not in client.run(os.getpid).values()
    assert len(frame) == 3 * len(todo)
    some = frame[frame.seed == 7].reset_index(drop=True)
    rows = [row for variant in STATS.variants for row in STATS.rows(variant, "2x48-smt", 192, 7)]
    pandas.testing.assert_frame_equal(some, pandas.DataFrame(rows))


def test_nobody_at_the_address_is_said_within_ten_seconds() -> None:
    todo = sweep.tasks([CHECKS], machines=["1x24"], cpus=[1])
    with socket.socket() as silent:
        # it takes the connection and never says a word
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        begun = time.monotonic()
        with pytest.raises(ContendedError, match="no Dask scheduler answers at tcp://127"):
            sweep.run(todo, address=f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - begun < 60
    with pytest.raises(UsageError, match="no Dask address"):
        sweep.run(todo, address="somewhere:else")


def test_a_task_that_is_refused_says_why(cluster: Any) -> None:
    with pytest.raises(UsageError, match="seed is -5") as caught:
        sweep.run(
            [sweep.Simulation(CHECKS, "before", "1x24", 1, -5)],
            address=cluster.scheduler_address,
        )
    assert "\n" not in str(caught.value)


def _args(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    simulate.fill(parser)
    return parser.parse_args(words)


def test_the_command_prints_a_table_and_writes_both_files(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet, text = tmp_path / "rows.parquet", tmp_path / "rows.json"
    args = _args(
        *("overlay-creds", "--cpus", "1,80,512", "--variants", "before,after", "--seeds", "2"),
        *("--dask", cluster.scheduler_address, "--json", str(text), "--parquet", str(parquet)),
    )
    assert args.command(args) == 0
    out = capsys.readouterr()
    assert out.out.splitlines()[0].split()[:3] == ["variant", "cpus", "phase"]
    assert "512*" in out.out
    assert "more CPUs than the machine has" in out.out
    assert out.err == ""
    rows = json.loads(text.read_text())
    assert len(rows) == 2 * 3 * 2 * 2
    assert len(pandas.read_parquet(parquet)) == len(rows)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.json", "rows.parquet"]


def test_the_command_without_an_address_uses_this_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = _args("overlay-creds", "--cpus", "2", "--variants", "after", "--json", "-")
    assert args.command(args) == 0
    (_, row) = json.loads(capsys.readouterr().out)
    assert (row["variant"], row["cpus"], row["phase"]) == ("after", 2, "run")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope"], "'nope' cannot be simulated; choose one of: lockref-degrade"),
        (["overlay-creds", "--machine", "x"], "choose one of: here, 1x24"),
        (["overlay-creds", "--cpus", "0"], "0 CPUs: choose 1 to 512"),
        (["overlay-creds", "--cpus", "1,1000"], "1000 CPUs: choose 1 to 512"),
        (["overlay-creds", "--variants", "x"], "it has: before, own-line, after"),
        (["overlay-creds", "--seeds", "0"], "--seeds is 0: choose 1 to 1000"),
        (["overlay-creds", "--parquet", "/nowhere/x"], "there is no folder /nowhere"),
        (["overlay-creds", "--json", "/"], "is a folder"),
        (["overlay-creds", "--parquet", "-"], "give --parquet a file's name"),
    ],
)
def test_the_command_refuses_before_it_starts(words: list[str], said: str) -> None:
    args = _args(*words)
    with pytest.raises(UsageError, match=said):
        args.command(args)


def test_the_front_door_leads_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "rows.json"
    call = ["simulate", "umount-grace-period", "--cpus", "2", "--json", str(target)]
    assert cli.main(call) == 0
    assert {row["variant"] for row in json.loads(target.read_text())} == set(UMOUNTS.variants)
    assert capsys.readouterr().out.startswith("variant")


def test_all_that_a_slider_shows_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grid, "LIVE_CPUS", (1, 2))
    target = tmp_path / "grid.json"
    assert cli.main(["simulate", "umount-grace-period", "--grid", str(target)]) == 0
    made = cases.study("umount-grace-period").sweep
    assert made is not None
    assert grid.load(target, made, "again").cpus == (1, 2)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mount-hash"], "'mount-hash' cannot be simulated; choose one of: lockref-degrade"),
        (["overlay-creds", "--machine", "cray"], "no machine 'cray'; choose one of: here, 1x24"),
        (["overlay-creds", "--dask", "nonsense"], "'nonsense' is no Dask address"),
        (["lockref-lockers", "--grid", "x"], "'lockref-lockers' has no slider in its chapter"),
        (["overlay-creds", "--grid", "x", "--seeds", "2"], "--grid takes no --seeds"),
        (["overlay-creds", "--grid", "no/x"], "there is no folder no: make it first"),
    ],
)
def test_the_front_door_says_no_in_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["simulate", *words]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert said in out.err
    assert out.err.count("\n") == 1


def test_published_numbers_beside_another_workload_of_the_case(
    cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    args = _args(
        *("lockref-lockers", "--cpus", "2", "--variants", "before", "--published"),
        *("--dask", cluster.scheduler_address),
    )
    assert args.command(args) == 0
    assert "spin-192-workers, after/before" in capsys.readouterr().out


def test_other_commands_do_not_pay_for_it() -> None:
    code = (
        "import sys; from contended import cli; cli._parser(['cases']); "
        "heavy = 'contended.simulate', 'contended.cases'; "
        "sys.exit(any(name.startswith(heavy) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.check
@raced
def test_an_interrupt_is_one_line_and_leaves_nobody(tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    words = ["lockref-degrade", "--cpus", "512", "--seeds", "900", "--parquet", str(target)]
    with subprocess.Popen(
        [sys.executable, "-m", "contended.cli", "simulate", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        assert eventually(lambda: bool(_descendants(running.pid)))
        time.sleep(2)
        family = _descendants(running.pid)
        assert running.poll() is None, "it was over before it was interrupted"
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert (running.returncode, out) == (130, "")
    assert err == "contended: interrupted, nothing was written\n"
    assert list(tmp_path.iterdir()) == []
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family))


def _descendants(pid: int) -> list[int]:
    try:
        tasks = [t.read_text().split() for t in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it is gone
        return []
    children = [int(child) for task in tasks for child in task]
    return children + [d for child in children for d in _descendants(child)]
