"""How an action reaches the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pytest_rtax.substrates.protocol import Environment, Runner, Session

TRANSPORTS: Final = ("exec", "session")


def open_transport(name: str, environment: Environment) -> tuple[Runner, Session | None]:
    """What carries the commands of a rollout, and the session to close after it, if there is one."""
    if name == "session":
        session = environment.open_session()
        return session, session
    return environment, None
