"""Hooks for third parties. Implement them in a plugin or in a conftest.py beside the tests' root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_rtax.records.schema import Trial
    from pytest_rtax.substrates.protocol import Substrate
    from pytest_rtax.workloads.actions import Workload


@pytest.hookspec
def pytest_rtax_substrates(config: pytest.Config) -> Sequence[type[Substrate]]:  # type: ignore[empty-body]
    """Return substrate classes; ``--substrate=NAME`` then finds them by their ``name``.

    .. code-block:: python

        # conftest.py
        from mycompany.sandbox import SandboxSubstrate


        def pytest_rtax_substrates(config):
            return [SandboxSubstrate]

    A package does the same for everybody who installs it with an entry point in its pyproject.toml:

    .. code-block:: toml

        [project.entry-points."pytest_rtax.substrates"]
        sandbox = "mycompany.sandbox:SandboxSubstrate"
    """


@pytest.hookspec
def pytest_rtax_workloads(config: pytest.Config) -> Sequence[Workload]:  # type: ignore[empty-body]
    """Return workloads; ``@pytest.mark.trajectory(NAME)`` then finds them by their ``name``.

    .. code-block:: python

        # conftest.py
        from pytest_rtax import Action, Needs, RepositoryUse


        class Compile:
            name = "compile"
            needs = Needs(tools=frozenset({"cc"}))
            repository = RepositoryUse.NONE
            shortest = 1

            def setup(self):
                return [Action("write", ["tee", "a.c"], stdin=b"int main(void){return 0;}")]

            def actions(self, length, rng):
                return [Action("run", ["cc", "-c", "a.c"])] * length


        def pytest_rtax_workloads(config):
            return [Compile()]
    """


@pytest.hookspec
def pytest_rtax_record(config: pytest.Config, trial: Trial) -> None:
    """Called with each trial once it is on disk, in the process that writes it (with xdist, the controller).

    .. code-block:: python

        # conftest.py: push every trial to a metrics gateway
        def pytest_rtax_record(config, trial):
            if trial.failure is None and not trial.warmup:
                gateway.observe("rollout_seconds", trial.total / 1e9, substrate=trial.substrate)
    """
