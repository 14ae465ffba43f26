# SPDX-License-Identifier: MIT
"""`contended kernel` as a reader calls it: exit status, one line on errors, nothing left over."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from labtools import alive
from support import PATIENCE_S, Cli, eventually, make_home, one_line

from contended import cli
from contended.commands import kernel
from contended.kernel import build, qemu, record, run, source, variants
from contended.kernel.build import Kernel
from contended.kernel.record import KernelRun

pytest_plugins = ("labfixtures",)

CASE = """
[variants.before]
summary = "as it is"
patches = []
[variants.after]
summary = "fixed"
patches = []
right = true
[variants.wrong]
summary = "not fixed"
patches = []
[runs.opens]
workload = "open-creat"
[[outcomes]]
variant = "before"
run = "opens"
expected = "two calls"
metric = "ops"
at_least = 1
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone whose only case is `example`."""
    place = make_home(tmp_path / "home")
    (place / "patches" / "example").mkdir(parents=True)
    shutil.copytree(Path("patches/config").resolve(), place / "patches" / "config")
    (place / "patches" / "example" / "variants.toml").write_text(CASE)
    monkeypatch.setenv("CONTENDED_HOME", str(place))
    monkeypatch.setenv("CONTENDED_CACHE", str(tmp_path / "cache"))
    return place


@pytest.fixture
def lab(home: Path, tmp_path: Path) -> Cli:
    """The command in that clone, with an empty cache."""
    return Cli(home, tmp_path / "cache")


def test_help_names_all_commands(lab: Cli) -> None:
    done = lab.run("kernel", "--help")
    for name in ("doctor", "source", "build", "run", "shell", "list", "clean"):
        assert f"\n    {name} " in done.stdout
    assert "kernel" in lab.run("--help").stdout


def test_other_commands_do_not_import_the_lab() -> None:
    code = (
        "import sys; from contended import cli; cli.main(['cases']);"
        "sys.exit(any(name.startswith('contended.kernel') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "call",
    [
        ["run", "no-such-case"],
        ["build", "no-such-case"],
        ["build", "no-such-case/after"],
        ["shell", "no-such-case/after"],
        ["run", "no-such-case", "--vcpus", "0"],
        ["source", "--source", "/no/such/tree"],
    ],
)
def test_wrong_names(lab: Cli, call: list[str]) -> None:
    done = lab.run("kernel", *call)
    assert done.returncode == 2
    one_line(done.stderr)
    assert done.stdout == ""


def test_wrong_variants_and_numbers(lab: Cli) -> None:
    done = lab.run("kernel", "run", "example", "--variants", "best")
    assert done.returncode == 2
    assert "no variant 'best'; there are: before" in one_line(done.stderr)
    done = lab.run("kernel", "run", "example", "--repeats", "0")
    assert (done.returncode, "at least 1" in done.stderr) == (2, True)
    done = lab.run("kernel", "run", "example", "--json", "/no/folder/x.json")
    assert (done.returncode, "no folder" in one_line(done.stderr)) == (2, True)
    done = lab.run("kernel", "build", "example/best")
    assert (done.returncode, "example/before" in done.stderr) == (2, True)
    assert lab.files() == []


def test_no_qemu_is_said_before_anything_is_built(lab: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = lab.run("kernel", "run", "example", env={"PATH": str(tmp_path / "empty")})
    assert done.returncode == 1
    assert "apt-get install qemu-system-x86" in one_line(done.stderr)
    assert lab.files() == []


def test_a_shell_needs_a_terminal(lab: Cli) -> None:
    done = lab.run("kernel", "shell", "example/before")
    assert done.returncode == 2
    assert "needs a terminal" in one_line(done.stderr)


def test_list(lab: Cli) -> None:
    done = lab.run("kernel", "list")
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert rows == [
        ["example/before", "base", "as", "it", "is"],
        ["example/after", "base", "debug", "fixed"],
        ["example/wrong", "base", "not", "fixed"],
    ]


def test_doctor_names_what_is_missing(lab: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = lab.run("kernel", "doctor", env={"PATH": str(tmp_path / "empty")})
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    # who is not root is told how to become it
    assert re.match(r"To install what is missing: (sudo |su -c ')?apt-get install ", last)
    for package in ("bc", "bison", "flex", "qemu-system-x86", "xz-utils"):
        assert package in re.findall(r"[\w.-]+", last)


def test_doctor_sees_a_missing_source(lab: Cli) -> None:
    done = lab.run("kernel", "doctor", env={"CONTENDED_KERNEL_SOURCE": "/no/such/tree"})
    assert done.returncode == 1
    assert "NO  source" in done.stdout


def test_clean_says_what_it_freed(lab: Cli) -> None:
    place = lab.cache / "kernel"
    for name in ("build/base/x.o", "kernels/0/bzImage", "source/0/tree/Makefile"):
        (place / name).parent.mkdir(parents=True)
        (place / name).write_bytes(b"x" * 50_000_000)
    done = lab.run("kernel", "clean")
    assert done.stdout == "freed 0.1 GB; kernels and source are kept\n"
    assert lab.files() == ["Makefile", "bzImage"]
    assert "freed 0.1 GB; nothing" in lab.run("kernel", "clean", "--all").stdout
    assert lab.files() == []
    assert lab.run("kernel", "clean").stdout.startswith("freed 0.0 GB")


def judged(held: bool) -> KernelRun:
    return KernelRun(
        case="example",
        vcpus=2,
        repeats=1,
        variants={"before": "as it is"},
        kernels=[],
        boots=[],
        outcomes=[
            record.OutcomeRecord(
                variant="before", run="opens", expected="two calls", condition="c >= 1", metric="c",
                seen=2.0, low=2.0, high=2.0, held=held, reason="" if held else "2 is wrong",
            )
        ],
        provenance=record.KernelProvenance(
            cpu="x", cpus_allowed=[0], host_kernel="6", virtualized=None, qemu="7", accel="tcg",
            note="", source="6.1.192", guest_compiler="gcc", contended="0", commit=None,
            load_1min=0.0, started="2026-01-01T00:00:00+00:00", seconds=1.0,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("held", [True, False])
def test_the_exit_status_says_whether_all_held(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    held: bool,
) -> None:
    monkeypatch.setattr(run, "run", lambda *_, **__: judged(held))
    file = tmp_path / "out.json"
    status = cli.main(["kernel", "run", "example", "--json", str(file)])
    out = capsys.readouterr()
    assert status == (0 if held else 1)
    assert out.out == str(judged(held)) + "\n"
    assert ("variant before, run opens: two calls: 2 is wrong" in out.err) != held
    assert record.load(file).held == held

    assert cli.main(["kernel", "run", "example", "--json", "-"]) == status
    assert capsys.readouterr().out == judged(held).to_json()


def test_a_lost_machine_is_an_error_and_leaves_no_file(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def lost(*_: object, **__: object) -> KernelRun:
        raise qemu.LostVm("QEMU ended before the guest was done: it was killed by SIGKILL")

    monkeypatch.setattr(run, "run", lost)
    file = tmp_path / "out.json"
    assert cli.main(["kernel", "run", "example", "--json", str(file)]) == 1
    assert "killed by SIGKILL" in one_line(capsys.readouterr().err)
    assert not file.exists()


def test_build_makes_each_kernel_once_and_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    built: dict[tuple[str, str], Kernel] = {}

    def make(variant: variants.Variant, config: str, *_: object) -> Kernel:
        if len(built) == 2:
            raise KeyboardInterrupt
        return built.setdefault(
            (str(variant), config),
            Kernel("x", "y", config, "0", Path("/x"), Path("/x"), "", "", ""),
        )

    monkeypatch.setattr(source, "find", lambda *_: source.KernelSource(Path("/x"), "6.1.192", "0"))
    monkeypatch.setattr(build, "find", lambda v, c, *_: built.get((str(v), c)))
    monkeypatch.setattr(build, "build", make)
    wanted = kernel.kernels_of([])
    assert len(wanted) > 2
    assert cli.main(["kernel", "build"]) == 130
    assert len(built) == 2
    monkeypatch.setattr(
        build, "build", lambda v, c, *_: built.setdefault((str(v), c), next(iter(built.values())))
    )
    capsys.readouterr()
    assert cli.main(["kernel", "build"]) == 0
    out = capsys.readouterr()
    assert out.out == f"{len(wanted) - 2} built, 2 were there: {len(wanted)} kernels\n"
    assert out.err.count("\n") == len(wanted) - 2
    assert set(built) == {(str(v), c) for v, c in wanted}


def test_what_is_built_of_a_case(home: Path) -> None:
    def names(*asked: str) -> list[str]:
        return [f"{variant} {config}" for variant, config in kernel.kernels_of(asked)]

    whole = [
        "example/before base",
        "example/after base",
        "example/wrong base",
        "example/after debug",
    ]
    assert names() == whole
    assert names("example", "example/after") == whole
    assert names("example/after") == ["example/after base", "example/after debug"]


RUNNER = """
import sys
from dataclasses import replace
from pathlib import Path
from contended import cli
from contended.kernel import build, guest, run, source
image, initrd = Path({image!r}), Path({initrd!r})
build.build = lambda v, c, *_: build.Kernel(
    v.slug, v.name, c, "0", image, image, "", "6.1.192", "gcc")
source.find = lambda *_: source.KernelSource(Path("/none"), "6.1.192", "0")
guest.initrd = lambda: initrd
# every workload of the tiny guest hangs
before = run._boot
run._boot = lambda *a: replace(before(*a), args={{**before(*a).args, "how": "hang"}})
print("ready", flush=True)
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_interrupted_leaves_no_machine(
    kernel: Kernel, tiny: Path, home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    code = RUNNER.format(image=str(kernel.image), initrd=str(tiny))
    lab = Cli(home, tmp_path / "cache", (sys.executable, "-c", code))
    file = tmp_path / "out.json"
    process = lab.start("kernel", "run", "example", "--accel", "tcg", "--json", file)

    def machine() -> list[int]:
        return [pid for pid, what in lab.alive().items() if what.startswith("qemu")]

    assert eventually(lambda: bool(machine()))
    (pid,) = machine()
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert err.endswith("contended: interrupted, nothing was written\n")
        assert "Traceback" not in err
    else:
        assert process.returncode == -number
    assert eventually(lambda: not alive(pid))
    assert not file.exists()


def test_killing_qemu_is_reported_as_a_lost_machine(
    kernel: Kernel, tiny: Path, home: Path, tmp_path: Path
) -> None:
    code = RUNNER.format(image=str(kernel.image), initrd=str(tiny))
    lab = Cli(home, tmp_path / "cache", (sys.executable, "-c", code))
    process = lab.start("kernel", "run", "example", "--accel", "tcg")

    def machine() -> list[int]:
        return [pid for pid, what in lab.alive().items() if what.startswith("qemu")]

    assert eventually(lambda: bool(machine()))
    os.kill(machine()[0], signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert out == "ready\n"
    last = err.splitlines()[-1]
    ended = "contended: QEMU ended before the guest was done: it was killed by SIGKILL"
    assert last.startswith(ended)


SHELL = """
import sys
from pathlib import Path
from contended.kernel import boot, build, guest, qemu
guest.shell_initrd = lambda: Path({initrd!r})
image = Path({image!r})
k = build.Kernel("t", "after", "base", "0", image, image, "", "6.1.192", "gcc")
b = qemu.Boot(kernel=k, vcpus=1, accel="tcg", args={{"how": {how!r}}})
sys.exit(boot.interact(b, "example/after"))
"""


@pytest.mark.parametrize("how", ["fine", "hang"])
def test_the_terminal_is_the_guest_s(kernel: Kernel, tiny: Path, how: str) -> None:
    """The console comes to the terminal, and Ctrl-A X ends the machine."""
    ours, theirs = pty.openpty()
    code = SHELL.format(initrd=str(tiny), image=str(kernel.image), how=how)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen, end_at, asked = b"", time.monotonic() + 120, False
    # Until the other side is closed, and not until the process has ended: what it wrote last may
    # not have been read by then.
    while select.select([ours], [], [], max(0.0, end_at - time.monotonic()))[0]:
        try:
            seen += os.read(ours, 4096)
        except OSError:
            break  # how Linux says that the other side of a terminal was closed
        if how == "hang" and b"tiny_init is here" in seen and not asked:
            os.write(ours, b"\x01x")
            asked = True
    try:
        assert process.wait(PATIENCE_S) == 0, seen
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(ours)
    assert b"example/after, Linux 6.1.192, tcg" in seen
    assert b"tiny_init is here" in seen
