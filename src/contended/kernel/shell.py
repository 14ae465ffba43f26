# SPDX-License-Identifier: MIT
"""A shell in a patched kernel, on the reader's terminal.

The guest is busybox and the lab's own program in an initramfs: it needs no network, and of the
host's file system it sees nothing.
"""

from __future__ import annotations

import signal
import sys
import termios
from dataclasses import replace

from contended.errors import UsageError
from contended.kernel import boot as boots
from contended.kernel import guest, qemu

_HELP = (
    "/ct list names the lab's workloads, /ct NAME runs one; poweroff or Ctrl-A X ends the machine"
)


def check_terminal() -> None:
    """See that there is somebody to type; raises UsageError if not."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a shell needs a terminal: run it without a pipe and not in a script")


def interact(boot: qemu.Boot, name: str) -> int:
    """Boot, and give the terminal to the guest until it ends; QEMU's exit status."""
    check_terminal()
    boot = replace(boot, initrd=guest.shell_initrd(), args={**boot.args, "run": "shell"})
    accel, note = boots.choose(boot)
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
    settings = termios.tcgetattr(sys.stdin)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = qemu.start(arguments, terminal=True)
        try:
            status = process.wait()
        finally:
            qemu.end(process)
    finally:
        signal.signal(signal.SIGINT, before)
        termios.tcsetattr(sys.stdin, termios.TCSANOW, settings)
    if status < 0:
        raise qemu.LostVm(f"QEMU was killed by {signal.Signals(-status).name}")
    return status
