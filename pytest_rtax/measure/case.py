"""A case: one pytest item's share of the measuring."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A test on one substrate, over one transport, with one trajectory length; owns n trials."""

    substrate: str
    """The substrate's label, options included."""
    transport: str
    tier: str
    length: int
    trials: int
    warmup: int
    failure_limit: float
    """The share of failed trials that the case may have and still pass."""
    id: str = ""
    """The item's node id; known once it has been collected."""
    test: str = ""
    """The node id without what rtax parametrized."""

    @property
    def label(self) -> str:
        """Its part of the node id."""
        return f"{self.substrate}-{self.transport}-{self.length}"

    @property
    def group(self) -> tuple[str, int]:
        """What it is interleaved with: the same test and length on other substrates and transports."""
        return self.test, self.length
