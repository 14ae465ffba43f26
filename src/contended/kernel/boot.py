# SPDX-License-Identifier: MIT
"""Boot a kernel, with KVM if that works here; collect what its guest reports, or be its shell.

Inside another virtual machine /dev/kvm may open and make a machine whose first instruction never
runs: so, once for each start of the host, a kernel is booted with a short deadline.
"""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from contended import child, records
from contended.errors import ContendedError, UsageError
from contended.kernel import guest, qemu, store
from contended.kernel.qemu import Boot, LostVm
from contended.kernel.vm import ENDED, STARVED, GuestError, GuestHang, GuestTrouble, VirtualMachine
from contended.records import Record

DEVICE = Path("/dev/kvm")
DEADLINE_S = 5.0
TRIES = 5
NO_TIMERS = "Could not switch to high resolution mode"
"""What Linux says if it has ticks alone."""
_HELP = (
    "/ct list names the lab's workloads, /ct NAME runs one; poweroff or Ctrl-A X ends the machine"
)


_T = TypeVar("_T")


class NoKvm(ContendedError):
    """KVM was asked for and does not work here; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer(Record):
    """Whether KVM works, and if not, why; `key` says of which start of the host and which QEMU."""

    works: bool
    why: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestReport:
    """All that one boot gave."""

    hello: dict[str, Any]  #: The guest's first line.
    results: list[dict[str, Any]]  #: Its result lines, in order.
    checks: list[dict[str, Any]]  #: Its smoke checks.
    dmesg: str  #: The kernel's log if it was asked for.
    console: str  #: What the kernel printed.
    boot_s: float  #: From QEMU's start to the guest's first line.
    wall_s: float  #: To QEMU's end.


def boot(boot: Boot) -> GuestReport:
    """Run to the guest's last line; raises what `VirtualMachine.lines` and `with_timers` do."""

    def once(boot: Boot) -> tuple[GuestReport, str]:
        seen = _once(boot)
        return seen, seen.console

    return with_timers(boot, once)


def with_timers(boot: Boot, once: Callable[[Boot], tuple[_T, str]]) -> _T:
    """What `once` makes of a boot, which it returns with what the kernel printed.

    A guest measures its timers against each other. On a busy host that may fail, and it goes on
    with ticks alone, which come to all its CPUs: one that keeps its own time is booted again then,
    each time at half the speed, and ContendedError says so if that is of no use.
    """
    for again in range(TRIES):
        found, console = once(replace(boot, late=boot.late << again))
        if not boot.guest_clock or NO_TIMERS not in console:
            return found
    raise ContendedError(
        f"the guest cannot measure its timers, {TRIES} boots in a row: the host has too much else "
        "to do; try again when it has less"
    )


def _once(boot: Boot) -> GuestReport:
    found: dict[str, list[dict[str, Any]]] = {}
    with VirtualMachine(boot, choose(boot)[0]) as machine:
        for line in machine.lines():
            found.setdefault(line["type"], []).append(line)
            if line["type"] == "hold":
                machine.send(b"\n")
    if errors := found.get("error"):
        raise GuestError(f"the guest says: {errors[0].get('what', '?')}", machine.console)
    status = found["bye"][-1].get("status")
    if status != 0:
        raise GuestError(f"the guest ended with status {status}", machine.console)
    return GuestReport(
        hello=found["hello"][0],
        results=found.get("result", []),
        checks=found.get("check", []),
        dmesg="".join(str(line.get("text", "")) for line in found.get("dmesg", [])),
        console=machine.console,
        boot_s=machine.boot_s,
        wall_s=machine.wall_s,
    )


def check_terminal() -> None:
    """See that there is somebody to type; raises UsageError if not."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a shell needs a terminal: run it without a pipe and not in a script")


def interact(boot: Boot, name: str) -> int:
    """Boot, and give the terminal to the guest until it ends; QEMU's exit status."""
    check_terminal()
    boot = replace(boot, initrd=guest.shell_initrd(), args={**boot.args, "run": "shell"})
    accel, note = choose(boot)
    arguments = [
        *qemu.arguments(boot, accel),
        # signal=off: Ctrl-C is the guest's.
        *("-chardev", "stdio,id=console,mux=on,signal=off", "-serial", "chardev:console"),
        *("-mon", "chardev=console,mode=readline"),
        *("-chardev", "null,id=results"),
        *("-device", "isa-serial,chardev=results,iobase=0x2f8,irq=3"),
    ]
    how = f"{accel} ({note})" if note else accel
    sys.stdout.write(f"{name}, Linux {boot.kernel.version}, {how}\n{_HELP}\n")
    sys.stdout.flush()
    # QEMU makes the terminal raw, and may not live to undo that. Ctrl-C, which reaches us as well
    # until then, is not ours.
    with ExitStack() as undo:
        before = termios.tcgetattr(sys.stdin)
        undo.callback(termios.tcsetattr, sys.stdin, termios.TCSANOW, before)
        undo.callback(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_IGN))
        process = qemu.start(arguments, terminal=True)
        undo.callback(qemu.end, process)
        status = process.wait()
    if status < 0:
        raise LostVm(f"QEMU {child.death(-status, SIGKILL=STARVED)}")
    return status


def choose(boot: Boot) -> tuple[Literal["tcg", "kvm"], str]:
    """How a machine is to run, and a note on why not KVM; NoKvm if it must and cannot be KVM."""
    if boot.accel not in ("auto", "tcg", "kvm"):
        raise UsageError(f"no accelerator {boot.accel!r}; there are: auto, tcg, kvm")
    if boot.icount or boot.plugin is not None:
        if boot.accel == "kvm":
            raise UsageError("QEMU counts instructions only with TCG: use accel auto or tcg")
        return "tcg", "instructions are counted, which needs TCG"
    if boot.accel == "tcg":
        return "tcg", ""
    answer = probe(boot)
    if answer.works:
        return "kvm", ""
    if boot.accel == "kvm":
        raise NoKvm(f"KVM does not work here: {answer.why}")
    return "tcg", f"{answer.why}: using TCG"


def probe(boot: Boot) -> Answer:
    """Find out, or remember, whether a kernel starts with KVM; `boot` says which kernel."""
    if platform.machine() != "x86_64":
        return Answer(False, f"the host is {platform.machine()}, the kernels are x86-64")
    if not DEVICE.exists():
        return Answer(False, "there is no /dev/kvm")
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return Answer(False, "/dev/kvm may not be opened (its group may: usermod -aG kvm)")
    key, file = _key(), store.cache() / "kvm.json"
    with suppress(OSError, ValueError):  # no memory, or not ours: find out again
        known: Answer = records.adapter(Answer).validate_json(file.read_bytes())
        if known.key == key:
            return known
    answer = _try(boot, key)
    if answer.key:
        with suppress(OSError, ContendedError):  # asking again costs seconds, and no more
            file.parent.mkdir(parents=True, exist_ok=True)
            answer.save(file)
    return answer


def _try(boot: Boot, key: str) -> Answer:
    """Boot; the answer has no key if it is not about KVM but about this kernel."""
    args, vcpus = {"run": "list"}, min(boot.vcpus, 2)
    boot = replace(boot, vcpus=vcpus, args=args, hold=False, cmdline="", deadline_s=DEADLINE_S)
    try:
        with VirtualMachine(boot, "kvm") as machine:
            next(machine.lines())
            return Answer(True, key=key)
    except GuestHang:
        reason = f"/dev/kvm opens but the guest did not start within {DEADLINE_S:.0f} s"
        return Answer(False, reason, key)
    except LostVm as lost:
        how = str(lost).removeprefix(ENDED).strip()
        return Answer(False, f"/dev/kvm opens but QEMU fails with it: {how}", key)
    except GuestTrouble as trouble:
        return Answer(False, f"the kernel does not start with KVM ({trouble})")


def _key() -> str:
    try:
        host = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        host = str(os.getpid())
    text = "\n".join((host, qemu.find(), qemu.version(), qemu.MACHINE))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
