"""What a rollout does: typed actions, and the workloads that string them together."""

from __future__ import annotations

import enum
import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pytest_rtax.substrates.protocol import Command, Needs


@dataclass(frozen=True)
class Action:
    """One command sent into an environment, and the exit code without which the trial has failed."""

    kind: str
    """What it is for: list, read, grep, ast, write, patch, run, test, clone or checkout."""
    command: Command
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bytes | None = None
    expect: int = 0


class RepositoryUse(enum.Enum):
    """What a workload does with the repository."""

    NONE = "none"
    PRELOADED = "preloaded"
    """It is at ``attrs/`` in the workspace before the first command, outside the timed phases."""
    CLONED = "cloned"
    """The setup phase clones it from ``$RTAX_CLONE_URL`` and checks out ``$RTAX_COMMIT``."""


class Workload(Protocol):
    """A tier: what its trajectories are made of. The same rng gives the same actions, on every substrate."""

    name: str
    needs: Needs
    repository: RepositoryUse
    shortest: int
    """The least number of actions that still makes sense."""

    def setup(self) -> Sequence[Action]:
        """The workload's own preparation, timed as the setup phase."""
        ...

    def actions(self, length: int, rng: random.Random) -> Sequence[Action]:
        """Exactly *length* actions."""
        ...


@dataclass(frozen=True)
class Trajectory:
    """A seeded, fixed sequence of actions."""

    tier: str
    seed: int
    setup: tuple[Action, ...]
    actions: tuple[Action, ...]
    digest: str
    """Names the sequence: two trials with the same digest did the same."""


def build_trajectory(workload: Workload, length: int, seed: int) -> Trajectory:
    """The trajectory of that length and seed; equal arguments give equal trajectories, everywhere and always."""
    setup = tuple(workload.setup())
    actions = tuple(workload.actions(length, random.Random(f"{seed}/{workload.name}/{length}")))
    assert len(actions) == length, f"{workload.name} made {len(actions)} actions instead of {length}"
    return Trajectory(workload.name, seed, setup, actions, _digest(setup, actions))


def _digest(*parts: Sequence[Action]) -> str:
    plain = [
        [[a.kind, a.command, a.cwd, sorted(a.env.items()), (a.stdin or b"").decode("latin-1"), a.expect] for a in part]
        for part in parts
    ]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]
