"""From trials to arrays: what each metric is, exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from pytest_rtax.records.schema import ActionSample, Trial

Array = npt.NDArray[np.float64]


def _phase(name: str) -> Callable[[Trial], list[float]]:
    return lambda trial: [trial.phases[name]]


def _setup(trial: Trial) -> list[float]:
    """Nothing for a tier without a setup: the microsecond in which nothing was done is no figure."""
    return [trial.phases["setup"]] if trial.setup else []


def _cold_start(trial: Trial) -> list[float]:
    return [trial.phases["create"] + trial.phases["ready"]]


def _total(trial: Trial) -> list[float]:
    return [] if trial.total is None else [trial.total]


def _amortized(trial: Trial) -> list[float]:
    return [] if trial.total is None else [trial.total / trial.length]


def _per_action(value: Callable[[ActionSample], int | None]) -> Callable[[Trial], list[float]]:
    return lambda trial: [known for sample in trial.actions if (known := value(sample)) is not None]


def _tax(trial: Trial) -> list[float]:
    """One value, or none if the time inside is unknown for even one of the trial's commands."""
    inside = [sample.inside for sample in (*trial.setup, *trial.actions)]
    known = [value for value in inside if value is not None]
    return [trial.total - sum(known)] if trial.total is not None and len(known) == len(inside) else []


def _tax_share(trial: Trial) -> list[float]:
    return [tax / trial.total for tax in _tax(trial) if trial.total]


METRICS: Final[dict[str, Callable[[Trial], list[float]]]] = {
    "create": _phase("create"),
    "ready": _phase("ready"),
    "cold_start": _cold_start,
    "setup": _setup,
    "action": _per_action(lambda sample: sample.wall),
    "inside": _per_action(lambda sample: sample.inside),
    "dispatch": _per_action(lambda sample: sample.dispatch),
    "cleanup": _phase("cleanup"),
    "total": _total,
    "amortized": _amortized,
    "tax": _tax,
    "tax_share": _tax_share,
}
"""What one trial contributes to each metric: nanoseconds, or a fraction for tax_share."""


def measured(trials: Iterable[Trial]) -> list[Trial]:
    """The trials that count: no warm-ups."""
    return [trial for trial in trials if not trial.warmup]


def succeeded(trials: Iterable[Trial]) -> list[Trial]:
    """Those of them that have figures. The others are counted and shown as failures, never as zeros."""
    return [trial for trial in measured(trials) if trial.failure is None]


def values(trials: Sequence[Trial], metric: str) -> Array:
    """All samples of a metric over the successful trials, untrimmed; for per-action metrics, over all their actions."""
    extract = METRICS[metric]
    return np.array([value for trial in succeeded(trials) for value in extract(trial)], dtype=np.float64)
