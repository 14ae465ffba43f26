# SPDX-License-Identifier: MIT
"""Boot a kernel and collect what its guest reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contended.kernel import kvm
from contended.kernel.qemu import Boot
from contended.kernel.vm import GuestError, VirtualMachine


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
    """Run to the guest's last line.

    Raises what `VirtualMachine.lines` does, NoQemu, and GuestError if the guest sent an error.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    with VirtualMachine(boot, kvm.choose(boot)[0]) as machine:
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
