"""The process that measures: its substrates, its engine, and the cases it was given."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pytest_rtax.fixtures import SubstrateHandle
from pytest_rtax.measure.case import Case
from pytest_rtax.measure.engine import Engine, Progress
from pytest_rtax.measure.rollout import Limits
from pytest_rtax.measure.rollouts import Rollouts
from pytest_rtax.records.schema import Trial
from pytest_rtax.settings import Settings
from pytest_rtax.substrates.protocol import Needs, Substrate
from pytest_rtax.substrates.registry import Registry
from pytest_rtax.workloads.actions import RepositoryUse, Workload
from pytest_rtax.workloads.checkout import Checkout


class Terminated(KeyboardInterrupt):
    """A signal that asks the driver to end: like Ctrl-C, it ends in good order and leaves nothing running."""


def _end(signum: int, frame: object) -> None:
    raise Terminated(signal.Signals(signum).name)


class Driver:
    """Measures each group of cases when the first of them is asked for."""

    def __init__(
        self,
        *,
        run_id: str,
        settings: Settings,
        registry: Registry,
        workloads: Mapping[str, Workload],
        cases: Iterable[Case],
        labels: Iterable[str],
        emit: Callable[[Trial], None],
        progress: Progress,
        announce: Callable[[str], None],
        worker: str = "",
        interleaved: bool = True,
        done: Sequence[Trial] = (),
    ) -> None:
        """*labels* are the substrates that the selected tests use, cases or not."""
        self._cases = {case.id: case for case in cases}
        self._workloads = workloads
        self._measured: dict[str, Sequence[Trial]] = {}
        wanted = {*labels, *(case.substrate for case in self._cases.values())}
        specs = [spec for spec in settings.substrate if spec.label in wanted]
        self._checkout = Checkout(
            settings.repository,
            settings.clone_from,
            {spec.label: spec.clone_from for spec in specs if spec.clone_from is not None},
            announce,
        )
        self._engine = Engine(
            run=run_id,
            seed=settings.seed,
            substrates={spec.label: registry.build(spec) for spec in specs},
            workloads=workloads,
            checkout=self._checkout,
            emit=emit,
            limits=Limits(ready=settings.ready_timeout, action=settings.action_timeout),
            progress=progress,
            worker=worker,
            interleaved=interleaved,
            done={(trial.case, trial.warmup, trial.trial): trial for trial in done},
        )

        self._handlers = self._heed((signal.SIGTERM, signal.SIGHUP))

    def _heed(self, signals: Iterable[signal.Signals]) -> dict[signal.Signals, Any]:
        """Have each signal that would kill the driver end it instead; returns what to restore."""
        if threading.current_thread() is not threading.main_thread():
            return {}
        fatal = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]
        return {number: signal.signal(number, _end) for number in fatal}

    @property
    def substrates(self) -> Mapping[str, Substrate]:
        """By label."""
        return self._engine.substrates

    def preflight(self) -> None:
        """Raise SubstrateUnavailable or RepositoryUnavailable before anything is created."""
        for label, substrate in self._engine.substrates.items():
            needs = Needs()
            for case in self._cases.values():
                if case.substrate == label:
                    needs |= self._workloads[case.tier].needs
            substrate.preflight(needs)
        if self._uses_repository:
            self._checkout.repository()

    @property
    def _uses_repository(self) -> bool:
        tiers = {case.tier for case in self._cases.values()}
        return any(self._workloads[tier].repository is not RepositoryUse.NONE for tier in tiers)

    def reap(self) -> list[str]:
        """Remove what dead drivers have left behind; says in a sentence what it was."""
        return self._engine.reap()

    def description(self) -> tuple[dict[str, dict[str, Any]], dict[str, Any] | None]:
        """The provenance of the substrates, and of the repository if one is used."""
        substrates = {label: substrate.provenance() for label, substrate in self._engine.substrates.items()}
        return substrates, self._checkout.repository().provenance() if self._uses_repository else None

    def rollouts(self, case_id: str) -> Rollouts:
        """The trials of a case; measures its whole group the first time one of its cases is asked for."""
        case = self._cases[case_id]
        if case_id not in self._measured:
            group = [other for other in self._cases.values() if other.group == case.group]
            self._measured.update(self._engine.measure(group if self._engine.interleaved else [case]))
        return Rollouts.of(case, self._measured[case_id])

    def handle(self, label: str) -> SubstrateHandle:
        """What a custom test gets as its `substrate`."""
        return SubstrateHandle(label, self._engine.substrates[label], self._engine.owner, self._engine.limits)

    def close(self) -> list[str]:
        """Stop, and remove what is left; says in a sentence what had been left over."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        return self._engine.close()
