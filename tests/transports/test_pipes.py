"""PipeChannel: a child's pipes, whatever the child does with them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pytest_rtax.transports.channel import STDERR, STDOUT, ChannelClosed
from pytest_rtax.transports.pipes import PipeChannel

Start = Callable[..., PipeChannel]


@pytest.fixture(params=["pidfd", "no pidfd"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old kernels cannot tell of a child's end; the exit is then looked for."""
    if request.param == "no pidfd":
        monkeypatch.delattr(os, "pidfd_open", raising=False)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    channels: list[PipeChannel] = []

    def start(script: str, *, stdin: bool = True) -> PipeChannel:
        channels.append(PipeChannel(["sh", "-c", script], cwd=str(tmp_path), env=dict(os.environ), stdin=stdin))
        return channels[-1]

    yield start
    for channel in channels:
        channel.close()


def drain(channel: PipeChannel) -> dict[int, bytes]:
    """All output until the child's end."""
    seen = {STDOUT: bytearray(), STDERR: bytearray()}
    try:
        while True:
            piece = channel.receive(30)
            assert piece is not None, "the child neither said anything nor ended"
            seen[piece[0]] += piece[1]
    except ChannelClosed:
        return {stream: bytes(data) for stream, data in seen.items()}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_output_and_exit_code_of_a_child(start: Start) -> None:
    channel = start("echo out; echo err >&2; exit 3")
    assert channel.returncode is None
    assert drain(channel) == {STDOUT: b"out\n", STDERR: b"err\n"}
    assert channel.returncode == 3


def test_a_signal_is_128_and_its_number(start: Start) -> None:
    channel = start("kill -KILL $$")
    drain(channel)
    assert channel.returncode == 137


def test_the_end_is_told_again_to_who_asks_again(start: Start) -> None:
    channel = start("exit 4")
    drain(channel)
    with pytest.raises(ChannelClosed, match="exit code 4"):
        channel.receive(0)


def test_much_input_while_the_child_floods_its_output_does_not_deadlock(start: Start) -> None:
    data = bytes(range(256)) * 16384
    channel = start("cat")
    channel.send(data[:1000])
    channel.send(data[1000:])
    channel.end_input()
    assert drain(channel)[STDOUT] == data


def test_a_child_may_close_its_stdin_early(start: Start) -> None:
    channel = start("exec <&-; echo deaf; sleep 0.2; echo alive")
    channel.send(b"x" * 1_000_000)
    channel.end_input()
    assert drain(channel)[STDOUT] == b"deaf\nalive\n"


def test_a_child_may_end_without_reading_its_stdin(start: Start) -> None:
    channel = start("exit 5")
    channel.send(b"x" * 1_000_000)
    drain(channel)
    channel.send(b"more")
    assert channel.returncode == 5


def test_empty_input_is_end_of_file(start: Start) -> None:
    channel = start("cat; echo end")
    channel.send(b"")
    channel.end_input()
    assert drain(channel)[STDOUT] == b"end\n"


def test_a_child_without_stdin_reads_end_of_file(start: Start) -> None:
    assert drain(start("cat; echo end", stdin=False))[STDOUT] == b"end\n"


def test_closing_the_output_is_not_the_end(start: Start) -> None:
    channel = start("exec >&- 2>&-; sleep 0.2; exit 6")
    assert drain(channel) == {STDOUT: b"", STDERR: b""}
    assert channel.returncode == 6


def test_a_survivor_that_holds_the_pipes_keeps_nobody_waiting(start: Start) -> None:
    started = time.monotonic()
    channel = start("sleep 60 & echo $!")
    pid = int(drain(channel)[STDOUT])
    assert time.monotonic() - started < 30
    os.kill(pid, 9)


def test_a_survivor_that_floods_the_pipes_keeps_nobody_waiting(start: Start) -> None:
    channel = start("yes & echo $! >&2")
    seen = drain(channel)
    os.kill(int(seen[STDERR]), 9)
    assert len(seen[STDOUT]) < 100_000_000


def test_all_that_a_child_wrote_before_its_end_is_received(start: Start) -> None:
    channel = start("head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2; echo end")
    os.waitid(os.P_PID, channel.pid, os.WEXITED | os.WNOWAIT)
    seen = drain(channel)
    assert (len(seen[STDOUT]), len(seen[STDERR])) == (60004, 60000)


def test_silence_is_none_when_the_time_is_over(start: Start) -> None:
    channel = start("sleep 60")
    assert channel.receive(0) is None
    assert channel.receive(0.05) is None


def test_close_ends_the_child_and_is_idempotent(start: Start) -> None:
    channel = start("sleep 60")
    channel.close()
    channel.close()
    assert not Path(f"/proc/{channel.pid}").exists(), "a zombie is left"


def test_a_closed_channel_touches_nobody_elses_descriptors(start: Start) -> None:
    channel = start("echo unread; sleep 60")
    channel.close()
    pipes = [os.pipe() for _ in range(4)]
    with pytest.raises(ChannelClosed):
        channel.receive(0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        channel.send(b"x")
    for descriptor in (end for pipe in pipes for end in pipe):
        os.close(descriptor)


def test_a_child_has_a_process_group_of_its_own(start: Start) -> None:
    channel = start("sleep 60")
    assert os.getpgid(channel.pid) == os.getsid(channel.pid) == channel.pid


def test_many_channels_leave_no_descriptor_and_no_zombie(tmp_path: Path) -> None:
    before = descriptors()
    for number in range(200):
        with closing(PipeChannel(["cat"], cwd=str(tmp_path), env=dict(os.environ))) as channel:
            channel.send(b"x")
            if number % 2:
                channel.end_input()
                drain(channel)
        assert not Path(f"/proc/{channel.pid}").exists()
    assert descriptors() == before


@pytest.mark.parametrize("argv", [["no-such-program"], ["/dev/null"], ["a\0b"]])
def test_a_child_that_cannot_be_started_leaves_no_descriptor(tmp_path: Path, argv: list[str]) -> None:
    before = descriptors()
    with pytest.raises((OSError, ValueError)):
        PipeChannel(argv, cwd=str(tmp_path), env=dict(os.environ))
    assert descriptors() == before
