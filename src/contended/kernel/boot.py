# SPDX-License-Identifier: MIT
"""Boot a kernel and collect what its guest reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contended.kernel import kvm, qemu
from contended.kernel.qemu import Boot
from contended.kernel.vm import GuestError, Machine


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
    accel, note = kvm.choose(boot)
    with Machine(boot, accel, note) as machine:
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
        accel=accel,
        note=note,
        boot_s=machine.boot_s,
        wall_s=machine.wall_s,
        qemu=qemu.version(),
    )
