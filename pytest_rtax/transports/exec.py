"""One call per command, for substrates whose own API carries a program's streams but not what happened inside.

The command is wrapped in a shell of the environment that starts it, reads its own clock around it, and answers with
frames (see `frames`): the exit code and the time inside need no further call, and a process that the command has left
in the background, with the streams still open, keeps nobody waiting.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from pytest_rtax.substrates.protocol import Command, CommandTimeout, EnvironmentFailed, Observation
from pytest_rtax.transports.channel import Channel, ChannelClosed
from pytest_rtax.transports.commands import checked_env, command_argv, kill_until_answered
from pytest_rtax.transports.frames import FramedOutput

# $1 nonce, $2 cookie, $3 directory, $4 bytes of stdin, then the command. Only the command has the cookie: the wrapper
# has to outlive it. `head` ends the input without a half-closed connection, which not every API can do. Descriptor 3 is
# the real stderr: the shell's own remarks are not the command's.
_WRAPPER = """\
exec 3>&2 2>/dev/null
n=$1 k=$2 d=$3 b=$4
shift 4
run() {{ (export RTAX_COMMAND="$k"; [ -z "$d" ] || cd -P -- "$d" 2>&3 || exit 127; {exec} "$@" 2>&3 3>&-); }}
s=${{EPOCHREALTIME-}}
if [ -n "$b" ]; then head -c "$b" | run "$@"; else run "$@" </dev/null; fi
c=$?
t=${{EPOCHREALTIME-}}
printf '%s 1 %s %s %s\\n' "$n" "$c" "${{s:-?}}" "${{t:-?}}"
printf '%s 1\\n' "$n" >&3
"""

# $1 is VARIABLE=value. Kills whatever inherited it, and what that has started, until there is none.
KILL_SCRIPT = """\
while :; do
  k=
  for p in /proc/[0-9]*; do
    if tr '\\0' '\\n' <"$p/environ" | grep -qxF -- "$1"; then k="$k ${p#/proc/}"; fi
  done
  [ -n "$k" ] || exit 0
  g=$k
  while [ -n "$g" ]; do
    m=
    for p in /proc/[0-9]*; do
      read -r l <"$p/stat" || continue
      l=${l##*) } l=${l#* }
      case " $g " in *" ${l%% *} "*) m="$m ${p#/proc/}" ;; esac
    done
    k="$k $m" g=$m
  done
  kill -9 $k
done 2>/dev/null
"""


def run_once(
    open_channel: Callable[[list[str], Mapping[str, str]], Channel],
    command: Command,
    *,
    bash: bool,
    cookie: str,
    kill: Callable[[str], None],
    output_limit: int,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
) -> Observation:
    """Run one command in a program of its own; the arguments are those of Runner.run and of ShellSession.

    *open_channel* starts a program in the environment with these variables, in the workspace.
    """
    nonce = secrets.token_hex(16)
    argv = command_argv(command)
    if cwd is not None and "\0" in cwd:
        raise ValueError(f"not a directory: {cwd!r} (it holds a NUL character)")
    size = "" if stdin is None else str(len(stdin))
    directory = "" if cwd is None else cwd if cwd.startswith("/") else f"./{cwd}"
    # A program may be called -x: bash takes that for an option of exec, dash does not know the -- that ends them.
    script = _WRAPPER.format(exec="exec --" if bash else "exec")
    wrapper = ["bash" if bash else "sh", "-c", script, "rtax", nonce, cookie, directory, size, *argv]
    output = FramedOutput(nonce, 1, output_limit)
    channel = open_channel(wrapper, checked_env(env))
    try:
        if stdin:
            channel.send(stdin)
        timely = output.collect(channel, timeout)
        if not timely:
            kill_until_answered(channel, output, lambda: kill(cookie))
        observation = output.observation()
    except ChannelClosed as closed:
        said = output.last_words()
        raise EnvironmentFailed(f"the command was lost: {closed}" + (f" ({said})" if said else "")) from None
    finally:
        channel.close()
    if not timely:
        raise CommandTimeout(f"timed out after {timeout:g} s: {' '.join(argv)[:200]}")
    return observation
