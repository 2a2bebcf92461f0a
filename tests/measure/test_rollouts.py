from __future__ import annotations

import pytest

from pytest_rtax.measure.case import Case
from pytest_rtax.measure.rollouts import Rollouts
from pytest_rtax.records.schema import ActionSample, Failure, Trial
from pytest_rtax.substrates.registry import UnknownName

CASE = Case("local", "exec", "T0", 1, trials=4, warmup=1, failure_limit=0.25, id="test[x]", test="test")


def trial(number: int, *, failure: Failure | None = None, warmup: bool = False, inside: int | None = 3) -> Trial:
    return Trial(
        run="run",
        case=CASE.id,
        test=CASE.test,
        substrate="local",
        transport="exec",
        tier="T0",
        length=1,
        trial=number,
        order=number,
        warmup=warmup,
        started=0.0,
        trajectory="d",
        environment="e",
        phases={"create": 1, "ready": 2, "setup": 0, "actions": 5, "cleanup": 4},
        actions=[ActionSample("run", 5, inside, 0)],
        total=None if failure else 12,
        failure=failure,
    )


FAILED = Failure("ready", "image not found")


def test_warm_ups_are_left_out() -> None:
    rollouts = Rollouts.of(CASE, [trial(0, warmup=True), *map(trial, range(4))])
    assert len(rollouts.trials) == 4
    assert rollouts.abandoned == 0
    assert rollouts.verdict() is None


def test_the_metrics_of_a_trial() -> None:
    rollouts = Rollouts.of(CASE, [trial(0)])
    expected = {
        "create": 1e-9, "ready": 2e-9, "cold_start": 3e-9, "action": 5e-9, "inside": 3e-9, "dispatch": 2e-9,
        "cleanup": 4e-9, "total": 12e-9, "amortized": 12e-9, "tax": 9e-9, "tax_share": 0.75,
    }  # fmt: skip
    for metric, value in expected.items():
        assert rollouts.values(metric).tolist() == pytest.approx([value])
    assert rollouts.values("setup").size == 0  # the tier has none
    assert rollouts.quantile("total", 0.5) == pytest.approx(12e-9)
    assert rollouts.quantile("tax_share", 0.5) == 0.75


def test_unknown_time_inside_makes_the_tax_unknown_not_larger() -> None:
    rollouts = Rollouts.of(CASE, [trial(0, inside=None)])
    assert rollouts.values("tax").size == rollouts.values("dispatch").size == 0
    assert rollouts.values("total").tolist() == [12e-9]


def test_failed_trials_have_no_figures_and_are_counted() -> None:
    rollouts = Rollouts.of(CASE, [trial(0), trial(1, failure=FAILED), trial(2), trial(3)])
    assert rollouts.values("total").tolist() == [12e-9] * 3
    assert [failed.trial for failed in rollouts.failures] == [1]
    assert rollouts.verdict() is None  # a quarter is allowed


def test_past_the_limit_the_verdict_says_how_many_and_why() -> None:
    rollouts = Rollouts.of(CASE, [trial(0), trial(1, failure=FAILED), trial(2, failure=FAILED), trial(3)])
    assert rollouts.verdict() == ("2 of 4 trials failed; the limit is 25%; trial 1 failed in ready: image not found")


def test_abandoned_trials_fail_the_case() -> None:
    verdict = Rollouts.of(CASE, [trial(0, failure=FAILED)]).verdict()
    assert verdict is not None
    assert "1 of 1 trials failed, 3 more not run" in verdict


def test_a_misspelt_metric() -> None:
    with pytest.raises(UnknownName, match="did you mean 'cold_start'"):
        Rollouts.of(CASE, [trial(0)]).values("cold_strat")
