"""One rollout, timed.

t0 request sent ── create ──> t1 the control plane has acknowledged
t1 ── ready ──> t2 the first command (`true`) has succeeded
t2 ── setup ──> t3 the workload's own preparation is done
t3 ── actions ──> t4 the last observation is complete
t4 ── cleanup ──> t5 the environment is observed to be gone
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pytest_rtax.clock import Clock
from pytest_rtax.records.schema import ActionSample, Failure
from pytest_rtax.substrates.protocol import (
    Command,
    Environment,
    EnvironmentFailed,
    EnvironmentSpec,
    Runner,
    Session,
    Substrate,
    SubstrateError,
)
from pytest_rtax.transports import open_transport
from pytest_rtax.untrusted import last_line, one_line
from pytest_rtax.workloads.actions import Action, Trajectory

GONE_POLL_NS = 2_000_000
"""How often a substrate whose destroy() returns early is asked whether the environment is gone."""


@dataclass(frozen=True)
class Limits:
    """How long to wait before a phase has failed, in seconds."""

    ready: float = 300.0
    action: float = 300.0
    cleanup: float = 120.0


@dataclass
class Measurement:
    """What one rollout took, or where it failed."""

    phases: dict[str, int] = field(default_factory=dict)
    subphases: dict[str, int] = field(default_factory=dict)
    setup: list[ActionSample] = field(default_factory=list)
    actions: list[ActionSample] = field(default_factory=list)
    total: int | None = None
    failure: Failure | None = None


class UnexpectedExit(SubstrateError):
    """A command ended, but not with the exit code that the workload needs."""


def perform(
    substrate: Substrate, spec: EnvironmentSpec, trajectory: Trajectory, transport: str, limits: Limits
) -> Measurement:
    """Run one rollout. Whatever goes wrong in it is in the result; only an interrupt is raised, after cleaning up."""
    rollout = _Rollout(substrate, spec, trajectory, transport, limits)
    with _collector_held_off():
        try:
            rollout.attempt(rollout.live)
        finally:
            rollout.attempt(rollout.clean_up)
    return rollout.measurement


@contextmanager
def _collector_held_off() -> Iterator[None]:
    """No garbage collection inside a trial; what is due is collected before it."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Rollout:
    def __init__(
        self, substrate: Substrate, spec: EnvironmentSpec, trajectory: Trajectory, transport: str, limits: Limits
    ) -> None:
        self.measurement = Measurement()
        self._substrate = substrate
        self._spec = spec
        self._trajectory = trajectory
        self._transport = transport
        self._limits = limits
        self._now = substrate.clock.now
        self._phase = "prepare"
        self._action: int | None = None
        self._started = self._ended = 0
        self._environment: Environment | None = None
        self._session: Session | None = None

    def attempt(self, step: Callable[[], None]) -> None:
        """Take a step; if it fails, write down where and why."""
        try:
            step()
        except Exception as error:
            reason = str(error) if isinstance(error, SubstrateError) else f"{type(error).__name__}: {error}"
            earlier = self.measurement.failure
            self.measurement.failure = (
                Failure(self._phase, one_line(reason, 500), self._action)
                if earlier is None
                else Failure(earlier.phase, f"{earlier.reason}; then {self._phase}: {one_line(reason)}", earlier.action)
            )

    def live(self) -> None:
        """Create to the last observation."""
        phases, now = self.measurement.phases, self._now
        self._substrate.prepare(self._spec)
        self._phase = "create"
        self._started = t0 = now()
        self._environment = self._substrate.create(self._spec)
        t1 = now()
        phases["create"] = t1 - t0
        self._phase = "ready"
        runner = self._become_ready(self._environment)
        t2 = now()
        phases["ready"] = t2 - t1
        self._phase = "setup"
        self._act(runner, self._trajectory.setup, self.measurement.setup)
        t3 = now()
        phases["setup"] = t3 - t2
        self._phase = "actions"
        self._act(runner, self._trajectory.actions, self.measurement.actions)
        self._ended = t4 = now()
        phases["actions"] = t4 - t3
        self._action = None

    def _become_ready(self, environment: Environment) -> Runner:
        """Wait, open the transport, and see the first command succeed through it."""
        deadline = time.monotonic() + self._limits.ready
        environment.wait_ready(self._limits.ready)
        waited = self._now()
        runner, self._session = open_transport(self._transport, environment)
        opened = self._now()
        first = runner.run(["true"], timeout=max(0.001, deadline - time.monotonic()))
        if first.exit_code != 0:
            raise UnexpectedExit(_unexpected(["true"], first.exit_code, 0, first.stderr))
        if self._session is not None:
            self.measurement.subphases["ready.session"] = opened - waited
        self.measurement.subphases["ready.first_command"] = self._now() - opened
        return runner

    def _act(self, runner: Runner, actions: Sequence[Action], samples: list[ActionSample]) -> None:
        run, now, timeout = runner.run, self._now, self._limits.action
        checked = not self._substrate.simulated
        for index, action in enumerate(actions):
            self._action = index
            start = now()
            seen = run(action.command, cwd=action.cwd, env=action.env, stdin=action.stdin, timeout=timeout)
            wall = now() - start
            inside = seen.inside_ns
            if inside is not None and inside > wall:
                inside = None  # two clocks that disagree: unknown, not negative
            samples.append(ActionSample(action.kind, wall, inside, seen.exit_code))
            if checked and seen.exit_code != action.expect:
                raise UnexpectedExit(
                    _unexpected(action.command, seen.exit_code, action.expect, seen.stderr or seen.stdout)
                )

    def clean_up(self) -> None:
        """Destroy the environment and see it gone. The clock of this phase starts where the actions ended."""
        environment = self._environment
        if environment is None:
            return
        started = self._ended or self._now()
        self._phase = "cleanup"
        self.measurement.subphases.update(environment.subphases)
        if self._session is not None:
            self._session.close()
        environment.destroy()
        wait_gone(environment, self._limits.cleanup, self._substrate.clock)
        gone = self._now()
        self.measurement.phases["cleanup"] = gone - started
        self.measurement.subphases.update(environment.subphases)
        if self.measurement.failure is None:
            self.measurement.total = gone - self._started


def wait_gone(environment: Environment, timeout: float, clock: Clock) -> None:
    """Return once the environment is seen to be gone; raise EnvironmentFailed after *timeout* seconds."""
    deadline = time.monotonic() + timeout
    while not environment.gone():
        if time.monotonic() > deadline:
            raise EnvironmentFailed(f"environment {environment.id} is still there {timeout:g} s after destroy()")
        clock.sleep(GONE_POLL_NS)


def _unexpected(command: Command, code: int, expected: int, output: bytes) -> str:
    words = command if isinstance(command, str) else " ".join(command)
    said = last_line(output)
    return f"exit code {code} instead of {expected} from {one_line(words, 80)}" + (f": {said}" if said else "")
