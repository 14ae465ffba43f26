# SPDX-License-Identifier: MIT
"""A sandbox gives nothing of the machine away, and everything in it ends."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from coursefixtures import use_sandbox
from support import eventually

from contended.course import boxes, filters, sandbox
from contended.course.boxes import Limits
from contended.course.sandbox import Done
from contended.errors import ContendedError

pytest_plugins = ("coursefixtures",)


@pytest.fixture(autouse=True, params=sandbox.MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each mode of the sandbox in turn."""
    use_sandbox(request.param, monkeypatch)
    return str(request.param)


def python(code: str, limits: Limits | None = None, *, unsafe: bool = False) -> Done:
    command = [sys.executable, "-P", "-c", code]
    return sandbox.run(command, limits=limits or Limits(wall_s=20), unsafe=unsafe)


def test_a_program_gets_its_files_and_its_answer_comes_back() -> None:
    done = sandbox.run(
        ["sh", "-c", "cat given; cat; echo said >&2; exit 3"],
        files={"given": b"one\n"},
        stdin=b"two\n",
    )
    assert (done.stdout, done.stderr, done.status, done.reason) == (b"one\ntwo\n", b"said\n", 3, "")


def test_nothing_but_its_own_folder_can_be_written(root: Path, tmp_path: Path) -> None:
    places = ["/x", "/usr/x", "/etc/x", "/dev/x", "/proc/sys/kernel/hostname", "/sys/x"]
    places += [str(root / "x"), str(tmp_path / "x"), str(Path(sys.prefix) / "x"), "mine"]
    done = python(
        "import json\nseen = {}\n"
        f"for place in {places}:\n"
        "    try:\n        open(place, 'w').write('1')\n        seen[place] = True\n"
        "    except OSError:\n        seen[place] = False\n"
        "print(json.dumps(seen))"
    )
    seen = json.loads(done.stdout)
    assert [place for place, wrote in seen.items() if wrote] == ["mine"]
    assert not (root / "x").exists()


def test_the_machines_files_cannot_be_read(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("42")
    secret.chmod(0o644)
    places = [str(secret), str(root / "labs"), "/etc/passwd", "/root", "/home", str(root / "tests")]
    done = python(
        "import json, os\nseen = []\n"
        f"for place in {places}:\n"
        "    try:\n"
        "        if open(place).read() if os.path.isfile(place) else os.listdir(place):\n"
        "            seen.append(place)\n"
        "    except OSError:\n        pass\n"
        "print(json.dumps(seen))"
    )
    # A folder on the way to Python may be there, with that way and nothing else in it.
    ways = {str(way) for python in (sys.prefix, sys.base_prefix) for way in Path(python).parents}
    assert set(json.loads(done.stdout)) - ways == set(), done.stderr


def test_there_is_no_network(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        done = python(f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)")
        assert done.status == 1
        assert b"Error" in done.stderr
        with pytest.raises(TimeoutError):
            server.accept()


def test_nobody_else_can_be_seen_or_traced() -> None:
    done = python(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "try:\n    print(len([p for p in os.listdir('/proc') if p.isdigit()]) < 5)\n"
        "except PermissionError:\n    print(True)\n"
        f"try:\n    print(bool(open('/proc/{os.getpid()}/cmdline').read()) and {os.getpid()} > 5)\n"
        "except OSError:\n    print(False)\n"
        "for call in (lambda: libc.ptrace(16, 1, 0, 0), lambda: libc.unshare(0x10000000),\n"
        "             lambda: libc.mount(b'x', b'/', b'tmpfs', 0, 0)):\n"
        "    print(call(), ctypes.get_errno())\n"
        "print(os.getuid() != 0)"
    )
    assert done.stdout.decode().split() == [
        *("True", "False"),
        *("-1", "1") * 3,
        "True",
    ], done.stderr


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        ("while True: pass", Limits(wall_s=1.5), "within 1.5 s"),
        ("while True: pass", Limits(wall_s=30, cpu_s=1), "SIGKILL|SIGXCPU"),
        ("import time; time.sleep(60)", Limits(wall_s=1), "within 1 s"),
        ("while True: print('x' * 4096)", Limits(wall_s=20), "printed more than"),
    ],
)
def test_what_goes_on_is_stopped(code: str, limits: Limits, reason: str) -> None:
    import re

    done = python(code, limits)
    assert re.search(reason, done.reason)
    assert done.wall_s < limits.wall_s + 5


def test_a_hundred_gigabytes_are_refused() -> None:
    assert b"MemoryError" in python("x = bytearray(100 << 30)").stderr


def test_memory_is_added_up_over_processes() -> None:
    code = (
        "import os, time\n"
        "for _ in range(6):\n"
        "    if os.fork() == 0:\n"
        "        x = bytearray(b'1') * (96 << 20)\n"
        "        time.sleep(30)\n"
        "time.sleep(30)"
    )
    done = python(code, Limits(wall_s=25, memory=300 << 20))
    assert "memory" in done.reason


def test_a_fork_bomb_meets_its_limit_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    uid = boxes.somebody()
    monkeypatch.setattr(boxes, "somebody", lambda: uid)
    code = (
        "import os, time\nmade = 0\n"
        "while True:\n"
        "    try:\n"
        "        if os.fork() == 0:\n            time.sleep(6000)\n"
        "        made += 1\n"
        "    except OSError:\n        print(made, flush=True)\n        break\n"
        "os.setsid()\n"
    )
    done = python(code, Limits(wall_s=20, processes=20))
    assert 5 < int(done.stdout) < 20, done
    assert eventually(lambda: not _processes(uid))


def _processes(uid: int) -> list[int]:
    """The processes of a user that no machine has: those of one box alone."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if place.stat().st_uid == uid:
                found.append(int(place.name))
        except OSError:
            continue
    return found


def test_disks_do_not_fill(mode: str) -> None:
    code = (
        "import itertools\n"
        "for n in itertools.count():\n"
        "    open(f'{n}', 'wb').write(bytes(1 << 20))\n"
    )
    done = python(code, Limits(wall_s=20, disk=8 << 20))
    if mode == "bubblewrap":
        assert b"No space left" in done.stderr
    else:
        assert "wrote too much to its folder" in done.reason


def test_it_ends_with_whoever_started_it() -> None:
    code = (
        "import sys\nfrom contended.course import sandbox\n"
        f"with sandbox.Process([{sys.executable!r}, '-c', 'import time; print(1, flush=True); "
        "time.sleep(6000)']) as p:\n"
        "    p.child.stdout.readline()\n    print(p.child.pid, flush=True)\n    sys.stdin.read()\n"
    )
    grader = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert grader.stdout
    assert grader.stdin
    pid = int(grader.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    grader.kill()
    grader.wait()
    grader.stdout.close()
    grader.stdin.close()
    assert eventually(lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_signal_is_told_in_words() -> None:
    done = python("import os; os.kill(os.getpid(), 11)")
    assert done.status == -11
    assert "SIGSEGV" in done.reason


def test_without_bubblewrap_nothing_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(sandbox.CHOICE)
    for cached in (sandbox.trouble, sandbox._best):
        cached.cache_clear()
    try:
        with pytest.raises(ContendedError, match="apt-get install bubblewrap"):
            sandbox.require(False)
        sandbox.require(True)
    finally:
        monkeypatch.undo()
        for cached in (sandbox.trouble, sandbox._best):
            cached.cache_clear()


def test_unsafe_runs_without_a_box_and_still_stops() -> None:
    started = time.monotonic()
    done = python(
        "import time; print(1, flush=True); time.sleep(60)", Limits(wall_s=5), unsafe=True
    )
    assert done.stdout == b"1\n"
    assert "within 5 s" in done.reason
    assert time.monotonic() - started < 30


def test_the_filter_is_one_that_the_kernel_takes() -> None:
    for machine, more in itertools.product(("x86_64", "aarch64"), ("", filters.SHARED)):
        program = filters.program(machine, more)
        assert program
        assert len(program) % 8 == 0
        # No jump may leave the program.
        steps: Sequence[bytes] = [program[i : i + 8] for i in range(0, len(program), 8)]
        for number, step in enumerate(steps):
            assert number + 1 + max(step[2], step[3]) < len(steps) or step[0] == 6
    assert filters.program("z80") is None
