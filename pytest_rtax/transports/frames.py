r"""How the end of a command is told apart from its output.

When a command has ended, its shell writes a frame behind its output on each stream:

    <nonce> <sequence> <exit code> <start> <end>\n     on stdout
    <nonce> <sequence>\n                               on stderr

The nonce is 128 random bits that the command is not told, so no output can be mistaken for a frame. Start and end are
readings of the environment's own clock, or `?` where its shell has none.
"""

from __future__ import annotations

import re
import time

from pytest_rtax.substrates.protocol import Observation
from pytest_rtax.transports.channel import STDERR, STDOUT, BoundedBuffer, Channel, ChannelClosed

_ANSWER = re.compile(rb"(\d{1,3}) (\S+) (\S+)")
_READING = re.compile(rb"(\d+)\D{1,4}(\d{6})")


class _Stream:
    """One output stream of the shell: the command's bytes up to the frame, then the frame."""

    def __init__(self, marker: bytes, limit: int, carried: bytes) -> None:
        self.output = BoundedBuffer(limit)
        self.frame: bytes | None = None
        self.rest = b""
        self.pending = b""
        self._marker = marker
        if carried:
            self.feed(carried)

    def feed(self, data: bytes) -> None:
        """Take the next bytes; sets `frame` once it is complete, and `rest` to what came behind it."""
        if self.frame is not None:
            self.rest += data
            return
        data = self.pending + data
        start = data.find(self._marker)
        if start < 0:
            # The marker may be cut in two: hold back as many bytes as could be its beginning.
            keep = max(0, len(data) - len(self._marker) + 1)
            self.output.append(data[:keep])
            self.pending = data[keep:]
            return
        self.output.append(data[:start])
        end = data.find(b"\n", start)
        if end < 0:
            self.pending = data[start:]
            return
        self.frame, self.rest = data[start + len(self._marker) : end], data[end + 1 :]


class FramedOutput:
    """The output of one command, as it arrives over a channel."""

    def __init__(self, nonce: str, sequence: int, limit: int, carried: tuple[bytes, bytes] = (b"", b"")) -> None:
        """*carried* is what came behind the frames of the command before."""
        marker = f"{nonce} {sequence}".encode()
        self._out = _Stream(marker + b" ", limit, carried[0])
        self._err = _Stream(marker + b"\n", limit, carried[1])
        self._streams = {STDOUT: self._out, STDERR: self._err}

    def collect(self, channel: Channel, timeout: float | None) -> bool:
        """Read until both frames are there; False if that takes longer than *timeout* seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._out.frame is None or self._err.frame is None:
            piece = channel.receive(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if piece is None:
                return False
            self._streams[piece[0]].feed(piece[1])
        return True

    @property
    def rest(self) -> tuple[bytes, bytes]:
        """What came behind the frames."""
        return self._out.rest, self._err.rest

    def last_words(self) -> str:
        """The last line of stderr so far: if the shell is gone, it may say why."""
        said = (self._err.output.getvalue() + self._err.pending).decode(errors="replace").strip().splitlines()
        return said[-1][:200] if said else ""

    def observation(self) -> Observation:
        """What the command did; raises ChannelClosed if the frame is not one."""
        assert self._out.frame is not None
        answer = _ANSWER.fullmatch(self._out.frame)
        if answer is None:
            raise ChannelClosed(f"its answer cannot be read: {self._out.frame[:100]!r}")
        return Observation(
            exit_code=int(answer[1]),
            stdout=self._out.output.getvalue(),
            stderr=self._err.output.getvalue(),
            inside_ns=_elapsed_ns(answer[2], answer[3]),
            stdout_dropped=self._out.output.dropped,
            stderr_dropped=self._err.output.dropped,
        )


def _elapsed_ns(start: bytes, end: bytes) -> int | None:
    """Between two readings of EPOCHREALTIME, whose decimal sign follows the locale; None where there is no clock.

    It is a wall clock: a step backwards shows up as a negative duration, which is unknown, not zero.
    """
    before, after = _READING.fullmatch(start), _READING.fullmatch(end)
    if before is None or after is None:
        return None
    elapsed = (int(after[1] + after[2]) - int(before[1] + before[2])) * 1000
    return elapsed if elapsed >= 0 else None
