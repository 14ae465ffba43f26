# SPDX-License-Identifier: MIT
"""Boot a kernel, with KVM if that works here, and collect what its guest reports.

Inside another virtual machine /dev/kvm may open and make a machine whose first instruction never
runs: so, once for each start of the host, a kernel is booted with a short deadline.
"""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from contended import records
from contended.errors import ContendedError, UsageError
from contended.kernel import qemu, store
from contended.kernel.qemu import Boot, LostVm
from contended.kernel.vm import ENDED, GuestError, GuestHang, GuestTrouble, VirtualMachine
from contended.records import Record

DEVICE = Path("/dev/kvm")
DEADLINE_S = 5.0


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
    """Run to the guest's last line; raises what `VirtualMachine.lines` does."""
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
    answer, certain = _try(boot)
    if certain:
        with suppress(OSError, ContendedError):  # asking again costs seconds, and no more
            file.parent.mkdir(parents=True, exist_ok=True)
            replace(answer, key=key).save(file)
    return answer


def _try(boot: Boot) -> tuple[Answer, bool]:
    """Boot; the answer, and whether it is one about KVM rather than about this kernel."""
    args, vcpus = {"run": "list"}, min(boot.vcpus, 2)
    boot = replace(boot, vcpus=vcpus, args=args, hold=False, cmdline="", deadline_s=DEADLINE_S)
    try:
        with VirtualMachine(boot, "kvm") as machine:
            next(machine.lines())
            return Answer(True), True
    except GuestHang:
        reason = f"/dev/kvm opens but the guest did not start within {DEADLINE_S:.0f} s"
        return Answer(False, reason), True
    except LostVm as lost:
        how = str(lost).removeprefix(ENDED).strip()
        return Answer(False, f"/dev/kvm opens but QEMU fails with it: {how}"), True
    except GuestTrouble as trouble:
        return Answer(False, f"the kernel does not start with KVM ({trouble})"), False


def _key() -> str:
    """This start of the host, and this QEMU."""
    try:
        host = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        host = str(os.getpid())
    text = "\n".join((host, qemu.find(), qemu.version(), qemu.MACHINE))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
