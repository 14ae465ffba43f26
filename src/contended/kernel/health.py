# SPDX-License-Identifier: MIT
"""What the kernel lab finds on this machine, and what it lacks."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from contended.doctor import Check
from contended.errors import ContendedError
from contended.kernel import boot, build, guest, qemu, source, store, variants

#: The source, the object folders of all configurations and the kernels of all cases.
DISK_BYTES = 7_000_000_000


def examine() -> list[Check]:
    """Look at everything; only the probe of KVM starts something."""
    return [_qemu(), _source(), _tools(), _busybox(), *_disk_and_kernels(), _kvm()]


def source_is_unpacked() -> bool:
    """Whether looking for the source again takes no time."""
    return any(store.cache().glob("source/*/tree/Makefile"))


def _qemu() -> Check:
    try:
        return Check("QEMU", True, True, qemu.version())
    except qemu.NoQemu as missing:
        return Check("QEMU", False, True, str(missing), ("qemu-system-x86",))


def _source() -> Check:
    if given := os.environ.get("CONTENDED_KERNEL_SOURCE"):
        there = Path(given).exists()
        found = f"{given}, from CONTENDED_KERNEL_SOURCE"
        return Check("source", there, True, found if there else f"there is no {found}")
    if tarball := source.packaged():
        state = "unpacked" if source_is_unpacked() else "not unpacked yet"
        return Check("source", True, True, f"{tarball}, {state}")
    advice = "not here: contended kernel source gets it, or use --source"
    return Check("source", False, True, advice, (source.PACKAGE,))


def _tools() -> Check:
    wanted = build.tools()
    lacking = tuple(package.name for package in wanted if not package.there())
    if lacking:
        return Check("tools", False, True, f"missing: {', '.join(lacking)}", lacking)
    return Check("tools", True, True, ", ".join(package.name for package in wanted))


def _busybox() -> Check:
    try:
        return Check("busybox", True, False, f"{guest.find_busybox()}, for contended kernel shell")
    except ContendedError as error:
        return Check("busybox", False, False, str(error), ("busybox-static",))


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
