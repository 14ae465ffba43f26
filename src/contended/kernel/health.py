# SPDX-License-Identifier: MIT
"""What the kernel lab finds on this machine, and what it lacks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from contended.doctor import Check
from contended.errors import ContendedError
from contended.kernel import boot, build, guest, qemu, source, store, variants
from contended.kernel.releases import BOOK

DISK_BYTES = 7_000_000_000  #: The source, all configurations' objects and all cases' kernels.


def examine() -> list[Check]:
    """Look at everything; only the probe of KVM starts something."""
    shell = _found("busybox", False, _shell, "busybox-static")
    emulator = _found("QEMU", True, qemu.version, "qemu-system-x86")
    return [emulator, _source(), _tools(), shell, *_disk_and_kernels(), _kvm()]


def source_is_unpacked() -> bool:
    """Whether looking for the source again takes no time."""
    return any(store.cache().glob("source/*/tree/Makefile"))


def _shell() -> str:
    return f"{guest.find_busybox()}, for contended kernel shell"


def _found(name: str, required: bool, look: Callable[[], object], package: str) -> Check:
    try:
        return Check(name, True, required, str(look()))
    except ContendedError as missing:
        return Check(name, False, required, str(missing), (package,))


def _source() -> Check:
    if given := os.environ.get("CONTENDED_KERNEL_SOURCE"):
        there = Path(given).exists()
        found = f"{given}, from CONTENDED_KERNEL_SOURCE"
        return Check("source", there, True, found if there else f"there is no {found}")
    if tarball := source.packaged():
        state = "unpacked" if source_is_unpacked() else "not unpacked yet"
        return Check("source", True, True, f"{tarball}, {state}")
    advice = "not here: contended kernel source gets it, or use --source"
    return Check("source", False, True, advice, (BOOK.package,))


def _tools() -> Check:
    wanted = {package.name: package.there() for package in build.tools()}
    lacking = tuple(name for name, there in wanted.items() if not there)
    detail = f"missing: {', '.join(lacking)}" if lacking else ", ".join(wanted)
    return Check("tools", not lacking, True, detail, lacking)


def _disk_and_kernels() -> tuple[Check, Check]:
    place = store.cache()
    free = store.free(place)[1]
    built = sum(1 for _ in place.glob("kernels/*/meta.json"))
    enough = bool(built) or free >= DISK_BYTES
    detail = f"{free / 1e9:.0f} GB free at {place}"
    if not enough:
        detail += (
            f"; all kernels take about {DISK_BYTES / 1e9:.0f} GB: "
            "set CONTENDED_CACHE to a folder on another disk"
        )
    kernels = f"{built} built; variants of {len(variants.slugs())} cases are described"
    return Check("disk", enough, True, detail), Check("kernels", True, False, kernels)


def _kvm() -> Check:
    if not boot.DEVICE.exists():
        return Check("KVM", False, False, "there is no /dev/kvm: using TCG")
    kernel = _any_kernel()
    if kernel is None or shutil.which(qemu.QEMU) is None:
        return Check("KVM", False, False, "only a boot can tell, and no kernel is built")
    try:
        answer = boot.probe(qemu.Boot(kernel=kernel))
    except ContendedError as error:
        return Check("KVM", False, False, str(error))
    why = "a kernel boots with it" if answer.works else f"{answer.why}: using TCG"
    return Check("KVM", answer.works, False, why)


def _any_kernel() -> build.Kernel | None:
    with suppress(ContendedError):
        if source_is_unpacked():
            origin = source.find()
            every = (v for slug in variants.slugs() for v in variants.load(slug).variants.values())
            return next(filter(None, (build.find(v, "base", origin) for v in every)), None)
    return None
