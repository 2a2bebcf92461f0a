"""Phases are what they are said to be, and failures are where they happened."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rtax.clock import VirtualClock
from pytest_rtax.measure.rollout import Limits, Measurement, perform
from pytest_rtax.substrates.null import Delay, NullEnvironment, NullSubstrate
from pytest_rtax.substrates.protocol import (
    Command,
    CommandTimeout,
    Environment,
    EnvironmentFailed,
    EnvironmentSpec,
    Observation,
)
from pytest_rtax.workloads.actions import Action, Trajectory

MS = 1_000_000
SPEC = EnvironmentSpec(run="run", id="environment")


def trajectory(length: int = 3, setup: int = 0) -> Trajectory:
    return Trajectory("T0", 0, (Action("clone", ["true"]),) * setup, (Action("run", ["true"]),) * length, "digest")


delays = st.integers(0, 10**12)


@given(
    delays, delays, delays, delays, delays, st.integers(1, 20), st.integers(0, 3), st.sampled_from(["exec", "session"])
)
def test_injected_delays_come_back_exactly(
    create: int, ready: int, action: int, inside: int, cleanup: int, length: int, setup: int, transport: str
) -> None:
    substrate = NullSubstrate(
        Delay(create), Delay(ready), Delay(action), Delay(inside), Delay(cleanup), clock=VirtualClock()
    )
    measured = perform(substrate, SPEC, trajectory(length, setup), transport, Limits())
    assert measured.failure is None
    assert measured.phases == {
        "create": create,
        "ready": ready,
        "setup": setup * action,
        "actions": length * action,
        "cleanup": cleanup,
    }
    assert measured.total == create + ready + (setup + length) * action + cleanup
    assert [sample.wall for sample in measured.actions] == [action] * length
    assert [sample.inside for sample in measured.actions] == [min(inside, action)] * length
    assert measured.subphases["ready.first_command"] == ready


class FaultyEnvironment(NullEnvironment):
    fault: str = ""
    calls = 0

    def wait_ready(self, timeout: float) -> None:
        if self.fault == "ready":
            raise EnvironmentFailed("unschedulable: 0 of 1 nodes")

    def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
    ) -> Observation:
        self.calls += 1
        if self.fault == "first command" and self.calls == 1:
            return Observation(127, stderr=b"true: not found\n")
        if self.fault == "action" and self.calls == 3:
            raise CommandTimeout("timed out after 1 s: true")
        if self.fault == "exit code" and self.calls == 4:
            return Observation(2, stdout=b"something\nwent wrong\n")
        if self.fault == "bug" and self.calls == 2:
            raise KeyError("oops\nsecond line")
        if self.fault == "interrupt" and self.calls == 2:
            raise KeyboardInterrupt
        if self.fault == "clock" and self.calls > 1:
            return Observation(0, inside_ns=10**15)
        return super().run(command, cwd=cwd, env=env, stdin=stdin, timeout=timeout)

    def destroy(self) -> None:
        if self.fault in ("cleanup", "exit code and cleanup"):
            raise EnvironmentFailed("the node is not reachable")
        if self.fault != "never gone":
            super().destroy()


class FaultySubstrate(NullSubstrate):
    simulated = False

    def __init__(self, fault: str) -> None:
        super().__init__(Delay(MS), Delay(MS), Delay(MS), Delay(MS), Delay(MS), clock=VirtualClock())
        self.fault = fault
        self.environments: list[FaultyEnvironment] = []

    def prepare(self, spec: EnvironmentSpec) -> None:
        if self.fault == "prepare":
            raise OSError("no space left on device")

    def create(self, spec: EnvironmentSpec) -> Environment:
        if self.fault == "create":
            raise EnvironmentFailed("quota exceeded")
        super().create(spec)
        environment = FaultyEnvironment(spec.id, self, self._alive)
        environment.fault = self.fault
        self.environments.append(environment)
        return environment


def fail_with(fault: str, limits: Limits | None = None) -> tuple[Measurement, FaultySubstrate]:
    substrate = FaultySubstrate(fault)
    return perform(substrate, SPEC, trajectory(3, setup=1), "exec", limits or Limits()), substrate


@pytest.mark.parametrize(
    ("fault", "phase", "action", "reason", "timed"),
    [
        ("prepare", "prepare", None, "OSError: no space left on device", set()),
        ("create", "create", None, "quota exceeded", set()),
        ("ready", "ready", None, "unschedulable: 0 of 1 nodes", {"create", "cleanup"}),
        (
            "first command",
            "ready",
            None,
            "exit code 127 instead of 0 from true: true: not found",
            {"create", "cleanup"},
        ),
        ("bug", "setup", 0, "KeyError: 'oops\\nsecond line'", {"create", "ready", "cleanup"}),
        ("action", "actions", 0, "timed out after 1 s: true", {"create", "ready", "setup", "cleanup"}),
        (
            "exit code",
            "actions",
            1,
            "exit code 2 instead of 0 from true: went wrong",
            {"create", "ready", "setup", "cleanup"},
        ),
        ("cleanup", "cleanup", None, "the node is not reachable", {"create", "ready", "setup", "actions"}),
    ],
)
def test_a_failure_is_where_it_happened(
    fault: str, phase: str, action: int | None, reason: str, timed: set[str]
) -> None:
    measured, substrate = fail_with(fault)
    assert measured.failure is not None
    assert (measured.failure.phase, measured.failure.action, measured.failure.reason) == (phase, action, reason)
    assert measured.total is None
    assert set(measured.phases) == timed
    if "cleanup" in timed:
        assert all(environment.gone() for environment in substrate.environments)


def test_a_cleanup_that_fails_after_a_failure_is_added_to_it() -> None:
    class Both(FaultySubstrate):
        def create(self, spec: EnvironmentSpec) -> Environment:
            environment = super().create(spec)
            environment.run = _raise  # type: ignore[method-assign]
            return environment

    def _raise(*arguments: Any, **options: Any) -> Observation:
        raise EnvironmentFailed("connection reset")

    measured = perform(Both("cleanup"), SPEC, trajectory(), "exec", Limits())
    assert measured.failure is not None
    assert measured.failure.phase == "ready"
    assert measured.failure.reason == "connection reset; then cleanup: the node is not reachable"


def test_an_environment_that_does_not_go_away_fails_the_trial() -> None:
    measured, _ = fail_with("never gone", Limits(cleanup=0.0))
    assert measured.failure is not None
    assert measured.failure.phase == "cleanup"
    assert "environment is still there" in measured.failure.reason


def test_an_interrupt_cleans_up_and_goes_on() -> None:
    substrate = FaultySubstrate("interrupt")
    with pytest.raises(KeyboardInterrupt):
        perform(substrate, SPEC, trajectory(), "exec", Limits())
    assert substrate.environments[0].gone()
    assert gc.isenabled()


def test_clocks_that_disagree_leave_the_time_inside_unknown() -> None:
    measured, _ = fail_with("clock")
    assert measured.failure is None
    assert {sample.inside for sample in measured.actions} == {None}
    assert {sample.dispatch for sample in measured.actions} == {None}


def test_the_collector_is_held_off_inside_a_trial() -> None:
    seen = []

    class Watching(NullSubstrate):
        def create(self, spec: EnvironmentSpec) -> Environment:
            seen.append(gc.isenabled())
            return super().create(spec)

    perform(Watching(), SPEC, trajectory(), "exec", Limits())
    assert seen == [False]
    assert gc.isenabled()
