"""A channel over a socket that Docker's engine has turned into a program's streams.

Output arrives in frames of a stream number, three zero bytes, a length of four bytes, and that many bytes.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time

from pytest_rtax.transports.channel import STDERR, STDOUT, ChannelClosed

_HEADER = struct.Struct(">BxxxL")
_CHUNK = 256 * 1024
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class MultiplexedChannel:
    """Both output streams of a program, and its input, over one socket."""

    def __init__(self, connection: socket.socket, received: bytes = b"") -> None:
        """*received* are bytes that were read together with the answer to the request for the stream."""
        self._socket = connection
        self._socket.setblocking(False)
        self._buffer = bytearray(received)
        self._unsent = bytearray()
        self._poll = select.poll()
        self._ended = False

    def send(self, data: bytes) -> None:
        """Write what the socket takes now and queue the rest."""
        self._unsent += data
        self._flush()

    def receive(self, timeout: float | None) -> tuple[int, bytes] | None:
        """See Channel."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._flush()  # output that never pauses must not starve the input
        while True:
            if (piece := self._next_frame()) is not None:
                return piece
            if self._ended:
                raise ChannelClosed("the engine has closed the connection")
            if self._fill():
                continue
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return None
            self._wait(remaining)

    def _next_frame(self) -> tuple[int, bytes] | None:
        while len(self._buffer) >= _HEADER.size:
            stream, length = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return None
            data = bytes(memoryview(self._buffer)[_HEADER.size : end])
            del self._buffer[:end]
            if stream in (STDOUT, STDERR):
                return stream, data
            raise ChannelClosed(f"the engine sent what is no output: {data[:200].decode(errors='replace')}")
        return None

    def _fill(self) -> bool:
        """Take what has arrived; False if nothing has."""
        try:
            data = self._socket.recv(_CHUNK)
        except _WOULD_BLOCK:
            return False
        except OSError as error:
            raise ChannelClosed(f"the connection to the engine broke: {error.strerror or error}") from None
        self._buffer += data
        self._ended = not data
        return True

    def _wait(self, timeout: float | None) -> None:
        self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        # A day at a time: the kernel takes no more than 24 of them.
        events = self._poll.poll(None if timeout is None else min(timeout, 86400.0) * 1000)
        if any(event & select.POLLOUT for _, event in events):
            self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(memoryview(self._unsent)[:_CHUNK].tobytes())]
        except _WOULD_BLOCK:
            return
        except OSError:
            self._unsent.clear()  # nobody reads it any more; receive() will say why

    def close(self) -> None:
        """Close the connection; the engine ends what is attached to it or not. Idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._ended = True
