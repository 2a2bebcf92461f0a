"""pytest-rtax: the rollout infrastructure tax of coding-agent RL, measured as tests."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_rtax.clock import Clock
    from pytest_rtax.fixtures import SubstrateHandle
    from pytest_rtax.measure.rollouts import Rollouts
    from pytest_rtax.records.schema import ActionSample, Failure, Run, Trial
    from pytest_rtax.substrates.protocol import (
        Command,
        CommandTimeout,
        Environment,
        EnvironmentFailed,
        EnvironmentSpec,
        Needs,
        Observation,
        Option,
        Session,
        SessionLost,
        Substrate,
        SubstrateError,
        SubstrateUnavailable,
    )
    from pytest_rtax.workloads.actions import Action, RepositoryUse, Workload

__version__ = "0.1.0"

_HOME = {
    "pytest_rtax.clock": ("Clock",),
    "pytest_rtax.fixtures": ("SubstrateHandle",),
    "pytest_rtax.measure.rollouts": ("Rollouts",),
    "pytest_rtax.records.schema": ("ActionSample", "Failure", "Run", "Trial"),
    "pytest_rtax.substrates.protocol": (
        "Command",
        "CommandTimeout",
        "Environment",
        "EnvironmentFailed",
        "EnvironmentSpec",
        "Needs",
        "Observation",
        "Option",
        "Session",
        "SessionLost",
        "Substrate",
        "SubstrateError",
        "SubstrateUnavailable",
    ),
    "pytest_rtax.workloads.actions": ("Action", "RepositoryUse", "Workload"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Action",
    "ActionSample",
    "Clock",
    "Command",
    "CommandTimeout",
    "Environment",
    "EnvironmentFailed",
    "EnvironmentSpec",
    "Failure",
    "Needs",
    "Observation",
    "Option",
    "RepositoryUse",
    "Rollouts",
    "Run",
    "Session",
    "SessionLost",
    "Substrate",
    "SubstrateError",
    "SubstrateHandle",
    "SubstrateUnavailable",
    "Trial",
    "Workload",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # pytest imports this package in every project that has it installed: names are fetched when they are used.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
