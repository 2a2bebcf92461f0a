from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc
from scipy.stats.mstats import hdquantiles

from pytest_rtax.stats.quantiles import certifiable, harrell_davis, min_trials, quantiles

QS = (0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999)

finite = st.floats(min_value=-1e12, max_value=1e12)
inner = st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True)


def latencies(n: int, seed: int = 0) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return 5e6 * rng.lognormal(0, 0.4, n) * np.where(rng.random(n) < 0.03, 30.0, 1.0)


def all_weights(n: int, q: float) -> npt.NDArray[np.float64]:
    return np.diff(betainc((n + 1) * q, (n + 1) * (1 - q), np.arange(n + 1) / n))


@pytest.mark.parametrize("n", [2, 3, 10, 59, 299, 1000, 20_000])
def test_agrees_with_scipy(n: int) -> None:
    samples = latencies(n, seed=n)
    assert quantiles(samples, QS) == pytest.approx(list(hdquantiles(samples, QS)), rel=1e-9)


@pytest.mark.parametrize("q", [1e-6, 0.001, 0.5, 0.95, 0.999, 1 - 1e-6])
def test_the_window_loses_nothing(q: float) -> None:
    samples = latencies(200_000)
    # As long a tail as latencies can have: one trial of a day among trials of milliseconds.
    samples[17] = 86_400e9
    full = float(all_weights(samples.size, q) @ np.sort(samples))
    assert harrell_davis(samples, q) == pytest.approx(full, rel=1e-9)


@pytest.mark.parametrize("q", [0.05, 0.5, 0.95, 0.99])
def test_a_million_equidistant_samples(q: float) -> None:
    # The beta distribution has mean q, so the weighted mean of the ranks is qn, plus one half for the rounding up.
    n = 1_000_000
    assert harrell_davis(np.arange(1, n + 1), q) == pytest.approx(q * n + 0.5, rel=1e-9)


@given(inner, finite)
def test_one_sample_is_every_quantile(q: float, sample: float) -> None:
    assert harrell_davis([sample], q) == sample


@given(inner, finite, st.integers(1, 500))
def test_equal_samples_are_every_quantile(q: float, sample: float, n: int) -> None:
    assert harrell_davis([sample] * n, q) == sample


def test_the_median_of_two_is_their_mean() -> None:
    assert harrell_davis([1, 3], 0.5) == pytest.approx(2)


@given(st.lists(finite, min_size=1, max_size=200), inner)
def test_order_does_not_matter_and_the_range_is_kept(samples: list[float], q: float) -> None:
    expected = harrell_davis(samples, q)
    assert min(samples) <= expected <= max(samples)
    assert harrell_davis(samples[::-1], q) == expected


def test_input_is_left_as_it_was() -> None:
    samples = np.array([3.0, 1.0, 2.0])
    quantiles(samples, QS)
    assert samples.tolist() == [3.0, 1.0, 2.0]


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    samples = latencies(500)
    assert quantiles(samples, QS) == tuple(harrell_davis(samples, q) for q in QS)
    assert quantiles(samples, ()) == ()


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, 95.0, math.nan])
def test_a_quantile_is_between_zero_and_one(q: float) -> None:
    with pytest.raises(ValueError, match="q has to be between 0 and 1"):
        harrell_davis([1.0, 2.0], q)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        ([], "no samples"),
        ([1.0, math.nan], "finite"),
        ([1.0, math.inf], "finite"),
        (5.0, "one-dimensional"),
        ([[1.0, 2.0]], "one-dimensional"),
    ],
)
def test_unusable_samples_are_refused(samples: npt.ArrayLike, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        harrell_davis(samples, 0.5)


@pytest.mark.parametrize(("q", "n"), [(0.5, 5), (0.9, 29), (0.95, 59), (0.99, 299), (0.999, 2995)])
def test_trials_needed(q: float, n: int) -> None:
    assert min_trials(q) == n
    assert certifiable(q, n)
    assert not certifiable(q, n - 1)


def test_trials_needed_where_the_bound_is_met_exactly() -> None:
    assert min_trials(0.5, confidence=0.75) == 2
    assert min_trials(0.1, confidence=0.9) == 1


@given(st.floats(0.001, 0.9999), st.floats(0.001, 0.9999))
def test_trials_needed_are_the_fewest(q: float, confidence: float) -> None:
    n = min_trials(q, confidence)
    assert n >= 1
    assert certifiable(q, n, confidence)
    assert not certifiable(q, n - 1, confidence)


@pytest.mark.parametrize(("q", "confidence"), [(0.0, 0.95), (1.0, 0.95), (0.95, 0.0), (0.95, 1.0)])
def test_trials_needed_for_nonsense_are_refused(q: float, confidence: float) -> None:
    with pytest.raises(ValueError, match="has to be between 0 and 1"):
        min_trials(q, confidence)
    with pytest.raises(ValueError, match="has to be between 0 and 1"):
        certifiable(q, 100, confidence)
