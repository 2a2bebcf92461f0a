"""The wrapper of the exec transport, in real shells of this machine."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_rtax.substrates.protocol import CommandTimeout, EnvironmentFailed, Observation
from pytest_rtax.transports.channel import Channel
from pytest_rtax.transports.commands import COMMAND_COOKIE
from pytest_rtax.transports.exec import KILL_SCRIPT, run_once
from pytest_rtax.transports.pipes import PipeChannel

PATH = "/usr/local/bin:/usr/bin:/bin"


class Wrapped:
    """Commands in one directory of this machine, through the wrapper."""

    def __init__(self, directory: Path, *, bash: bool) -> None:
        self._directory = directory
        self._bash = bash
        self._sequence = 0

    def _open(self, argv: list[str], env: Mapping[str, str]) -> Channel:
        return PipeChannel(argv, cwd=str(self._directory), env={"PATH": PATH, **env})

    def _kill(self, cookie: str) -> None:
        subprocess.run(["sh", "-c", KILL_SCRIPT, "sh", f"{COMMAND_COOKIE}={cookie}"], check=True, timeout=30)

    def run(self, command: Any, *, output_limit: int = 10**6, **options: Any) -> Observation:
        self._sequence += 1
        cookie = f"{self._directory}.{self._sequence}"
        return run_once(
            self._open, command, bash=self._bash, cookie=cookie, kill=self._kill, output_limit=output_limit, **options
        )


@pytest.fixture(params=[True, False], ids=["bash", "sh"])
def wrapped(request: pytest.FixtureRequest, tmp_path: Path) -> Wrapped:
    if request.param and shutil.which("bash") is None:
        pytest.skip("no bash on this machine: install bash")
    return Wrapped(tmp_path, bash=request.param)


def test_streams_and_exit_code(wrapped: Wrapped) -> None:
    seen = wrapped.run("echo out; echo err >&2; exit 3")
    assert (seen.exit_code, seen.stdout, seen.stderr) == (3, b"out\n", b"err\n")


def test_a_signal_is_an_exit_code_and_no_remark(wrapped: Wrapped) -> None:
    seen = wrapped.run("echo out; kill -KILL $$")
    assert (seen.exit_code, seen.stdout, seen.stderr) == (137, b"out\n", b"")


def test_only_bash_knows_the_time(tmp_path: Path) -> None:
    inside = Wrapped(tmp_path, bash=True).run("sleep 0.1").inside_ns
    assert inside is not None and 10**8 <= inside < 10**10
    # `sh` may be a bash in disguise, which has a clock too
    assert Wrapped(tmp_path, bash=False).run("true").inside_ns is None or "bash" in str(Path("/bin/sh").resolve())


def test_any_bytes_pass(wrapped: Wrapped) -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.binary(max_size=300))
    @example(b"")
    @example(bytes(range(256)) * 1000)
    def check(data: bytes) -> None:
        assert wrapped.run(["cat"], stdin=data).stdout == data

    check()


def test_arguments_pass_as_they_are(wrapped: Wrapped) -> None:
    words = ["two words", "", "-n", "$HOME", "it's", "*", "A=b", "naïve\n"]
    seen = wrapped.run(["printf", "%s\\0", *words])
    assert seen.stdout.decode().split("\0")[:-1] == words


@pytest.mark.parametrize("command", [["exit", "3"], ["cd", "/"], ["no-such-program"]])
def test_only_programs_are_run(wrapped: Wrapped, command: list[str]) -> None:
    assert wrapped.run(command).exit_code == 127


def test_a_missing_directory_is_127_and_says_so(wrapped: Wrapped) -> None:
    seen = wrapped.run("true", cwd="nowhere")
    assert seen.exit_code == 127
    assert b"nowhere" in seen.stderr


def test_a_background_process_keeps_nobody_waiting(wrapped: Wrapped) -> None:
    started = time.monotonic()
    assert wrapped.run("sleep 60 & echo $!").exit_code == 0
    assert time.monotonic() - started < 30


def test_a_timeout_kills_the_whole_tree(wrapped: Wrapped, tmp_path: Path) -> None:
    script = "setsid sh -c 'echo $$ >daemon; exec env -i sleep 61' & echo $$ >command; sleep 61"
    with pytest.raises(CommandTimeout, match="timed out after 1 s"):
        wrapped.run(script, timeout=1)
    for name in ("daemon", "command"):
        pid = (tmp_path / name).read_text().strip()
        status = Path(f"/proc/{pid}/status")
        assert not status.exists() or "State:\tZ" in status.read_text()


def test_a_killed_wrapper_is_a_failed_environment(wrapped: Wrapped) -> None:
    with pytest.raises(EnvironmentFailed, match="the command was lost"):
        wrapped.run("kill -9 $PPID; sleep 60")


def test_output_beyond_the_limit_is_counted(wrapped: Wrapped) -> None:
    seen = wrapped.run("head -c 5000 /dev/zero", output_limit=100)
    assert (len(seen.stdout), seen.stdout_dropped) == (100, 4900)
