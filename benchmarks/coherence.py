#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What does the coherence profiler cost?

Boots one kernel by turns without the plugin and with it, and compares whole runs and their
measured regions; then a run with 16 vCPUs, and the memory; then runs that keep a machine's time,
with 16 and 80 vCPUs, and their lines named. Prints PASS or FAIL for each limit, and exits 1 if
anything fails. The kernel must have been built: contended kernel build open-creat-unlazy. Leave
the machine alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from contended.kernel import boot, build, c2c, clock, prices, qemu, variants
from contended.kernel.build import Kernel
from contended.profile import plugin
from contended.simulate import machines

KERNEL = "open-creat-unlazy/before"
VCPUS, OPS = 4, 3000
WIDE_VCPUS, WIDE_OPS = 16, 100
SLOWER = 5.0
WIDE_S = 30.0
BYTES_PER_LINE = 64.0  # beside what each vCPU has not used yet of the last lines it got
CHUNK_LINES = 256
# In virtual time: vCPUs, operations of each, and seconds from start to end.
TIMED = ((16, 100, 20.0), (80, 40, 90.0))
TIMED_BYTES_PER_LINE = 128.0


def run(kernel: Kernel, vcpus: int, ops: int, value: str | None) -> tuple[float, float]:
    """One boot: seconds from QEMU's start to its end, and of the measured region."""
    report = boot.boot(
        qemu.Boot(
            kernel=kernel,
            vcpus=vcpus,
            args={"run": "open-creat", "ops": str(ops)},
            accel="tcg",
            deadline_s=300,
            plugin=value,
        )
    )
    return report.wall_s, sum(result["ns"] for result in report.results) / 1e9


def verdict(good: bool, text: str) -> bool:
    """Print a line of the result, and pass on whether it is good."""
    print(f"{'PASS' if good else 'FAIL'}  {text}")
    return good


def per_line(cost: plugin.Directory) -> float:
    """Bytes for each line that was touched, what is allocated and not used yet among them."""
    return cost.line_bytes / cost.lines


def timed(kernel: Kernel, vcpus: int, ops: int) -> tuple[float, plugin.Directory]:
    """One boot that keeps a machine's time: seconds, and what the counting took."""
    variant = variants.pick(KERNEL)
    run = c2c.choose_run(variants.load(variant.slug))
    begin = time.monotonic()
    ((region, _),) = c2c.profile_kernel(
        kernel,
        variant,
        replace(run, args={**run.args, "ops": str(ops)}, calls=()),
        vcpus=vcpus,
        quantum=round(1000 * clock.WINDOW_NS),
        time=prices.settings(machines.get(clock.MACHINE), seed=1),
        lines=clock.LINES,
    )
    return time.monotonic() - begin, region.directory


def main() -> int:
    """Run it all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="boots of each kind [%(default)s]")
    repeats = parser.parse_args().repeats
    kernel = build.find(variants.pick(KERNEL), "base")
    if kernel is None:
        print(f"SKIP  the kernel {KERNEL} is not built: contended kernel build {KERNEL}")
        return 0
    library = plugin.build(plugin.find("system"))
    good = True
    with tempfile.TemporaryDirectory(prefix="contended-coherence-") as scratch:
        out = Path(scratch) / "report.json"
        value = plugin.option(library, out)
        plain, counted = [], []
        for _ in range(repeats):
            plain.append(run(kernel, VCPUS, OPS, None))
            counted.append(run(kernel, VCPUS, OPS, value))
        for index, what in enumerate(("from start to end", "in the region alone")):
            ratios = [b[index] / a[index] for a, b in zip(plain, counted, strict=True)]
            ratio = statistics.median(ratios)
            text = (
                f"{VCPUS} vCPUs, {VCPUS * OPS} operations, {what}: {ratio:.2f} times plain TCG "
                f"({min(ratios):.2f} to {max(ratios):.2f})"
            )
            if index == 0:
                good &= verdict(ratio <= SLOWER, f"{text}, limit {SLOWER:.0f}")
            else:  # nothing but accesses that are recorded, and waiting for each other
                print(f"      {text}")
        (region,) = plugin.load(out).regions
        cost = region.directory
        used, idle = per_line(cost), BYTES_PER_LINE * CHUNK_LINES * VCPUS / cost.lines
        good &= verdict(
            used <= BYTES_PER_LINE + idle,
            f"{cost.lines} lines touched: {used:.0f} bytes each, limit {BYTES_PER_LINE:.0f} beside "
            f"what is not used yet, at most {idle:.0f}; "
            f"and {cost.site_bytes / 2**20:.1f} MiB for instructions, "
            f"{cost.fixed_bytes / 2**20:.0f} MiB once",
        )
        wide = run(kernel, WIDE_VCPUS, WIDE_OPS, value)
        good &= verdict(
            wide[0] <= WIDE_S,
            f"{WIDE_VCPUS} vCPUs, {WIDE_OPS} operations each: {wide[0]:.1f} s, limit {WIDE_S:.0f}",
        )
    for vcpus, ops, limit in TIMED:
        seconds, cost = timed(kernel, vcpus, ops)
        what = f"in virtual time, {vcpus} vCPUs, {ops} operations each"
        good &= verdict(seconds <= limit, f"{what}: {seconds:.1f} s, limit {limit:.0f}")
        used = per_line(cost)
        good &= verdict(
            used <= TIMED_BYTES_PER_LINE,
            f"{cost.lines} lines touched: {used:.0f} bytes each, limit {TIMED_BYTES_PER_LINE:.0f}",
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
