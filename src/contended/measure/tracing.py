# SPDX-License-Identifier: MIT
"""Calls of kernel functions, counted by ftrace as root: `with counting(...) as calls`.

Each function has a tracing instance of its own, whose buffers are small and which counts what it
overwrites as well; it hears this process and its children only. They are made by a child,
`python -m contended.measure.tracing PID FUNCTION...`, which removes them when its input ends, when
it is told to end, and when we end however we do. Where tracefs is not mounted, that child mounts it
in a mount namespace of its own.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from contended import child
from contended.errors import ContendedError
from contended.measure.private import CLONE_NEWNS, MS_PRIVATE, MS_REC, Refused, mount, unshare

TRACING = Path("/sys/kernel/tracing")
_COUNTED = re.compile(r"^(?:entries|overrun|dropped events|read events): (\d+)$", re.M)
_NAME = "contended-"


class NotCounted(ContendedError):
    """The kernel does not let us count, or we are not root."""


@contextmanager
def counting(functions: Sequence[str]) -> Iterator[dict[str, int]]:
    """Count calls in the block, by this process and its children; they are there when it ends.

    Raises NotCounted, with the reason in one line, where the kernel does not let us count.
    """
    calls: dict[str, int] = {}
    with subprocess.Popen(
        [sys.executable, "-m", "contended.measure.tracing", str(os.getpid()), *functions],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=child.environment(),
    ) as helper:
        assert helper.stdin
        assert helper.stdout
        try:
            said = json.loads(helper.stdout.readline() or '{"refused": "the counting child died"}')
            if "refused" in said:
                raise NotCounted(said["refused"])
            yield calls
            helper.stdin.close()
            counted = helper.stdout.readline()
            if not counted:
                raise NotCounted("the counting child died")
            calls.update(json.loads(counted))
        finally:
            helper.stdin.close()


def main(pid: str, *functions: str) -> int:
    """Count until standard input closes; instances are gone when this returns."""
    child.end_in_order(0)
    try:
        with ExitStack() as undo:
            root = _tracefs()
            places = {f: undo.enter_context(_instance(root, pid, f)) for f in functions}
            _answer({})
            sys.stdin.read()
            _answer({f: calls(place) for f, place in places.items()})
    except Refused as refused:
        _answer({"refused": str(refused)})
    return 0


def calls(instance: Path) -> int:
    """How many calls an instance has seen, on all CPUs, kept in its buffers or not."""
    stats = (file.read_text() for file in instance.glob("per_cpu/cpu*/stats"))
    return sum(int(number) for text in stats for number in _COUNTED.findall(text))


def _tracefs() -> Path:
    if os.geteuid():
        raise Refused("calls are counted as root only")
    if not TRACING.is_dir():
        raise Refused("calls cannot be counted: this kernel traces no functions")
    if not (TRACING / "instances").is_dir():
        try:
            unshare(CLONE_NEWNS)
        except OSError as error:
            raise Refused(f"calls cannot be counted: no namespace ({error.strerror})") from error
        mount("none", "/", "", MS_REC | MS_PRIVATE)
        mount("tracefs", str(TRACING), "tracefs", 0)
    return TRACING


@contextmanager
def _instance(root: Path, pid: str, function: str) -> Iterator[Path]:
    """An instance that counts one function; it goes with the block."""
    for left in (root / "instances").glob(f"{_NAME}*"):
        # of somebody who was killed: nobody else has a number that is not in use
        if not Path("/proc", left.name.split("-")[1]).exists():
            _remove(left)
    place = root / "instances" / f"{_NAME}{os.getpid()}-{function}"
    try:
        place.mkdir()
    except OSError as error:
        raise _no(function, error) from error
    try:
        try:
            for file, text in (
                ("buffer_size_kb", "8"),
                ("set_ftrace_filter", function),
                ("set_ftrace_pid", pid),
                ("options/function-fork", "1"),
                ("current_tracer", "function"),
            ):
                (place / file).write_text(text)
        except OSError as error:
            raise _no(function, error) from error
        yield place
    finally:
        _remove(place)


def _remove(place: Path) -> None:
    with suppress(OSError):
        (place / "current_tracer").write_text("nop")
    with suppress(OSError):
        place.rmdir()


def _answer(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _no(function: str, error: OSError) -> Refused:
    return Refused(f"calls of {function} cannot be counted: the kernel refuses ({error.strerror})")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
