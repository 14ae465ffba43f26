# SPDX-License-Identifier: MIT
"""What perf samples, in words that were made up in its form: no machine here has the counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from contended.measure import sampling
from contended.measure.sampling import NotSampled, Taken, parsed, taken

# As perf 6.1 prints the fields addr, data_src, ip and sym; the one before the last is cut off.
SAMPLES = """\
ffff888100a0b058      1e05080144 |OP LOAD|LVL L3 or L3 hit|SNP HitM|TLB L1 or L2 hit|LCK No|BLK  N/A  ffffffff815ab1d1 lockref_get_not_dead
ffff888100a0c098      1e05080144 |OP LOAD|LVL L3 or L3 hit|SNP HitM|TLB L1 or L2 hit|LCK No|BLK  N/A  ffffffff815ab1d1 lockref_get_not_dead
ffff888100a0b020      1e05080144 |OP LOAD|LVL Remote Any cache hit|SNP Hit or HitM|TLB L1 or L2 hit|LCK  ffffffff811ab1d1 __d_lookup_rcu.isra.0
ffff888100a0b020      1e05080021 |OP LOAD|LVL L1 or L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A   ffffffff811ab1d1 __d_lookup_rcu
ffff888100a0b018        5080184 |OP STORE|LVL L1 or L1 hit|SNP HitM|TLB L1 or L2 hit|LCK No|BLK  N/A   ffffffff815ab1d1 lockref_get
    7f12a0b0c0d8      1e05080144 |OP LOAD|LVL L3 or L3 hit|SNP HitM|TLB L1 or L2 hit|LCK Yes|BLK  N/A      55d0c0ffee00 [unknown]
ffff888100a0b018
"""  # noqa: E501
FOUND = [
    Taken("lockref_get_not_dead", 24, 2),
    Taken("__d_lookup_rcu", 32, 1),
    Taken("[unknown]", 24, 1),
]
PERF = """\
#!/bin/sh
case "$1" in
c2c) {record} ;;
script) {script} ;;
esac
"""


@pytest.fixture
def perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A perf of this name only; it is found first."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "samples").write_text(SAMPLES)
    return tmp_path / "perf"


def make(file: Path, record: str, script: str) -> None:
    file.write_text(PERF.format(record=record, script=script))
    file.chmod(0o755)


def test_loads_that_find_a_line_modified_are_counted_by_place() -> None:
    """Not stores, nor loads that found it elsewhere or in their own cache."""
    assert parsed(SAMPLES) == FOUND
    assert parsed("") == []


def test_samples_are_of_what_ran_meanwhile(perf: Path) -> None:
    """It has begun when the load begins, and has ended when it is read."""
    begun, data = perf.parent / "begun", "perf.data"
    record = f'touch {begun}; shift 4; echo "$@" >>/dev/stderr; "$@" >&1; touch {data}'
    make(perf, record, f'[ -e {data} ] && cat "{perf.parent}/samples"')
    seen: list[bool] = []
    assert taken(lambda: seen.append(begun.exists())) == FOUND
    assert seen == [True]


@pytest.mark.parametrize(
    ("record", "script", "says"),
    [
        ("echo no memory events >&2; exit 1", "", "perf c2c record says: no memory events"),
        ("exit 1", "", "perf c2c record says: nothing"),
        ('shift 4; "$@"', "echo no data_src >&2; exit 2", "perf script says: no data_src"),
        ('shift 4; "$@"', "sleep 9", "perf script does not end within 0 s"),
    ],
)
def test_why_nothing_is_sampled(
    perf: Path, record: str, script: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(perf, record, script)
    if "does not end" in says:
        monkeypatch.setattr(sampling, "LATE_S", 0.3)
    with pytest.raises(NotSampled, match=says) as why:
        taken(lambda: None)
    assert "\n" not in str(why.value)


def test_perf_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NotSampled, match="apt-get install linux-perf"):
        taken(lambda: pytest.fail("it was run"))


def test_what_ends_the_load_ends_perf(perf: Path) -> None:
    make(perf, 'shift 4; "$@"', "")

    def load() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        taken(load)
