"""What a substrate is: a handful of verbs, a few plain values, and the errors they may raise.

A substrate is one file. Subclass :class:`Substrate` and :class:`Environment` for the defaults, or write a class
of the same shape; `docs/writing-a-substrate.md` walks through one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from pytest_rtax.clock import REAL_CLOCK, Clock

Command: TypeAlias = str | Sequence[str]
"""A string is given to the environment's shell (``sh -c``); a sequence is started as it is."""

DEFAULT_OUTPUT_LIMIT = 8 * 1024 * 1024
"""Bytes kept of each output stream of one command; what is beyond is counted and dropped."""


class SubstrateError(Exception):
    """Base of everything a substrate raises on purpose; its text is one line for a person."""


class SubstrateUnavailable(SubstrateError):
    """The substrate cannot be used here and now."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class EnvironmentFailed(SubstrateError):
    """An environment could not be created, did not become ready, died, or would not go away."""


class CommandTimeout(SubstrateError):
    """A command outlived its timeout and was killed with everything it had started."""


class SessionLost(EnvironmentFailed):
    """A session's shell or its connection ended while it was still needed."""


@dataclass(frozen=True)
class Observation:
    """What came back from one command. Untrusted: the environment may have written anything."""

    exit_code: int
    """0 to 255; a command killed by signal *n* has 128 + *n*, as in a shell."""
    stdout: bytes = b""
    stderr: bytes = b""
    inside_ns: int | None = None
    """From just before the command was started in the environment until it was reaped there; None if unknown."""
    stdout_dropped: int = 0
    """Bytes of stdout beyond the output limit."""
    stderr_dropped: int = 0

    @property
    def truncated(self) -> bool:
        """Whether some output is missing."""
        return bool(self.stdout_dropped or self.stderr_dropped)


@dataclass(frozen=True)
class EnvironmentSpec:
    """What a new environment has to be like, and how to find it again."""

    run: str
    """The run it belongs to, as substrates label or tag it: the run's id, or `id.worker` under xdist."""
    id: str
    """Chosen by the driver before anything is asked for, so that a lost environment can be found by it."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables for every command in it."""
    repository: Path | None = None
    """A prepared working tree that has to be at ``attrs/`` in the workspace: copied in where there is no image."""
    ttl: float = 3600.0
    """Seconds after which the environment may be destroyed without being asked: a lost driver leaks nothing."""
    output_limit: int = DEFAULT_OUTPUT_LIMIT


def belongs_to(label: str, run: str) -> bool:
    """Whether an environment with that run label is the run's, or one of its xdist workers'."""
    return label == run or label.startswith(f"{run}.")


@dataclass(frozen=True)
class Needs:
    """What the workloads of a run expect to find in an environment."""

    tools: frozenset[str] = frozenset()
    """Programs on the PATH."""
    modules: frozenset[str] = frozenset()
    """Modules that the environment's python3 can import."""

    def __or__(self, other: Needs) -> Needs:
        return Needs(self.tools | other.tools, self.modules | other.modules)


class Runner(Protocol):
    """Anything that carries commands into an environment."""

    def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
    ) -> Observation:
        """Run one command to its end and return what came back.

        A relative *cwd* starts at the environment's workspace. Without *stdin* the command reads end-of-file.
        Returns when the command has ended, even if something it left in the background holds its output open.
        Raises :class:`CommandTimeout` after *timeout* seconds, once the command's whole process tree is dead.
        """
        ...


class Session(Runner, Protocol):
    """One connection kept open for a whole rollout. Each command still starts from a clean state."""

    def close(self) -> None:
        """End the connection; idempotent."""
        ...


class Environment(Runner, Protocol):
    """One isolated machine-like place; belongs to one trial."""

    id: str
    subphases: dict[str, int]
    """Named parts of the phases, in nanoseconds, where the control plane shows them (``ready.scheduled``)."""

    def wait_ready(self, timeout: float) -> None:
        """Return as soon as a command can be expected to succeed; raise EnvironmentFailed as soon as it cannot."""
        ...

    def open_session(self) -> Session:
        """Open a persistent connection with the same ``run()``."""
        ...

    def read(self, path: str) -> bytes:
        """The bytes of a file; a relative path starts at the workspace."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file, making the directories above it."""
        ...

    def destroy(self) -> None:
        """Have it removed, with everything that runs in it; idempotent."""
        ...

    def gone(self) -> bool:
        """Whether it has been observed to be gone."""
        ...


@dataclass(frozen=True)
class Option:
    """One ``key=value`` of ``--substrate=name:key=value``."""

    parse: Callable[[str], Any]
    """Turns the text into a value, or raises ValueError with a reason."""
    help: str


@runtime_checkable
class Substrate(Protocol):
    """A way to get environments.

    Only ``name``, ``preflight``, ``create``, ``reap`` and ``provenance`` have to be written; the rest has defaults
    that subclasses inherit.
    """

    name: str
    options: ClassVar[Mapping[str, Option]] = {}
    """What ``--substrate=name:key=value`` may set; each arrives as a keyword argument of the constructor."""
    isolates: frozenset[str] = frozenset()
    """What two environments do not share: any of ``filesystem``, ``processes``, ``network``."""
    simulated: bool = False
    """True if no command is really run: such figures calibrate the instrument and say nothing of a substrate."""
    clock: Clock = REAL_CLOCK
    """What its phases are timed with."""
    driver_host: str = "127.0.0.1"
    """The address under which its environments reach the driver: where the driver's mirror listens for them."""
    image_mirror: str | None = None
    """Where its environments hold a bare mirror of the repository; None if they see the driver's own files."""

    def preflight(self, needs: Needs) -> None:
        """Raise SubstrateUnavailable(reason, remedy) if a run with these *needs* cannot work. Creates nothing."""
        ...

    def prepare(self, spec: EnvironmentSpec) -> None:
        """Untimed, before each :meth:`create`: do what an image would already hold. By default nothing."""
        return  # an empty body would be abstract

    def create(self, spec: EnvironmentSpec) -> Environment:
        """Ask for an environment; return at the control plane's acknowledgement. Leaves nothing if it raises."""
        ...

    def reap(self, *, run: str | None) -> list[str]:
        """Destroy leftovers, found by label and not by memory, and return their ids.

        With *run*, everything whose label :func:`belongs_to` that run; without, what belongs to dead drivers.
        """
        ...

    def provenance(self) -> dict[str, Any]:
        """Plain data that decides whether two runs may be compared: versions, limits, image digest, region."""
        ...
