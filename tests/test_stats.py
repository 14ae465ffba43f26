# SPDX-License-Identifier: MIT
"""The statistics against hand-worked cases and the laws that they must obey."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contended import stats
from contended.errors import UsageError

# the first example pays for importing SciPy

positive = st.floats(min_value=1e-6, max_value=1e9)
pairs = st.lists(st.tuples(positive, positive), min_size=1, max_size=12)


def test_median_by_hand() -> None:
    assert stats.median([5, 1, 3]) == 3
    assert stats.median([4, 1, 3, 2]) == 2.5
    assert isinstance(stats.median([2]), float)


def test_importing_stats_loads_neither_numpy_nor_scipy() -> None:
    code = (
        "import sys, contended.stats as s; s.median([1, 2]);"
        "sys.exit(any(m.partition('.')[0] in ('numpy', 'scipy') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_paired_ratio_by_hand() -> None:
    # ratios 2, 2 and 3: three resampled pairs can give no median but 2 or 3
    ratio = stats.paired_ratio([2, 4, 9], [1, 2, 3])
    assert (ratio.median, ratio.low, ratio.high) == (2, 2, 3)


def test_paired_ratio_of_many_pairs_leaves_out_the_ends() -> None:
    ratio = stats.paired_ratio(range(1, 101), [1] * 100)
    assert 30 < ratio.low < ratio.median < ratio.high < 65


def test_paired_ratio_pairs_rather_than_divides_medians() -> None:
    # the machine slowed down by ten for the second pair: the medians' quotient would see it
    assert stats.paired_ratio([20, 2, 20], [10, 1, 100]).median == 2


def test_one_pair_has_an_interval_without_width() -> None:
    assert stats.paired_ratio([3], [2]) == stats.Interval(1.5, 1.5, 1.5)


def test_a_top_of_zero_is_a_ratio_of_zero() -> None:
    assert stats.paired_ratio([0, 0], [1, 2]).median == 0


@given(pairs, st.integers(0, 9))
def test_interval_holds_the_median_and_is_repeatable(
    values: list[tuple[float, float]], seed: int
) -> None:
    top, base = [a for a, _ in values], [b for _, b in values]
    ratio = stats.paired_ratio(top, base, seed=seed)
    assert ratio.low <= ratio.median <= ratio.high
    each = [a / b for a, b in values]
    assert min(each) <= ratio.low
    assert ratio.high <= max(each)
    assert ratio == stats.paired_ratio(top, base, seed=seed)


@given(pairs, st.integers(-20, 20))
def test_paired_ratio_does_not_depend_on_the_unit(
    values: list[tuple[float, float]], power: int
) -> None:
    # powers of two scale without rounding, so the answers must be identical
    top, base = [a for a, _ in values], [b for _, b in values]
    scaled = stats.paired_ratio([a * 2.0**power for a in top], [b * 2.0**power for b in base])
    assert scaled == stats.paired_ratio(top, base)


def test_the_seed_alone_decides_the_interval() -> None:
    import numpy as np

    # enough distinct ratios that two resamplings practically never agree
    top = [float(v) for v in np.random.default_rng(1).uniform(1, 2, 200)]
    base = [1.0] * 200
    first, again = (stats.paired_ratio(top, base, seed=5) for _ in range(2))
    assert first == again
    others = {stats.paired_ratio(top, base, seed=seed).low for seed in range(8)}
    assert len(others) > 1


def test_bootstrap_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    import numpy as np

    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(100):
        noise = np.exp(rng.normal(0, 0.1, size=(2, 25)))
        ratio = stats.paired_ratio(list(3 * noise[0]), list(noise[1]))
        hits += ratio.low <= 3 <= ratio.high
    assert 88 <= hits <= 100


@given(
    st.floats(0.01, 100),
    st.floats(-3, 3),
    st.lists(st.integers(1, 10**6), min_size=3, max_size=10, unique=True),
)
def test_slope_of_an_exact_power_law(a: float, b: float, x: list[int]) -> None:
    slope = stats.loglog_slope(x, [a * n**b for n in x])
    assert slope.estimate == pytest.approx(b, abs=1e-6)
    assert slope.low <= slope.estimate <= slope.high
    assert slope.high - slope.low < 1e-4


def test_slope_interval_by_hand() -> None:
    # log-log points (0, 0), (1, 1), (2, 3): slope 1.5, standard error sqrt(1/12), and Student's
    # 97.5% quantile on one degree of freedom is tan(0.475 pi)
    slope = stats.loglog_slope([1, math.e, math.e**2], [1, math.e, math.e**3])
    half = math.tan(0.475 * math.pi) * math.sqrt(1 / 12)
    assert slope.estimate == pytest.approx(1.5)
    assert (slope.low, slope.high) == pytest.approx((1.5 - half, 1.5 + half))


COUNTS = [1, 2, 4, 8, 16, 32]


@settings(max_examples=50)
@given(st.floats(1, 1e8), st.floats(0, 0.9), st.floats(1e-5, 0.5))
def test_usl_recovers_what_made_the_curve(lam: float, sigma: float, kappa: float) -> None:
    truth = stats.Usl(lam, sigma, kappa, 0)
    fit = stats.usl_fit(COUNTS, [truth.predict(n) for n in COUNTS])
    assert fit.lambda_ == pytest.approx(lam, rel=1e-4)
    assert fit.sigma == pytest.approx(sigma, rel=1e-3, abs=1e-4)
    assert fit.kappa == pytest.approx(kappa, rel=1e-3, abs=1e-6)
    assert fit.r2 == pytest.approx(1, abs=1e-6)


def test_usl_by_hand() -> None:
    usl = stats.Usl(100, 0.1, 0.01, 0)
    assert usl.predict(1) == 100
    assert usl.predict(2) == pytest.approx(200 / 1.12)
    assert usl.peak == pytest.approx(math.sqrt(90))
    assert usl.predict(usl.peak) >= max(usl.predict(usl.peak - 0.1), usl.predict(usl.peak + 0.1))


def test_linear_scaling_has_no_peak() -> None:
    fit = stats.usl_fit(COUNTS, [5.0 * n for n in COUNTS])
    assert (fit.sigma, fit.kappa) == (0, 0)
    assert fit.peak == math.inf


def test_throughput_that_collapses_at_once_peaks_at_one_thread() -> None:
    fit = stats.usl_fit([1, 2, 4], [5, 2, 0.1])
    assert fit.peak == 1
    assert fit.predict(1) == pytest.approx(5, rel=0.05)


def test_usl_errors_say_how_sure_the_fit_is() -> None:
    truth = stats.Usl(1000, 0.05, 0.001, 0)
    wobble = [1.02, 0.98, 1.01, 0.99, 1.02, 0.98]
    fit = stats.usl_fit(COUNTS, [truth.predict(n) * w for n, w in zip(COUNTS, wobble, strict=True)])
    assert 0 < fit.errors[1] < 0.1
    assert abs(fit.sigma - truth.sigma) < 4 * fit.errors[1]
    assert abs(fit.lambda_ - truth.lambda_) < 4 * fit.errors[0] < 400
    assert 0.9 < fit.r2 < 1
    # three coefficients from three points leave nothing to judge them by
    three = stats.usl_fit([1, 2, 4], [1, 1.8, 3])
    assert three.errors == (math.inf,) * 3
    assert three.r2 > 0.9


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: stats.median([]), "values is empty"),
        (lambda: stats.median([1, math.nan]), "values holds nan"),
        (lambda: stats.median([math.inf]), "values holds inf"),
        (lambda: stats.paired_ratio([1], [1, 2]), "top has 1 numbers and base has 2"),
        (lambda: stats.paired_ratio([], []), "top is empty"),
        (lambda: stats.paired_ratio([1], [0]), "base must be above zero"),
        (lambda: stats.paired_ratio([-1], [1]), "top must not be negative"),
        (lambda: stats.paired_ratio([math.nan], [1]), "top holds nan"),
        (lambda: stats.paired_ratio([1e300], [1e-300]), "overflows"),
        (lambda: stats.loglog_slope([1, 2], [1, 2]), "needs 3 points, got 2"),
        (lambda: stats.loglog_slope([2, 2, 2], [1, 2, 3]), "two different sizes"),
        (lambda: stats.loglog_slope([0, 1, 2], [1, 2, 3]), "x must be above zero"),
        (lambda: stats.loglog_slope([1, 2, 3], [1, -2, 3]), "y must be above zero"),
        (lambda: stats.loglog_slope([1, 2, 3], [1, 2]), "x has 3 numbers and y has 2"),
        (lambda: stats.usl_fit([1, 2], [1, 2]), "there are 2 thread counts"),
        (lambda: stats.usl_fit([1, 1, 2, 2], [1, 1, 2, 2]), "there are 2 thread counts"),
        (lambda: stats.usl_fit([0, 1, 2], [1, 1, 2]), "start at 1, got 0"),
        (lambda: stats.usl_fit([1, 2, 3], [1, 0, 2]), "throughput must be above zero"),
        (lambda: stats.usl_fit([1, 2, 3], [1, math.nan, 2]), "throughput holds nan"),
        (lambda: stats.usl_fit([], []), "threads is empty"),
    ],
)
def test_bad_input_is_refused_in_one_line(call: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError) as error:
        call()
    assert says in str(error.value)
    assert "\n" not in str(error.value)
