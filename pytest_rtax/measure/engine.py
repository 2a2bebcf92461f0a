"""Measures the cases of a test, interleaved, and hands each trial on before the next one starts."""

from __future__ import annotations

import gc
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from pytest_rtax.measure.case import Case
from pytest_rtax.measure.rollout import Limits, perform
from pytest_rtax.measure.schedule import Slot, interleave
from pytest_rtax.records.schema import Trial
from pytest_rtax.substrates.protocol import EnvironmentSpec, Substrate, SubstrateError
from pytest_rtax.workloads.actions import RepositoryUse, Trajectory, Workload, build_trajectory
from pytest_rtax.workloads.checkout import Checkout

GIVE_UP_AFTER = 5
"""A case that fails this often in a row, from its start, is abandoned: a dead substrate is not asked 100 times."""


class Progress(Protocol):
    """Told of every finished trial."""

    def __call__(self, case: Case, trials: Sequence[Trial], left: int, seconds_left: float) -> None:
        """*trials* are the case's so far; *left* counts the trials left in its group."""
        ...


def silent(case: Case, trials: Sequence[Trial], left: int, seconds_left: float) -> None:
    """Nobody watches."""


@dataclass
class Engine:
    """Owns the substrates of a run while it measures."""

    run: str
    seed: int
    substrates: Mapping[str, Substrate]
    workloads: Mapping[str, Workload]
    checkout: Checkout
    emit: Callable[[Trial], None]
    limits: Limits = field(default_factory=Limits)
    progress: Progress = silent
    worker: str = ""
    interleaved: bool = True
    done: Mapping[tuple[str, bool, int], Trial] = field(default_factory=dict)
    """Trials that an earlier worker of this run has already measured, by case, warm-up and number."""

    def measure(self, cases: Sequence[Case]) -> dict[str, list[Trial]]:
        """Every trial of the cases, by case id; warm-ups included."""
        slots = list(interleave(cases, self.seed))
        trials: dict[str, list[Trial]] = {case.id: [] for case in cases}
        started = time.monotonic()
        with _heap_frozen():
            for number, slot in enumerate(slots, 1):
                so_far = trials[slot.case.id]
                if _hopeless(so_far):
                    continue
                so_far.append(self._trial(slot))
                left = len(slots) - number
                self.progress(slot.case, so_far, left, (time.monotonic() - started) / number * left)
        return trials

    def _trial(self, slot: Slot) -> Trial:
        known = self.done.get((slot.case.id, slot.warmup, slot.trial))
        if known is not None:
            return known
        trial = self._measure(slot)
        self.emit(trial)
        return trial

    def _measure(self, slot: Slot) -> Trial:
        case = slot.case
        substrate = self.substrates[case.substrate]
        workload = self.workloads[case.tier]
        trajectory = self._trajectory(workload, case.length)
        spec = EnvironmentSpec(
            run=self.owner,
            id=f"rtax-{secrets.token_hex(6)}",
            env=self.checkout.variables(case.substrate, substrate) if _clones(workload) else {},
            repository=self.checkout.worktree() if workload.repository is RepositoryUse.PRELOADED else None,
        )
        started = time.time()
        measured = perform(substrate, spec, trajectory, case.transport, self.limits)
        return Trial(
            run=self.run,
            case=case.id,
            test=case.test,
            substrate=case.substrate,
            transport=case.transport,
            tier=case.tier,
            length=case.length,
            trial=slot.trial,
            order=slot.order,
            warmup=slot.warmup,
            interleaved=self.interleaved,
            worker=self.worker,
            started=started,
            trajectory=trajectory.digest,
            clone_from=self.checkout.mode(case.substrate) if _clones(workload) else None,
            environment=spec.id,
            phases=measured.phases,
            subphases=measured.subphases,
            setup=measured.setup,
            actions=measured.actions,
            total=measured.total,
            failure=measured.failure,
        )

    def _trajectory(self, workload: Workload, length: int) -> Trajectory:
        key = (workload.name, length)
        if key not in self._trajectories:
            self._trajectories[key] = build_trajectory(workload, length, self.seed)
        return self._trajectories[key]

    def __post_init__(self) -> None:
        self._trajectories: dict[tuple[str, int], Trajectory] = {}

    @property
    def owner(self) -> str:
        """What its environments are labelled with: other workers of the run have theirs."""
        return f"{self.run}.{self.worker}" if self.worker else self.run

    def reap(self) -> list[str]:
        """Remove what drivers that are dead have left, a crashed worker of this run among them; one sentence each."""
        return self._sweep("removed what dead runs had left behind", run=None)

    def close(self) -> list[str]:
        """End what the engine started and remove what is left of it; says in a sentence what it had to remove."""
        self.checkout.close()
        own = self._sweep("removed environments that had been left over", run=self.owner)
        return own + [sentence for sentence in self.reap() if sentence not in own]

    def _sweep(self, what: str, run: str | None) -> list[str]:
        said = []
        for label, substrate in self.substrates.items():
            try:
                left = substrate.reap(run=run)
            except SubstrateError as error:  # it may be what has ended the run; the others are swept all the same
                said.append(f"{label} could not be searched for leftovers: {error}")
            else:
                if left:
                    said.append(f"{what} on {label}: {', '.join(left)}")
        return said


def _clones(workload: Workload) -> bool:
    return workload.repository is RepositoryUse.CLONED


def _hopeless(trials: Sequence[Trial]) -> bool:
    return len(trials) >= GIVE_UP_AFTER and all(trial.failure is not None for trial in trials)


@contextmanager
def _heap_frozen() -> Iterator[None]:
    """Keep the collection before each trial cheap: what existed before the measuring is not looked at again."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
