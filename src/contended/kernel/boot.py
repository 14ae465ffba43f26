# SPDX-License-Identifier: MIT
"""Boot a kernel in QEMU, hear what the guest has to say, and leave nothing behind.

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
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from contended import child
from contended.errors import ContendedError, UsageError
from contended.kernel import clock, guest
from contended.kernel.build import Kernel

QEMU = "qemu-system-x86_64"
QEMU_MISSING = f"{QEMU} is not installed: apt-get install qemu-system-x86"
ABI = 1

# microvm rather than pc: the BIOS of the latter has no room for more than some 48 processors in
# the table that a kernel without ACPI finds them by, and takes longer to get to the kernel.
MACHINE = "microvm,acpi=off,pic=on,pit=on,rtc=on,isa-serial=on"
CMDLINE = (
    "console=ttyS0 loglevel=5 panic=-1 oops=panic reboot=t nokaslr nopti mitigations=off "
    "tsc=reliable clocksource=tsc no_timer_check ct.lab=1"
)
# What QEMU calls a second of the guest, in instructions, with -icount shift=0.
ICOUNT_KHZ = 1_000_000
HZ = 100

CONSOLE_HEAD, CONSOLE_TAIL = 1 << 18, 3 << 18
# Of one line of results: the longest carries the kernel's log.
LINE_LIMIT = 1 << 24
# How long a guest that has panicked or said goodbye may take until QEMU ends.
GRACE_S = 5.0

ENDED = "QEMU ended before the guest was done"

Accel = Literal["auto", "tcg", "kvm"]


class NoQemu(ContendedError):
    """QEMU is not installed."""


class LostVm(ContendedError):
    """QEMU ended, or was ended, before the guest was done: nothing was learned of the kernel."""


class GuestTrouble(ContendedError):
    """What went wrong inside; `console` is what the kernel printed."""

    def __init__(self, message: str, console: str = "") -> None:
        super().__init__(message)
        self.console = console
        if console:
            self.add_note("The last of the console:\n" + "\n".join(last_lines(console, 25)))


class GuestPanic(GuestTrouble):
    """The kernel panicked, or restarted without a word."""


class GuestHang(GuestTrouble):
    """The guest was not done at the deadline."""


class GuestError(GuestTrouble):
    """The guest's program says that it cannot do what was asked, or makes no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One boot.

    Attributes:
        kernel: What to boot; only its image matters here.
        vcpus: Virtual processors.
        args: The guest's parameters; each becomes `ct.NAME=VALUE` on the command line.
        cmdline: Added to the standard command line.
        accel: `auto` is KVM if it works here, otherwise TCG.
        icount: One vCPU whose clock counts instructions: what takes time is repeatable.
        memory_mib: The guest's memory.
        deadline_s: From the start to the guest's last line, seconds.
        plugin: The value of QEMU's -plugin option.
        hold: The guest waits for a byte before its last line.
        initrd: Another world than the lab's guest.
    """

    kernel: Kernel
    vcpus: int = 2
    args: Mapping[str, str] = field(default_factory=dict)
    cmdline: str = ""
    accel: Accel = "auto"
    icount: bool = False
    memory_mib: int = 1024
    deadline_s: float = 120
    plugin: str | None = None
    hold: bool = False
    initrd: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestReport:
    """All that one boot gave.

    Attributes:
        hello: The guest's first line.
        results: Its result lines, in order.
        checks: Its smoke checks.
        others: Lines of other kinds, such as descriptions of workloads.
        dmesg: The kernel's log if it was asked for.
        console: What the kernel printed.
        accel: `tcg` or `kvm`.
        note: Why not KVM; empty if there is nothing to say.
        boot_s: From QEMU's start to the guest's first line, seconds.
        wall_s: To QEMU's end, seconds.
        qemu: QEMU's version.
    """

    hello: dict[str, Any]
    results: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    others: list[dict[str, Any]]
    dmesg: str
    console: str
    accel: str
    note: str
    boot_s: float
    wall_s: float
    qemu: str


def find_qemu() -> str:
    """QEMU's path.

    Raises:
        NoQemu: it is not on PATH.
    """
    path = shutil.which(QEMU)
    if path is None:
        raise NoQemu(QEMU_MISSING)
    return path


def qemu_version() -> str:
    """QEMU's own words for its version, e.g. "7.2.22 (Debian ...)"."""
    return _version(find_qemu())


@cache
def _version(path: str) -> str:
    try:
        run = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoQemu(f"{path} cannot be run ({error}): apt-get install qemu-system-x86") from error
    first = (run.stdout.splitlines() or ["unknown version"])[0]
    return first.removeprefix("QEMU emulator version ").strip()


def command_line(boot: Boot) -> str:
    """What the kernel is told, beginning with the lab's standard."""
    parts = [CMDLINE]
    khz = ICOUNT_KHZ if boot.icount else clock.tsc_khz()
    if khz:
        # Both would be calibrated against an emulated timer chip, slowly and, on a busy host,
        # wrongly (see contended.kernel.clock).
        parts.append(f"tsc_early_khz={khz} lpj={khz * 1000 // HZ}")
    if boot.icount:
        # The local APIC's timer would be calibrated for a tenth of a guest's second, during which
        # nothing but the counter is looked at: half a minute, where instructions are counted.
        parts.append("nolapic_timer")
    if boot.vcpus > 1:
        others = f"1-{boot.vcpus - 1}"
        parts.append(
            f"nohz_full={others} isolcpus=nohz,domain,managed_irq,{others} rcu_nocbs={others}"
        )
    parts.append(boot.cmdline)
    args = dict(boot.args)
    if boot.hold:
        args["hold"] = "1"
    for name, value in args.items():
        if not re.fullmatch(r"[^\s\"=]+", name) or not re.fullmatch(r"[^\s\"]*", value):
            raise UsageError(f"{name}={value!r}: a guest's parameter has no blanks and no quotes")
        parts.append(f"ct.{name}={value}")
    return " ".join(filter(None, parts))


def qemu_arguments(boot: Boot, accel: str) -> list[str]:
    """QEMU's arguments but for its ports."""
    if boot.vcpus < 1:
        raise UsageError(f"{boot.vcpus} vCPUs: give at least 1")
    if boot.icount and boot.vcpus != 1:
        raise UsageError("counting instructions for time needs one vCPU")
    tcg = "tcg,thread=single" if boot.icount else "tcg,thread=multi"
    initrd = boot.initrd or guest.initrd()
    arguments = [
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", MACHINE, "-cpu", "max", "-m", str(boot.memory_mib)),
        *("-accel", tcg if accel == "tcg" else "kvm"),
        # Without ACPI a kernel learns only of the first core of each socket.
        *("-smp", f"{boot.vcpus},sockets={boot.vcpus},cores=1,threads=1"),
        *("-kernel", str(boot.kernel.image), "-initrd", str(initrd)),
        *("-append", command_line(boot)),
    ]
    if boot.icount:
        # sleep=off: an idle guest's clock jumps to its next timer instead of following the host's.
        arguments += ["-icount", "shift=0,sleep=off"]
    if boot.plugin is not None:
        arguments += ["-plugin", boot.plugin]
    return arguments


def boot(boot: Boot) -> GuestReport:
    """Run to the guest's last line.

    Raises:
        NoQemu: it is not installed.
        LostVm: QEMU ended before the guest was done.
        GuestPanic: the kernel panicked.
        GuestHang: the guest was not done at the deadline.
        GuestError: the guest sent an error line, or nonsense.
    """
    hello: dict[str, Any] = {}
    found: dict[str, list[dict[str, Any]]] = {}
    with Machine(boot) as machine:
        for line in machine.lines():
            found.setdefault(line["type"], []).append(line)
            if line["type"] == "hello":
                hello = line
            elif line["type"] == "hold":
                machine.send(b"\n")
    if errors := found.get("error"):
        raise GuestError(f"the guest says: {errors[0].get('what', '?')}", machine.console)
    status = found["bye"][-1].get("status")
    if status != 0:
        raise GuestError(f"the guest ended with status {status}", machine.console)
    known = ("hello", "result", "check", "dmesg", "error", "hold", "bye")
    return GuestReport(
        hello=hello,
        results=found.get("result", []),
        checks=found.get("check", []),
        others=[line for kind, lines in found.items() if kind not in known for line in lines],
        dmesg="".join(str(line.get("text", "")) for line in found.get("dmesg", [])),
        console=machine.console,
        accel=machine.accel,
        note=machine.note,
        boot_s=machine.boot_s,
        wall_s=machine.wall_s,
        qemu=qemu_version(),
    )


class Machine:
    """A running virtual machine; a context manager, and the machine does not outlive the block.

    Attributes:
        accel: `tcg` or `kvm`.
        note: Why not KVM; empty if there is nothing to say.
        boot_s: From QEMU's start to the guest's first line, seconds.
        wall_s: To QEMU's end, seconds.
    """

    def __init__(self, boot: Boot) -> None:
        from contended.kernel import kvm

        self._boot = boot
        self._qemu = find_qemu()
        self.accel, self.note = kvm.choose(boot)
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
        arguments = [self._qemu, *qemu_arguments(self._boot, self.accel)]
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
            self._process = start(
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
            end(self._process)
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
        end(self._process)
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


def start(
    arguments: Sequence[str],
    *,
    stdin: int | None = None,
    stderr: int | None = subprocess.PIPE,
    pass_fds: Sequence[int] = (),
    new_session: bool = True,
) -> subprocess.Popen[bytes]:
    """Start QEMU so that it dies with this process, however that ends."""
    parent = os.getpid()
    prepare = _die_with(parent)
    try:
        return subprocess.Popen(
            arguments,
            stdin=stdin,
            stdout=subprocess.DEVNULL if stderr == subprocess.PIPE else None,
            stderr=stderr,
            pass_fds=pass_fds,
            # A session of its own: Ctrl-C in a terminal reaches us, and we end QEMU in order.
            start_new_session=new_session,
            preexec_fn=prepare,
        )
    except OSError as error:
        raise NoQemu(f"{arguments[0]} cannot be started: {error.strerror}") from error


def _die_with(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        child.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # it ended before it could be watched
        # A QEMU that aborts, as with a KVM that does not fit, must not leave a core file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return prepare


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that `start` made, and what it has started, and wait until it is gone.

    Nothing in there is worth a gentle end: the guest has no disk.
    """
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
    process.wait()


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
