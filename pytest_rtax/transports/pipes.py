"""A channel to a child process of the driver."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence

from pytest_rtax.transports.channel import STDERR, STDOUT, ChannelClosed

_CHUNK = 256 * 1024
_LONGEST_WAIT = 3600.0  # poll() takes no more than 24 days; receive() asks again
_PIPES_HOLD = 2 * 1024 * 1024  # two pipes of 16 pages, where a page is 64 KiB


class PipeChannel:
    """One child process in a session of its own, with a pipe on each standard stream.

    The end of the *process* ends the channel, not the end of its output: a background process that inherited the
    pipes must keep nobody waiting. Where the kernel has no pidfd, the exit is looked for every few milliseconds.
    """

    _EXIT_POLL_MS = 5

    def __init__(self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], stdin: bool = True) -> None:
        self._process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        self._streams = {self._process.stdout.fileno(): STDOUT, self._process.stderr.fileno(): STDERR}
        self._poll = select.poll()
        for fd in self._streams:
            os.set_blocking(fd, False)
            self._poll.register(fd, select.POLLIN)
        self._stdin = -1
        if self._process.stdin is not None:
            self._stdin = self._process.stdin.fileno()
            os.set_blocking(self._stdin, False)
        self._unsent = bytearray()
        self._close_stdin_when_sent = False
        self._ready: list[int] = []
        self._pidfd = self._open_pidfd()
        self._drain_left = _PIPES_HOLD
        self._closed = False

    def _open_pidfd(self) -> int:
        try:
            pidfd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):  # not Linux, or an old kernel
            return -1
        self._poll.register(pidfd, select.POLLIN)
        return pidfd

    @property
    def pid(self) -> int:
        """The child's process id, which is also its process group and session."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code as a shell gives it (128 + signal), once the channel is closed by the child's end."""
        code = self._process.returncode
        return code if code is None or code >= 0 else 128 - code

    def send(self, data: bytes) -> None:
        """Write what the pipe takes now and queue the rest."""
        if self._unsent:
            self._unsent += data
            return
        sent = self._write(data)
        if sent < len(data):
            self._unsent += memoryview(data)[sent:]
            self._poll.register(self._stdin, select.POLLOUT)

    def end_input(self) -> None:
        """Close the child's stdin once everything queued is written."""
        self._close_stdin_when_sent = True
        if not self._unsent:
            self._close_stdin()

    def receive(self, timeout: float | None) -> tuple[int, bytes] | None:
        """See Channel."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            while self._ready:
                if (piece := self._read(self._ready.pop())) is not None:
                    return piece
            if self._exited():
                if (piece := self._leftover()) is not None:
                    return piece
                raise ChannelClosed(f"the process ended with exit code {self.returncode}")
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return None
            self._wait(remaining)

    def _wait(self, timeout: float | None) -> None:
        milliseconds = None if timeout is None else min(timeout, _LONGEST_WAIT) * 1000
        if self._pidfd < 0:
            milliseconds = self._EXIT_POLL_MS if milliseconds is None else min(milliseconds, self._EXIT_POLL_MS)
        for fd, _ in self._poll.poll(milliseconds):
            if fd == self._stdin:
                self._flush()
            elif fd == self._pidfd:
                self._process.wait()
            elif fd in self._streams:
                self._ready.append(fd)

    def _exited(self) -> bool:
        if self._pidfd < 0:
            self._process.poll()
        return self._process.returncode is not None

    def _read(self, fd: int) -> tuple[int, bytes] | None:
        stream = self._streams.get(fd)
        if stream is None:
            return None
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return None
        if data:
            return stream, data
        # End of file on one stream says nothing about the process: a command may close its own output.
        self._poll.unregister(fd)
        del self._streams[fd]
        return None

    def _leftover(self) -> tuple[int, bytes] | None:
        """What the child wrote before its end: at most what the pipes held. A survivor may write on for ever."""
        for fd in tuple(self._streams):
            if self._drain_left > 0 and (piece := self._read(fd)) is not None:
                self._drain_left -= len(piece[1])
                return piece
        return None

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return os.write(self._stdin, data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            # Nobody reads it any more. If that is because the process has ended, receive() will say so.
            return len(data)

    def _flush(self) -> None:
        del self._unsent[: self._write(self._unsent)]
        if not self._unsent:
            self._poll.unregister(self._stdin)
            if self._close_stdin_when_sent:
                self._close_stdin()

    def _close_stdin(self) -> None:
        self._stdin = -1
        if self._process.stdin is not None:
            self._process.stdin.close()

    def close(self) -> None:
        """Kill the child if it still runs, reap it and close every descriptor."""
        if self._closed:
            return
        self._closed = True
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._pidfd >= 0:
            os.close(self._pidfd)
        # The numbers will soon be somebody else's descriptors.
        self._ready.clear()
        self._streams.clear()
        self._close_stdin()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
