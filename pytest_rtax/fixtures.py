"""What custom tests get: a substrate they can ask for environments."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytest_rtax.measure.rollout import Limits, wait_gone
from pytest_rtax.substrates.protocol import Environment, EnvironmentSpec, Substrate


class SubstrateHandle:
    """The value of the `substrate` fixture."""

    def __init__(self, label: str, substrate: Substrate, run: str, limits: Limits) -> None:
        self.label = label
        self.substrate = substrate
        """The substrate itself, for what the handle does not offer."""
        self._run = run
        self._limits = limits

    @property
    def name(self) -> str:
        """The substrate's name, without options."""
        return self.substrate.name

    @property
    def isolates(self) -> frozenset[str]:
        """What two of its environments do not share."""
        return self.substrate.isolates

    @property
    def simulated(self) -> bool:
        """True if it runs nothing."""
        return self.substrate.simulated

    @contextmanager
    def environment(self, **fields: Any) -> Iterator[Environment]:
        """A fresh environment that is ready, and afterwards seen to be gone. *fields* are EnvironmentSpec's."""
        spec = EnvironmentSpec(run=self._run, id=f"rtax-{secrets.token_hex(6)}", **fields)
        self.substrate.prepare(spec)
        environment = self.substrate.create(spec)
        try:
            environment.wait_ready(self._limits.ready)
            yield environment
        finally:
            environment.destroy()
            wait_gone(environment, self._limits.cleanup, self.substrate.clock)

    def __repr__(self) -> str:
        return f"<substrate {self.label}>"
