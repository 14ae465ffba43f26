# SPDX-License-Identifier: MIT
"""Which loads find a line that another CPU has modified, asked of the processor itself.

As root, where there are hardware counters: `perf c2c record` samples all CPUs while something runs,
and `perf script` prints the samples, whose words are those of tools/perf/util/mem-events.c.
"""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contended import child
from contended.errors import ContendedError

LINE = 64  # bytes of a cache line
LATE_S = 20.0
# The address, what the access found, and whose it was, without what a compiler adds to a name.
_SAMPLE = re.compile(
    r"^ *([0-9a-f]+) .*\|OP LOAD\|.*\|SNP ([^|]*)\|.* [0-9a-f]+ (\[?\w+\]?)\S* *$", re.M
)


class NotSampled(ContendedError):
    """Perf cannot sample here."""


@dataclass(frozen=True, slots=True)
class Taken:
    """How many sampled loads of a function, at a byte of a line, found it modified elsewhere."""

    symbol: str
    offset: int
    hitm: int


def taken(load: Callable[[], object]) -> list[Taken]:
    """What was sampled while `load` ran, the most first; NotSampled says in a line why nothing."""
    if not shutil.which("perf"):
        raise NotSampled("perf is not installed: apt-get install linux-perf")
    with child.scratch() as work:
        _record(load, work)
        try:
            said = subprocess.run(
                ["perf", "script", "-F", "addr,data_src,ip,sym"],
                cwd=work,
                capture_output=True,
                text=True,
                timeout=LATE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotSampled(f"perf script does not end within {LATE_S:.0f} s") from None
    if said.returncode:
        raise NotSampled(f"perf script says: {_last(said.stderr)}")
    return parsed(said.stdout)


def parsed(samples: str) -> list[Taken]:
    """The same of what `perf script` has printed."""
    found = Counter(
        (symbol, int(address, 16) % LINE)
        for address, snoop, symbol in _SAMPLE.findall(samples)
        if "HitM" in snoop
    )
    return [Taken(*place, n) for place, n in found.most_common()]


def _record(load: Callable[[], object], work: Path) -> None:
    """Sample into perf.data; what perf runs says when it has begun, and ends with its input."""
    command = ["perf", "c2c", "record", "-a", "--", "sh", "-c", "echo; exec cat"]
    said = work / "said"
    with (
        said.open("w") as errors,
        subprocess.Popen(
            command, cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as perf,
    ):
        assert perf.stdout
        if perf.stdout.readline():
            load()
    if perf.returncode:
        raise NotSampled(f"perf c2c record says: {_last(said.read_text(errors='replace'))}")


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["nothing"])[-1]
