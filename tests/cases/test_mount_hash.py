# SPDX-License-Identifier: MIT
"""The mount table of mount-hash: steps along chains, by counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from ctools import execute, mutant, oracle, runner
from support import counted

from contended import stats
from contended.errors import UsageError
from contended.measure import measure, native
from contended.measure.results import Measurement

SLUG = "mount-hash"
SIZES = (1000, 3000, 10_000, 30_000, 100_000)
CHAINS = {"before": 256, "after": 131_072}  # with the model's 64 GB


def lookups(model: str | Path = SLUG, /, *, ops: int = 3000, **params: int) -> Measurement:
    """A fixed number of lookups: the same steps on every machine."""
    return counted(model, params, ops=ops)


def steps(m: Measurement, variant: str) -> float:
    """Mounts looked at, per lookup."""
    return m.count(variant, "steps") / m.count(variant, "ops")


@pytest.fixture(scope="module")
def by_size() -> dict[int, Measurement]:
    return {n: lookups(mounts=n) for n in SIZES}


def test_steps_grow_with_the_mounts_before_and_stay_flat_after(
    by_size: dict[int, Measurement],
) -> None:
    before = [steps(m, "before") for m in by_size.values()]
    after = [steps(m, "after") for m in by_size.values()]
    # one step is the mount that is found; the others are what is in the way
    assert stats.loglog_slope(SIZES, [s - 1 for s in before]).estimate == pytest.approx(1, abs=0.1)
    assert max(after) < 1.5 * min(after)
    assert before[-1] > 100 * after[-1]


@pytest.mark.parametrize("variant", CHAINS)
@pytest.mark.parametrize("n", SIZES)
def test_a_hit_walks_half_of_a_mean_chain(
    by_size: dict[int, Measurement], variant: str, n: int
) -> None:
    expected = 1 + (n - 1) / (2 * CHAINS[variant])
    assert steps(by_size[n], variant) == pytest.approx(expected, rel=0.1)


def test_a_miss_walks_all_of_a_chain() -> None:
    m = lookups(mounts=30_000, misses=100)
    assert m.count("before", "missed") == m.count("before", "ops")
    assert steps(m, "before") == pytest.approx(30_000 / 256, rel=0.1)


def test_a_poor_hash_wastes_a_large_table(by_size: dict[int, Measurement]) -> None:
    """Mean chains at least 32 times as long as the table's size would allow."""
    for n in (30_000, 100_000):
        in_the_way = steps(by_size[n], "poor-hash") - 1
        assert in_the_way > 32 * (n - 1) / (2 * CHAINS["after"])
        assert in_the_way > 32 * (steps(by_size[n], "after") - 1)


def test_the_boot_parameter_brings_the_old_table_back() -> None:
    m = lookups(mounts=10_000, mhash_entries=256)
    assert m.count("after", "steps") == m.count("before", "steps")
    assert steps(m, "poor-hash") > 100


def test_a_small_machine_has_a_small_table() -> None:
    """The fix moves the knee: 4096 chains for 2 GB are full at some thousand mounts."""
    m = lookups(mounts=100_000, memory=2048)
    assert steps(m, "after") == pytest.approx(1 + 100_000 / (2 * 4096), rel=0.1)


@pytest.mark.parametrize("params", [{"mounts": 1}, {"mounts": 5000, "parents": 50, "misses": 30}])
def test_every_lookup_is_a_hit_or_a_miss_and_in_one_bin(params: dict[str, int]) -> None:
    m = lookups(**params)
    for variant, result in m.variants.items():
        ops = m.count(variant, "ops")
        bins = [n for name, n in result.counts.items() if name.startswith("upto_")]
        assert sum(bins) + m.count(variant, "over") == ops
        assert m.count(variant, "hits") + m.count(variant, "missed") == ops
        share = m.count(variant, "missed") / ops
        assert share == pytest.approx(params.get("misses", 0) / 100, abs=0.05)


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        ({"mounts": 0}, "1 to 1000000 mounts"),
        ({"mounts": 1_000_001}, "1 to 1000000 mounts"),
        ({"memory": 63}, "64 to 16777216 MB"),
        ({"misses": 101}, "0 to 100 %"),
        ({"parents": 0}, "1 to 1000 mounts"),
        ({"mhash_entries": -1}, "0 to 16777216 chains"),
    ],
)
def test_out_of_range_is_refused_with_the_range(params: dict[str, int], allowed: str) -> None:
    with pytest.raises(UsageError, match=allowed):
        measure(SLUG, params=params)


def test_too_many_mounts_for_the_memory_are_refused_before_they_are_made(tmp_path: Path) -> None:
    binary = runner(tmp_path, native.source(SLUG))
    limited = ("prlimit", f"--as={256 << 20}", binary, "1", "10", "0")
    run = execute(*limited, "mounts=1000000")
    assert run.returncode == 1
    assert run.stdout.count("mounts must be 1 to 204600 here: a quarter of 256 MB") == 3
    assert execute(*limited, "mounts=204600").returncode == 0


def test_the_table_agrees_with_a_plain_list(tmp_path: Path) -> None:
    run = execute(oracle(tmp_path, native.source(SLUG), "-O1"), "500", "20140304")
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize(
    ("megabytes", "entries", "chains"),
    [
        (2048, 0, 4096),  # what the discussion of the patch works out
        (2049, 0, 8192),  # the next power of two
        (64, 0, 512),  # no smaller than a page
        (24_105, 0, 65_536),  # what Linux 6.18 says when it boots with so much
        (2048, 256, 256),
        (2048, 300, 512),
        (64, 1 << 24, 524_288),  # no more than a sixteenth of memory
    ],
)
def test_the_size_follows_memory(tmp_path: Path, megabytes: int, entries: int, chains: int) -> None:
    binary = oracle(tmp_path, native.source(SLUG), "-O1")
    run = execute(binary, "size", str(megabytes), str(entries))
    assert run.stdout == f"{chains}\n"


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("if (m->parent == parent && m->mountpoint == dentry)", "if (m->mountpoint == dentry)"),
        ("m->next->pprev = m->pprev;", "m->next->pprev = NULL;"),
        ("*m->pprev = m->next;", "*m->pprev = NULL;"),
        ("frame ^= frame >> 12;", "frame &= ~1ull;"),
    ],
)
def test_the_oracle_catches_a_broken_table(tmp_path: Path, good: str, bad: str) -> None:
    run = execute(oracle(tmp_path, mutant(tmp_path, SLUG, (good, bad)), "-O1"), "500", "20140304")
    assert run.returncode != 0


def test_a_lost_mount_fails_the_run(tmp_path: Path) -> None:
    model = mutant(tmp_path, SLUG, ("\tm->next = *head;\n", "\tm->next = NULL;\n"))
    m = measure(model, threads=[1], repeats=1, slices=1, ops=100, sched="other")
    assert {f.variant for f in m.failures} == {"before", "after", "poor-hash"}
    assert "another mount than the one there" in m.failures[0].reason


def test_counts_tell_a_table_that_did_not_grow(tmp_path: Path) -> None:
    """What the tests above would see if "after" had 256 chains too."""
    model = mutant(tmp_path, SLUG, ("return (uint32_t)entries;", "return OLD_CHAINS;"))
    m = lookups(model, mounts=30_000, ops=500)
    assert steps(m, "after") == steps(m, "before")
