# SPDX-License-Identifier: MIT
"""The kernel's make: how a kernel is configured, and one run, heard line by line, over when we are.

A configuration is fragments over `make tinyconfig`. Kconfig drops without a word what depends on
something that is off, and turns on what others select: so every option that a fragment names is
looked up in the result.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from contended import child
from contended.errors import ContendedError, UsageError
from contended.kernel import store, variants
from contended.kernel.source import KernelSource
from contended.profile import moved

#: Called with what is being done, the objects done, and those expected or 0 if unknown.
Progress = Callable[[str, int, int], None]
_LOOK_S = 0.2  # between two looks at what a limited make uses

# Told to end, it tells the whole process group, so that every make removes what is half made and
# every compiler stops; more than once, since a make may just be starting another one.
_SUPERVISOR = """\
trap 'trap : TERM; for i in 1 2 3 4 5; do kill -TERM 0; sleep 0.1; done; wait; exit 143' TERM
"$@" & wait $!
"""
_DIAGNOSTIC = re.compile(r"(?P<file>[^\s:]+\.[chSo]):.*?\b(?P<kind>warning|error): ")
_LAYERS = {
    "base": ("base",),
    "users": ("base", "users"),
    "handles": ("base", "handles"),
    "many": ("base", "handles", "many"),
    "distribution": ("base", "distribution"),
    "distribution-ima": ("base", "distribution", "ima"),
    "distribution-disk": ("base", "distribution", "ima", "disk"),
    "distribution-network": ("base", "distribution", "network"),
    "distribution-many": ("base", "distribution", "many"),
    "distribution-1000": ("base", "distribution", "hz-1000"),
    "debug": ("base", "bare", "debug"),
    "up": ("base", "bare", "debug", "up"),
    "kasan": ("base", "bare", "kasan"),
    "kcsan": ("base", "bare", "kcsan"),
    "selftests": ("base", "bare", "users", "selftests"),
    "observe": ("base", "observe"),
    "hz-250": ("base", "bare", "hz-250"),
    "hz-1000": ("base", "bare", "hz-1000"),
    "preempt": ("base", "bare", "hz-1000", "preempt"),
    "preempt-250": ("base", "bare", "hz-250", "preempt"),
    "saving": ("base", "bare", "hz-1000", "preempt", "saving"),
    "saving-250": ("base", "bare", "hz-250", "preempt", "saving"),
    "rt": ("base", "bare", "hz-1000", "preempt", "rt"),
    "rt-100": ("base", "bare", "preempt", "rt"),
    "rt-250": ("base", "bare", "hz-250", "preempt", "rt"),
}
_MEDDLING = re.compile(
    r"(MAKE|MAKEFLAGS|MFLAGS|GNUMAKEFLAGS|MAKELEVEL|MAKEFILES|MAKEOVERRIDES|ARCH|CROSS_COMPILE"
    r"|LLVM|CC|LD|AS|CFLAGS|CPPFLAGS|LDFLAGS|HOST\w+|K[A-Z]+FLAGS|KCONFIG_\w+|KBUILD_\w+"
    r"|INSTALL_\w+|O|V|W|C|M)"
)


@dataclass(frozen=True, slots=True)
class Boxed:
    """How patches of somebody else are compiled: in a sandbox, and not for ever."""

    #: Makes of a command one that runs in a sandbox, with a tree to read and objects to write.
    command: Callable[[Sequence[str], Path, Path], list[str]]
    wall_s: float  #: After which all of it is stopped.
    memory: int  #: Bytes over all its processes, likewise.


class BuildError(store.ToolError):
    """A kernel does not compile, or not without a warning."""


def options(config: str, version: str) -> dict[str, str]:
    """What a configuration asks for in a version of Linux, without `CONFIG_`; `n` is off."""
    return {name: value for name, (value, _) in _lines(config, version).items()}


def has(version: str, config: str) -> bool:
    """Has a version of Linux what a configuration asks for?"""
    if config in variants.BEFORE and moved.key(version) >= moved.key(variants.BEFORE[config]):
        return False
    return moved.key(version) >= moved.key(variants.SINCE.get(config, ""))


def hz(config: str, version: str) -> int:
    """The timer ticks a second of a configuration in a version of Linux."""
    rates = (re.fullmatch(r"HZ_(\d+)", n) for n, v in options(config, version).items() if v == "y")
    return next((int(rate[1]) for rate in rates if rate), 100)


def _lines(config: str, version: str) -> dict[str, tuple[str, str]]:
    """As `options`, with the file and line that asks for it."""
    if config not in _LAYERS:
        raise UsageError(f"no configuration {config!r}; there are: {', '.join(_LAYERS)}")
    found: dict[str, tuple[str, str]] = {}
    for file in (file for layer in _LAYERS[config] for file in _fragments(layer, version)):
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise ContendedError(f"cannot read {file}: {error.strerror}") from error
        for number, line in enumerate(text.splitlines(), 1):
            where = f"{file.name}:{number}"
            if match := re.fullmatch(r"# CONFIG_(\w+) is not set", line):
                found[match[1]] = "n", where
            elif match := re.fullmatch(r"CONFIG_(\w+)=(\S.*)", line):
                found[match[1]] = match[2], where
            elif line and not line.startswith("#"):
                raise UsageError(f"{file}:{number}: {line!r} is no line of a configuration")
    return found


def _fragments(layer: str, version: str) -> list[Path]:
    """A layer's file, and those for a range of versions that this one is in."""
    home = variants.folder() / "config"
    found = [home / f"{layer}.config"]
    for file in sorted(home.glob(f"{layer}.*.config")):
        match = re.fullmatch(rf"{layer}\.(from|before)-(\d+\.\d+)\.config", file.name)
        if not match:
            raise UsageError(f"{file} is for no range: name it {layer}.from-X.Y.config or before-")
        if (moved.key(version) >= moved.key(match[2])) == (match[1] == "from"):
            found.append(file)
    return found


def environment() -> dict[str, str]:
    """That of the kernel's make: a kernel names neither machine nor user nor time of its build."""
    return {
        **{name: value for name, value in os.environ.items() if not _MEDDLING.fullmatch(name)},
        "LC_ALL": "C",
        "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 1970",
        "KBUILD_BUILD_USER": "contended",
        "KBUILD_BUILD_HOST": "contended",
        "KBUILD_BUILD_VERSION": "1",
    }


def flags(config: str, version: str) -> list[str]:
    """What is added to the kernel's own make.

    Where variables are takes gcc longest of all debug information, and nobody here asks.
    """
    asked = options(config, version)
    if asked.get("DEBUG_INFO_NONE") == "y" or asked.get("DEBUG_INFO") == "n":
        return []
    return ["KCFLAGS=-fno-var-tracking -fno-var-tracking-assignments"]


def command(source: KernelSource, build_dir: Path, *arguments: str) -> list[str]:
    """The command that makes something in a build folder."""
    # An empty LOCALVERSION keeps git's opinion of a surrounding repository out of the version.
    fixed = ("ARCH=x86_64", "LOCALVERSION=")
    return ["make", "-C", str(source.tree), f"O={build_dir}", *fixed, *arguments]


def configure(source: KernelSource, config: str, build_dir: Path) -> None:
    """Configure a build folder; raises ContendedError if an option does not come out as asked."""
    build_dir.mkdir(parents=True, exist_ok=True)
    file, wanted = build_dir / ".config", _lines(config, source.version)
    for goal in ("tinyconfig", "olddefconfig"):
        done = store.ask(command(source, build_dir, "--silent", goal), env=environment())
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "make" not in line.split(":")[0]]
            reason = next(iter(lines), "no reason given")
            raise store.ToolError(f"make {goal} fails: {reason}", done.stdout + done.stderr)
        if goal == "tinyconfig":
            with file.open("a") as stream:
                for name, (value, _) in wanted.items():
                    off = f"# CONFIG_{name} is not set\n"
                    stream.write(off if value == "n" else f"CONFIG_{name}={value}\n")
    got = dict(re.findall(r"^CONFIG_(\w+)=(.*)$", file.read_text(), re.M))
    dropped = [
        f"{name} is {got.get(name, 'n')} instead of {value} ({where})"
        for name, (value, where) in wanted.items()
        if got.get(name, "n") != value
    ]
    if dropped:
        raise ContendedError(
            f"Linux {source.version} has no configuration {config!r} as asked for: "
            + ", ".join(dropped)
            + "; a line for some versions only belongs into a file of patches/config that is named "
            "by them, as base.from-6.2.config is"
        )


def run(
    name: str,
    source: KernelSource,
    command: Sequence[str],
    objects: Path,
    lock: int,
    report: Progress,
    expected: int = 0,
    patched: Sequence[str] = (),
    most: Boxed | None = None,
) -> None:
    """Make a kernel in `objects`, and report how many of the `expected` ones (0: unknown) are done.

    `lock` is a descriptor that make's processes hold until the last has ended. Raises BuildError if
    it does not compile, a `patched` file of the tree gives a warning, or it takes more than `most`.
    """
    # A build that goes on counts what is there.
    done = sum(1 for _ in objects.rglob("*.o")) if expected else 0
    said: list[str] = []
    report(f"{name}: compiling", done, expected)
    with _running(command, lock) as process, _watched(process, most) as stopped:
        for line in map(str.rstrip, process.stdout or ()):
            said.append(line)
            if re.match(r"  (CC|AS) ", line):
                done += 1
                report(f"{name}: compiling", done, expected)
            elif re.match(r"  LD +(vmlinux|\.tmp_vmlinux)", line):
                report(f"{name}: linking", done, expected)
            if (warning := _diagnostic(source.tree, line, "warning")) and warning[0] in patched:
                why = f"does not compile without a warning: {warning[1]}"
                raise BuildError(f"{name} {why}", "\n".join(said[-20:]))
        process.wait()
    if stopped:
        raise BuildError(f"{name} {stopped[0]}", "\n".join(said[-20:]))
    if process.returncode:
        # A full disk shows in many ways, most of them less clear than this.
        for where in (objects.parent, Path(tempfile.gettempdir())):
            store.need_space(where, 20_000_000, "a build")
        why = f"does not compile: {_reason(source.tree, said)}"
        raise BuildError(f"{name} {why}", "\n".join(said[-40:]))


def _reason(tree: Path, said: Sequence[str]) -> str:
    for line in said:
        if found := _diagnostic(tree, line, "error"):
            return found[1].strip()
    for sign in ("undefined reference", "not found", "No such file", "rror", ""):
        for line in said:
            if sign in line and not line.startswith(("make", "  ")):
                return line.strip()
    return "make gives no reason"


def _diagnostic(tree: Path, line: str, kind: str) -> tuple[str, str] | None:
    """The file, relative to the tree, and the text of a compiler's warning or error."""
    match = _DIAGNOSTIC.match(line)
    if not match or match["kind"] != kind:
        return None
    file = match["file"]
    for prefix in (f"{tree}/", "../", "./"):
        file = file.removeprefix(prefix)
    if file.endswith(".o"):  # objtool's words
        file = file[:-1] + ("c" if (tree / f"{file[:-1]}c").exists() else "S")
    return file, line.replace(f"{tree}/", "")


@contextmanager
def _watched(process: subprocess.Popen[str], most: Boxed | None) -> Iterator[list[str]]:
    """A list that is given the reason if the make uses too much and is therefore stopped."""
    stopped: list[str] = []
    over = threading.Event()

    def look(most: Boxed) -> None:
        end_at = time.monotonic() + most.wall_s
        while not over.wait(_LOOK_S):
            if time.monotonic() > end_at:
                stopped.append(f"takes more than {most.wall_s:.3g} s to compile and was stopped")
            elif child.memory(child.family(process.pid)) > most.memory:
                room = f"{most.memory / 1e9:.3g} GB"
                stopped.append(f"needs more than {room} of memory to compile and was stopped")
            else:
                continue
            process.terminate()
            break

    watch = threading.Thread(target=look, args=(most,)) if most else None
    try:
        if watch:
            watch.start()
        yield stopped
    finally:
        over.set()
        if watch:
            watch.join()


@contextmanager
def _running(command: Sequence[str], lock: int) -> Iterator[subprocess.Popen[str]]:
    """A make, of which nothing goes on when the block is left.

    It has a process group of its own, so that Ctrl-C comes to us and we end it in order; if we are
    killed it ends as well; and it holds the lock until its last process is gone.
    """
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", "sh", "-c", _SUPERVISOR, "sh", *command],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        pass_fds=(lock,),
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise BuildError("make did not end and was killed: build again") from None
