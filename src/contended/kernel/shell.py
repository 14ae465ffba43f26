# SPDX-License-Identifier: MIT
"""A shell in a patched kernel, on the reader's terminal.

The guest is busybox and the lab's own program in an initramfs: it needs no network, and of the
host's file system it sees nothing.
"""

from __future__ import annotations

import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from contended.errors import UsageError
from contended.kernel import guest, kvm, qemu

_HELP = (
    "/ct list names the lab's workloads, /ct NAME runs one; poweroff or Ctrl-A X ends the machine"
)


def check_terminal() -> None:
    """A shell needs somebody to type.

    Raises:
        UsageError: standard input or output is no terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a shell needs a terminal: run it without a pipe and not in a script")


def interact(boot: qemu.Boot, name: str) -> int:
    """Boot, and give the terminal to the guest until it ends; QEMU's exit status.

    Raises:
        UsageError: there is no terminal.
        ContendedError: no QEMU, no busybox.
    """
    check_terminal()
    boot = replace(boot, initrd=guest.shell_initrd(), args={**boot.args, "run": "shell"})
    accel, note = kvm.choose(boot)
    arguments = [
        qemu.find(),
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
    with _terminal():
        process = qemu.start(arguments, stderr=None, new_session=False)
        try:
            status = process.wait()
        finally:
            qemu.end(process)
    if status < 0:
        raise qemu.LostVm(f"QEMU was killed by {signal.Signals(-status).name}")
    return status


@contextmanager
def _terminal() -> Iterator[None]:
    """Put the terminal back as it was: QEMU makes it raw, and may not live to undo that.

    Meanwhile Ctrl-C, which reaches us as well until the terminal is raw, is not ours.
    """
    settings = termios.tcgetattr(sys.stdin)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        termios.tcsetattr(sys.stdin, termios.TCSANOW, settings)
