# SPDX-License-Identifier: MIT
"""What the kernel lab finds on this machine, and what it lacks."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from contended import doctor
from contended.errors import ContendedError
from contended.kernel import build, guest, kvm, qemu, source, store, variants

#: The source, the object folders of all configurations and the kernels of all cases.
DISK_BYTES = 7_000_000_000


@dataclass(frozen=True, slots=True)
class Check:
    """One finding; `optional` if the lab works without, `packages` is what would bring it."""

    name: str
    ok: bool
    detail: str
    optional: bool = False
    packages: tuple[str, ...] = ()


def examine() -> list[Check]:
    """Look at everything; only the probe of KVM starts something."""
    return [_qemu(), _source(), _tools(), _busybox(), _disk(), _kernels(), _kvm()]


def source_is_unpacked() -> bool:
    """Whether looking for the source again takes no time."""
    place = store.cache() / "source"
    return place.is_dir() and any(place.glob("*/tree/Makefile"))


def _qemu() -> Check:
    try:
        version = qemu.version()
    except qemu.NoQemu as missing:
        return Check("QEMU", False, str(missing), packages=("qemu-system-x86",))
    return Check("QEMU", True, version)


def _source() -> Check:
    name = "source"
    if given := os.environ.get("CONTENDED_KERNEL_SOURCE"):
        there = Path(given).exists()
        found = f"{given}, from CONTENDED_KERNEL_SOURCE"
        return Check(name, there, found if there else f"there is no {found}")
    tarball = source.packaged()
    if tarball is None:
        return Check(
            name, False, "not here: contended kernel source gets it, or use --source",
            packages=(source.PACKAGE,),
        )  # fmt: skip
    state = "unpacked" if source_is_unpacked() else "not unpacked yet"
    return Check(name, True, f"{tarball}, {state}")


def _tools() -> Check:
    wanted = [p for p in doctor.PACKAGES if "kernels" in p.needed_for and p.required]
    lacking = tuple(package.name for package in wanted if not package.there())
    if lacking:
        return Check("tools", False, f"missing: {', '.join(lacking)}", packages=lacking)
    return Check("tools", True, ", ".join(package.name for package in wanted))


def _busybox() -> Check:
    try:
        return Check("busybox", True, f"{guest.find_busybox()}, for contended kernel shell")
    except ContendedError as error:
        return Check("busybox", False, str(error), optional=True, packages=("busybox-static",))


def _disk() -> Check:
    place = store.cache()
    there = next(p for p in (place, *place.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    held = sum(1 for _ in place.glob("kernels/*/meta.json"))
    wanted = 0 if held else DISK_BYTES
    detail = f"{free / 1e9:.0f} GB free at {place}"
    if free < wanted:
        detail += (
            f"; all kernels take about {DISK_BYTES / 1e9:.0f} GB: "
            "set CONTENDED_CACHE to a folder on another disk"
        )
    return Check("disk", free >= wanted, detail)


def _kernels() -> Check:
    cases = variants.slugs()
    return Check(
        "kernels",
        True,
        f"{len(list(store.cache().glob('kernels/*/meta.json')))} built; variants of "
        f"{len(cases)} cases are described",
        optional=True,
    )


def _kvm() -> Check:
    if not kvm.DEVICE.exists():
        return Check("KVM", False, "there is no /dev/kvm: using TCG", optional=True)
    kernel = _any_kernel()
    if kernel is None or shutil.which(qemu.QEMU) is None:
        return Check("KVM", False, "only a boot can tell, and no kernel is built", optional=True)
    try:
        answer = kvm.probe(qemu.Boot(kernel=kernel))
    except ContendedError as error:
        return Check("KVM", False, str(error), optional=True)
    detail = "a kernel boots with it" if answer.works else f"{answer.why}: using TCG"
    return Check("KVM", answer.works, detail, optional=True)


def _any_kernel() -> build.Kernel | None:
    if not source_is_unpacked():
        return None
    try:
        origin = source.find()
        for slug in variants.slugs():
            for variant in variants.load(slug).variants.values():
                if kernel := build.find(variant, "base", origin):
                    return kernel
    except ContendedError:
        pass
    return None
