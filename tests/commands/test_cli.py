# SPDX-License-Identifier: MIT
"""The command line: bad input is one line and a status, and nothing is left behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import (
    CPUS,
    PATIENCE_S,
    Cli,
    eventually,
    fifo_allowed,
    make_home,
    one_line,
    two_cpus,
    without_overrides,
    without_sched_fifo,
)

from contended import register
from contended.measure import native, results

QUICK = ("--repeats", "1", "--threads", "1")


@pytest.fixture(scope="module")
def shared_cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    base = tmp_path_factory.mktemp("cli")
    broken = ("hostile", "compile_error", "missing_header", "no_model", "other_abi")
    return Cli(make_home(base / "home", *broken), base / "cache")


@pytest.fixture
def cli(shared_cli: Cli) -> Iterator[Cli]:
    """The command line; whatever a test does, nothing of it may be running afterwards."""
    yield shared_cli
    assert shared_cli.alive() == {}
    assert all(name.endswith(".so") for name in shared_cli.files()), shared_cli.files()


# --- wrong calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["no-such-case"], ["no-such-case", "lockref-degrade", "measuring", "pingpong"]),
        (["umount-grace-period"], ["umount-grace-period has no C model yet", "lockref-degrade"]),
        (["lockref-degrade", "--variants", "before,between"], ["'between'", "before, after"]),
        (["lockref-degrade", "--set", "patience=3"], ["'patience'", "lock, hold, every, spin"]),
        (["lockref-degrade", "--set", "lock=3"], ["lock=3", "0 to 2"]),
        (["lockref-degrade", "--set", "spin=-1"], ["spin=-1", "0 to 1000000000", "looks"]),
        (["lockref-degrade", "--repeats", "0"], ["repeats is 0", "1 to 1000"]),
        (["lockref-degrade", "--think", "-1"], ["think is -1", "0 to"]),
        (["lockref-degrade", "--ops", "-1"], ["ops is -1", "0 to"]),
        (["lockref-degrade", "--threads", "0"], ["1 or more threads, not 0"]),
        (["pingpong", "--threads", "1"], ["2 to 2 threads, not 1"]),
    ],
)
def test_a_wrong_name_or_value_lists_the_right_ones(
    cli: Cli, args: list[str], words: list[str]
) -> None:
    done = cli.run("measure", *args)
    assert done.returncode == 2
    line = one_line(done.stderr)
    assert all(word in line for word in words), line
    assert not done.stdout


@pytest.mark.parametrize(
    "args",
    [
        ["--set", "spin"],
        ["--set", "spin=many"],
        ["--threads", "one"],
        ["--threads", ""],
        ["--variants", ","],
        ["--sched", "idle"],
        ["--repeats", "1.5"],
        ["--metric", "speed"],
    ],
)
def test_a_malformed_option_is_refused(cli: Cli, args: list[str]) -> None:
    done = cli.run("measure", "lockref-degrade", *args)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("contended")


def test_too_many_threads_is_refused(cli: Cli) -> None:
    done = cli.run("measure", "lockref-degrade", "--threads", str(len(CPUS) + 1))
    assert done.returncode == 1
    assert f"{len(CPUS) + 1} threads need {len(CPUS) + 1} CPUs" in one_line(done.stderr)


# --- compilers and caches ------------------------------------------------------------------------


@pytest.mark.parametrize("env", [{"CC": "/nonexistent"}, {"PATH": "/nonexistent", "CC": ""}])
def test_no_compiler(cli: Cli, env: dict[str, str]) -> None:
    done = cli.run("measure", "measuring", env=env)
    assert done.returncode == 1
    line = one_line(done.stderr)
    assert "no C compiler" in line
    assert "apt-get install gcc" in line
    assert env["CC"] in line


def test_a_missing_header_is_named(cli: Cli) -> None:
    done = cli.run("measure", "missing-header")
    assert done.returncode == 1
    line = one_line(done.stderr)
    assert "header no_such_library/anywhere.h is missing" in line
    assert "missing_header.c:2:" in line


def test_a_compile_error_names_file_and_line(cli: Cli) -> None:
    done = cli.run("measure", "compile-error", env={"LANG": "de_DE.UTF-8", "LANGUAGE": "de"})
    assert done.returncode == 1
    line = one_line(done.stderr)
    assert "compile_error.c:6:" in line
    assert "this_is_not_declared" in line


@pytest.mark.parametrize(
    ("slug", "words"), [("no-model", "ct_model"), ("other-abi", "built from another abi.h")]
)
def test_a_file_that_is_no_model(cli: Cli, slug: str, words: str) -> None:
    done = cli.run("measure", slug)
    assert done.returncode == 1
    assert words in one_line(done.stderr)


def test_a_home_without_models(cli: Cli, tmp_path: Path) -> None:
    done = cli.run("measure", "measuring", env={"CONTENDED_HOME": str(tmp_path)})
    assert done.returncode == 1
    assert "set CONTENDED_HOME" in one_line(done.stderr)


def test_a_cache_that_is_a_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    done = cli.run("measure", "measuring", env={"CONTENDED_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 1
    assert "set CONTENDED_CACHE" in one_line(done.stderr)


@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["read-only", "closed"])
def test_a_cache_that_cannot_be_written(cli: Cli, tmp_path: Path, mode: int) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=mode)
    done = cli.run(
        "measure", "measuring", env={"CONTENDED_CACHE": str(cache)}, wrap=without_overrides
    )
    cache.chmod(0o755)
    assert done.returncode == 1
    line = one_line(done.stderr)
    assert "Permission denied" in line
    assert "set CONTENDED_CACHE" in line
    assert list(cache.iterdir()) == []


def test_a_home_folder_that_cannot_be_made(cli: Cli) -> None:
    env = {"HOME": "/proc/nobody", "CONTENDED_CACHE": "", "XDG_CACHE_HOME": ""}
    done = cli.run("measure", "measuring", env=env)
    assert done.returncode == 1
    assert "set CONTENDED_CACHE" in one_line(done.stderr)


# --- CPUs and schedulers -------------------------------------------------------------------------


@pytest.mark.parametrize("cpu", [CPUS[0], CPUS[-1]])
def test_one_cpu_only(cli: Cli, cpu: int) -> None:
    def on_it(command: object) -> list[str]:
        return ["taskset", "-c", str(cpu), *command]  # type: ignore[misc]

    done = cli.run("measure", "lockref-degrade", wrap=on_it)
    assert done.returncode == 1
    line = one_line(done.stderr)
    assert f"only CPU {cpu}" in line
    assert "--threads 1" in line

    done = cli.run("measure", "lockref-degrade", *QUICK, "--json", "-", wrap=on_it)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["provenance"]["cpus_allowed"] == [cpu]
    # The harness fails a run whose thread is not where it should be; nor did it move.
    assert all(v["counts"]["cpu_changes"] == 0 for v in said["variants"].values())
    assert all(v["counts"]["ops"] > 0 for v in said["variants"].values())


def test_sched_fifo_that_is_not_permitted(cli: Cli) -> None:
    done = cli.run("measure", "measuring", "--sched", "fifo", *QUICK, wrap=without_sched_fifo)
    assert done.returncode == 1
    line = one_line(done.stderr)
    assert "not permitted" in line
    assert "--sched auto" in line
    assert not done.stdout

    done = cli.run("measure", "measuring", *QUICK, "--json", "-", wrap=without_sched_fifo)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["provenance"]["scheduler"].startswith(
        "SCHED_OTHER (not permitted"
    )


@pytest.mark.skipif(not fifo_allowed(), reason="needs permission for SCHED_FIFO")
def test_sched_fifo_is_taken_where_it_is_permitted(cli: Cli) -> None:
    for sched in "auto", "fifo":
        done = cli.run("measure", "measuring", "--sched", sched, *QUICK, "--json", "-")
        assert json.loads(done.stdout)["provenance"]["scheduler"] == "SCHED_FIFO", done.stderr


# --- results -------------------------------------------------------------------------------------


def test_the_json_is_what_is_documented_and_loads(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    done = cli.run(
        *("measure", "lockref-degrade", "--repeats", "2", "--threads", "1"),
        *("--set", "spin=7", "--think", "5", "--json", file),
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "no progress bar in a pipe"
    assert "after/before" in done.stdout
    said = json.loads(file.read_text())
    assert {"case", "metric", "unit", "variants", "ratio", "provenance"} <= set(said)
    assert (said["case"], said["metric"]) == ("lockref-degrade", "ops_per_s")
    assert list(said["variants"]) == ["before", "after"]
    assert said["params"] == {"lock": 2, "hold": 5000, "every": 2000, "spin": 7, "think_ns": 5}
    for variant in said["variants"].values():
        assert len(variant["samples"]) == 2 * 3  # repeats times phases
        assert variant["counts"]["ops"] == sum(s["counts"]["ops"] for s in variant["samples"])
    loaded = results.load(file)
    assert loaded.recorded
    assert loaded.values("before") == [s["value"] for s in said["variants"]["before"]["samples"]]
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_json_on_standard_output_is_json_alone(cli: Cli) -> None:
    done = cli.run("measure", "measuring", "--variants", "kept,empty", *QUICK, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["variants"]) == ["kept", "empty"]
    assert not done.stderr


def test_a_variant_asked_for_twice_is_run_once(cli: Cli) -> None:
    done = cli.run("measure", "measuring", "--variants", "kept,kept", *QUICK, "--json", "-")
    assert len(json.loads(done.stdout)["variants"]["kept"]["samples"]) == 1


@pytest.mark.parametrize(
    ("target", "words"),
    [("missing/result.json", "make it first"), (".", "is a folder"), ("closed/x.json", "written")],
)
def test_a_bad_target_is_refused_before_measuring(
    cli: Cli, tmp_path: Path, target: str, words: str
) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    # No compiler: had the measurement begun, the message would be about that.
    done = cli.run(
        *("measure", "measuring", "--json", tmp_path / target),
        env={"CC": "/nonexistent"},
        wrap=without_overrides,
    )
    assert done.returncode == 2
    assert words in one_line(done.stderr)


@pytest.mark.parametrize("target", ["/dev/stdout", "/dev/full"])
def test_a_device_is_written_to_and_not_replaced(cli: Cli, target: str) -> None:
    """As anybody: whoever may write to the device need not be able to write to /dev."""
    done = cli.run(
        *("measure", "measuring", "--variants", "empty", *QUICK, "--json", target),
        wrap=without_overrides,
    )
    assert Path(target).exists()
    if target == "/dev/full":
        assert done.returncode == 1
        assert "No space left" in one_line(done.stderr)
    else:
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("{")


def test_a_full_disk_at_standard_output_is_one_line(cli: Cli) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*cli.python, "cases"],
            env=cli.env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left" in one_line(done.stderr)


def test_a_reader_that_leaves_is_no_error_message(cli: Cli) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*cli.python, "cases"],
        env=cli.env,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE
    assert not done.stderr


def test_progress_on_a_terminal(cli: Cli) -> None:
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        pytest.skip(f"this system gives us no terminal: {error}")
    termios.tcsetwinsize(theirs, (24, 80))
    with subprocess.Popen(
        [*cli.python, "measure", "measuring", "--variants", "empty,kept", *QUICK],
        env=cli.env,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while part := os.read(ours, 4096):
                seen += part
        except OSError:
            pass  # how Linux says that the other side of a terminal was closed
    os.close(ours)
    assert process.returncode == 0
    assert b"/2 [" in seen, "the runs planned are in the bar"


# --- models that go wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("segfault", "SIGSEGV"),
        ("miscount", "the counter says"),
        ("exits", "ended early with exit status 0"),
        ("no-setup", "there is no memory for this"),
        ("silent-setup", "setup failed"),
    ],
)
def test_a_broken_variant_is_reported_and_the_others_are_measured(
    cli: Cli, tmp_path: Path, variant: str, reason: str
) -> None:
    file = tmp_path / "result.json"
    done = cli.run(
        *("measure", "hostile", "--variants", f"{variant},good", "--threads", "1"),
        *("--repeats", "2", "--json", file),
    )
    assert done.returncode == 1
    line = one_line(done.stderr)
    assert f"variant {variant}" in line
    assert reason in line
    assert f"FAILED {variant}" in done.stdout
    loaded = results.load(file)
    assert [f.variant for f in loaded.failures] == [variant], "not run again after a failure"
    assert len(loaded.values("good")) == 2
    assert loaded.values(variant) == []


@pytest.mark.skipif(not fifo_allowed(), reason="needs permission for SCHED_FIFO")
def test_a_real_time_runaway_is_stopped(cli: Cli) -> None:
    done = cli.run("measure", "hostile", "--variants", "spin,good", "--sched", "fifo", *QUICK)
    assert done.returncode == 1
    assert "real-time thread ran away" in one_line(done.stderr)
    assert "good" in done.stdout


def test_all_variants_fail(cli: Cli) -> None:
    done = cli.run("measure", "hostile", "--variants", "no-setup,exits", *QUICK, "--json", "-")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 2
    assert json.loads(done.stdout)["provenance"]["scheduler"] == "nothing ran"


def test_what_a_model_prints_is_shown_apart(cli: Cli) -> None:
    done = cli.run("measure", "hostile", "--variants", "prints", *QUICK, "--json", "-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["case"] == "hostile"
    assert '{"this is": "no answer"}' in done.stderr


@pytest.mark.parametrize("variant", ["forks", "daemonises"])
def test_what_a_model_starts_does_not_outlive_it(cli: Cli, variant: str) -> None:
    done = cli.run("measure", "hostile", "--variants", f"{variant},good", *QUICK, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert all(v["samples"] for v in json.loads(done.stdout)["variants"].values())


# --- interrupted ---------------------------------------------------------------------------------


def _in_a_run(cli: Cli, *, name: str | None = None) -> bool:
    """Do the process that runs models, its fork and, if asked for, one called `name` live?"""
    alive = cli.alive().values()
    return sum("contended.measure.host" in a for a in alive) >= 2 and (
        name is None or any(a.startswith(f"{name}:") for a in alive)
    )


def _wait_for_a_run(cli: Cli, process: subprocess.Popen[str], *, name: str | None = None) -> None:
    eventually(lambda: process.poll() is not None or _in_a_run(cli, name=name))
    assert process.poll() is None, process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_in_the_middle(cli: Cli, tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "result.json"
    process = cli.start("measure", "hostile", "--variants", "good", "--repeats=900", "--json", file)
    _wait_for_a_run(cli, process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does it
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert not out
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted" in one_line(err)
    else:
        assert process.returncode == -number
    assert eventually(lambda: not cli.alive()), cli.alive()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_while_a_model_misbehaves(cli: Cli, number: signal.Signals) -> None:
    """It never returns, and has a daemon running besides: both must go."""
    process = cli.start("measure", "hostile", "--variants=forks-and-spins", *QUICK, "--sched=other")
    _wait_for_a_run(cli, process, name="lingers")
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert eventually(lambda: not cli.alive()), cli.alive()


def test_interrupted_while_compiling(cli: Cli, tmp_path: Path) -> None:
    started = tmp_path / "started"
    compiler = tmp_path / "slow-cc"
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo slow 1.0; exit; }\n'
        f'touch "$TMPDIR/scratch.s"; touch {started}\nexec sleep 100\n'
    )
    compiler.chmod(0o755)
    mine = Cli(cli.home, tmp_path / "cache")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = mine.start("measure", "measuring", env={"CC": str(compiler), "TMPDIR": str(scratch)})
    assert eventually(started.exists), process.communicate()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "interrupted" in one_line(err)
    assert mine.alive() == {}
    assert mine.files() == []
    assert list(scratch.iterdir()) == []


# --- the other commands --------------------------------------------------------------------------


def test_cases(cli: Cli) -> None:
    done = cli.run("cases")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1 + len(register.all()) == 10
    listed = json.loads(cli.run("cases", "--json").stdout)
    assert [case["slug"] for case in listed] == [case.slug for case in register.all()]


def test_doctor_json(cli: Cli) -> None:
    done = cli.run("doctor", "--json")
    json.loads(done.stdout)
    assert not done.stderr


def test_version_and_help(cli: Cli) -> None:
    from contended import __version__

    assert cli.run("--version").stdout == f"contended {__version__}\n"
    shown = cli.run("measure", "--help").stdout
    assert all(option in shown for option in ("--variants", "--threads", "--set", "--json"))
    assert cli.run().returncode == 2


def test_cheap_commands_do_not_import_the_heavy_packages(cli: Cli) -> None:
    code = (
        "import sys; from contended import cli; cli.main(['cases']);"
        "heavy = {'matplotlib', 'scipy', 'pandas', 'cffi', 'tqdm'} & set(sys.modules);"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=cli.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@two_cpus
def test_pingpong_from_the_command_line(cli: Cli) -> None:
    done = cli.run("measure", "pingpong", "--ops", "500", "--repeats", "1", "--json", "-")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    for variant in said["variants"].values():
        assert variant["counts"]["ops"] == 2 * 5 * 500  # threads, slices


def test_what_can_be_measured_is_what_there_is() -> None:
    assert {"lockref-degrade", "measuring", "pingpong"} <= set(native.available())
