"""What is written down about a run: one `Run` beside one `Trial` per line.

All durations are integer nanoseconds of the driver's monotonic clock. A phase that was not reached is absent; a time
that is not known is null; neither is ever a zero.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA_VERSION = 1

PHASES = ("create", "ready", "setup", "actions", "cleanup")
"""The timed parts of a rollout, in order."""


class ActionSample(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One action: `[kind, wall, inside, exit code]`, as an array because there are many of them."""

    kind: str
    wall: int
    inside: int | None
    exit_code: int

    @property
    def dispatch(self) -> int | None:
        """What the substrate charged for carrying the command and its observation."""
        return None if self.inside is None else self.wall - self.inside


class Failure(msgspec.Struct, frozen=True):
    """Where and why a trial failed."""

    phase: str
    reason: str
    action: int | None = None
    """Index of the action, if it failed in one."""


class Trial(msgspec.Struct, kw_only=True, frozen=True):
    """One rollout: one fresh environment, one trajectory, every phase timed."""

    version: Literal[1] = 1
    run: str
    case: str
    """The pytest item's node id."""
    test: str
    """The node id without what rtax parametrized: the same for all cases that were interleaved."""
    substrate: str
    transport: str
    tier: str
    length: int
    trial: int
    """0, 1, … within the case; warm-up trials count for themselves."""
    order: int
    """Position in the interleaved schedule of the test."""
    warmup: bool = False
    """A warm-up is on record and in no statistic."""
    interleaved: bool = True
    worker: str = ""
    started: float
    """Unix time, for people; no duration is computed from it."""
    trajectory: str
    """Digest of the list of actions."""
    clone_from: str | None = None
    environment: str
    phases: dict[str, int]
    subphases: dict[str, int] = {}
    setup: list[ActionSample] = []
    actions: list[ActionSample] = []
    total: int | None = None
    """From the request to the observed absence; null if the trial failed."""
    failure: Failure | None = None


class Run(msgspec.Struct, kw_only=True):
    """One pytest invocation and its provenance."""

    version: Literal[1] = 1
    id: str
    status: Literal["running", "complete", "interrupted"] = "running"
    started: float
    finished: float | None = None
    command: list[str]
    seed: int
    profile: str
    settings: dict[str, Any]
    git: dict[str, Any]
    versions: dict[str, str]
    machine: dict[str, Any]
    load_before: list[float]
    load_after: list[float] | None = None
    workers: int = 0
    """xdist workers; 0 means that the driver itself measured."""
    substrates: dict[str, dict[str, Any]] = {}
    repository: dict[str, Any] | None = None
    notes: list[str] = []
    """What a reader of the figures must know: leftovers removed, clone sources that differ, and so on."""


def json_schema() -> dict[str, Any]:
    """The JSON Schema of both files, as kept in docs/schema.json."""
    (run, trial), definitions = msgspec.json.schema_components((Run, Trial), ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pytest-rtax records",
        "description": "run.json is a Run; each line of samples.jsonl is a Trial. Durations are nanoseconds.",
        "oneOf": [run, trial],
        "$defs": definitions,
    }
