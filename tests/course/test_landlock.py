# SPDX-License-Identifier: MIT
"""The sandbox's second mode: where no namespace can be made, attacks meet refusals all the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import toylabs
from attacks import ATTACKS, HARMLESS, dedent
from support import PATIENCE_S, eventually

from contended.course import confine, filters, grade, grades, sandbox
from contended.course.boxes import Limits
from contended.course.sandbox import Process
from contended.errors import ContendedError, UsageError

pytest_plugins = ("coursefixtures",)

DEEP = "d" * 200

PROBES = """
import ctypes, json, os, socket
libc = ctypes.CDLL(None, use_errno=True)
here = os.getcwd()
open("own", "w").write("1")

def call(number, *args):
    if libc.syscall(number, *args) < 0:
        raise OSError(ctypes.get_errno(), "refused")

def datagrams():
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

def made(path, flags=os.O_CREAT | os.O_WRONLY):
    os.close(os.open(path, flags, 0o666))

probes = {
    "inet": lambda: socket.socket(),
    "inet6": lambda: socket.socket(socket.AF_INET6),
    "raw": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "unix": lambda: socket.socket(socket.AF_UNIX),
    "datagrams": datagrams,
    "kill the top": lambda: os.kill(os.getppid(), 9),
    "kill the grader": lambda: os.kill(GRADER, 9),
    "slow the grader": lambda: os.setpriority(os.PRIO_PROCESS, GRADER, 19),
    "limit the grader": lambda: call(302, GRADER, 7, bytes(16), None),
    "read the grader": lambda: open("/proc/GRADER/environ").read(),
    "write the grader": lambda: open("/proc/GRADER/mem", "r+b"),
    "see who there is": lambda: os.listdir("/proc"),
    "be root": lambda: os.setuid(0),
    "have groups": lambda: os.setgroups([0]),
    "shared memory": lambda: call(29, 4242, 4096, 0o1666),
    "messages": lambda: call(68, 4242, 0o1666),
    "a queue": lambda: call(240, b"q", 66, 0o666, None),
    "a file without a name": lambda: call(319, b"x", 0),
    "watch a folder": lambda: call(294, 0),
    "namespaces": lambda: call(272, 0x10000000),
    "a root": lambda: os.chroot(here),
    "handles": lambda: call(304, 3, bytes(16), 0),
    "/dev/shm": lambda: made("/dev/shm/was-here"),
    "/tmp": lambda: made("/tmp/was-here"),
    "/var/tmp": lambda: made("/var/tmp/was-here"),
    "beside it": lambda: made(here + "/../was-here"),
    "move it out": lambda: os.rename("own", "/tmp/was-here"),
    "link it out": lambda: os.link("own", "/tmp/was-here"),
    "link it in": lambda: (os.symlink("/etc/shadow", "shadow"), open("shadow").read()),
    "cut short": lambda: os.truncate("OTHER", 0),
    "change another's": lambda: os.chmod("OTHER", 0o777),
    "remove another's": lambda: os.unlink("OTHER"),
    "read a public file": lambda: open("OTHER").read(),
    "a disk": lambda: os.listdir("/dev"),
}
answers = {}
for name, probe in probes.items():
    try:
        probe()
        answers[name] = "done"
    except OSError as error:
        answers[name] = "refused"
one, other = socket.socketpair()
one.send(b"1")
answers["a pair of streams"] = other.recv(1).decode()
answers["groups"] = os.getgroups()
print(json.dumps(answers))
"""


def script(code: str, limits: Limits | None = None) -> Process:
    return Process([sys.executable, "-P", "-c", code], limits=limits or Limits(wall_s=20))


def numbers() -> dict[str, str]:
    """The x86-64 numbers of the probes are by position: elsewhere they would be other calls."""
    columns = f"{filters.CALLS} {filters.SHARED} prlimit64 302 261".split()
    return dict(zip(columns[1::3], columns[2::3], strict=True))


@pytest.mark.usefixtures("landlocked")
def test_what_namespaces_would_have_hidden_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "public"
    other.write_text("42")
    other.chmod(0o666)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    code = PROBES.replace("GRADER", str(os.getpid())).replace("OTHER", str(other))
    if os.uname().machine == "aarch64":
        code = re.sub(r"call\((\d+)", lambda found: f"call({numbers()[found[1]]}", code)
    done = sandbox.run([sys.executable, "-P", "-c", code], limits=Limits(wall_s=20))
    assert done.stdout, done.stderr
    answers = json.loads(done.stdout)
    assert (answers.pop("a pair of streams"), answers.pop("groups")) == ("1", [])
    assert [name for name, answer in answers.items() if answer != "refused"] == []
    assert other.read_text() == "42"


LEAVES = """
import os, signal, time
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if child := os.fork():
            print(child, flush=True)  # before all of its parents have ended, and so the run
            os._exit(0)
        time.sleep(600)
os.wait(), os.wait(), os.wait()
"""


@pytest.mark.usefixtures("landlocked")
@pytest.mark.parametrize("how", ["it ends", "it is stopped", "its top is killed"])
def test_what_left_its_parents_ends_too(how: str) -> None:
    with script(LEAVES + ("" if how == "it ends" else "time.sleep(600)")) as process:
        assert process.child.stdout
        left = [int(process.child.stdout.readline()) for _ in range(3)]
        folder = process._folder
        assert folder
        if how == "it ends":
            assert process.child.wait(PATIENCE_S) == 0
        elif how == "it is stopped":
            process.stop("enough")
        else:
            process.child.kill()
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))
    assert not folder.exists()


@pytest.mark.usefixtures("landlocked")
@pytest.mark.parametrize(
    "code",
    [
        "held = []\nwhile True:\n    held.append(open('x', 'wb', 0))\n    os.unlink('x')\n"
        "    held[-1].write(bytes(1 << 20))\n    time.sleep(0.01)",
        f"for n in range(3000):\n    os.mkdir('{DEEP}')\n    os.chdir('{DEEP}')\ntime.sleep(60)",
        "for n in range(10000):\n    open(f'{n}', 'w').close()\ntime.sleep(60)",
    ],
    ids=["without-a-name", "too-deep", "many-and-empty"],
)
def test_what_is_not_easily_counted_is_stopped(code: str) -> None:
    done = sandbox.run(
        [sys.executable, "-P", "-c", f"import os, time\n{code}"],
        limits=Limits(wall_s=20, disk=16 << 20),
    )
    assert "wrote too much to its folder" in done.reason, done
    assert not [place for place in Path("/tmp").glob("contended.*") if (place / DEEP).exists()]


@pytest.mark.usefixtures("landlocked")
def test_its_compilers_cannot_signal_and_have_no_rights(tmp_path: Path) -> None:
    """What builds a patch's kernel keeps the user, since it writes to the user's folder."""
    tree, objects = tmp_path / "tree", tmp_path / "objects"
    for folder in (tree, objects):
        folder.mkdir()
    (tree / "x.c").write_text("int x;\n")
    script = (
        f'cp {tree}/x.c {objects}/ && echo "$TMPDIR" && ! cat /etc/passwd && ! touch {tree}/y '
        f"&& ! kill -0 {os.getpid()} && ! kill -0 $$ && grep -c 'CapEff:.0*$' /proc/$$/status"
    )
    command = [*sandbox.builder(Limits(), tree, objects), "bash", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(objects), "1"], done.stderr
    assert (objects / "x.c").exists()


IN_A_CONTAINER = """
import ctypes, sys
from contended.course import confine, filters, sandbox
# As container engines do by default: nobody in here makes namespaces or mounts.
confine._libc.prctl(38, 1, 0, 0, 0)
confine._filter(filters.program())
print(sandbox.chosen(), repr(sandbox.problem()), bool(sandbox.trouble("bubblewrap")))
print(sandbox.run(["id", "-u"]).stdout.decode())
"""


@pytest.mark.usefixtures("landlocked")
def test_where_bubblewrap_may_not_this_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sandbox.CHOICE)
    assert sandbox.chosen() == ("landlock" if sandbox.trouble("bubblewrap") else "bubblewrap")
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CONTAINER], capture_output=True, text=True, check=False
    )
    first, uid = done.stdout.split("\n", 1)
    assert first == "landlock '' True", done
    assert int(uid) >= confine.FIRST_UID


def test_where_it_cannot_work_it_says_so_and_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal() -> str:
        sandbox.trouble.cache_clear()
        with pytest.raises(ContendedError) as told:
            sandbox.require(False)
        assert "\n" not in str(told.value)
        return str(told.value)

    monkeypatch.setenv(sandbox.CHOICE, "landlock")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    try:
        with monkeypatch.context() as without:
            without.setattr(confine, "landlock", lambda: 0)
            assert "kernel that has it: Linux 5.13" in refusal()
        with monkeypatch.context() as without:
            without.setattr(os, "geteuid", lambda: 1000)
            assert "needs root" in refusal()
        with monkeypatch.context() as without:
            without.setattr(filters, "program", lambda *_, **__: None)
            without.setattr(confine, "landlock", lambda: 1)
            assert "knows no system calls of" in refusal()
        monkeypatch.setenv(sandbox.CHOICE, "docker")
        with pytest.raises(UsageError, match="there are bubblewrap, landlock"):
            sandbox.require(False)
    finally:
        sandbox.trouble.cache_clear()


@pytest.mark.parametrize("version", [0, 1])
def test_what_cannot_be_set_up_runs_nothing(version: int) -> None:
    box = confine.Box(0, "/nowhere" if version else "", [], [], "", {})
    code = "import sys\nfrom contended.course import confine\n"
    code += f"confine.landlock = lambda: {version}\nconfine.main(sys.argv[1:])"
    command = [sys.executable, "-c", code, *box.command()[4:], "echo", "ran"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (126, "")
    said = "/nowhere'" if version else "no Landlock in this kernel"
    assert re.fullmatch(f"cannot run in a box: .*{said}\n", done.stderr)


def together(definitions: list[str], which: str) -> str:
    """One submission of several; its total is the least or the most of theirs."""
    parts = [
        dedent(text).replace("def total", f"def total_{n}") for n, text in enumerate(definitions)
    ]
    parts = [part.replace("total.__code__", f"total_{n}.__code__") for n, part in enumerate(parts)]
    calls = ", ".join(f"total_{n}(numbers)" for n in range(len(parts)))
    return "".join(parts) + f"def total(numbers):\n    return {which}({calls})\n"


@pytest.mark.usefixtures("landlocked")
def test_attacks_on_a_grade_earn_what_they_do_right(toys: Path, tmp_path: Path) -> None:
    out = tmp_path / "grades"
    codes = {
        "harmless": together(list(HARMLESS.values()), "min"),
        "attacks": together(
            [ATTACKS["reads-the-hidden-tests"], ATTACKS["traces-the-grader"]], "max"
        ),
    }
    for student, code in codes.items():
        for word, meant in (("OUT", str(out)), ("HOME", str(toys)), ("PORT", "9")):
            code = code.replace(word, meant)
        book = toylabs.sums(code, toylabs.RIGHT_TWICE)
        toylabs.submit(tmp_path / "in", student, "sums", {"sums.ipynb": book})
    found = {each.student: each for each in grade.run(tmp_path / "in", out, labs=["sums"], jobs=2)}
    assert {student: each.earned for student, each in found.items()} == {
        "harmless": 5,
        "attacks": 2,
    }, found
    places = (out, toys / "labs", *map(Path, ("/usr/lib", "/etc", "/dev/shm", "/var/tmp", "/")))
    assert [place for place in places if (place / "was-here").exists()] == []
    for student in codes:
        assert grades.load(out / "grades" / student / "sums.json").sandbox == "landlock"
        page = (out / "feedback" / student / "sums" / "sums.html").read_text()
        assert "run in the sandbox “landlock”" in page


@pytest.mark.parametrize(
    ("column", "headers"),
    [
        (1, ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h"]),
        (2, ["/usr/include/asm-generic/unistd.h"]),
    ],
)
def test_the_numbers_are_the_kernels(column: int, headers: list[str]) -> None:
    place = next((Path(each) for each in headers if Path(each).is_file()), None)
    if place is None:
        pytest.skip(f"no {headers[0]} here: another architecture")
    text = place.read_text()
    words = f"{filters.CALLS} {filters.SHARED} {filters.SIGNALS}".split()
    for name, number in zip(words[::3], words[column::3], strict=True):
        defined = re.findall(rf"^#define __NR(?:3264)?_{name}\s+(\d+)", text, re.M)
        assert not defined or defined == [number], name
    # The older headers of a distribution may lack the newest calls, and no others.
    known = [n for n in words[::3] if re.search(rf"__NR(?:3264)?_{n}\b", text)]
    assert len(known) > len(words[::3]) - 3
