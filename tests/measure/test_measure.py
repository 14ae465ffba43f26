# SPDX-License-Identifier: MIT
"""Measuring: order, pairing, counts and refusals; directions where they are sure, never times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import CPUS, MODELS, raced, two_cpus

from contended import cc, machine
from contended.errors import ContendedError, UsageError
from contended.measure import TooFewCpus, measure, models
from contended.measure import measurement as measuring
from contended.measure.measurement import pingpong
from contended.measure.results import Measurement
from contended.measure.runner import Config, Runner, RunResult

# Short slices: what is tested here does not get truer with time.
QUICK: dict[str, Any] = {"slices": 3, "slice_ms": 1.0, "warmup_ms": 1.0, "repeats": 2}


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTENDED_CACHE", str(tmp_path_factory.mktemp("measure")))
        yield


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Config]]:
    """What was run, in order: the library's name and the configuration."""
    log: list[tuple[str, Config]] = []
    real = Runner.run

    def run(self: Runner, library: Path, config: Config, *, deadline_s: float) -> RunResult:
        log.append((library.stem, config))
        return real(self, library, config, deadline_s=deadline_s)

    monkeypatch.setattr(Runner, "run", run)
    # One attempt each, so that a busy machine does not change the order.
    monkeypatch.setattr(measuring, "ATTEMPTS", 1)
    return log


def places(*variants: str) -> list[int]:
    """Where the variants stand in the table of measuring.c."""
    about = models.describe("measuring")
    return [about.variant_index(name) for name in variants]


# --- order, pairing ------------------------------------------------------------------------------


def test_variants_take_turns_there_and_back(ran: list[tuple[str, Config]]) -> None:
    measured = measure(
        "measuring", variants=["kept", "empty", "private"], threads=[1], **{**QUICK, "repeats": 3}
    )
    kept, empty, private = places("kept", "empty", "private")
    there, back = [kept, empty, private], [private, empty, kept]
    assert [config.variant for _, config in ran] == [*there, *back, *there]
    assert list(measured.variants) == ["kept", "empty", "private"]
    assert list(measured.ratio) == ["empty/kept", "private/kept"]
    for name in measured.variants:
        assert [s.repeat for s in measured.samples(name)] == [0, 1, 2]
    assert measured.ratio_at("empty", threads=1).pairs == 3


def test_blocked_order_is_one_variant_after_the_other(ran: list[tuple[str, Config]]) -> None:
    measure("measuring", variants=["kept", "empty"], threads=[1], order="blocked", **QUICK)
    kept, empty = places("kept", "empty")
    assert [config.variant for _, config in ran] == [kept, kept, empty, empty]


@two_cpus
def test_ping_pong_stands_beside_each_run_of_two_threads(ran: list[tuple[str, Config]]) -> None:
    measured = measure("measuring", variants=["kept", "empty"], threads=[2, 1], **QUICK)
    # Threads ascending whatever was asked; ping-pong only where there is another CPU.
    once = ["measuring", "measuring", "pingpong", "measuring", "pingpong", "measuring"]
    assert [name for name, _ in ran] == once * 2
    assert all(config.cpus == CPUS[:2] for name, config in ran if name == "pingpong")
    for sample in measured.samples("kept"):
        assert (sample.pingpong_ns is not None) == (sample.threads == 2)
        assert sample.pingpong_ns is None or sample.pingpong_ns > 0


def test_what_is_asked_for_reaches_the_harness(ran: list[tuple[str, Config]]) -> None:
    measured = measure(
        "lockref-degrade",
        variants=["after"],
        threads=[1],
        params={"spin": 3, "hold": 7},
        think_ns=40,
        slices=2,
        slice_ms=1.5,
        warmup_ms=0.5,
        repeats=1,
        sched="other",
        cpus=CPUS[-1:],
    )
    ((_, config),) = ran
    assert config == Config(
        variant=1,
        threads=1,
        cpus=CPUS[-1:],
        params=[2, 7, 2000, 3],
        slices=2,
        sched=2,
        pin=True,
        think_ns=40,
        warmup_ns=500_000,
        slice_ns=1_500_000,
        ops=0,
    )
    assert measured.params == {"lock": 2, "hold": 7, "every": 2000, "spin": 3, "think_ns": 40}
    assert measured.provenance.scheduler == "SCHED_OTHER (as asked)"


def test_a_disturbed_run_is_taken_again_and_the_calmest_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = iter([900_000_000, 500_000_000, 700_000_000])
    taken = []
    real = Runner.run

    def run(self: Runner, library: Path, config: Config, *, deadline_s: float) -> RunResult:
        from dataclasses import replace

        got = replace(real(self, library, config, deadline_s=deadline_s), runq_wait_ns=next(waits))
        taken.append(got)
        return got

    monkeypatch.setattr(Runner, "run", run)
    measured = measure("measuring", variants=["kept"], threads=[1], **{**QUICK, "repeats": 1})
    assert len(taken) == 3
    (sample,) = measured.samples("kept")
    assert sample.runq_wait_ns == 500_000_000
    assert sample.value == taken[1].phases[0].rate_median


def test_progress_counts_runs_up_to_all_of_them() -> None:
    calls: list[tuple[int, int]] = []
    measure(
        "measuring",
        variants=["kept", "empty"],
        threads=[1],
        progress=lambda done, planned: calls.append((done, planned)),
        **QUICK,
    )
    assert calls == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"repeats": 0}, "repeats is 0: choose 1 to 1000"),
        ({"slices": 65}, "slices is 65: choose 1 to 64"),
        ({"slice_ms": 0}, r"slice_ms is 0: choose 0\.1 to 10000"),
        ({"warmup_ms": -1}, "warmup_ms is -1"),
        ({"think_ns": -1}, "think is -1"),
        ({"ops": -1}, "ops is -1"),
        ({"threads": [0]}, "runs with 1 or more threads, not 0"),
        ({"variants": ["fast"]}, "no variant 'fast'; it has: empty, folded, kept"),
        ({"params": {"n": 1}}, "no parameter 'n'; it has: none"),
    ],
)
def test_wrong_values_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        measure("measuring", **{"threads": [1], **QUICK, **changes})


def test_more_threads_than_cpus_are_refused() -> None:
    with pytest.raises(TooFewCpus, match=f"{len(CPUS) + 1} threads need {len(CPUS) + 1} CPUs"):
        measure("measuring", threads=[1, len(CPUS) + 1], **QUICK)
    with pytest.raises(TooFewCpus, match="2 threads need 2 CPUs"):
        measure("measuring", threads=[2], cpus=CPUS[:1], **QUICK)


def test_one_cpu_is_too_few_unless_one_thread_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "allowed_cpus", lambda: CPUS[-1:])
    with pytest.raises(TooFewCpus, match=f"only CPU {CPUS[-1]}"):
        measure("measuring", **QUICK)
    with pytest.raises(TooFewCpus, match="between two CPUs"):
        pingpong()
    measured = measure("measuring", variants=["kept"], threads=[1], **QUICK)
    assert measured.count("kept", "ops") > 0


@pytest.mark.parametrize(
    ("have", "expected"),
    [(2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])],
)
def test_the_usual_thread_counts(have: int, expected: list[int]) -> None:
    about = models.describe("measuring")
    assert measuring._thread_counts(about, None, range(have)) == expected
    two_only = models.describe("pingpong")
    assert measuring._thread_counts(two_only, None, range(have)) == [2]


def test_all_in_one_variant_fails_and_the_rest_is_measured() -> None:
    measured = measure(
        MODELS / "hostile.c", variants=["good", "miscount", "segfault"], threads=[1], **QUICK
    )
    assert [f.variant for f in measured.failures] == ["miscount", "segfault"]
    assert [f.repeat for f in measured.failures] == [0, 0]
    assert len(measured.values("good")) == 2
    assert measured.ratio == {"miscount/good": [], "segfault/good": []}


def test_a_model_that_spins_for_ever_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "GRACE_S", 0.3)
    measured = measure(MODELS / "hostile.c", variants=["spin"], threads=[1], sched="other", **QUICK)
    (failure,) = measured.failures
    assert "did not finish" in failure.reason


def test_sched_fifo_that_is_refused_is_an_error_and_no_failed_variant() -> None:
    with pytest.raises(ContendedError, match=r"SCHED_FIFO: .*; use --sched auto or other"):
        measure("measuring", threads=[1], sched="fifo", pin=False, **QUICK)


# --- counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", [0, 1, 2])
@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=two_cpus)])
def test_lockref_counts_add_up(lock: int, threads: int) -> None:
    measured = measure(
        "lockref-degrade",
        threads=[threads],
        params={"lock": lock, "every": 100, "hold": 500, "spin": 50},
        **QUICK,
    )
    assert not measured.failures
    assert measured.phases == ["calm", "perturbed", "after"]
    for name in "before", "after":
        for sample in measured.samples(name):
            counts = sample.counts
            assert 0 <= sample.start_skew_ns < 1e9
            assert 0 <= sample.stop_skew_ns < 1e9
            assert counts["fast"] + counts["slow"] == 2 * counts["ops"]
            assert (counts["stranger"] > 0) == (sample.phase == "perturbed")
            assert counts["cpu_changes"] == 0
            if name == "before":
                assert counts["waited"] == 0
            if threads == 1:
                assert counts["slow"] == counts["retried"] == counts["waited"] == 0
            if sample.phase == "perturbed":
                # Each thread comes once in 100 of its own operations.
                strangers = counts["ops"] / 100
                assert abs(counts["stranger"] - strangers) <= threads


@raced
@two_cpus
def test_waiting_for_the_lock_keeps_threads_off_the_slow_path() -> None:
    measured = measure(
        "lockref-degrade",
        threads=[2],
        # A holder that a busy machine keeps off its CPU is waited for as well.
        params={"every": 50, "hold": 2000, "spin": 1_000_000_000},
        slices=3,
        slice_ms=3.0,
        warmup_ms=1.0,
        repeats=3,
    )
    ways = ["fast", "slow"]
    before = measured.share("before", "slow", ways, phase="perturbed")
    after = measured.share("after", "slow", ways, phase="perturbed")
    assert before > after
    assert after < 0.01
    assert measured.count("after", "waited", phase="perturbed") > 0


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=two_cpus)])
def test_fixed_work_is_exact(threads: int) -> None:
    measured = measure("lockref-degrade", threads=[threads], ops=321, **QUICK)
    for name in "before", "after":
        for sample in measured.samples(name):
            assert sample.counts["ops"] == threads * 3 * 321


def test_think_time_costs_time() -> None:
    """A thousandfold of the operation is beyond any noise."""
    rates = []
    for think in (0, 200, 20_000):
        measured = measure("measuring", variants=["kept"], threads=[1], think_ns=think, **QUICK)
        rates.append(max(measured.values("kept")))
    assert rates[0] > 2 * rates[1] > 20 * rates[2]


def test_work_that_the_compiler_removes_looks_fast() -> None:
    measured = measure("measuring", variants=["kept", "folded", "empty"], threads=[1], **QUICK)
    assert measured.ratio_at("folded", threads=1).median > 2


# --- ping-pong -----------------------------------------------------------------------------------


@two_cpus
@pytest.mark.parametrize("variant", ["store", "swap"])
def test_pingpong(variant: Any) -> None:
    calls: list[tuple[int, int]] = []
    measured = pingpong(
        variant=variant, repeats=2, progress=lambda done, planned: calls.append((done, planned))
    )
    pairs = [f"{a}-{b}" for i, a in enumerate(CPUS) for b in CPUS[i + 1 :]]
    assert list(measured.variants) == pairs
    assert (measured.metric, measured.unit, measured.ratio) == ("handover_ns", "ns", {})
    for pair in pairs:
        assert [s.repeat for s in measured.samples(pair)] == [0, 1]
        for sample in measured.samples(pair):
            assert 0 < sample.low <= sample.value <= sample.high
            assert sample.counts["ops"] == 2 * 5 * measuring.PINGPONG_TURNS
    assert calls[0] == (0, 2 * len(pairs))


@two_cpus
def test_pingpong_of_chosen_cpus_either_way_round() -> None:
    there = pingpong([CPUS[0], CPUS[1]], repeats=1)
    back = pingpong([CPUS[1], CPUS[0]], repeats=1)
    assert list(there.variants) == [f"{CPUS[0]}-{CPUS[1]}"]
    assert list(back.variants) == [f"{CPUS[1]}-{CPUS[0]}"]


@two_cpus
def test_the_line_begins_on_the_first_cpu() -> None:
    """Whatever CPU the process happens to be on, which is the right one now and then."""
    for pair in (CPUS[:2], CPUS[1::-1]):
        run = pingpong(pair, repeats=8)
        assert {s.first_touch for v in run.variants.values() for s in v.samples} == {pair[0]}


@two_cpus
def test_pingpong_without_fixed_work_says_what_to_do() -> None:
    measured = measure("pingpong", **QUICK)
    assert {f.reason for f in measured.failures} == {"pingpong needs fixed work: set ops"}


# --- provenance ----------------------------------------------------------------------------------


def test_provenance_is_of_this_machine(tmp_path: Path) -> None:
    import platform

    from contended.measure import results

    measured = measure("measuring", variants=["kept"], threads=[1], **QUICK)
    where = measured.provenance
    assert where.cpus_allowed == CPUS
    assert where.kernel == platform.release()
    assert where.compiler == cc.compiler().version
    assert where.seconds > 0
    assert where.scheduler.startswith(("SCHED_FIFO", "SCHED_OTHER"))
    measured.save(tmp_path / "run.json")
    back: Measurement = results.load(tmp_path / "run.json")
    assert back.provenance == where
    assert not measured.recorded


def test_the_metric_chooses_what_a_value_is() -> None:
    quick = {"threads": [1], "repeats": 2, "slices": 1, "slice_ms": 1.0, "variants": ["before"]}
    for metric, unit in (("ns_per_op", "ns/operation"), ("fast_per_op", "fast/operation")):
        run = measure("lockref-degrade", metric=metric, **quick)  # type: ignore[arg-type]
        assert (run.metric, run.unit) == (metric, unit)
        for sample in run.samples("before", phase="calm"):
            if metric == "fast_per_op":
                assert sample.value == sample.counts["fast"] / sample.counts["ops"] == 2
            else:
                assert sample.low <= sample.value <= sample.high


def test_an_unknown_metric_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"ops_per_s, ns_per_op, latency_us, fast_per_op"):
        measure("lockref-degrade", metric="furlongs")


def test_a_model_that_times_nothing_has_no_latency() -> None:
    with pytest.raises(UsageError, match="times nothing"):
        measure("lockref-degrade", metric="latency_us", threads=[1], repeats=1)
