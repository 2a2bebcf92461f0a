"""Bytes to and from a program in an environment, whatever carries them."""

from __future__ import annotations

from typing import Protocol

STDOUT = 1
STDERR = 2


class ChannelClosed(Exception):
    """The program at the other end has ended or can no longer be reached; the text says which."""


class Channel(Protocol):
    """The three standard streams of one running program."""

    def send(self, data: bytes) -> None:
        """Queue *data* for the program's stdin; what cannot be written at once goes out during receive()."""
        ...

    def receive(self, timeout: float | None) -> tuple[int, bytes] | None:
        """The next piece of output as (STDOUT or STDERR, bytes), or None when *timeout* seconds have passed.

        Raises ChannelClosed once the program has ended and all its output has been received.
        """
        ...

    def close(self) -> None:
        """Release the channel, ending the program if it still runs; idempotent."""
        ...


class BoundedBuffer:
    """Keeps the first *limit* bytes it is given and counts the rest: 50 MB of output must not cost 50 MB."""

    __slots__ = ("_kept", "_limit", "dropped")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.dropped = 0

    def append(self, data: bytes) -> None:
        """Keep what still fits."""
        room = self._limit - len(self._kept)
        if len(data) <= room:
            self._kept += data
        else:
            self._kept += data[:room]
            self.dropped += len(data) - room

    def getvalue(self) -> bytes:
        """The bytes kept."""
        return bytes(self._kept)
