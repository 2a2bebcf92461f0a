"""Quantiles of raw samples, and how many trials it takes before one of them can be vouched for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

_NEGLIGIBLE = 1e-30


def harrell_davis(samples: npt.ArrayLike, q: float) -> float:
    """The Harrell-Davis estimate of the *q*-quantile of what the samples were drawn from.

    A weighted mean of all order statistics, the nearest to *q* weighing most. It varies less from run to run than any
    single order statistic does, and it is defined for every n. That does not make it trustworthy for every n: below
    :func:`min_trials` (59 trials for p95, 299 for p99) the samples may hold nothing from beyond the quantile, and the
    estimate says little more than their maximum.

    Raises ValueError for samples that are empty, not one-dimensional or not finite, and for *q* outside (0, 1).
    """
    return quantiles(samples, (q,))[0]


def quantiles(samples: npt.ArrayLike, qs: Iterable[float]) -> tuple[float, ...]:
    """:func:`harrell_davis` for each of *qs*, sorting the samples once."""
    array = np.asarray(samples, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"samples have to be one-dimensional, not of shape {array.shape}")
    if array.size == 0:
        raise ValueError("no samples: a quantile needs at least one")
    if not np.isfinite(array).all():
        raise ValueError("samples have to be finite: there is a NaN or an infinity among them")
    ordered = np.sort(array)
    return tuple(_harrell_davis(ordered, q) for q in qs)


def min_trials(q: float, confidence: float = 0.95) -> int:
    """The smallest number of trials from which the *q*-quantile is :func:`certifiable`: 59 for p95, 299 for p99."""
    _require_open_unit_interval("q", q)
    _require_open_unit_interval("confidence", confidence)
    # The logarithms may be off by a rounding error; the definition decides.
    estimate = max(1, int(math.log1p(-confidence) / math.log(q)))
    return next(n for n in itertools.count(estimate) if certifiable(q, n, confidence))


def certifiable(q: float, n: int, confidence: float = 0.95) -> bool:
    """Whether the maximum of *n* trials lies beyond the *q*-quantile with at least this *confidence*.

    If not, then no set of *n* results, however fast they all were, shows that the quantile is below a limit.
    """
    _require_open_unit_interval("q", q)
    _require_open_unit_interval("confidence", confidence)
    return 1 - q**n >= confidence


def _harrell_davis(ordered: npt.NDArray[np.float64], q: float) -> float:
    _require_open_unit_interval("q", q)
    n = ordered.size
    # The i-th weight is the mass of Beta((n + 1)q, (n + 1)(1 - q)) between (i - 1)/n and i/n. That distribution has
    # mean q and is sub-Gaussian with variance proxy 1/(4(n + 2)), so the mass further than `reach` from q is
    # negligible: of a million weights some twelve thousand have to be computed.
    reach = math.sqrt(math.log(2 / _NEGLIGIBLE) / (2 * (n + 2)))
    first = max(0, math.floor((q - reach) * n))
    last = min(n, math.ceil((q + reach) * n))
    edges = np.arange(first, last + 1) / n
    weights = np.diff(betainc((n + 1) * q, (n + 1) * (1 - q), edges))
    window = ordered[first:last]
    # The weights add up to one only within rounding, which must not carry the mean of equal samples past them.
    return float(np.clip(weights @ window, window[0], window[-1]))


def _require_open_unit_interval(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} has to be between 0 and 1, both excluded, not {value}")
