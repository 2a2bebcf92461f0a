"""The conformance suite: what every substrate promises, one test per promise.

Run it against a substrate with ``pytest --pyargs pytest_rtax.conformance --substrate=NAME``. Its environments need
``sh``, the usual POSIX tools, ``head -c`` and ``python3``. Each test has an environment of its own.

The protocol says what the verbs mean. Where it is silent, the docstrings here are the contract.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

from pytest_rtax.substrates.protocol import (
    DEFAULT_OUTPUT_LIMIT,
    Command,
    CommandTimeout,
    Environment,
    EnvironmentFailed,
    Runner,
    SessionLost,
    SubstrateError,
)
from pytest_rtax.transports import TRANSPORTS, open_transport

if TYPE_CHECKING:
    from pytest_rtax.fixtures import SubstrateHandle

EVERY_BYTE = bytes(range(256))
UNICODE = "naïve Ωμέγα 日本語 🦀"
AWKWARD = (
    "two words",
    "  spaces  ",
    "",
    "-n",
    "--",
    "*",
    "~",
    "$HOME",
    "$(id)",
    "`id`",
    "it's",
    '"quoted"',
    "back\\slash\\n",
    "A=b",
    "a;b&c|d>e<f",
    "#comment",
    "!history",
    "{a,b}",
    "two\nlines\n",
    "\ttab\r",
    UNICODE,
)

FOREVER = 60
"""Seconds that a command sleeps where nobody may wait for it."""
ARGUMENTS = ("printf", "%s\\0")
"""Prints each argument that follows, ended by a NUL."""
ESCAPE = """\
echo $$ >command.pid
sh -c 'echo $$ >child.pid; exec sleep 60' &
nohup sh -c 'echo $$ >nohup.pid; exec sleep 60' >/dev/null 2>&1 &
python3 -c '
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open("daemon.pid", "w") as file:
            print(os.getpid(), file=file)
        time.sleep(60)
'
sleep 60
"""


Test = TypeVar("Test", bound=Callable[..., None])
_EVEN_SIMULATED: set[Callable[..., None]] = set()


def even_simulated(test: Test) -> Test:
    """Marks a promise that a substrate keeps even if it runs no command."""
    _EVEN_SIMULATED.add(test)
    return test


@pytest.fixture(autouse=True)
def _really_runs(request: pytest.FixtureRequest, substrate: SubstrateHandle) -> None:
    if substrate.simulated and request.function not in _EVEN_SIMULATED:
        pytest.skip(f"{substrate.name} is simulated: it runs no command")


@pytest.fixture
def environment(substrate: SubstrateHandle) -> Iterator[Environment]:
    """A fresh environment."""
    with substrate.environment() as environment:
        yield environment


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """The name of each transport in turn."""
    name: str = request.param
    return name


@pytest.fixture
def runner(environment: Environment, transport: str) -> Iterator[Runner]:
    """Each transport into a fresh environment in turn."""
    with opened(transport, environment) as runner:
        yield runner


@contextmanager
def opened(transport: str, environment: Environment) -> Iterator[Runner]:
    """A transport for as long as the block lasts."""
    runner, session = open_transport(transport, environment)
    try:
        yield runner
    finally:
        if session is not None:
            session.close()


@contextmanager
def at_once() -> Iterator[None]:
    """Fails if the block waited for somebody who sleeps FOREVER."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < FOREVER / 2


def succeed(runner: Runner, command: Command, *, stdin: bytes | None = None) -> bytes:
    """The stdout of a command that must not fail."""
    seen = runner.run(command, stdin=stdin, timeout=FOREVER)
    assert seen.exit_code == 0, seen
    return seen.stdout


def alive(environment: Environment, pid: bytes) -> bool:
    """Whether a process runs; one that is dead and merely not reaped does not."""
    script = 'kill -0 "$1" 2>/dev/null && ! grep -q "^State:.*zombie" "/proc/$1/status"'
    return environment.run(["sh", "-c", script, "sh", pid.decode().strip()]).exit_code == 0


def needs_isolation(substrate: SubstrateHandle, what: str) -> None:
    """Skip unless two environments are said not to share *what*."""
    if what not in substrate.isolates:
        pytest.skip(f"{substrate.name} does not isolate {what}")


# Exit codes


def test_exit_code_is_the_commands(runner: Runner) -> None:
    """All of 0 to 255 arrive as they are."""
    codes = [0, 1, 126, 127, 128, 255]
    assert [runner.run(f"exit {code}").exit_code for code in codes] == codes


def test_a_command_killed_by_a_signal_has_128_and_its_number(runner: Runner) -> None:
    """A command starts with every signal at its default. A shell's remark ("Killed") may follow its stderr."""
    for signal, number in {"HUP": 1, "INT": 2, "KILL": 9, "PIPE": 13, "TERM": 15}.items():
        seen = runner.run(f"echo before; kill -{signal} $$; echo after")
        assert (seen.exit_code, seen.stdout) == (128 + number, b"before\n"), signal


def test_an_unknown_program_is_127_and_says_so(runner: Runner) -> None:
    """It is an observation like any other, with a reason on stderr: not an exception."""
    commands: list[Command] = ["no-such-program", ["no-such-program", "x"], ["./no/such/program"]]
    for command in commands:
        seen = runner.run(command)
        assert (seen.exit_code, seen.stdout, seen.stderr != b"") == (127, b"", True), command


def test_a_file_that_may_not_be_executed_is_126(environment: Environment, runner: Runner) -> None:
    """As in a shell."""
    environment.write("plain", b"#!/bin/sh\n")
    succeed(runner, "chmod 644 plain")
    assert runner.run(["./plain"]).exit_code == 126


# Commands


def test_a_string_is_given_to_a_shell(runner: Runner) -> None:
    """Words, globs, variables, pipes and lists are the shell's."""
    assert succeed(runner, 'set -- a "b c"; echo $# | tr 2 3 && echo "$2"') == b"3\nb c\n"


def test_a_string_may_have_many_lines(runner: Runner) -> None:
    """Here-documents and comments included."""
    assert succeed(runner, "# nothing\ncat <<'END'\n$HOME\nEND\nif true; then\n  echo yes\nfi\n") == b"$HOME\nyes\n"


def test_an_argument_vector_arrives_as_it_is(runner: Runner) -> None:
    """No word is split, expanded, unquoted or dropped."""
    assert succeed(runner, [*ARGUMENTS, *AWKWARD]) == "".join(f"{word}\0" for word in AWKWARD).encode()


def test_a_program_name_is_not_split(environment: Environment, runner: Runner) -> None:
    """Spaces, quotes and variables in the path of a program are part of it."""
    program = f"./bin $HOME/it's {UNICODE}"
    environment.write(program, b"#!/bin/sh\necho started $#\n")
    succeed(runner, ["chmod", "755", program])
    assert succeed(runner, [program, "x"]) == b"started 1\n"


def test_the_first_word_of_a_vector_is_a_program_and_nothing_else(runner: Runner) -> None:
    """Builtins and syntax of a shell are not programs: 127, and the runner is unharmed."""
    words = ["exit", "if", "return", "A=b", "-x", "!", "}"]
    assert {word: runner.run([word, "3"], timeout=FOREVER).exit_code for word in words} == dict.fromkeys(words, 127)
    assert succeed(runner, "echo fine") == b"fine\n"


def test_the_name_of_a_builtin_changes_nothing(runner: Runner) -> None:
    """Some systems have programs of these names; whether or not, the next command starts as before."""
    probe = "pwd; umask; echo $-"
    before = succeed(runner, probe)
    for vector in (["cd", "/"], ["umask", "0"], ["exec", "true"], ["set", "-e"], ["trap", "", "TERM"]):
        runner.run(vector, timeout=FOREVER)
        assert succeed(runner, probe) == before, vector


def test_what_cannot_be_a_command_is_a_value_error(runner: Runner) -> None:
    """Nothing is sent, and the runner is unharmed."""
    commands: list[Command] = [[], "a\0b", ["echo", "a\0b"]]
    for command in commands:
        with pytest.raises(ValueError, match="command"):
            runner.run(command)
    assert succeed(runner, "echo fine") == b"fine\n"


def test_a_command_may_replace_its_process(runner: Runner) -> None:
    """With exec, the successor's end is the command's end."""
    seen = runner.run("exec sh -c 'echo successor; exit 4'")
    assert (seen.exit_code, seen.stdout) == (4, b"successor\n")


# Output


def test_stdout_and_stderr_are_apart_and_exact(runner: Runner) -> None:
    """Each in its order; nothing is added to either."""
    seen = runner.run("echo out; echo err >&2; printf more; printf last >&2")
    assert (seen.stdout, seen.stderr) == (b"out\nmore", b"err\nlast")


@pytest.mark.parametrize("descriptor", [1, 2])
def test_output_may_be_any_bytes(runner: Runner, descriptor: int) -> None:
    """NUL, invalid UTF-8, carriage returns, and no newline at the end."""
    seen = runner.run(["python3", "-c", f"import os; os.write({descriptor}, bytes(range(256)) * 3)"])
    assert (seen.stdout, seen.stderr)[descriptor - 1] == EVERY_BYTE * 3


def test_the_end_of_the_output_is_kept(runner: Runner) -> None:
    """Nothing is stripped."""
    ends = ["", "\n", "\n\n", "\r\n", " ", "\t\n "]
    assert [succeed(runner, ["printf", "%s", f"x{end}"]) for end in ends] == [f"x{end}".encode() for end in ends]


def test_unicode_passes_in_arguments_and_output(runner: Runner) -> None:
    """As UTF-8."""
    assert succeed(runner, f"printf %s '{UNICODE}'") == UNICODE.encode()


def test_no_output_is_empty_output(runner: Runner) -> None:
    """And is not truncated."""
    seen = runner.run("true")
    assert (seen.stdout, seen.stderr, seen.truncated) == (b"", b"", False)


def test_output_like_a_transports_own_is_output(runner: Runner) -> None:
    """Whatever a transport marks the end of a command with, a command cannot write it."""
    lines = "".join(
        f"{nonce} {number} 0 1.000000 2.000000\n{nonce} {number}\n" for nonce in ("", "0" * 32) for number in range(4)
    )
    seen = runner.run("cat; cat >&2 <<'END'\n" + lines + "END\n", stdin=lines.encode())
    assert (seen.stdout, seen.stderr) == (lines.encode(), lines.encode())


def test_a_flood_of_output_does_not_fill_the_drivers_memory(runner: Runner) -> None:
    """What is beyond the limit is read, so that the command can end, counted, and thrown away."""
    flood = 50 * 1024 * 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = runner.run(["head", "-c", str(flood), "/dev/zero"])
    assert (seen.exit_code, len(seen.stdout)) == (0, DEFAULT_OUTPUT_LIMIT)
    assert seen.stdout_dropped == flood - DEFAULT_OUTPUT_LIMIT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


def test_truncation_keeps_the_beginning_and_counts_the_rest(substrate: SubstrateHandle, transport: str) -> None:
    """The first *output_limit* bytes of each stream; the limit is per stream and per command."""
    with substrate.environment(output_limit=1000) as environment, opened(transport, environment) as runner:
        seen = runner.run(["python3", "-c", "import os; os.write(1, bytes(range(256)) * 10); os.write(2, b'x' * 1000)"])
        assert (seen.stdout, seen.stdout_dropped) == ((EVERY_BYTE * 10)[:1000], 1560)
        assert (seen.stderr, seen.stderr_dropped) == (b"x" * 1000, 0)
        assert seen.truncated
        seen = runner.run("printf fits")
        assert (seen.stdout, seen.truncated) == (b"fits", False)


def test_closing_its_output_does_not_end_a_command(environment: Environment, runner: Runner) -> None:
    """Its end does."""
    assert runner.run("exec >&- 2>&-; sleep 0.3; echo done >finished; exit 3").exit_code == 3
    assert environment.read("finished") == b"done\n"


# Input


def test_stdin_arrives_as_it_is_and_ends(runner: Runner) -> None:
    """Any bytes; after them end-of-file."""
    inputs = [b"", b"\n", b"text\n", b"no newline", b"\0", EVERY_BYTE, b"\\0\\n\\c%s''\\\\", UNICODE.encode() * 99]
    assert [succeed(runner, "cat", stdin=data) for data in inputs] == inputs


def test_a_megabyte_of_stdin_arrives(runner: Runner) -> None:
    """While the command already answers."""
    data = EVERY_BYTE * 4096
    assert succeed(runner, "cat", stdin=data) == data


def test_without_stdin_a_command_reads_end_of_file(runner: Runner) -> None:
    """At once."""
    assert succeed(runner, "cat; echo end") == b"end\n"


def test_a_command_need_not_read_its_stdin(runner: Runner) -> None:
    """What it leaves is gone: the next command does not get it."""
    assert succeed(runner, "head -c 1", stdin=b"abc" * 400_000) == b"a"
    assert succeed(runner, "true", stdin=b"abc" * 400_000) == b""
    assert succeed(runner, "cat") == b""


def test_a_command_may_close_its_stdin(runner: Runner) -> None:
    """And then go on."""
    assert succeed(runner, "exec <&-; sleep 0.2; echo on", stdin=b"x" * 200_000) == b"on\n"


# Where a command runs


def test_a_relative_directory_starts_at_the_workspace(environment: Environment, runner: Runner) -> None:
    """Which is where a command runs if none is named."""
    environment.write("a/b/file", b"")
    workspace = succeed(runner, "pwd -P").strip()
    assert runner.run("pwd -P", cwd="a/b").stdout == workspace + b"/a/b\n"
    assert runner.run(["ls"], cwd="a/b").stdout == b"file\n"
    assert runner.run("pwd -P", cwd=".").stdout == workspace + b"\n"


def test_an_absolute_directory_is_taken_as_it_is(runner: Runner) -> None:
    """Also with an argument vector."""
    assert runner.run("pwd", cwd="/usr").stdout == b"/usr\n"
    assert runner.run(["pwd"], cwd="/").stdout == b"/\n"


def test_the_name_of_a_directory_is_not_interpreted(environment: Environment, runner: Runner) -> None:
    """Not by a shell, and not by its cd."""
    for name in ("two words", "-", "-P", "$HOME", "it's", UNICODE):
        environment.write(f"{name}/in {name}", b"")
        assert runner.run("ls", cwd=name).stdout == f"in {name}\n".encode()


def test_a_missing_directory_is_127_and_says_so(environment: Environment, runner: Runner) -> None:
    """The command is not run anywhere else instead."""
    environment.write("file", b"")
    for cwd in ("missing", "/no/such/directory", "file"):
        seen = runner.run("echo ran", cwd=cwd)
        assert (seen.exit_code, seen.stdout, seen.stderr != b"") == (127, b"", True), cwd


def test_the_value_of_a_variable_arrives_as_it_is(runner: Runner) -> None:
    """Nothing in it is expanded."""
    seen = [runner.run('printf %s "$VALUE"', env={"VALUE": value}).stdout for value in AWKWARD]
    assert seen == [value.encode() for value in AWKWARD]


def test_a_variable_reaches_a_program_that_is_started_as_it_is(runner: Runner) -> None:
    """Also together with a directory."""
    assert runner.run(["printenv", "VALUE"], env={"VALUE": UNICODE}, cwd="/").stdout == UNICODE.encode() + b"\n"


def test_an_invalid_name_of_a_variable_is_a_value_error(runner: Runner) -> None:
    """Names are letters, digits and underscores. Nothing is sent, and the runner is unharmed."""
    for name in ("", "A-B", "1A", "A=B", "A B", "A\0", "A;id", "é"):
        with pytest.raises(ValueError, match="variable"):
            runner.run("true", env={name: "value"})
    assert succeed(runner, "echo fine") == b"fine\n"


def test_a_variable_cannot_hold_nul(runner: Runner) -> None:
    """A ValueError too."""
    with pytest.raises(ValueError, match="NUL"):
        runner.run("true", env={"A": "\0"})


def test_a_commands_variables_go_before_the_environments(substrate: SubstrateHandle, transport: str) -> None:
    """For that command only."""
    with substrate.environment(env={"WHOSE": "environment's"}) as environment, opened(transport, environment) as runner:
        assert runner.run('echo "$WHOSE"', env={"WHOSE": "command's"}).stdout == b"command's\n"
        assert runner.run('echo "$WHOSE"').stdout == b"environment's\n"


def test_the_path_of_a_command_is_where_its_program_is_looked_for(environment: Environment, runner: Runner) -> None:
    """PATH is a variable like any other."""
    environment.write("tools/rtax-tool", b"#!/bin/sh\necho found\n")
    succeed(runner, "chmod 755 tools/rtax-tool")
    path = succeed(runner, 'printf %s "$PWD/tools:$PATH"').decode()
    assert runner.run("rtax-tool", env={"PATH": path}).stdout == b"found\n"
    assert runner.run("rtax-tool").exit_code == 127


def test_a_command_leaves_no_state_to_the_next(runner: Runner) -> None:
    """No directory, variable, function, mask, option, trap or limit: only what it did to files and processes."""
    probe = "pwd; umask; ulimit -n; echo $-; echo ${LEAK-none}; command -v leak; trap; kill -TERM $$"
    before = runner.run(probe)
    assert before.exit_code == 128 + 15
    succeed(runner, "cd /; umask 0; ulimit -n 64; set -f; export LEAK=1; leak() { :; }; trap '' TERM")
    assert runner.run(probe).stdout == before.stdout


def test_a_command_does_not_wait_for_the_jobs_of_another(runner: Runner) -> None:
    """They are not its children."""
    with at_once():
        succeed(runner, "sleep 60 >/dev/null 2>&1 &")
        assert succeed(runner, "jobs; wait; echo done") == b"done\n"


# Time


def test_a_timeout_is_kept_and_the_runner_lives_on(runner: Runner) -> None:
    """The output so far is lost; none of it reaches the next command."""
    started = time.monotonic()
    with pytest.raises(CommandTimeout):
        runner.run("echo early; echo early >&2; sleep 60", timeout=1)
    assert 1 <= time.monotonic() - started < FOREVER / 2
    seen = runner.run("echo next")
    assert (seen.stdout, seen.stderr) == (b"next\n", b"")


def test_a_timeout_kills_whatever_the_command_has_started(environment: Environment, runner: Runner) -> None:
    """Also what left its process group, its session and its parent. The environment's other processes stay."""
    bystander = succeed(runner, "sleep 60 >/dev/null 2>&1 & echo $!")
    with pytest.raises(CommandTimeout):
        runner.run(ESCAPE, timeout=3)
    for name in ("command", "child", "nohup", "daemon"):
        assert not alive(environment, environment.read(f"{name}.pid")), name
    assert alive(environment, bystander)


def test_a_timeout_kills_a_child_with_an_emptied_environment(environment: Environment, runner: Runner) -> None:
    """Variables are no reliable way to recognize a command's children."""
    with pytest.raises(CommandTimeout):
        runner.run("env -i sh -c 'echo $$ >pid; exec sleep 60'; true", timeout=2)
    assert not alive(environment, environment.read("pid"))


def test_a_timeout_ends_a_command_that_ignores_signals(runner: Runner) -> None:
    """SIGKILL cannot be ignored."""
    with at_once(), pytest.raises(CommandTimeout):
        runner.run("trap '' INT TERM HUP; sleep 60; sleep 60", timeout=1)
    assert succeed(runner, "echo next") == b"next\n"


def test_a_timeout_ends_a_command_that_floods(runner: Runner) -> None:
    """Reading its output must not keep the driver from looking at the clock."""
    with at_once(), pytest.raises(CommandTimeout):
        runner.run(["yes"], timeout=1)
    assert succeed(runner, "echo next") == b"next\n"


def test_a_timeout_that_has_passed_already_is_kept_too(runner: Runner) -> None:
    """Even if the command has not been started yet when it is to be killed."""
    with at_once(), pytest.raises(CommandTimeout):
        runner.run("sleep 60", timeout=0)
    assert succeed(runner, "echo next") == b"next\n"


def test_a_timeout_that_is_not_reached_does_nothing(runner: Runner) -> None:
    """The command's result is its own."""
    seen = runner.run("echo in time; exit 5", timeout=FOREVER)
    assert (seen.exit_code, seen.stdout) == (5, b"in time\n")


@pytest.mark.parametrize("redirection", [">/dev/null 2>&1", ""], ids=["silent", "holding the output"])
def test_a_background_process_keeps_nobody_waiting(environment: Environment, runner: Runner, redirection: str) -> None:
    """It runs on."""
    with at_once():
        pid = succeed(runner, f"sleep 60 {redirection} & echo $!")
        assert succeed(runner, "echo next") == b"next\n"
    assert alive(environment, pid)


def test_time_inside_is_unknown_or_within_the_drivers(runner: Runner) -> None:
    """Never negative, never more than the driver waited."""
    started = time.perf_counter_ns()
    inside = runner.run("true").inside_ns
    assert inside is None or 0 <= inside <= time.perf_counter_ns() - started


def test_time_inside_holds_all_of_the_command(runner: Runner) -> None:
    """If it is known."""
    inside = runner.run("sleep 0.2").inside_ns
    if inside is None:
        pytest.skip("this transport does not know the time inside")
    assert inside >= 200_000_000


# Runners


def test_commands_from_several_threads_do_not_mix(runner: Runner) -> None:
    """With the exec transport they may run together; a session runs them in turn."""
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(lambda number: runner.run(f"cat; exit {number}", stdin=b"%d" % number), range(24)))
    assert [(each.exit_code, each.stdout) for each in seen] == [(number, b"%d" % number) for number in range(24)]


def test_exec_runs_commands_together(environment: Environment) -> None:
    """Two that wait for each other both end."""
    succeed(environment, "mkfifo there back")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(succeed, environment, "echo hello >there; cat back")
        second = pool.submit(succeed, environment, "cat there; echo goodbye >back")
        assert (first.result(), second.result()) == (b"goodbye\n", b"hello\n")


def test_a_session_survives_many_commands(environment: Environment) -> None:
    """Whatever they do."""
    with opened("session", environment) as session:
        for number in range(200):
            seen = session.run(f"echo {number}; echo {-number} >&2; exit {number}")
            assert (seen.exit_code, seen.stdout, seen.stderr) == (number, b"%d\n" % number, b"%d\n" % -number)


def test_sessions_are_independent(environment: Environment) -> None:
    """Of each other; they share the environment's files."""
    with opened("session", environment) as one, opened("session", environment) as other:
        succeed(one, "echo shared >file; cd /; export LEAK=1")
        assert succeed(other, "cat file; echo ${LEAK-none}") == b"shared\nnone\n"
        with pytest.raises(CommandTimeout):
            one.run("sleep 60", timeout=1)
        assert succeed(other, "echo fine") == b"fine\n"


def test_session_and_exec_agree(environment: Environment) -> None:
    """On everything but the time, and the words in which a shell remarks on a failure."""
    commands: list[Command] = [
        "exit 7",
        "echo out; echo err >&2",
        "printf 'a\\000b'",
        "pwd; umask; id -u; ulimit -n; ulimit -c",
        'echo "$PATH"; echo "$HOME"; echo "${TMPDIR-}"; echo "${LANG-}"',
        "test -t 0 || test -t 1 || test -t 2",
        "kill -KILL $$",
        "sh -c 'kill -TERM $$'",
        "false | true",
        ["printf", "%s", UNICODE],
        ["test", "a", "=", "b"],
        ["python3", "-c", "raise SystemExit(9)"],
        ["no-such-program"],
        ["cat", "/no/such/file"],
    ]
    with opened("session", environment) as session:
        for command in commands:
            seen, expected = session.run(command), environment.run(command)
            assert (seen.exit_code, seen.stdout) == (expected.exit_code, expected.stdout), command


def test_a_session_adds_no_variables_but_a_shells_own(environment: Environment) -> None:
    """And takes none away."""
    with opened("session", environment) as session:
        seen, expected = (
            {line.split(b"=")[0] for line in succeed(r, "env").splitlines()} for r in (session, environment)
        )
    assert seen - expected <= {b"PWD", b"OLDPWD", b"SHLVL", b"_"}
    assert expected <= seen


def test_a_dead_session_is_noticed_at_once(environment: Environment) -> None:
    """And stays dead, while the environment may live on."""
    with opened("session", environment) as session:
        with at_once(), pytest.raises(EnvironmentFailed):
            session.run("kill -9 $PPID; sleep 60")
        with pytest.raises(SessionLost):
            session.run("true")


def test_closing_a_session_is_final_and_idempotent(environment: Environment) -> None:
    """Other runners go on."""
    session = environment.open_session()
    succeed(session, "true")
    session.close()
    session.close()
    with pytest.raises(SessionLost):
        session.run("true")
    assert succeed(environment, "echo on") == b"on\n"


# Files


@even_simulated
def test_a_file_comes_back_as_it_was_written(environment: Environment) -> None:
    """Any bytes, and many of them."""
    for data in (b"", b"text\n", EVERY_BYTE, EVERY_BYTE * 20_000):
        environment.write("file", data)
        assert environment.read("file") == data


def test_a_path_is_not_interpreted_and_its_directories_are_made(environment: Environment) -> None:
    """Relative paths start at the workspace, for files as for commands."""
    for path in ("a/b/c/file", "two words/it's", "$HOME", "-n", f"{UNICODE}/{UNICODE}"):
        environment.write(path, path.encode())
        assert environment.read(path) == succeed(environment, ["cat", f"./{path}"]) == path.encode()


@even_simulated
def test_writing_replaces_a_file(environment: Environment) -> None:
    """All of it."""
    environment.write("file", b"a long text")
    environment.write("file", b"short")
    assert environment.read("file") == b"short"


def test_a_file_may_be_named_by_an_absolute_path(environment: Environment) -> None:
    """Commands and files see the same tree."""
    path = succeed(environment, 'echo made >here; printf %s "$PWD/here"').decode()
    assert environment.read(path) == b"made\n"
    environment.write(path, b"replaced")
    assert succeed(environment, "cat here") == b"replaced"


@even_simulated
def test_a_missing_file_is_file_not_found(environment: Environment) -> None:
    """Python's own exception, because everybody knows it."""
    for path in ("missing", "no/such/directory/file", "/no/such/file"):
        with pytest.raises(FileNotFoundError):
            environment.read(path)


# Environments


def test_environments_have_workspaces_of_their_own(substrate: SubstrateHandle) -> None:
    """Also where nothing else is isolated."""
    with substrate.environment() as one, substrate.environment() as other:
        assert one.id != other.id
        one.write("file", b"")
        assert other.run("test -e file").exit_code == 1


def test_environments_have_variables_of_their_own(substrate: SubstrateHandle) -> None:
    """Those they were created with."""
    with substrate.environment(env={"MINE": UNICODE}) as one, substrate.environment() as other:
        assert succeed(one, 'printf %s "$MINE"') == UNICODE.encode()
        assert other.run("printenv MINE").exit_code == 1


def test_the_drivers_variables_stay_with_the_driver(
    substrate: SubstrateHandle, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may hold secrets."""
    monkeypatch.setenv("RTAX_CANARY", "secret")
    with substrate.environment() as environment, opened(transport, environment) as runner:
        assert b"RTAX_CANARY" not in succeed(runner, "env")


def test_environments_work_side_by_side(substrate: SubstrateHandle) -> None:
    """Created, used and destroyed from several threads."""

    def roundtrip(number: int) -> bytes:
        with substrate.environment(env={"NUMBER": str(number)}) as environment:
            environment.write("file", b"%d" % number)
            return succeed(environment, 'printf %s "$NUMBER"; cat file')

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(roundtrip, range(4))) == [b"%d%d" % (number, number) for number in range(4)]


def test_isolated_environments_share_no_files(substrate: SubstrateHandle) -> None:
    """Nowhere in the tree."""
    needs_isolation(substrate, "filesystem")
    with substrate.environment() as one, substrate.environment() as other:
        succeed(one, "touch /tmp/rtax-marker")
        assert other.run("test -e /tmp/rtax-marker").exit_code == 1


def test_isolated_environments_share_no_processes(substrate: SubstrateHandle) -> None:
    """One does not see what runs in the other."""
    needs_isolation(substrate, "processes")
    look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 6[0]\\.25'"
    with substrate.environment() as one, substrate.environment() as other:
        succeed(one, "sleep 60.25 >/dev/null 2>&1 &")
        assert succeed(one, look) == b"1\n"
        assert other.run(look).stdout == b"0\n"


def test_isolated_environments_share_no_network(substrate: SubstrateHandle) -> None:
    """What listens on one's loopback is not heard on the other's."""
    needs_isolation(substrate, "network")
    listen = """\
import os, socket, time
server = socket.create_server(("127.0.0.1", 0))
if os.fork():
    print(server.getsockname()[1])
else:
    os.close(1), os.close(2), time.sleep(60)
"""
    connect = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"
    with substrate.environment() as one, substrate.environment() as other:
        port = succeed(one, ["python3", "-c", listen]).decode().strip()
        succeed(one, ["python3", "-c", connect, port])
        assert other.run(["python3", "-c", connect, port]).exit_code == 1


# The end


@even_simulated
def test_destroy_is_final(substrate: SubstrateHandle) -> None:
    """Every verb but destroy() and gone() fails with a SubstrateError, and none brings the environment back."""
    with substrate.environment() as environment:
        session = environment.open_session()
        succeed(session, "true")
        environment.destroy()
        with pytest.raises(SubstrateError):
            environment.run("true")
        with pytest.raises(SubstrateError):
            session.run("true")
        with pytest.raises(SubstrateError):
            environment.open_session().run("true")
        with pytest.raises(SubstrateError):
            environment.write("file", b"")
        with pytest.raises(SubstrateError):
            environment.read("file")
        session.close()


@even_simulated
def test_destroy_is_idempotent(substrate: SubstrateHandle) -> None:
    """And once an environment is gone it stays gone."""
    with substrate.environment() as environment:
        environment.destroy()
        environment.destroy()
    environment.destroy()
    assert environment.gone()


@even_simulated
def test_an_environment_in_use_is_not_gone(environment: Environment) -> None:
    """It is only after destroy()."""
    assert not environment.gone()


def test_destroy_ends_what_runs_in_the_background(substrate: SubstrateHandle) -> None:
    """Also what nobody waits for. Where processes are isolated, nothing is left from which to look."""
    with substrate.environment() as observer:
        with substrate.environment() as environment, opened("session", environment) as session:
            pids = [succeed(runner, "nohup sleep 60 >/dev/null 2>&1 & echo $!") for runner in (environment, session)]
            assert all(alive(environment, pid) for pid in pids)
        if "processes" not in substrate.isolates:
            assert not any(alive(observer, pid) for pid in pids)


def test_destroy_does_not_wait_for_a_running_command(substrate: SubstrateHandle, transport: str) -> None:
    """Its run() ends too: with a SubstrateError, or with what a killed command gives."""
    with at_once(), ThreadPoolExecutor(1) as pool:
        with substrate.environment() as environment:
            runner, _ = open_transport(transport, environment)
            running = pool.submit(runner.run, "echo >started; sleep 60")
            succeed(environment, "until test -e started; do sleep 0.1; done")
        error = running.exception()
        assert isinstance(error, SubstrateError) if error else running.result().exit_code != 0


def test_destroy_removes_what_a_command_has_locked(substrate: SubstrateHandle) -> None:
    """Package managers make their caches read-only."""
    with substrate.environment() as environment:
        succeed(environment, "mkdir -p cache/module && echo >cache/module/file && chmod -R a-w cache && chmod 0 cache")
    assert environment.gone()
