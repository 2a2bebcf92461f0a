"""`null`: runs nothing and answers when it is told to, to calibrate the instrument and to measure its own cost."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pytest_rtax.clock import REAL_CLOCK, Clock, VirtualClock
from pytest_rtax.substrates.protocol import (
    Command,
    Environment,
    EnvironmentFailed,
    EnvironmentSpec,
    Needs,
    Observation,
    Option,
    Substrate,
)
from pytest_rtax.units import parse_duration

_DRAWN = re.compile(r"(?P<median>[^~]+)~(?P<sigma>\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Delay:
    """A fixed delay, or one drawn from a lognormal distribution: ``5ms`` or ``5ms~0.2`` (median~sigma)."""

    median_ns: int
    sigma: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Delay:
        """From the text of an option."""
        drawn = _DRAWN.fullmatch(text)
        if drawn is None:
            return cls(parse_duration(text))
        return cls(parse_duration(drawn["median"]), float(drawn["sigma"]))

    def draw(self, rng: random.Random) -> int:
        """Nanoseconds."""
        return round(self.median_ns * rng.lognormvariate(0.0, self.sigma)) if self.sigma else self.median_ns


_NONE = Delay(0)


def _parse_clock(text: str) -> Clock:
    if text not in ("real", "virtual"):
        raise ValueError(f"{text!r} is not a clock: write real or virtual")
    return REAL_CLOCK if text == "real" else VirtualClock()


class NullSubstrate(Substrate):
    """Delays without work."""

    name = "null"
    simulated = True
    isolates = frozenset({"filesystem", "processes", "network"})
    options: ClassVar = {
        "create": Option(Delay.parse, "delay of create: 20ms, or 20ms~0.2 for lognormal with that sigma"),
        "ready": Option(Delay.parse, "delay until ready"),
        "action": Option(Delay.parse, "delay of each command, time inside included"),
        "inside": Option(Delay.parse, "how much of it is said to be inside the environment (default: none)"),
        "cleanup": Option(Delay.parse, "delay of destroy"),
        "clock": Option(_parse_clock, "real, or virtual to simulate without waiting (default: real)"),
        "seed": Option(int, "of the drawn delays (default: 0)"),
    }

    def __init__(
        self,
        create: Delay = _NONE,
        ready: Delay = _NONE,
        action: Delay = _NONE,
        inside: Delay = _NONE,
        cleanup: Delay = _NONE,
        clock: Clock = REAL_CLOCK,
        seed: int = 0,
    ) -> None:
        self.clock = clock
        self._rng = random.Random(seed)
        self._delays = {"create": create, "ready": ready, "action": action, "inside": inside, "cleanup": cleanup}
        self._alive: set[str] = set()

    def draw(self, what: str) -> int:
        """How long *what* takes this time."""
        return self._delays[what].draw(self._rng)

    def preflight(self, needs: Needs) -> None:
        """Always usable, whatever the workloads need: nothing is run."""

    def create(self, spec: EnvironmentSpec) -> Environment:
        """Wait, then hand out an environment."""
        self.clock.sleep(self.draw("create"))
        self._alive.add(spec.id)
        return NullEnvironment(spec.id, self, self._alive)

    def reap(self, *, run: str | None) -> list[str]:
        """Nothing outlives the process."""
        return []

    def provenance(self) -> dict[str, Any]:
        """The delays it was told."""
        delays = {what: [delay.median_ns, delay.sigma] for what, delay in self._delays.items()}
        return {"simulated": True, "clock": type(self.clock).__name__, "delays": delays}


class NullEnvironment(Environment):
    """Answers every command with exit code 0 and no output."""

    def __init__(self, id: str, substrate: NullSubstrate, alive: set[str]) -> None:
        self.id = id
        self.subphases = {}
        self._substrate = substrate
        self._alive = alive
        self._files: dict[str, bytes] = {}
        self._ready = False

    def wait_ready(self, timeout: float) -> None:
        """Return at once: an environment is ready when its first command has succeeded, so that one takes the time."""

    def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
    ) -> Observation:
        """Wait as told and succeed."""
        self._check_alive()
        substrate = self._substrate
        if not self._ready:
            self._ready = True
            substrate.clock.sleep(substrate.draw("ready"))
            return Observation(0)
        delay = substrate.draw("action")
        substrate.clock.sleep(delay)
        return Observation(0, inside_ns=min(delay, substrate.draw("inside")))

    def _check_alive(self) -> None:
        if self.id not in self._alive:
            raise EnvironmentFailed(f"environment {self.id} has been destroyed")

    def open_session(self) -> NullEnvironment:
        """There is no connection to keep: the session is the environment."""
        return self

    def close(self) -> None:
        """Nothing to close."""

    def read(self, path: str) -> bytes:
        """What was written there."""
        self._check_alive()
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def write(self, path: str, data: bytes) -> None:
        """Remember it."""
        self._check_alive()
        self._files[path] = data

    def destroy(self) -> None:
        """Wait as told, once."""
        if self.id in self._alive:
            self._substrate.clock.sleep(self._substrate.draw("cleanup"))
            self._alive.discard(self.id)

    def gone(self) -> bool:
        """Whether destroy() has returned."""
        return self.id not in self._alive
