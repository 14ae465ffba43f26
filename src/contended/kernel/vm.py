# SPDX-License-Identifier: MIT
"""A running virtual machine: hear what the guest has to say, and leave nothing behind.

The guest sends its results as JSON lines over a second serial port; the console carries only the
kernel's own messages. Both ports, and QEMU's control socket, are socket pairs that QEMU inherits:
nothing has a name in the file system, so nothing can be left there, whoever is killed.

A virtual machine that is lost (`LostVm`) says nothing about the kernel in it. That is another
error than a kernel that panics, hangs, or whose workload fails.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Literal, Self

from contended.errors import ContendedError
from contended.kernel import qemu
from contended.kernel.qemu import Boot, LostVm

ABI = 1
CONSOLE_HEAD, CONSOLE_TAIL = 1 << 18, 3 << 18
# Of one line of results: the longest carries the kernel's log.
LINE_LIMIT = 1 << 24
# How long a guest that has panicked or said goodbye may take until QEMU ends.
GRACE_S = 5.0

ENDED = "QEMU ended before the guest was done"


class GuestTrouble(ContendedError):
    """What went wrong inside; `console` is what the kernel printed, `kind` is one word for it."""

    kind = "error"

    def __init__(self, message: str, console: str = "") -> None:
        super().__init__(message)
        self.console = console
        if console:
            self.add_note("The last of the console:\n" + "\n".join(last_lines(console, 25)))


class GuestPanic(GuestTrouble):
    """The kernel panicked, or restarted without a word."""

    kind = "panic"


class GuestHang(GuestTrouble):
    """The guest was not done at the deadline."""

    kind = "hang"


class GuestError(GuestTrouble):
    """The guest's program says that it cannot do what was asked, or makes no sense."""


class Machine:
    """A running virtual machine; a context manager, and the machine does not outlive the block.

    Args:
        boot: What to start.
        accel: How it is to run, whatever `boot.accel` says: `kvm.choose` decides that.
        note: Why not with KVM; empty if there is nothing to say.

    Attributes:
        boot_s: From QEMU's start to the guest's first line, seconds.
        wall_s: To QEMU's end, seconds.
    """

    def __init__(self, boot: Boot, accel: Literal["tcg", "kvm"] = "tcg", note: str = "") -> None:
        self._boot = boot
        self._qemu = qemu.find()
        self.accel, self.note = accel, note
        self.boot_s = 0.0
        self.wall_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()
        self._ports: dict[str, socket.socket] = {}
        self._console = _Bounded()
        self._results = b""
        self._control = b""
        self._complaints = b""
        self._open: set[str] = set()
        self._started = 0.0
        self._heard = 0.0
        self._deadline = 0.0
        self._negotiated = False

    @property
    def pid(self) -> int:
        """QEMU's process number."""
        assert self._process is not None, "use the machine as a context manager"
        return self._process.pid

    @property
    def console(self) -> str:
        """What the kernel has printed so far; the middle of very much is left out."""
        return self._console.text()

    def __enter__(self) -> Self:
        arguments = [self._qemu, *qemu.arguments(self._boot, self.accel)]
        theirs: list[socket.socket] = []
        try:
            for name in ("console", "results", "control"):
                ours, their = socket.socketpair()
                ours.setblocking(False)
                self._ports[name] = ours
                theirs.append(their)
                arguments += ["-chardev", f"socket,id={name},fd={their.fileno()}"]
            arguments += [
                *("-serial", "chardev:console"),
                *("-device", "isa-serial,chardev=results,iobase=0x2f8,irq=3"),
                *("-mon", "chardev=control,mode=control"),
            ]
            self._started = self._heard = time.monotonic()
            self._deadline = self._started + self._boot.deadline_s
            self._process = qemu.start(
                arguments, stdin=subprocess.DEVNULL, pass_fds=[s.fileno() for s in theirs]
            )
        except BaseException:
            self._close()
            raise
        finally:
            for their in theirs:
                their.close()
        assert self._process.stderr is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        for name, port in self._ports.items():
            self._selector.register(port, selectors.EVENT_READ, name)
        self._selector.register(self._process.stderr, selectors.EVENT_READ, "complaints")
        self._open = {*self._ports, "complaints"}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._process is not None:
            qemu.end(self._process)
            if self._process.stderr is not None:
                self._process.stderr.close()
            self.wall_s = self.wall_s or time.monotonic() - self._started
        self._selector.close()
        for port in self._ports.values():
            port.close()

    def lines(self) -> Iterator[dict[str, Any]]:
        """The guest's lines as they come, up to its last one, "bye"; then QEMU has ended.

        Raises:
            LostVm: QEMU ended before that line.
            GuestPanic: the kernel panicked.
            GuestHang: the deadline passed. Time that the caller spends on a "hold" line does not
                count.
            GuestError: what came is not what the protocol allows.
        """
        number = 0
        while True:
            line = self._next_line()
            number += 1
            message = self._parse(line, number)
            if number == 1:
                self.boot_s = time.monotonic() - self._started
            if message["type"] == "bye":
                self._await_end()
                yield message
                return
            yield message
            if message["type"] == "hold":
                self._heard = time.monotonic()
                self._deadline = self._heard + self._boot.deadline_s

    def send(self, data: bytes) -> None:
        """Send bytes to the guest's port of results.

        Raises:
            LostVm: nobody is there any more.
        """
        try:
            self._ports["results"].sendall(data)
        except OSError as error:
            raise self._lost() from error

    def qmp(self, command: str, **arguments: Any) -> Any:
        """Ask QEMU itself, by its control protocol; what it returns.

        Raises:
            LostVm: it is not there any more, or does not answer.
            ContendedError: it refuses.
        """
        if not self._negotiated:
            self._negotiated = True
            self._answer("QMP")
            self.qmp("qmp_capabilities")
        request: dict[str, Any] = {"execute": command}
        if arguments:
            request["arguments"] = arguments
        try:
            self._ports["control"].sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise self._lost() from error
        answer = self._answer("return", "error")
        if "error" in answer:
            raise ContendedError(f"QEMU refuses {command}: {answer['error'].get('desc', '?')}")
        return answer["return"]

    def _answer(self, *kinds: str) -> dict[str, Any]:
        """The next message from QEMU of one of these kinds; events in between are dropped."""
        end_at = time.monotonic() + 10 * GRACE_S
        while True:
            line, newline, rest = self._control.partition(b"\n")
            if newline:
                self._control = rest
                message: dict[str, Any] = json.loads(line)
                if any(kind in message for kind in kinds):
                    return message
            elif "control" not in self._open or time.monotonic() > end_at:
                raise self._lost()
            else:
                self._pump(0.2)

    def _next_line(self) -> bytes:
        while b"\n" not in self._results:
            now = time.monotonic()
            if self._panicked() or "results" not in self._open:
                raise self._ended_early()
            if now > self._deadline:
                raise GuestHang(
                    f"the guest said nothing for {now - self._heard:.0f} s and was not done after "
                    f"{now - self._started:.0f} s; {self._last_words()}",
                    self.console,
                )
            if len(self._results) > LINE_LIMIT:
                raise GuestError("the guest sent a line without an end", self.console)
            self._pump(min(1.0, self._deadline - now + 0.001))
        line, _, self._results = self._results.partition(b"\n")
        self._heard = time.monotonic()
        return line

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            shown = line[:80].decode(errors="replace")
            raise GuestError(f"line {number} of the guest makes no sense: {shown!r}", self.console)
        if (number == 1) != (message["type"] == "hello"):
            raise GuestError(
                f"the guest's line {number} is {message['type']!r}; hello comes first, and once",
                self.console,
            )
        if number == 1 and message.get("abi") != ABI:
            raise GuestError(
                f"the guest speaks version {message.get('abi')}, this program version {ABI}"
            )
        return message

    def _pump(self, seconds: float) -> bool:
        """Take in what there is, waiting for it at most so long; whether there was any."""
        ready = self._selector.select(max(0.0, seconds))
        for key, _ in ready:
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
            elif name == "console":
                self._console.add(data)
            elif name == "results":
                self._results += data
            elif name == "control":
                self._control += data
            else:
                self._complaints = (self._complaints + data)[-(1 << 16) :]
        return bool(ready)

    def _panicked(self) -> bool:
        return self._console.panicked

    def _drain(self, seconds: float) -> bool:
        """Take in the rest until QEMU has closed its ports; False if it does not."""
        end_at = time.monotonic() + seconds
        while self._open and (left := end_at - time.monotonic()) > 0:
            self._pump(left)
        return not self._open

    def _await_end(self) -> None:
        """The guest has said goodbye: QEMU ends by itself, unless the reset does not work."""
        self._drain(GRACE_S)
        assert self._process is not None
        qemu.end(self._process)
        self.wall_s = time.monotonic() - self._started

    def _ended_early(self) -> ContendedError:
        """Why there is no line more: a panic, or the loss of the machine."""
        self._drain(GRACE_S)
        console = self.console
        if found := re.search(r"Kernel panic - not syncing: *(.*)", console):
            reason = found[1].strip() or "without a reason"
            cause = re.search(r"^.*(?:BUG: |Oops: ).*$", console, re.M)
            after = f", after {plain(cause[0])}" if cause else ""
            return GuestPanic(f"the kernel panicked: {reason}{after}", console)
        assert self._process is not None
        try:
            status: int | None = self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            status = None
        if status == 0 and b"terminating on signal" not in self._complaints:
            return GuestPanic(
                f"the guest restarted before it was done; {self._last_words()}", console
            )
        return self._lost()

    def _lost(self) -> LostVm:
        assert self._process is not None
        self._drain(0.2)
        status = self._process.poll()
        how = ""
        if status is not None and status < 0:
            how = f" (killed by {signal.Signals(-status).name})"
        elif status:
            how = f" (exit status {status})"
        said = last_lines(self._complaints.decode(errors="replace"), 1)
        words = f": {said[0]}" if said else f"; {self._last_words()}"
        return LostVm(f"{ENDED}{how}{words}")

    def _last_words(self) -> str:
        last = last_lines(self.console, 1)
        return f"the last on its console: {plain(last[0])}" if last else "its console is empty"


def plain(line: str) -> str:
    """A console line without its time."""
    return re.sub(r"^\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ", "", line).rstrip()


def last_lines(text: str, count: int) -> list[str]:
    """The last lines that are not empty."""
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]


class _Bounded:
    """The beginning and the end of what a console printed: a guest may print for ever."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._left_out = False
        self.panicked = False

    def add(self, data: bytes) -> None:
        if not self.panicked:
            # What is looked for may be cut in two by the way it arrives.
            seam = (self._tail or self._head)[-64:]
            self.panicked = b"Kernel panic - not syncing" in seam + data
        room = CONSOLE_HEAD - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > CONSOLE_TAIL:
            self._tail = self._tail[-CONSOLE_TAIL:]
            self._left_out = True

    def text(self) -> str:
        middle = b"\n[... left out ...]\n" if self._left_out else b""
        text = (self._head + middle + self._tail).decode(errors="replace")
        return text.replace("\r\n", "\n").replace("\r", "\n")
