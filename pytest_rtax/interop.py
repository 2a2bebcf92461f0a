"""Other tools' view of a case: pytest-benchmark's files and JUnit's properties."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_rtax.measure.rollouts import Rollouts

_BENCHMARK_OUTPUTS = tuple(
    f"benchmark_{name}" for name in ("json", "save", "autosave", "compare", "only", "histogram", "csv")
)
_METRICS = ("cold_start", "setup", "action", "dispatch", "cleanup", "total", "amortized", "tax_share")


def wants_cases(config: pytest.Config) -> bool:
    """Whether pytest-benchmark was asked for something that the cases should be in.

    Otherwise it is left alone: its own table would say less, and say it twice.
    """
    # --benchmark-compare without a value is True, and not given is None; the others are empty.
    return any(config.getoption(name, None) not in (None, False, "", []) for name in _BENCHMARK_OUTPUTS)


class Replay:
    """A timer that gives pytest-benchmark the durations that rtax has measured."""

    __name__ = "replay"

    def __init__(self) -> None:
        self._readings: list[float] = []

    def load(self, seconds: list[float]) -> None:
        """Queue durations; each is read as its start and its end."""
        for duration in reversed(seconds):
            self._readings += [duration, 0.0]

    def __call__(self) -> float:
        """The next reading."""
        return self._readings.pop()


def add_benchmark_marker(item: pytest.Item) -> None:
    """Have the item's `benchmark` fixture read a Replay, whatever else a marker of the user's sets."""
    marker = item.get_closest_marker("benchmark")
    options = {} if marker is None else marker.kwargs
    item.add_marker(pytest.mark.benchmark(**{**options, "timer": Replay()}), append=False)


def feed_benchmark(item: pytest.Item, benchmark: Any, rollouts: Rollouts) -> None:
    """Hand the totals of the successful trials to pytest-benchmark, and the phases as extra information."""
    marker = item.get_closest_marker("benchmark")
    totals = rollouts.values("total").tolist()
    if marker is None or not isinstance(marker.kwargs.get("timer"), Replay) or not totals:
        return
    case = rollouts.case
    benchmark.extra_info.update(
        substrate=case.substrate,
        transport=case.transport,
        tier=case.tier,
        actions=case.length,
        failures=len(rollouts.failures),
        **_quantiles(rollouts),
    )
    marker.kwargs["timer"].load(totals)
    benchmark.pedantic(_nothing, rounds=len(totals), iterations=1)


def _nothing() -> None:
    return None


def _quantiles(rollouts: Rollouts) -> dict[str, float]:
    """p50 and p95 of each metric that has samples, in seconds."""
    return {
        f"{metric}.p{round(100 * q)}": round(rollouts.quantile(metric, q), 9)
        for metric in _METRICS
        if rollouts.values(metric).size
        for q in (0.5, 0.95)
    }


def junit_properties(rollouts: Rollouts) -> list[tuple[str, object]]:
    """What goes into the report of the test: figures in seconds, counts as they are."""
    figures: dict[str, object] = {"trials": len(rollouts.trials), "failures": len(rollouts.failures)}
    figures.update(_quantiles(rollouts))
    return [(f"rtax.{name}", value) for name, value in figures.items()]
