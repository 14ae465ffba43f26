# SPDX-License-Identifier: MIT
"""QEMU: what of it there is, how a kernel is started in it, and that it ends when we do."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from contended import child
from contended.errors import ContendedError, UsageError
from contended.kernel import guest, make, store
from contended.kernel.build import Kernel
from contended.kernel.variants import CONFIGS

QEMU = "qemu-system-x86_64"
QEMU_MISSING = f"{QEMU} is not installed: apt-get install qemu-system-x86"

# microvm rather than pc: the BIOS of the latter has no room for more than some 48 processors in
# the table that a kernel without ACPI finds them by, and takes longer to get to the kernel.
MACHINE = "microvm,acpi=off,pic=on,pit=on,rtc=on,isa-serial=on"
CMDLINE = (
    "console=ttyS0 loglevel=5 panic=-1 oops=panic reboot=t nokaslr nopti mitigations=off "
    "tsc=reliable clocksource=tsc no_timer_check ct.lab=1"
)
#: Of memory; a kernel that keeps a map of it, and what was freed, needs more.
MEMORY_MB = {**dict.fromkeys(CONFIGS, 1024), "kasan": 2048}
GUEST_KHZ = 1_000_000  # of a counter of nanoseconds, as csrc/qemu/tsc.h's and that of -icount are
_RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret

Accel = Literal["auto", "tcg", "kvm"]


class NoQemu(ContendedError):
    """QEMU is not installed."""


class LostVm(ContendedError):
    """QEMU ended, or was ended, before the guest was done: nothing was learned of the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """One boot."""

    kernel: Kernel  #: What to boot; only its image matters here.
    vcpus: int = 2
    args: Mapping[str, str] = field(default_factory=dict)  #: The guest's, as `ct.NAME=VALUE`.
    cmdline: str = ""  #: Added to the standard command line.
    tickless: bool = True  #: A CPU at work has no timer ticks or RCU callbacks, but for the first.
    accel: Accel = "auto"  #: `auto` is KVM if it works here, otherwise TCG.
    icount: bool = False  #: One vCPU whose clock counts instructions, so that times are repeatable.
    deadline_s: float = 120  #: From the start to the guest's last line.
    plugin: str | None = None  #: The value of QEMU's -plugin option.
    preload: Path | None = None  #: A library that QEMU loads before all others.
    guest_clock: bool = False  #: The guest's counter is the plugin's; no CPU is kept apart.
    late: int = 10  #: How many times slower than the host's such a clock is outside of regions.
    hold: bool = False  #: The guest waits for a byte before its last line.
    initrd: Path | None = None  #: Another world than the lab's guest.


def find() -> str:
    """QEMU's path; raises NoQemu if it is not on PATH."""
    path = shutil.which(QEMU)
    if path is None:
        raise NoQemu(QEMU_MISSING)
    return path


def version() -> str:
    """QEMU's own words for its version, e.g. "7.2.22 (Debian ...)"."""
    return _version(find())


@cache
def _version(path: str) -> str:
    try:
        said = store.ask([path, "--version"], timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoQemu(f"{path} cannot be run ({error}): apt-get install qemu-system-x86") from error
    first = next(iter(said.splitlines()), "unknown version")
    return first.removeprefix("QEMU emulator version ").strip()


@cache
def tsc_khz() -> int | None:
    """The rate of the host's time stamp counter in kHz; None where it cannot be read.

    A guest, which reads that counter, is told: its kernel would time it against an emulated timer
    chip and, on a busy host, end up with a clock that advances in steps of 10 ms.
    """
    if platform.machine() != "x86_64":
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None  # a system that forbids memory that is both writable and executable
    page.write(_RDTSC)
    code = ctypes.c_char.from_buffer(page)
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(code))

    def both() -> tuple[int, int]:
        """The counter and the clock (ns) at one moment: the reading that took least."""
        tries = ((read(), time.monotonic_ns(), read()) for _ in range(20))
        before, now, after = min(tries, key=lambda each: each[2] - each[0])
        return (before + after) // 2, now

    first_ticks, first_ns = both()
    time.sleep(0.02)
    last_ticks, last_ns = both()
    del code
    page.close()
    khz = round((last_ticks - first_ticks) * 1_000_000 / (last_ns - first_ns))
    return khz if khz > 0 else None


def command_line(boot: Boot) -> str:
    """What the kernel is told, beginning with the lab's standard."""
    parts = [CMDLINE]
    if khz := GUEST_KHZ if boot.icount or boot.guest_clock else tsc_khz():
        # Both would be calibrated against an emulated timer chip.
        hz = make.hz(boot.kernel.config, boot.kernel.version)
        parts.append(f"tsc_early_khz={khz} lpj={khz * 1000 // hz}")
    if boot.icount:
        # The local APIC's timer would be calibrated for a tenth of a guest's second, during which
        # nothing but the counter is looked at: half a minute, where instructions are counted.
        parts.append("nolapic_timer")
    if boot.vcpus > 1 and not boot.guest_clock:
        others = f"1-{boot.vcpus - 1}"
        if boot.tickless:
            parts.append(
                f"nohz_full={others} rcu_nocbs={others} isolcpus=nohz,domain,managed_irq,{others}"
            )
        else:
            parts.append(f"isolcpus=domain,managed_irq,{others}")
    parts.append(boot.cmdline)
    for name, value in {**boot.args, **({"hold": "1"} if boot.hold else {})}.items():
        if not re.fullmatch(r"[^\s\"=]+", name) or not re.fullmatch(r"[^\s\"]*", value):
            raise UsageError(f"{name}={value!r}: a guest's parameter has no blanks and no quotes")
        parts.append(f"ct.{name}={value}")
    return " ".join(filter(None, parts))


def arguments(boot: Boot, accel: str) -> list[str]:
    """QEMU's path and arguments, but for its ports."""
    if boot.vcpus < 1:
        raise UsageError(f"{boot.vcpus} vCPUs: give at least 1")
    if boot.icount and boot.vcpus != 1:
        raise UsageError("counting instructions for time needs one vCPU")
    tcg = "tcg,thread=single" if boot.icount else "tcg,thread=multi"
    slow = f",late={boot.late}" if boot.guest_clock else ""
    return [
        *(("env", f"LD_PRELOAD={boot.preload}") if boot.preload else ()),
        *(find(), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", MACHINE, "-cpu", "max"),
        *("-m", str(MEMORY_MB[boot.kernel.config])),
        *("-accel", tcg if accel == "tcg" else "kvm"),
        # Without ACPI a kernel learns only of the first core of each socket.
        *("-smp", f"{boot.vcpus},sockets={boot.vcpus},cores=1,threads=1"),
        *("-kernel", str(boot.kernel.image), "-initrd", str(_initrd(boot))),
        *("-append", command_line(boot)),
        # sleep=off: an idle guest's clock jumps to its next timer instead of following the host's.
        *(("-icount", "shift=0,sleep=off") if boot.icount else ()),
        *(("-plugin", boot.plugin + slow) if boot.plugin is not None else ()),
    ]


def _initrd(boot: Boot) -> Path:
    if boot.initrd:
        return boot.initrd
    return guest.disk_initrd() if boot.args.get("disk") == "1" else guest.initrd()


def start(
    arguments: Sequence[str], fds: Sequence[int] = (), *, terminal: bool = False
) -> subprocess.Popen[bytes]:
    """Start QEMU, with the descriptors `fds`, so that it dies with this process, however it ends.

    Unless it is to have the terminal, only its standard error is heard, and it has a session of its
    own: Ctrl-C reaches us, and we end QEMU in order.
    """
    parent = os.getpid()

    def prepare() -> None:
        child.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # it ended before it could be watched
        # A QEMU that aborts, as with a KVM that does not fit, must not leave a core file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    silent = None if terminal else subprocess.DEVNULL
    try:
        return subprocess.Popen(
            arguments,
            stdin=silent,
            stdout=silent,
            stderr=None if terminal else subprocess.PIPE,
            pass_fds=fds,
            start_new_session=not terminal,
            preexec_fn=prepare,
        )
    except OSError as error:
        raise NoQemu(f"{arguments[0]} cannot be started: {error.strerror}") from error


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill what `start` started (without a disk nothing is lost), and wait until it is gone."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
    process.wait()
