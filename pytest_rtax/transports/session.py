r"""One shell kept open for a rollout.

The driver sends one script per command; when the command has ended, a frame follows its output on each stream:

    <nonce> <sequence> <exit code> <start> <end>\n     on stdout
    <nonce> <sequence>\n                               on stderr

The nonce is 128 random bits, held in a shell variable that is not exported, so no output can be mistaken for a
frame. A command is started as a program of its own: it may exit, exec, close descriptors or read stdin without
touching the shell, and it starts from the same state as with the exec transport.

Two shells share the work where there is a bash. Bash keeps the clock: it reads EPOCHREALTIME before and after, which
costs no process, and writes the frames. `sh` starts the commands: a small shell launches a program in two thirds of
the time that bash needs (docs/benchmarks.md). Where there is no bash, `sh` does both, and the time inside is unknown.

What a background process prints after its command has ended arrives with whatever command is running then, as on a
terminal.
"""

from __future__ import annotations

import re
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Mapping

from pytest_rtax.substrates.protocol import Command, CommandTimeout, Observation, SessionLost
from pytest_rtax.transports.channel import STDERR, STDOUT, BoundedBuffer, Channel, ChannelClosed

COMMAND_COOKIE = "RTAX_COMMAND"
"""The variable that every process of one command inherits, and by which a timeout finds them all."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROGRAM = re.compile(r"[A-Za-z0-9_.+@%:,/-]*/[A-Za-z0-9_.+@%:,/-]*|[A-Za-z0-9][A-Za-z0-9_.+-]*")
_ANSWER = re.compile(rb"(\d{1,3}) (\S+) (\S+)")
_READING = re.compile(rb"(\d+)\D{1,4}(\d{6})")
_GRACE_SECONDS = 5.0
_KILL_AGAIN_SECONDS = 0.1

# Names that some shell takes for itself; they are started through `exec`, which looks for programs only.
_SHELL_WORDS = frozenset(
    """
    alias bg bind break builtin caller case cd chdir command compgen complete compopt continue coproc declare dirs
    disown do done echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help
    history if in jobs kill let local logout mapfile newgrp popd printf pushd pwd read readarray readonly return
    select set shift shopt source suspend test then time times trap true type typeset ulimit umask unalias unset
    until wait while
    """.split()
)

# In both, descriptor 3 of the launching sh is the real stderr and its own goes to /dev/null. In the relay, 4 leads
# back to bash, which has to take its input for bytes: in a UTF-8 locale its `read` drops the last of 01 c2 01. The
# commands do not see that locale, because their sh has been started before. A command that a signal ends gets the
# remark of sh ("Killed") behind its stderr, as in any shell.
_RELAY = """\
exec 5>&1 6>&2 2>/dev/null
coproc _w {{ exec sh 4>&1 1>&5 3>&6 5>&- 6>&-; }}
LC_ALL=C
while IFS= read -r -d '' _l; do
_s=${{EPOCHREALTIME-}}
printf '%s\\n' "$_l" >&"${{_w[1]}}"
read -r _q _c <&"${{_w[0]}}" || exit
_t=${{EPOCHREALTIME-}}
printf '%s %s %s %s %s\\n' {nonce} "$_q" "$_c" "${{_s:-?}}" "${{_t:-?}}"
printf '%s %s\\n' {nonce} "$_q" >&6
done
"""
_PLAIN = """\
exec 3>&2 2>/dev/null
_e() {{ printf '%s %s %s ? ?\\n' {nonce} $1 $2; printf '%s %s\\n' {nonce} $1 >&3; }}
"""


def session_argv(*, bash: bool) -> list[str]:
    """The program to open a session's channel with."""
    # With -p it reads no start-up file that the environment names in BASH_ENV.
    return ["bash", "--noprofile", "--norc", "-p"] if bash else ["sh"]


def command_argv(command: Command) -> list[str]:
    """The argument vector of a command: a string goes to ``sh -c``, a sequence stays as it is."""
    argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
    if not argv or any("\0" in word for word in argv):
        raise ValueError(f"not a command: {command!r} (it is empty or holds a NUL character)")
    return argv


def command_env(env: Mapping[str, str] | None, cookie: str) -> dict[str, str]:
    """The variables that a command is given: those asked for and its cookie."""
    for name, value in (env or {}).items():
        if not _NAME.fullmatch(name) or "\0" in value:
            raise ValueError(f"not an environment variable: {name!r} (or its value holds a NUL character)")
    return {**(env or {}), COMMAND_COOKIE: cookie}


def _script(argv: list[str], *, cwd: str | None, env: Mapping[str, str], stdin: bytes | None) -> bytes:
    """Shell text that runs one program; its exit status is the program's."""
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())
    words = shlex.join(argv)
    if cwd is None and _PROGRAM.fullmatch(argv[0]) and argv[0] not in _SHELL_WORDS:
        program = f"{variables} {words}"  # a plain command: sh needs no copy of itself to start it
    else:
        program = f"({_move(cwd)}export {variables};exec {words})"
    text = f"{program} 2>&3 3>&- 4>&-".encode(errors="surrogateescape")
    return text + b" </dev/null" if stdin is None else b"printf %b " + _percent_b(stdin) + b"|" + text


def _move(cwd: str | None) -> str:
    """Shell text that does what chdir() does: no CDPATH, no ``cd -``, and ``..`` of a link is where it points."""
    if cwd is None:
        return ""
    if "\0" in cwd:
        raise ValueError(f"not a directory: {cwd!r} (it holds a NUL character)")
    return f"cd -P -- {shlex.quote(cwd if cwd.startswith('/') else './' + cwd)}||exit 127;"


def _percent_b(data: bytes) -> bytes:
    """*data* as one shell word that ``printf %b`` turns back into the same bytes, NUL included."""
    escaped = data.replace(b"\\", b"\\\\").replace(b"\0", b"\\0000")
    return b"'" + escaped.replace(b"'", b"'\\''") + b"'"


class _Stream:
    """One output stream of the shell: the command's bytes up to the frame, then the frame."""

    def __init__(self, marker: bytes, limit: int, carried: bytes) -> None:
        self.output = BoundedBuffer(limit)
        self.frame: bytes | None = None
        self.rest = b""
        self._marker = marker
        self.pending = b""
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


class ShellSession:
    """A session over any channel to a shell; see the module's text for the protocol."""

    def __init__(
        self,
        channel: Channel,
        *,
        id: str,
        bash: bool,
        kill: Callable[[str], None],
        output_limit: int,
    ) -> None:
        """Take over a *channel* to a fresh ``session_argv(bash=bash)``.

        *kill* ends every process of the environment whose COMMAND_COOKIE is the text it is given.
        """
        self._channel = channel
        self._id = id
        self._kill = kill
        self._limit = output_limit
        self._nonce = secrets.token_hex(16)
        self._sequence = 0
        self._carried = {STDOUT: b"", STDERR: b""}
        self._lost: str | None = None
        self._lock = threading.Lock()
        # Where a program was found is forgotten: the next command may be looked for after one more was installed.
        self._report = "echo {} $? >&4;hash -r\0" if bash else "_e {} $?;hash -r\n"
        self._channel.send((_RELAY if bash else _PLAIN).format(nonce=self._nonce).encode())

    def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
    ) -> Observation:
        """See Runner.run; commands from several threads take turns."""
        argv = command_argv(command)
        with self._lock:
            if self._lost is not None:
                raise SessionLost(self._lost)
            self._sequence += 1
            cookie = f"{self._id}.{self._sequence}"
            script = _script(argv, cwd=cwd, env=command_env(env, cookie), stdin=stdin)
            streams = self._streams()
            try:
                self._channel.send(script + b";" + self._report.format(self._sequence).encode())
                timely = self._collect(streams, timeout)
                if not timely:
                    self._kill_until_answered(cookie, streams)
                observation = _observation(streams[STDOUT], streams[STDERR])
            except ChannelClosed as closed:
                raise self._lose(f"the session's shell is gone: {closed}", streams[STDERR]) from None
            except BaseException as interruption:
                # The next command would get the rest of this one's output.
                self._lose(f"the session was interrupted in a command: {interruption!r}", streams[STDERR])
                raise
            self._carried = {number: stream.rest for number, stream in streams.items()}
            if not timely:
                raise CommandTimeout(f"timed out after {timeout:g} s: {shlex.join(argv)[:200]}")
            return observation

    def _streams(self) -> dict[int, _Stream]:
        marker = f"{self._nonce} {self._sequence}".encode()
        return {
            STDOUT: _Stream(marker + b" ", self._limit, self._carried[STDOUT]),
            STDERR: _Stream(marker + b"\n", self._limit, self._carried[STDERR]),
        }

    def _collect(self, streams: dict[int, _Stream], timeout: float | None) -> bool:
        """Feed the streams until both have their frame; False if that takes longer than *timeout*."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while streams[STDOUT].frame is None or streams[STDERR].frame is None:
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            piece = self._channel.receive(remaining)
            if piece is None:
                return False
            streams[piece[0]].feed(piece[1])
        return True

    def _kill_until_answered(self, cookie: str, streams: dict[int, _Stream]) -> None:
        """More than once, because the command may not have been started yet when it is first looked for."""
        deadline = time.monotonic() + _GRACE_SECONDS
        self._kill(cookie)
        while not self._collect(streams, _KILL_AGAIN_SECONDS):
            if time.monotonic() > deadline:
                raise ChannelClosed("it did not answer after its command was killed")
            self._kill(cookie)

    def _lose(self, why: str, stderr: _Stream) -> SessionLost:
        said = (stderr.output.getvalue() + stderr.pending).decode(errors="replace").strip().splitlines()
        self._lost = why + (f" ({said[-1][:200]})" if said else "")
        self._channel.close()
        return SessionLost(self._lost)

    def close(self) -> None:
        """End the shell; idempotent."""
        with self._lock:
            if self._lost is None:
                self._lost = "the session has been closed"
                self._channel.close()


def _observation(out: _Stream, err: _Stream) -> Observation:
    assert out.frame is not None
    answer = _ANSWER.fullmatch(out.frame)
    if answer is None:
        raise ChannelClosed(f"its answer cannot be read: {out.frame[:100]!r}")
    return Observation(
        exit_code=int(answer[1]),
        stdout=out.output.getvalue(),
        stderr=err.output.getvalue(),
        inside_ns=_elapsed_ns(answer[2], answer[3]),
        stdout_dropped=out.output.dropped,
        stderr_dropped=err.output.dropped,
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
