# SPDX-License-Identifier: MIT
"""The few statistics that the book uses, each with its spread beside it.

Repeats of a benchmark are few, skewed and sometimes bimodal, so everything here rests on medians,
and two variants are compared by the ratio of runs made back to back, never of two averages.

`median` and `paired_ratio` give the same digits everywhere. The fits, `loglog_slope` and `usl_fit`,
take logarithms and sums from libraries that round by the processor's vectors: their last digits may
differ, so they are shown rounded, and never compared for equality.
"""

import math
import statistics
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from contended.errors import ContendedError, UsageError

RESAMPLES = 10_000
_TAIL = (1 - 0.95) / 2  # outside of an interval, on each side

# A fitted coefficient below this is reported as zero: the optimiser stays strictly inside its
# bounds, and a coefficient of 1e-9 bends the curve only beyond 30,000 threads.
_NEGLIGIBLE = 1e-9


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the interval that holds it, with a nominal coverage of 95%."""

    estimate: float
    low: float
    high: float

    @property
    def median(self) -> float:
        """The estimate, by the name that fits where it is a median (`paired_ratio`)."""
        return self.estimate


@dataclass(frozen=True, slots=True)
class Usl:
    """A fit of Gunther's Universal Scalability Law (see `usl_fit`).

    `lambda_` is one thread's throughput, in the unit that was fitted; `sigma` (contention, 0 to 1)
    the part of the work that queues; `kappa` (coherency, at least 0) the cost of each pair of
    threads keeping each other informed; `r2` the part of the throughput's variance that the curve
    explains, at most 1; `errors` the standard errors of the three, infinite if only three points
    were fitted. They are local: at a bound they mean little.
    """

    lambda_: float
    sigma: float
    kappa: float
    r2: float
    errors: tuple[float, float, float] = (math.inf,) * 3

    def predict(self, n: float) -> float:
        """Throughput at `n` threads, in the unit of the throughput that was fitted."""
        return float(_law(n, self.lambda_, self.sigma, self.kappa))

    @property
    def peak(self) -> float:
        """The thread count of the highest throughput, at least 1; infinite without coherency."""
        if self.kappa == 0:
            return math.inf
        return max(1.0, math.sqrt((1 - self.sigma) / self.kappa))


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones, in the unit of the values."""
    _check(values=values)
    return float(statistics.median(values))


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The 5th and the 95th percentile, between the two nearest of the values, in their unit."""
    _check(values=values)
    ordered = sorted(values)

    def at(part: float) -> float:
        place = part * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return float(ordered[below] + (place - below) * (ordered[above] - ordered[below]))

    return at(0.05), at(0.95)


def paired_ratio(top: Sequence[float], base: Sequence[float], *, seed: int = 0) -> Interval:
    """The median of `top[i] / base[i]`, without unit, with a percentile bootstrap interval.

    Pairing removes what both runs of a pair shared: a slow minute of the machine moves both and
    leaves their ratio alone. The interval resamples whole pairs 10,000 times with a generator
    seeded by `seed`, so the same numbers always give the same interval. With five pairs or fewer
    it is close to the lowest and highest ratio seen, and covers less than it promises.
    Both have shape (k,) and one unit; `base` is above zero, `top` not under.

    Source: B. Efron and R. J. Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13.
    """
    _check("base", top=top, base=base)
    if min(top) < 0:
        raise UsageError(f"top must not be negative, but holds {min(top):g}: leave that pair out")
    import numpy as np

    with np.errstate(over="ignore"):
        ratios = np.asarray(top, dtype=float) / np.asarray(base, dtype=float)
    if not np.isfinite(ratios).all():
        raise UsageError("a ratio of top to base overflows: give both in the same unit")
    middle = float(np.median(ratios))
    picks = np.random.default_rng(seed).integers(len(ratios), size=(RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(ratios[picks], axis=1), [_TAIL, 1 - _TAIL])
    # rounding may leave the median just outside
    return Interval(middle, min(float(low), middle), max(float(high), middle))


def loglog_slope(x: Sequence[float], y: Sequence[float]) -> Interval:
    """The exponent b of the power law y = a * x**b, by least squares on the logarithms.

    About 1 is linear growth, about 2 is quadratic. The interval is Student's t on n - 2 degrees
    of freedom and assumes that the scatter about the line is random: look at the plot too. `x`,
    problem sizes, and `y`, what each cost, have shape (n,), n at least 3, and are above zero.
    """
    _check("x", "y", x=x, y=y)
    if len(x) < 3:
        raise UsageError(f"a slope with an interval needs 3 points, got {len(x)}: measure more")
    if len(set(x)) < 2:
        raise UsageError(f"every x is {x[0]:g}: measure at least two different sizes")
    if min(y) == max(y):
        # a cost that does not grow is an exact answer, but SciPy's formula divides by its variance
        return Interval(0.0, 0.0, 0.0)
    import numpy as np
    from scipy import stats

    line = stats.linregress(np.log(x), np.log(y))
    half = float(stats.t.ppf(1 - _TAIL, len(x) - 2)) * float(line.stderr)
    slope = float(line.slope)
    return Interval(slope, slope - half, slope + half)


def usl_fit(threads: Sequence[float], throughput: Sequence[float]) -> Usl:
    """Fit the Universal Scalability Law to throughput at several thread counts.

    X(N) = lambda * N / (1 + sigma * (N - 1) + kappa * N * (N - 1)). Contention (sigma) flattens
    the curve as Amdahl's law does; coherency (kappa) bends it back down, because each thread pays
    for every other one. The fit is bounded non-linear least squares from two starts: a mild
    curve, and the best non-negative solution of the same law written linearly in 1/lambda,
    sigma/lambda and kappa/lambda. Both have shape (n,); of the thread counts, from 1 up, three are
    distinct (repeats of a count are welcome), the throughput is above zero.

    Source: N. J. Gunther, "Guerrilla Capacity Planning", Springer 2007, chapter 4 to 6.
    """
    _check("throughput", threads=threads, throughput=throughput)
    if min(threads) < 1:
        raise UsageError(f"thread counts start at 1, got {min(threads):g}")
    if (distinct := len(set(threads))) < 3:
        raise UsageError(
            f"the Universal Scalability Law has 3 coefficients but there are {distinct} thread "
            "counts: measure at least 3"
        )
    import numpy as np
    from scipy import optimize

    n = np.asarray(threads, dtype=float)
    scale = max(throughput)
    x = np.asarray(throughput, dtype=float) / scale

    def squares(coefficients: Sequence[float]) -> float:
        return float(np.sum((x - _law(n, *coefficients)) ** 2))

    terms = np.column_stack([np.ones_like(n), n - 1, n * (n - 1)])
    (one, contention, coherency), _ = optimize.nnls(terms, n / x)
    starts = [[float((x / n).max()), 0.1, 0.01]]
    if one > _NEGLIGIBLE:
        starts.append([1 / one, min(contention / one, 1.0), coherency / one])
    how: dict[str, Any] = {"bounds": ([0, 0, 0], [np.inf, 1, np.inf]), "x_scale": "jac"}
    how |= {"ftol": 1e-13, "xtol": 1e-13, "gtol": 1e-13, "max_nfev": 10_000}
    fits = []
    with warnings.catch_warnings():
        # three points leave nothing to estimate errors from: SciPy warns and answers inf
        warnings.simplefilter("ignore", optimize.OptimizeWarning)
        for start in starts:
            with suppress(RuntimeError):
                fits.append(optimize.curve_fit(_law, n, x, p0=start, **how))
    if not fits:
        message = "the Universal Scalability Law did not fit: measure more thread counts"
        raise ContendedError(message)
    best, covariance = min(fits, key=lambda fit: squares(fit[0]))
    lam_error, *errors = map(float, np.sqrt(np.diag(covariance)))
    lam, *rest = map(float, best)
    sigma, kappa = (value if value > _NEGLIGIBLE else 0.0 for value in rest)
    total = float(np.sum((x - x.mean()) ** 2))
    # throughput that never changes has no variance to explain, and any line through it is right
    r2 = 1 - squares(best) / total if total else 1.0
    return Usl(lam * scale, sigma, kappa, r2, (lam_error * scale, errors[0], errors[1]))


def _law(n: Any, lam: float, sigma: float, kappa: float) -> Any:
    return lam * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))


def _check(*positive: str, **series: Sequence[float]) -> None:
    if len(set(map(len, series.values()))) > 1:
        (a, x), (b, y) = series.items()
        raise UsageError(f"{a} has {len(x)} numbers and {b} has {len(y)}: give them in pairs")
    for name, values in series.items():
        if len(values) == 0:
            raise UsageError(f"{name} is empty: give at least one number")
        for value in values:
            if not math.isfinite(value):
                raise UsageError(f"{name} holds {value}: leave out the run that gave it")
        if name in positive and min(values) <= 0:
            raise UsageError(f"{name} must be above zero, but holds {min(values):g}: leave it out")
