# SPDX-License-Identifier: MIT
"""`contended host`, as root, on kernels of the lab: it names the bugs that are there, no others."""

from __future__ import annotations

import json
from pathlib import Path

import labtools
import pytest

from contended.errors import ContendedError
from contended.kernel import build, inside, observe, qemu, source, variants
from contended.kernel.build import Kernel
from contended.kernel.inside import Told

pytest_plugins = ("labfixtures",)
RECORDS = Path("results", "host", "verdicts")
HOST = "$PYTHON -m contended.cli host {} --json"
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


@pytest.fixture(scope="module")
def told(root: Path) -> list[Told]:
    """What was recorded, a file for each case."""
    return [
        one for file in sorted((root / RECORDS).glob("*.json")) for one in inside.load(file).told
    ]


def test_each_kernel_was_told_for_what_it_is(told: list[Told]) -> None:
    """With the bug and without it, and nothing was left behind on any."""
    pairs = {slug: found[0] for slug, found in observe.watched().items()}
    for one in told:
        pair = pairs[one.slug]
        sides = {pair.sick: "has it", pair.healthy: "cannot have it"}
        assert one.verdict == sides[one.variant], (one.slug, one.variant, one.why)
        assert one.left == ""
        assert not one.why[0].startswith("6."), "the release was asked last"
    seen = {(one.slug, one.variant) for one in told}
    # no patch takes the cause of the first away, none brings that of the other to 6.1
    asked = set(pairs) - {"lockref-degrade", "percpu-area-map"}
    assert seen == {
        (slug, name) for slug in asked for name in (pairs[slug].sick, pairs[slug].healthy)
    }


def test_it_names_the_bug_that_this_kernel_has_and_no_other(built: Kernel) -> None:
    """Live: by what it counts; and who is told to end while counting leaves no instance."""
    asked = [*map(HOST.format, ("open-creat-unlazy", "mount-propagation")), inside.LEFT, ENDED]
    sick, healthy, left, ended = inside.look_with_python(built, asked)
    for said, expected in ((sick, "has it"), (healthy, "cannot have it")):
        (case,) = json.loads(said.text[said.text.index("{") :])["cases"]
        assert case["verdict"] == expected, case
        assert any("counted as root" in why for why in case["why"]), case
    assert left.text.strip() == ""
    assert "path_mount" in ended.text, "it has counted"
    assert ended.text.strip().endswith("left:")
