# SPDX-License-Identifier: MIT
"""Mount propagation: what is allocated for nothing, and that both ways build the same tree."""

from __future__ import annotations

import re
import subprocess
from itertools import product
from pathlib import Path

import pytest
from ctools import execute, mutant, oracle, runner

from contended import stats
from contended.errors import UsageError
from contended.measure import measure, native
from contended.measure.results import Measurement
from contended.show import draw

SLUG = "mount-propagation"
SHAPES = {"recipe": 0, "shared-root": 1, "itself": 2, "outside": 3}


def once(
    binds: int, *, shape: str = "recipe", receivers: int = 0, variants: tuple[str, ...] = ()
) -> Measurement:
    """The recipe, once for each variant."""
    return measure(
        SLUG,
        variants=variants or None,
        params={"binds": binds, "shape": SHAPES[shape], "receivers": receivers},
        threads=[1],
        ops=1,
        slices=1,
        repeats=1,
        retry=False,
    )


def counts(got: Measurement, variant: str) -> dict[str, int]:
    assert not got.failures, got.failures
    return got.variants[variant].counts


@pytest.mark.parametrize("binds", [1, 2, 100, 700])
def test_waste_of_the_recipe(binds: int) -> None:
    """N(N-1)/2 copies for nothing before, none after, and the same mounts in the end."""
    got = once(binds)
    before, after = counts(got, "before"), counts(got, "after")
    assert before["wasted"] == binds * (binds - 1) // 2
    assert after["wasted"] == 0
    assert before["allocated"] - before["wasted"] == after["allocated"] == binds + 2
    # The cheap looks stay: the new mount and those before it, for each bind.
    assert before["visits"] == after["visits"] == binds * (binds + 1) // 2


def test_the_reports_two_million_is_two_thousand_binds() -> None:
    """4000 binds waste 7,998,000 copies; "about two million" is what 2000 waste."""
    assert counts(once(4000), "before")["wasted"] == 7_998_000
    half = counts(once(2000), "before")["wasted"]
    assert half == 1_999_000
    assert abs(half - 2_000_000) / 2_000_000 < 0.001


def test_growth_is_quadratic_in_copies_before_and_in_looks_after() -> None:
    sizes = [100, 200, 400, 800]
    runs = [once(n) for n in sizes]
    wasted = stats.loglog_slope(sizes, [counts(m, "before")["wasted"] for m in runs])
    looks = stats.loglog_slope(sizes, [counts(m, "after")["visits"] for m in runs])
    made = stats.loglog_slope(sizes, [counts(m, "after")["allocated"] for m in runs])
    assert wasted.estimate == pytest.approx(2, abs=0.03)
    assert looks.estimate == pytest.approx(2, abs=0.03)
    assert made.estimate == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    ("shape", "receivers"), list(product(["recipe", "shared-root", "itself"], [0, 1, 5]))
)
def test_waste_grows_with_those_who_listen(shape: str, receivers: int) -> None:
    """Each earlier bind left one mount in the graph for each place that it appeared in."""
    binds = 120
    got = once(binds, shape=shape, receivers=receivers)
    places = 1 + receivers + (shape == "shared-root")
    for variant in ("before", "after"):
        row = counts(got, variant)
        assert row["kept"] == (places - 1) * binds
        assert row["allocated"] - row["wasted"] == 2 + receivers + places * binds
    assert counts(got, "before")["wasted"] == places * binds * (binds - 1) // 2
    assert counts(got, "after")["wasted"] == 0


def test_a_file_from_outside_joins_no_group() -> None:
    """Control: the waste is due to the peer group growing, and not to the number of mounts."""
    got = once(500, shape="outside")
    for variant in ("before", "after"):
        assert counts(got, variant)["wasted"] == counts(got, variant)["visits"] == 0


def test_a_timed_run_needs_no_fixed_work() -> None:
    got = measure(SLUG, threads=[1], repeats=1, slice_ms=2, slices=2)
    assert counts(got, "before")["wasted"] == counts(got, "before")["ops"] * 256 * 255 // 2
    assert got.samples("before")[0].latency_ns["p50"] > 0


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"binds": 0}, "1 to 5000"),
        ({"binds": -1}, "1 to 5000"),
        ({"binds": 1_000_000}, "1 to 5000"),
        ({"shape": 4}, "0 to 3"),
        ({"receivers": 65}, "0 to 64"),
    ],
)
def test_out_of_range_is_refused_with_the_range(params: dict[str, int], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        measure(SLUG, params=params, threads=[1], ops=1)


def test_too_much_together_is_refused_with_the_range() -> None:
    got = once(5000, receivers=64)
    assert {f.variant for f in got.failures} == {"before", "after"}
    for failure in got.failures:
        found = re.search(r"binds must be 1 to (\d+) with these receivers", failure.reason)
        assert found, failure.reason
        most = int(found[1])
        assert 600 < most < 650
    assert not once(most, receivers=64, variants=("after",)).failures


def test_little_memory_is_refused_with_the_range(tmp_path: Path) -> None:
    binary = runner(tmp_path, native.source(SLUG), "-O1")
    limited = execute("prlimit", "--data=4000000", binary, "1", "1", "0", "binds=5000")
    assert limited.returncode == 1
    assert "with the memory that is free" in limited.stdout
    most = re.search(r"binds must be 1 to (\d+) with the memory", limited.stdout)
    assert most
    assert 1000 < int(most[1]) < 5000


@pytest.mark.parametrize("seed", ["1", "2"])
def test_both_ways_build_the_tree_of_the_naive_rules(seed: str, tmp_path: Path) -> None:
    run = execute(oracle(tmp_path, native.source(SLUG), "-O1"), "700", "80", seed)
    assert run.returncode == 0, run.stdout
    found = {key: int(n) for key, n in re.findall(r"(\w+)=(\d+)", run.stdout)}
    # It was worth comparing: there were copies, waste, and masters at several levels.
    assert found["topologies"] == 700
    assert found["kept"] > 5_000
    assert found["wasted"] > 2_000
    assert found["wasted_after"] == 0
    assert found["handed_on"] > 500
    assert found["slaves_of_slaves"] > 2_000


def test_the_comparison_is_clean_under_sanitizers(tmp_path: Path) -> None:
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    binary = oracle(tmp_path, native.source(SLUG), *flags)
    run = execute(binary, "100", "80", "7")
    assert run.returncode == 0, run.stdout + run.stderr
    assert not run.stderr


BROKEN = {
    # Slaves follow whatever was above the group, although a copy stays in it.
    "tail = queue_slaves(first, from, tail);": "tail = queue_slaves(first, first->from, tail);",
    # The second member of a slave group becomes a slave to the first one.
    "kin = PEER; /* the first is a slave, the others its peers */": "",
    # Copies where the mount point does not exist.
    "if (!m->live || !below(mountpoint, m->root))": "if (!m->live)",
    # The slaves of a copy that is torn down are handed to its master, past its peers.
    "heir = m->next_peer != m ? m->next_peer : m->master;": "heir = m->master;",
    # A slave that is shared itself gets a copy that is not.
    "*kin = m->group ? SHARED_SLAVE : SLAVE;": "*kin = SLAVE;",
}


@pytest.mark.parametrize("right", BROKEN, ids=["above", "kin", "place", "heir", "unshared"])
def test_the_comparison_catches_a_broken_model(right: str, tmp_path: Path) -> None:
    binary = oracle(tmp_path, mutant(tmp_path, SLUG, (right, BROKEN[right])), "-O1")
    try:
        run = execute(binary, "700", "80", "1", seconds=20)
    except subprocess.TimeoutExpired:
        return  # a walk that never ends is caught as well
    assert run.returncode != 0, run.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("list_add(copies, from);", "", "mounts are there, not"),
        ("		world->count[WASTED]++;\n", "", "lost"),
        ("tail = queue_slaves(first, from, tail);", "", "mounts are there, not"),
    ],
    ids=["leak", "uncounted", "no-slaves"],
)
def test_the_models_own_check_fails_a_wrong_model(
    right: str, wrong: str, says: str, tmp_path: Path
) -> None:
    binary = runner(tmp_path, mutant(tmp_path, SLUG, (right, wrong)), "-O1")
    run = execute(binary, "1", "1", "0", "binds=50", "receivers=2")
    assert run.returncode == 1, run.stdout
    assert re.search(says, run.stdout), run.stdout


def test_the_graph_draws_every_box_and_refuses_lost_edges() -> None:
    boxes = {"a": draw.Box(0, 0, "one", "old"), "b": draw.Box(1, 1, "two", "new")}
    figure = draw.graph("Links", boxes, [draw.Edge("a", "b", text="link")], alt="The point.")
    (axes,) = figure.figure.axes
    assert {"one", "two", "link"} <= {text.get_text() for text in axes.texts}
    assert len(axes.patches) == 3
    assert "The point" in figure.alt
    with pytest.raises(UsageError, match="no box 'c'; there are: a, b"):
        draw.graph("Links", boxes, [draw.Edge("a", "c")], alt="")
