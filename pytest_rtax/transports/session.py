r"""One shell kept open for a rollout.

The driver sends one script per command; when the command has ended, the shell answers with frames (see `frames`), whose
nonce it does not export. A command is started as a program of its own: it may exit, exec, close descriptors or read
stdin without touching the shell, and it starts from the same state as with the exec transport.

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
from collections.abc import Callable, Mapping
from functools import partial

from pytest_rtax.substrates.protocol import Command, CommandTimeout, Observation, SessionLost
from pytest_rtax.transports.channel import Channel, ChannelClosed
from pytest_rtax.transports.commands import command_argv, command_env, kill_until_answered
from pytest_rtax.transports.frames import FramedOutput

_PROGRAM = re.compile(r"[A-Za-z0-9_.+@%:,/-]*/[A-Za-z0-9_.+@%:,/-]*|[A-Za-z0-9][A-Za-z0-9_.+-]*")

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
        self._carried = (b"", b"")
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
            output = FramedOutput(self._nonce, self._sequence, self._limit, self._carried)
            try:
                self._channel.send(script + b";" + self._report.format(self._sequence).encode())
                timely = output.collect(self._channel, timeout)
                if not timely:
                    kill_until_answered(self._channel, output, partial(self._kill, cookie))
                observation = output.observation()
            except ChannelClosed as closed:
                raise self._lose(f"the session's shell is gone: {closed}", output) from None
            except BaseException as interruption:
                # The next command would get the rest of this one's output.
                self._lose(f"the session was interrupted in a command: {interruption!r}", output)
                raise
            self._carried = output.rest
            if not timely:
                raise CommandTimeout(f"timed out after {timeout:g} s: {shlex.join(argv)[:200]}")
            return observation

    def _lose(self, why: str, output: FramedOutput) -> SessionLost:
        said = output.last_words()
        self._lost = f"{why} ({said})" if said else why
        self._channel.close()
        return SessionLost(self._lost)

    def close(self) -> None:
        """End the shell; idempotent."""
        with self._lock:
            if self._lost is None:
                self._lost = "the session has been closed"
                self._channel.close()
