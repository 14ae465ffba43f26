#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Does the harness measure what a stand-alone C program measures, and cost nothing itself?

Runs of the two alternate, there and back, so that what drifts drifts for both. Prints each ratio
with its 95% interval and PASS or FAIL, and exits 1 if anything fails. Leave the machine alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from contended import cc, machine, stats
from contended.measure import models, native
from contended.measure.measurement import SCHEDS
from contended.measure.runner import Config, Runner

HERE = Path(__file__).resolve().parent
RATIO = (0.98, 1.02)
EMPTY_NS = 1.0


def compile_standalone(where: Path) -> Path:
    """Compile `standalone.c` with the flags that models get, as a program."""
    program = where / "standalone"
    flags = [flag for flag in native.FLAGS if flag not in ("-fPIC", "-shared")]
    subprocess.run(
        [cc.compiler().command, *flags, "-o", str(program), str(HERE / "standalone.c")],
        check=True,
    )
    return program


class Pair:
    """The two ways to measure one operation on one CPU; both give nanoseconds an operation."""

    def __init__(self, runner: Runner, program: Path) -> None:
        self.model = models.describe("measuring", runner)
        self.runner, self.program = runner, program
        self.cpu = machine.allowed_cpus()[-1]
        self.fifo = self._run("empty").startswith("SCHED_FIFO")

    def _run(self, variant: str) -> str:
        config = Config(
            variant=self.model.variant_index(variant),
            threads=1,
            cpus=[self.cpu],
            params=[p.initial for p in self.model.params],
            slices=5,
            sched=SCHEDS["auto"],
            pin=True,
            think_ns=0,
            warmup_ns=20_000_000,
            slice_ns=12_000_000,
            ops=0,
        )
        run = self.runner.run(self.model.library, config, deadline_s=30)
        self.last_ns = 1e9 / run.phases[0].rate_median
        return run.sched

    def harness_ns(self, variant: str) -> float:
        """By the harness, with the model's variant."""
        self._run(variant)
        return self.last_ns

    def standalone_ns(self, loop: str) -> float:
        """By the program that knows nothing of the harness."""
        done = subprocess.run(
            [str(self.program), loop, str(self.cpu), str(int(self.fifo))],
            capture_output=True,
            text=True,
            check=True,
        )
        return float(done.stdout)

    def compare(self, variant: str, loop: str, repeats: int) -> tuple[list[float], list[float]]:
        """Paired runs: the harness's and the program's nanoseconds."""
        ours, theirs = [], []
        for repeat in range(repeats):
            if repeat % 2:
                ours.append(self.harness_ns(variant))
                theirs.append(self.standalone_ns(loop))
            else:
                theirs.append(self.standalone_ns(loop))
                ours.append(self.harness_ns(variant))
        return ours, theirs


def verdict(good: bool, text: str) -> bool:
    """Print a line and hand on whether it was good."""
    print(f"{'PASS' if good else 'FAIL'}  {text}")
    return good


def main() -> int:
    """Run the comparisons; 0 if all are within their limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=31, help="paired runs of each operation")
    repeats = parser.parse_args().repeats
    good = True
    with tempfile.TemporaryDirectory() as scratch, Runner() as runner:
        pair = Pair(runner, compile_standalone(Path(scratch)))
        print(f"CPU {pair.cpu}, {'SCHED_FIFO' if pair.fifo else 'SCHED_OTHER'}, {repeats} pairs")
        for name in ("kept", "private"):
            ours, theirs = pair.compare(name, name, repeats)
            ratio = stats.paired_ratio(ours, theirs)
            good &= verdict(
                RATIO[0] <= ratio.median <= RATIO[1],
                f"{name}: harness/stand-alone {ratio.median:.4f} "
                f"[{ratio.low:.4f}, {ratio.high:.4f}], limits {RATIO[0]} to {RATIO[1]} "
                f"({stats.median(theirs):.3f} ns an operation)",
            )
        ours, theirs = pair.compare("empty", "bare", repeats)
        over = stats.median([a - b for a, b in zip(ours, theirs, strict=True)])
        good &= verdict(
            over <= EMPTY_NS,
            f"empty: {over:+.3f} ns over a bare loop of {stats.median(theirs):.3f} ns, "
            f"limit {EMPTY_NS} ns",
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
