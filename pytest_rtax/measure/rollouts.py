"""What a test gets to assert on: the trials of its case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_rtax.measure.case import Case
from pytest_rtax.records.schema import Trial

if TYPE_CHECKING:
    from pytest_rtax.stats.metrics import Array


@dataclass(frozen=True)
class Rollouts:
    """The measured trials of one case; the value of the `rollouts` fixture."""

    case: Case
    trials: tuple[Trial, ...]
    """Without warm-ups; failed ones included."""

    @classmethod
    def of(cls, case: Case, trials: Sequence[Trial]) -> Rollouts:
        """From everything on record for the case."""
        return cls(case, tuple(trial for trial in trials if not trial.warmup))

    @property
    def failures(self) -> list[Trial]:
        """The failed trials; each has a `failure` with phase and reason."""
        return [trial for trial in self.trials if trial.failure is not None]

    @property
    def abandoned(self) -> int:
        """Trials that were not run because everything before them had failed."""
        return self.case.trials - len(self.trials)

    def values(self, metric: str) -> Array:
        """All samples of a metric in seconds (tax_share: a fraction), untrimmed."""
        from pytest_rtax.stats.metrics import METRICS, values
        from pytest_rtax.substrates.registry import UnknownName, suggest

        if metric not in METRICS:
            raise UnknownName(suggest("metric", metric, METRICS))
        samples = values(self.trials, metric)
        return samples if metric == "tax_share" else samples / 1e9

    def quantile(self, metric: str, q: float) -> float:
        """The Harrell-Davis estimate of a quantile, in seconds (tax_share: a fraction)."""
        from pytest_rtax.stats.quantiles import harrell_davis

        return harrell_davis(self.values(metric), q)

    def verdict(self) -> str | None:
        """Why the case has failed by its failure limit, on one line; None if it has not."""
        failures = self.failures
        rate = len(failures) / len(self.trials) if self.trials else 1.0
        if rate <= self.case.failure_limit and not self.abandoned:
            return None
        first = failures[0] if failures else None
        why = "no trial was run"
        if first is not None and first.failure is not None:
            where = first.failure.phase
            if first.failure.action is not None:
                where += f", action {first.failure.action}"
            why = f"trial {first.trial} failed in {where}: {first.failure.reason}"
        left = f", {self.abandoned} more not run" if self.abandoned else ""
        return (
            f"{len(failures)} of {len(self.trials)} trials failed{left}; "
            f"the limit is {self.case.failure_limit:.0%}; {why}"
        )
