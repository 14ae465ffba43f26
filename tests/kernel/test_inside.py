# SPDX-License-Identifier: MIT
"""`contended host`, as root, on kernels of the lab: it names the bugs that are there."""

from __future__ import annotations

import json

import labtools
import pytest

from contended.errors import ContendedError
from contended.kernel import build, inside, observe, qemu, source, variants
from contended.kernel.build import Kernel

pytest_plugins = ("labfixtures",)
# The instances of one that is told to end while it counts, with nothing closed before.
ENDED = """\
sleep 1000 | $PYTHON -m contended.measure.tracing $$ path_mount >/tmp/counting &
while ! grep -q '{}' /tmp/counting; do sleep 0.2; done
ls /sys/kernel/tracing/instances
pid=$(ls /sys/kernel/tracing/instances | cut -d- -f2)
kill -TERM $pid
while [ -e /proc/$pid ]; do sleep 0.2; done
echo "left: $(ls /sys/kernel/tracing/instances)"
"""


@pytest.fixture(scope="module")
def built() -> Kernel:
    """The unpatched kernel, on which tests/kernel/test_observe.py looks as well."""
    if not labtools.has_qemu():
        pytest.skip(qemu.QEMU_MISSING)
    try:
        observe.tools()
        return build.build(variants.pick("open-creat-unlazy/before"), "observe", source.find())
    except ContendedError as missing:
        pytest.skip(str(missing))


def test_it_names_the_bug_that_this_kernel_has(built: Kernel) -> None:
    """Live: by what it counts; and who is told to end while counting leaves no instance."""
    host = "$PYTHON -m contended.cli host open-creat-unlazy --json"
    told, left, ended = inside.look_with_python(built, [host, inside.LEFT, ENDED])
    (case,) = json.loads(told.text[told.text.index("{") :])["cases"]
    assert case["verdict"] == "has it", case
    assert any("counted as root" in why for why in case["why"])
    assert left.text.strip() == ""
    assert "path_mount" in ended.text, "it has counted"
    assert ended.text.strip().endswith("left:")
