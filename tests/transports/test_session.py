"""The session protocol: against a scripted shell, and against every shell of this machine."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_rtax.substrates.local import _kill_all
from pytest_rtax.substrates.protocol import CommandTimeout, SessionLost
from pytest_rtax.transports.channel import STDERR, STDOUT, ChannelClosed
from pytest_rtax.transports.commands import COMMAND_COOKIE
from pytest_rtax.transports.pipes import PipeChannel
from pytest_rtax.transports.session import ShellSession, session_argv

Piece = tuple[int, bytes]
BASH = shutil.which("bash")
SHELLS = [path for name in ("dash", "bash", "busybox") if (path := shutil.which(name)) is not None]
MODES = [
    pytest.param((shell, bash), id=f"{Path(shell).name}-{'relay' if bash else 'plain'}")
    for shell in SHELLS
    for bash in ([True, False] if BASH else [False])
]
WORDS = st.binary(max_size=40).map(lambda word: os.fsdecode(word.replace(b"\0", b"")))
few = settings(max_examples=40, deadline=None)


class ScriptedShell:
    """A channel whose other end says what it is told, in the pieces it is told."""

    def __init__(self, say: Callable[[str], list[Piece]], end: BaseException | None = None) -> None:
        """*say* makes the pieces from the session's nonce; after them comes *end*."""
        self._say = say
        self._end = end or ChannelClosed("the script is over")
        self._pieces: list[Piece] | None = None
        self.closed = False

    def send(self, data: bytes) -> None:
        if self._pieces is None:
            nonce = re.search(rb"[0-9a-f]{32}", data)
            assert nonce is not None
            self._pieces = self._say(nonce[0].decode())

    def receive(self, timeout: float | None) -> Piece | None:
        if not self._pieces:
            raise self._end
        return self._pieces.pop(0)

    def close(self) -> None:
        self.closed = True


def scripted(say: Callable[[str], list[Piece]], end: BaseException | None = None) -> ShellSession:
    return ShellSession(ScriptedShell(say, end), id="s", bash=True, kill=lambda _: None, output_limit=1000)


def answer(nonce: str, sequence: int = 1, text: str = "0 1.000000 2.000000") -> list[Piece]:
    return [(STDOUT, f"{nonce} {sequence} {text}\n".encode()), (STDERR, f"{nonce} {sequence}\n".encode())]


@st.composite
def cut(draw: st.DrawFn, streams: dict[int, bytes]) -> list[Piece]:
    """The bytes of the streams in arbitrary pieces, each stream in its order."""
    pieces: list[Piece] = []
    rest = dict(streams)
    while any(rest.values()):
        stream = draw(st.sampled_from([number for number, data in rest.items() if data]))
        size = draw(st.integers(1, len(rest[stream])))
        pieces.append((stream, rest[stream][:size]))
        rest[stream] = rest[stream][size:]
    return pieces


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_how_the_output_is_cut_makes_no_difference(data: st.DataObject) -> None:
    out, err, stray_out, stray_err = (data.draw(st.binary(max_size=60)) for _ in range(4))

    def say(nonce: str) -> list[Piece]:
        frames = [dict(answer(nonce, sequence, "3 1.000000 1.000002")) for sequence in (1, 2)]
        streams = {
            STDOUT: out + frames[0][STDOUT] + stray_out + frames[1][STDOUT],
            STDERR: err + frames[0][STDERR] + stray_err + frames[1][STDERR],
        }
        return data.draw(cut(streams))

    session = scripted(say)
    first, second = session.run("first"), session.run("second")
    assert (first.exit_code, first.stdout, first.stderr, first.inside_ns) == (3, out, err, 2000)
    assert (second.stdout, second.stderr) == (stray_out, stray_err)


@pytest.mark.parametrize(
    "near",
    [
        "{nonce} 2 0 ? ?\n",
        "{nonce} 10 0 ? ?\n",
        "{nonce} 0 0 ? ?\n",
        "{nonce}\n",
        "{nonce}  1 0 ? ?\n",
        "{short} 1 0 ? ?\n",
        "{short}",
        "{nonce} ",
    ],
)
def test_what_is_nearly_a_frame_is_output(near: str) -> None:
    texts: list[bytes] = []

    def say(nonce: str) -> list[Piece]:
        texts.append(near.format(nonce=nonce, short=nonce[:-1]).encode())
        return [(STDOUT, texts[0]), (STDERR, texts[0]), *answer(nonce)]

    seen = scripted(say).run("x")
    assert (seen.exit_code, seen.stdout, seen.stderr) == (0, texts[0], texts[0])


@pytest.mark.parametrize(
    ("readings", "inside"),
    [
        ("1700000000.000000 1700000000.250000", 250_000_000),
        ("1700000000,000000 1700000000,250000", 250_000_000),
        ("1700000000\N{ARABIC DECIMAL SEPARATOR}000000 1700000000\N{ARABIC DECIMAL SEPARATOR}250000", 250_000_000),
        ("999.999999 1000.000001", 2000),
        ("5.000000 5.000000", 0),
        ("5.000000 4.999999", None),
        ("? ?", None),
        ("5.000000 ?", None),
        ("5 6", None),
        ("x5.000000 6.000000", None),
    ],
)
def test_time_inside_is_the_difference_of_two_clock_readings(readings: str, inside: int | None) -> None:
    assert scripted(lambda nonce: answer(nonce, text=f"0 {readings}")).run("x").inside_ns == inside


@pytest.mark.parametrize("text", ["", "0", "x ? ?", "0 ?", "0 ? ? ?", "-1 ? ?", "1000 ? ?"])
def test_an_answer_that_cannot_be_read_loses_the_session(text: str) -> None:
    session = scripted(lambda nonce: answer(nonce, text=text))
    with pytest.raises(SessionLost, match="cannot be read"):
        session.run("x")
    with pytest.raises(SessionLost, match="cannot be read"):
        session.run("x")


def test_a_lost_session_says_why_and_closes_its_channel() -> None:
    channel = ScriptedShell(lambda nonce: [(STDERR, b"first\nsh: out of memory\n")])
    session = ShellSession(channel, id="s", bash=True, kill=lambda _: None, output_limit=1000)
    with pytest.raises(SessionLost, match=r"the script is over \(sh: out of memory\)"):
        session.run("x")
    assert channel.closed


def test_an_interrupted_session_is_lost() -> None:
    session = scripted(lambda nonce: [(STDOUT, b"half of the")], end=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        session.run("x")
    with pytest.raises(SessionLost, match="KeyboardInterrupt"):
        session.run("x")


def test_what_follows_the_limit_is_counted_not_kept() -> None:
    seen = scripted(lambda nonce: [(STDOUT, b"x" * 700)] * 3 + answer(nonce)).run("x")
    assert (seen.stdout, seen.stdout_dropped, seen.stderr_dropped) == (b"x" * 1000, 1100, 0)


class Shell:
    """Opens sessions in a directory where `sh` is the shell under test."""

    def __init__(self, directory: Path, sh: str, *, bash: bool) -> None:
        self.directory = directory
        self.bash = bash
        self.environ = {"PATH": f"{directory}/bin:{os.environ['PATH']}", "LANG": "C.UTF-8"}
        (directory / "bin").mkdir()
        (directory / "bin" / "sh").symlink_to(sh)

    @contextmanager
    def session(self, **environ: str) -> Iterator[ShellSession]:
        channel = PipeChannel(session_argv(bash=self.bash), cwd=str(self.directory), env={**self.environ, **environ})
        session = ShellSession(channel, id=str(self.directory), bash=self.bash, kill=kill, output_limit=1_000_000)
        with closing(session):
            yield session

    def tool(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


def kill(cookie: str) -> None:
    _kill_all(COMMAND_COOKIE, cookie)


@pytest.fixture(params=MODES)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    sh, bash = request.param
    return Shell(tmp_path, sh, bash=bash)


def test_any_bytes_pass_through_stdin_and_stdout(shell: Shell) -> None:
    with shell.session() as session:

        @few
        @given(st.binary(max_size=300))
        @example(b"\x01\xc2\x01")  # bash drops the last byte if it reads this in a UTF-8 locale
        @example(bytes(range(256)) * 3)
        def check(data: bytes) -> None:
            assert session.run(["cat"], stdin=data).stdout == data

        check()


def test_any_bytes_pass_through_stderr(shell: Shell) -> None:
    with shell.session() as session:

        @few
        @given(st.binary(max_size=300))
        def check(data: bytes) -> None:
            seen = session.run("cat >&2", stdin=data)
            assert (seen.stdout, seen.stderr) == (b"", data)

        check()


def test_any_arguments_pass(shell: Shell) -> None:
    with shell.session() as session:

        @few
        @given(st.lists(WORDS, min_size=1, max_size=5))
        def check(words: list[str]) -> None:
            expected = b"".join(os.fsencode(word) + b"\0" for word in words)
            assert session.run(["printf", "%s\\0", *words]).stdout == expected

        check()


def test_any_variable_passes_with_and_without_a_directory(shell: Shell) -> None:
    with shell.session() as session:

        @few
        @given(WORDS, st.sampled_from([None, "/"]))
        def check(value: str, cwd: str | None) -> None:
            seen = session.run(["printenv", "VALUE"], env={"VALUE": value}, cwd=cwd)
            assert seen.stdout == os.fsencode(value) + b"\n"

        check()


def test_any_directory_is_entered(shell: Shell) -> None:
    names = WORDS.map(lambda word: word.replace("/", "")).filter(lambda name: name not in ("", ".", "..", "bin"))
    with shell.session(CDPATH="/usr:/") as session:

        @few
        @given(names)
        def check(name: str) -> None:
            (shell.directory / name).mkdir(exist_ok=True)
            seen = session.run(["printenv", "PWD"], cwd=name)
            assert seen.stdout == os.fsencode(shell.directory / name) + b"\n"

        check()


def test_a_directory_above_a_link_is_where_the_link_points(shell: Shell) -> None:
    (shell.directory / "a" / "b").mkdir(parents=True)
    (shell.directory / "link").symlink_to("a/b")
    with shell.session() as session:
        assert session.run(["ls"], cwd="link/..").stdout == b"b\n"


def test_a_directory_cannot_hold_nul(shell: Shell) -> None:
    with shell.session() as session:
        with pytest.raises(ValueError, match="NUL"):
            session.run("true", cwd="a\0b")
        assert session.run("exit 3").exit_code == 3


def test_a_command_has_the_three_standard_descriptors_and_no_more(shell: Shell) -> None:
    with shell.session() as session:
        for stdin, cwd in ((None, None), (b"x", None), (None, "/"), (b"x", "/")):
            assert session.run(["ls", "/proc/self/fd"], stdin=stdin, cwd=cwd).stdout == b"0\n1\n2\n3\n"


def test_a_program_installed_later_is_found_in_its_place(shell: Shell) -> None:
    shell.tool("late/tool", "echo late")
    with shell.session(PATH=f"{shell.directory}/early:{shell.directory}/late:{shell.environ['PATH']}") as session:
        assert session.run(["tool"]).stdout == b"late\n"
        shell.tool("early/tool", "echo early")
        assert session.run(["tool"]).stdout == b"early\n"


def test_a_program_may_have_the_name_of_something_of_the_shells(shell: Shell) -> None:
    for name in ("_e", "_w", "if", "exit", "read", "["):
        shell.tool(f"bin/{name}", 'echo "$0"')
    with shell.session() as session:
        for name in ("_e", "_w", "if", "exit", "read", "["):
            seen = session.run([name, "1", "0"], timeout=20)
            assert (seen.exit_code, Path(seen.stdout.decode().strip()).name) == (0, name)


def test_a_start_up_file_named_in_the_environment_is_not_read(shell: Shell) -> None:
    shell.tool("startup", "echo noise; exit 9")
    with shell.session(BASH_ENV=f"{shell.directory}/startup", ENV=f"{shell.directory}/startup") as session:
        assert session.run("echo quiet").stdout == b"quiet\n"


def test_the_relay_knows_the_time_inside_and_plain_sh_does_not(shell: Shell) -> None:
    with shell.session(LC_ALL="C") as session:
        inside = session.run(["sleep", "0.05"]).inside_ns
    assert inside is not None and inside >= 50_000_000 if shell.bash else inside is None


def test_a_dead_shell_is_noticed_at_once(shell: Shell) -> None:
    started = time.monotonic()
    with shell.session() as session:
        with pytest.raises(SessionLost):
            session.run("kill -9 $PPID; sleep 30")
        with pytest.raises(SessionLost):
            session.run("true")
    assert time.monotonic() - started < 15


def test_a_command_that_has_not_started_yet_is_killed_when_it_does(shell: Shell) -> None:
    started = time.monotonic()
    with shell.session() as session:
        with pytest.raises(CommandTimeout):
            session.run("sleep 30", timeout=0)
        assert session.run("echo next").stdout == b"next\n"
    assert time.monotonic() - started < 15


def test_the_output_of_a_background_process_does_not_break_a_frame(shell: Shell) -> None:
    with shell.session() as session:
        session.run("while :; do echo noise; done & echo $! >pid")
        codes = [session.run(f"exit {code}").exit_code for code in range(20)]
        session.run("kill $(cat pid)")
    assert codes == list(range(20))
