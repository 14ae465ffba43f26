# SPDX-License-Identifier: MIT
"""The profiler on programs of which theory says what their cache lines do, in a real guest.

The guest says where its lines are (csrc/guest/work_c2c.c), so that only those are looked at: the
kernel around them shares lines of its own.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

import labtools
import pytest
from support import raced

from contended.kernel import boot
from contended.kernel.build import Kernel
from contended.kernel.qemu import Boot
from contended.profile import plugin

pytest_plugins = ("labfixtures",)
pytestmark = pytest.mark.usefixtures("no_vm_left")

OPS = 2000
PAGE = 4096
LATE = 0.01
"""The share of HITMs that may be lost because two CPUs' accesses are recorded in another order."""
# Pages of the guest's struct field.
OWN, ONE, SLOTS, FILLED, EMPTIED, TABLE = range(6)


@dataclass(frozen=True)
class Seen:
    """What a run did to the lines of each page, and altogether."""

    loads: dict[int, int]
    stores: dict[int, int]
    region: plugin.Region

    @property
    def hitm(self) -> int:
        return sum(self.loads.values()) + sum(self.stores.values())


@pytest.fixture(scope="module")
def library() -> Path:
    try:
        return plugin.build(plugin.find("system"))
    except plugin.NoPlugins as lacking:
        if labtools.has_qemu():
            raise
        pytest.skip(str(lacking))


def profiled(
    kernel: Kernel, library: Path, out: Path, vcpus: int, quantum: int, **args: object
) -> tuple[boot.GuestReport, plugin.PluginReport]:
    report = boot.boot(
        Boot(
            kernel=kernel,
            # As contended.kernel.c2c does it: one processor more, for the kernel's chores.
            vcpus=vcpus + 1 if vcpus > 1 else 1,
            args={"spare": "1", **{name: str(value) for name, value in args.items()}},
            accel="tcg",
            plugin=plugin.option(library, out, quantum=quantum),
        )
    )
    return report, plugin.load(out)


def see(
    kernel: Kernel, library: Path, scratch: Path, kind: str, vcpus: int = 4, quantum: int = 2000
) -> Seen:
    report, profile = profiled(
        kernel,
        library,
        scratch / "out.json",
        vcpus,
        quantum,
        run="c2c-validate",
        kind=kind,
        ops=OPS,
    )
    counts = report.results[0]["counts"]
    (region,) = profile.regions
    loads: dict[int, int] = {}
    stores: dict[int, int] = {}
    for line in region.lines:
        place = line.vaddr - counts["address"]
        if 0 <= place < counts["bytes"]:
            loads[place // PAGE] = loads.get(place // PAGE, 0) + line.hitm_loads
            stores[place // PAGE] = stores.get(place // PAGE, 0) + line.hitm_stores
    return Seen(loads, stores, region)


@pytest.mark.parametrize("kind", ["padded", "readonly"])
def test_what_is_not_shared_or_not_written_moves_never(
    kernel: Kernel, library: Path, tmp_path: Path, kind: str
) -> None:
    assert see(kernel, library, tmp_path, kind).hitm == 0


@pytest.mark.parametrize("kind", ["padded", "unpadded", "readonly"])
def test_one_processor_finds_nothing_modified_by_another(
    kernel: Kernel, library: Path, tmp_path: Path, kind: str
) -> None:
    seen = see(kernel, library, tmp_path, kind, vcpus=1)
    assert seen.region.lines == ()
    assert seen.region.hitm == 0
    assert sum(cpu.stores.user for cpu in seen.region.cpus) > 0


def test_a_turn_is_one_hitm(kernel: Kernel, library: Path, tmp_path: Path) -> None:
    """Two processes take turns: each finds the word modified by the other, once a turn."""
    seen = see(kernel, library, tmp_path, "pingpong")
    assert set(seen.loads) == {ONE}
    # An access is recorded a moment after it happened. If the other's store, which a load has seen,
    # is recorded after it, then the HITM is the store's; and if the next store is, too, it is lost.
    assert (1 - LATE) * 2 * OPS <= seen.hitm <= 2 * OPS
    assert seen.stores.get(ONE, 0) <= 0.1 * seen.hitm


def test_each_item_of_a_ring_is_handed_over_once(
    kernel: Kernel, library: Path, tmp_path: Path
) -> None:
    """Its slot once; the indices at most as often, less the more items go at a time."""
    seen = see(kernel, library, tmp_path, "ring")
    assert seen.loads[SLOTS] + seen.stores.get(SLOTS, 0) == pytest.approx(OPS, rel=LATE)
    assert seen.stores.get(SLOTS, 0) <= 0.1 * OPS
    for index in (FILLED, EMPTIED):
        assert OPS / 8 * 0.9 <= seen.loads[index] <= OPS


def test_words_of_one_line_move_in_every_window(
    kernel: Kernel, library: Path, tmp_path: Path
) -> None:
    """In each window every processor writes, so all but one take the line; at most at each write.

    A window is counted in instructions of user and kernel; those of the busiest worker bound it.
    """
    quantum = 50
    seen = see(kernel, library, tmp_path, "unpadded", quantum=quantum)
    workers = [cpu for cpu in seen.region.cpus if cpu.ops]
    assert len(workers) == 4
    windows = min(cpu.instructions.user for cpu in workers) / quantum
    assert 0.8 * 3 * windows <= seen.hitm <= 4 * OPS


@raced
def test_ten_runs_are_within_three_percent(kernel: Kernel, library: Path, tmp_path: Path) -> None:
    """Of their median, in HITMs on the root dentry's lockref, the worst line of 12,000 opens.

    On a host that stops a vCPU for long now and then, a few runs may fall out of it.
    """
    found = []
    for number in range(10):
        out = tmp_path / f"{number}.json"
        report, profile = profiled(kernel, library, out, 4, 1000, run="open-creat", ops=3000)
        assert report.results[0]["ops"] == 12_000
        worst = max(profile.regions[0].lines, key=lambda line: line.hitm_loads + line.hitm_stores)
        found.append((worst.hitm_loads + worst.hitm_stores) / 12_000)
    assert min(found) > 0.5
    middle = statistics.median(found)
    near = [one for one in found if one == pytest.approx(middle, rel=0.03)]
    assert len(near) >= 8, found
    assert found == pytest.approx([middle] * 10, rel=0.15)
