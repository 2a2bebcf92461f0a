"""What the transports have in common: how a command is written, found again, and ended."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from pytest_rtax.substrates.protocol import Command
from pytest_rtax.transports.channel import Channel, ChannelClosed
from pytest_rtax.transports.frames import FramedOutput

COMMAND_COOKIE = "RTAX_COMMAND"
"""The variable that every process of one command inherits, and by which a timeout finds them all."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GRACE_SECONDS = 5.0
_KILL_AGAIN_SECONDS = 0.1


def command_argv(command: Command) -> list[str]:
    """The argument vector of a command: a string goes to ``sh -c``, a sequence stays as it is."""
    argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
    if not argv or any("\0" in word for word in argv):
        raise ValueError(f"not a command: {command!r} (it is empty or holds a NUL character)")
    return argv


def checked_env(env: Mapping[str, str] | None) -> dict[str, str]:
    """The variables asked for; raises ValueError for what cannot be one."""
    for name, value in (env or {}).items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise ValueError(f"not an environment variable: {name!r} (or its value holds a NUL character)")
    return dict(env or {})


def command_env(env: Mapping[str, str] | None, cookie: str) -> dict[str, str]:
    """The variables that a command is given: those asked for and its cookie."""
    return {**checked_env(env), COMMAND_COOKIE: cookie}


def kill_until_answered(channel: Channel, output: FramedOutput, kill: Callable[[], None]) -> None:
    """More than once, because the command may not have been started yet when it is first looked for."""
    deadline = time.monotonic() + _GRACE_SECONDS
    kill()
    while not output.collect(channel, _KILL_AGAIN_SECONDS):
        if time.monotonic() > deadline:
            raise ChannelClosed("it did not answer after its command was killed")
        kill()
