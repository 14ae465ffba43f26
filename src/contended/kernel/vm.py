# SPDX-License-Identifier: MIT
"""A running virtual machine: hear what the guest has to say, and leave nothing behind.

The guest sends its results as JSON lines over a second serial port; the console carries only the
kernel's own messages. Both, and QEMU's control socket, are socket pairs that QEMU inherits: nothing
has a name in the file system. A machine that is lost (`LostVm`) says nothing about its kernel,
other than one that panics, hangs, or whose workload fails (`GuestTrouble`).
"""

from __future__ import annotations

import itertools
import json
import os
import re
import selectors
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, Literal, Self

from contended import child
from contended.errors import ContendedError
from contended.kernel import qemu
from contended.kernel.qemu import Boot, LostVm

ABI = 1
CONSOLE_HEAD, CONSOLE_TAIL = 1 << 18, 3 << 18
CONSOLE_MOST = 16 << 20  # what a kernel that has lost its way may print before it is stopped
LINE_LIMIT = 1 << 24  # of results: the longest carries the kernel's log
GRACE_S = 5.0  # for QEMU to end when its guest has panicked or said goodbye
ENDED = "QEMU ended before the guest was done"
STARVED = "out of memory, perhaps: give fewer CPUs, or end what else runs"
_PANIC = b"Kernel panic - not syncing"


class GuestTrouble(ContendedError):
    """What went wrong inside; `console` is what the kernel printed, `kind` is one word for it."""

    kind = "error"

    def __init__(self, message: str, console: str = "") -> None:
        super().__init__(message)
        self.console = console
        if console:
            self.add_note("The last of the console:\n" + "\n".join(_last_lines(console, 25)))


class GuestPanic(GuestTrouble):
    """The kernel panicked, or restarted without a word."""

    kind = "panic"


class GuestHang(GuestTrouble):
    """The guest was not done at the deadline."""

    kind = "hang"


class GuestFlood(GuestTrouble):
    """The kernel printed more than anybody reads."""

    kind = "flood"


class GuestError(GuestTrouble):
    """The guest's program says that it cannot do what was asked, or makes no sense."""


class VirtualMachine:
    """A running virtual machine; a context manager, and the machine does not outlive the block.

    It runs with `accel`, whatever `boot.accel` says: `boot.choose` decides that.
    """

    process: subprocess.Popen[bytes]
    _undo: ExitStack

    def __init__(self, boot: Boot, accel: Literal["tcg", "kvm"] = "tcg") -> None:
        self._boot, self._accel = boot, accel
        self.boot_s = 0.0  #: From QEMU's start to the guest's first line.
        self.wall_s = 0.0  #: To QEMU's end.
        self._selector = selectors.DefaultSelector()
        self._ports: dict[str, socket.socket] = {}
        self._read = dict.fromkeys(("console", "results", "control", "complaints"), b"")
        self._open = set(self._read)
        self._panicked = self._left_out = self._negotiated = False
        self._started = self._heard = self._deadline = 0.0
        self._printed = 0  # bytes on the console

    @property
    def console(self) -> str:
        """What the kernel has printed so far; the middle of very much is left out."""
        text, middle = self._read["console"], b"\n[... left out ...]\n" if self._left_out else b""
        whole = text[:CONSOLE_HEAD] + middle + text[CONSOLE_HEAD:]
        return whole.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")

    def __enter__(self) -> Self:
        arguments, fds = qemu.arguments(self._boot, self._accel), list[int]()
        with ExitStack() as ours, ExitStack() as theirs:
            ours.enter_context(self._selector)
            for name in ("console", "results", "control"):
                port, their = socket.socketpair()
                self._ports[name] = ours.enter_context(port)
                fds.append(theirs.enter_context(their).fileno())
                port.setblocking(False)
                self._selector.register(port, selectors.EVENT_READ, name)
                arguments += ["-chardev", f"socket,id={name},fd={fds[-1]}"]
            arguments += [
                *("-serial", "chardev:console"),
                *("-device", "isa-serial,chardev=results,iobase=0x2f8,irq=3"),
                *("-mon", "chardev=control,mode=control"),
            ]
            self._started = self._heard = time.monotonic()
            self._deadline = self._started + self._boot.deadline_s
            self.process = qemu.start(arguments, fds)
            ours.callback(self._end)
            complaints = self.process.stderr
            assert complaints
            ours.enter_context(complaints)
            os.set_blocking(complaints.fileno(), False)
            self._selector.register(complaints, selectors.EVENT_READ, "complaints")
            self._undo = ours.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _end(self) -> None:
        qemu.end(self.process)
        self.wall_s = self.wall_s or time.monotonic() - self._started

    def lines(self) -> Iterator[dict[str, Any]]:
        """The guest's lines as they come, up to its last one, "bye"; then QEMU has ended.

        Raises LostVm if QEMU ends before that line, and GuestPanic, GuestHang (time that the caller
        spends on a "hold" line does not count), GuestFlood or GuestError if the guest does not get
        there.
        """
        for number in itertools.count(1):
            message = self._parse(self._next_line(), number)
            if number == 1:
                self.boot_s = time.monotonic() - self._started
            if message["type"] == "bye":
                # QEMU ends by itself, unless the reset does not work.
                self._drain(GRACE_S)
                self._end()
                yield message
                return
            yield message
            if message["type"] == "hold":
                self._heard = time.monotonic()
                self._deadline = self._heard + self._boot.deadline_s

    def send(self, data: bytes, port: str = "results") -> None:
        """Send bytes to the guest, or to QEMU itself; raises LostVm if nobody is there any more."""
        try:
            self._ports[port].sendall(data)
        except OSError as error:
            raise self._lost() from error

    def qmp(self, command: str, **arguments: Any) -> Any:
        """Ask QEMU itself, by its control protocol; raises ContendedError if it refuses."""
        if not self._negotiated:
            self._negotiated = True
            self._answer("QMP")
            self.qmp("qmp_capabilities")
        request = {"execute": command, **({"arguments": arguments} if arguments else {})}
        self.send(json.dumps(request).encode() + b"\n", "control")
        answer = self._answer("return", "error")
        if "error" in answer:
            raise ContendedError(f"QEMU refuses {command}: {answer['error'].get('desc', '?')}")
        return answer["return"]

    def _answer(self, *kinds: str) -> dict[str, Any]:
        """The next message from QEMU of one of these kinds; events in between are dropped."""
        end_at = time.monotonic() + 10 * GRACE_S
        while True:
            line, newline, rest = self._read["control"].partition(b"\n")
            if newline:
                self._read["control"] = rest
                message: dict[str, Any] = json.loads(line)
                if any(kind in message for kind in kinds):
                    return message
            elif "control" not in self._open or time.monotonic() > end_at:
                raise self._lost()
            else:
                self._pump(0.2)

    def _next_line(self) -> bytes:
        while b"\n" not in self._read["results"]:
            now = time.monotonic()
            if self._panicked or "results" not in self._open:
                raise self._ended_early()
            if self._printed > CONSOLE_MOST:
                most = f"{CONSOLE_MOST / 1e6:.3g} MB"
                raise GuestFlood(
                    f"the kernel printed more than {most} on its console and was stopped",
                    self.console,
                )
            if now > self._deadline:
                raise GuestHang(
                    f"the guest said nothing for {now - self._heard:.0f} s and was not done after "
                    f"{now - self._started:.0f} s; {self._last_words()}",
                    self.console,
                )
            if len(self._read["results"]) > LINE_LIMIT:
                raise GuestError("the guest sent a line without an end", self.console)
            self._pump(min(1.0, self._deadline - now + 0.001))
        line, _, self._read["results"] = self._read["results"].partition(b"\n")
        self._heard = time.monotonic()
        return line

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        message = None
        with suppress(ValueError):
            message = json.loads(line)
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            shown = line[:80].decode(errors="replace")
            what = f"line {number} of the guest makes no sense: {shown!r}"
        elif (number == 1) != (message["type"] == "hello"):
            what = f"the guest's line {number} is {message['type']!r}; hello comes first, and once"
        elif number == 1 and message.get("abi") != ABI:
            what = f"the guest speaks version {message.get('abi')}, this program version {ABI}"
        else:
            return message
        raise GuestError(what, self.console)

    def _pump(self, seconds: float) -> None:
        """Take in what there is, waiting for it at most so long."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            name = key.data
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                data = b""  # QEMU ended with something of ours unread
            if not data:
                self._selector.unregister(key.fileobj)
                self._open.discard(name)
            text = self._read[name] + data
            if name == "console":
                self._printed += len(data)
                # What is looked for may be cut in two by the way it arrives.
                self._panicked |= _PANIC in text[-len(data) - len(_PANIC) :]
                if len(text) > CONSOLE_HEAD + CONSOLE_TAIL:  # a guest may print for ever
                    text = text[:CONSOLE_HEAD] + text[-CONSOLE_TAIL:]
                    self._left_out = True
            self._read[name] = text[-(1 << 16) :] if name == "complaints" else text

    def _drain(self, seconds: float) -> None:
        end_at = time.monotonic() + seconds
        while self._open and (left := end_at - time.monotonic()) > 0:
            self._pump(left)

    def _ended_early(self) -> ContendedError:
        """Why there is no line more: a panic, or the loss of the machine."""
        self._drain(GRACE_S)
        console = self.console
        if found := re.search(rf"{_PANIC.decode()}: *(.*)", console):
            reason = found[1].strip() or "without a reason"
            cause = re.search(r"^.*(?:BUG: |Oops: ).*$", console, re.M)
            after = f", after {plain(cause[0])}" if cause else ""
            return GuestPanic(f"the kernel panicked: {reason}{after}", console)
        status = None
        with suppress(subprocess.TimeoutExpired):
            status = self.process.wait(GRACE_S)
        if status == 0 and b"terminating on signal" not in self._read["complaints"]:
            said = f"the guest restarted before it was done; {self._last_words()}"
            return GuestPanic(said, console)
        return self._lost()

    def _lost(self) -> LostVm:
        self._drain(0.2)
        status = self.process.poll()
        how = f" (exit status {status})" if status else ""
        if status is not None and status < 0:
            how = f": it {child.death(-status, SIGKILL=STARVED)}"
        said = _last_lines(self._read["complaints"].decode(errors="replace"), 1)
        words = f": {said[0]}" if said else f"; {self._last_words()}"
        return LostVm(f"{ENDED}{how}{words}")

    def _last_words(self) -> str:
        last = _last_lines(self.console, 1)
        return f"the last on its console: {plain(last[0])}" if last else "its console is empty"


def plain(line: str) -> str:
    """A console line without its time."""
    return re.sub(r"^\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ", "", line).rstrip()


def _last_lines(text: str, count: int) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]
