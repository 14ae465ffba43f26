# SPDX-License-Identifier: MIT
"""Fixtures of the kernel lab's tests: a kernel to boot, and a tiny guest for it.

A plugin rather than a conftest.py, of which there is one above: a test module asks for it by
`pytest_plugins = ("labfixtures",)`. The tests that boot are skipped where QEMU or the source is
missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import labtools
import pytest

from contended import cc
from contended.errors import ContendedError
from contended.kernel import build, guest, qemu, source
from contended.kernel.build import Kernel
from contended.kernel.variants import Variant

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def kernel() -> Kernel:
    """The unpatched kernel with config base, built now if it is not in the cache.

    It is in the cache that the tests' reader uses as well: a kernel takes minutes.
    """
    if not labtools.has_qemu():
        pytest.skip(qemu.QEMU_MISSING)
    try:
        return build.build(Variant("test", "before", "Linux as it is"), "base", source.find())
    except ContendedError as error:
        if "apt-get" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The initramfs with tests/kernel/tiny_init.c as its only program."""
    where = tmp_path_factory.mktemp("tiny")
    cc.compile_([HERE / "tiny_init.c"], guest.FLAGS, where / "init")
    initrd = where / "tiny.cpio.gz"
    initrd.write_bytes(guest.packed([("init", guest.PROGRAM, (where / "init").read_bytes())]))
    return initrd


@pytest.fixture
def asked(kernel: Kernel, tiny: Path) -> Callable[..., qemu.Boot]:
    """Makes a boot of the tiny guest under TCG; `how` says what it shall do."""

    def make(how: str = "fine", **fields: Any) -> qemu.Boot:
        settings: dict[str, Any] = {"vcpus": 1, "accel": "tcg", "deadline_s": 90, **fields}
        args = {"how": how, **settings.pop("args", {})}
        return qemu.Boot(kernel=kernel, initrd=tiny, args=args, **settings)

    return make


@pytest.fixture
def no_vm_left() -> Iterator[None]:
    """Whatever a test does, no QEMU that it started may be there afterwards."""
    before = labtools.machines()
    yield
    assert labtools.gone(before), f"left over: {labtools.machines() - before}"
