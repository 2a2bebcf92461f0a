from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rtax.transports.channel import STDERR, STDOUT, ChannelClosed
from pytest_rtax.transports.sockets import MultiplexedChannel

Pair = tuple[MultiplexedChannel, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    channel = MultiplexedChannel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(data)) + data


pieces = st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=50)), max_size=8)


@settings(max_examples=60, deadline=None)
@given(pieces, st.lists(st.integers(1, 40), max_size=30), st.integers(0, 60))
def test_frames_are_read_however_they_are_cut(sent: list[tuple[int, bytes]], cuts: list[int], early: int) -> None:
    """Some of them may have come with the answer to the request."""
    wire = b"".join(frame(*piece) for piece in sent)
    ours, theirs = socket.socketpair()
    channel = MultiplexedChannel(ours, wire[:early])
    rest = wire[early:]
    for cut in cuts:
        theirs.sendall(rest[:cut])
        rest = rest[cut:]
    theirs.sendall(rest)
    theirs.close()
    received = [channel.receive(5) for _ in sent]
    with pytest.raises(ChannelClosed):
        channel.receive(5)
    channel.close()
    assert received == sent


def test_nothing_within_the_time_is_none(pair: Pair) -> None:
    channel, theirs = pair
    theirs.sendall(frame(STDOUT, b"whole")[:-1])
    assert channel.receive(0.01) is None


def test_a_large_input_does_not_block_on_a_large_output(pair: Pair) -> None:
    channel, theirs = pair
    theirs.setblocking(False)
    data = bytes(3_000_000)
    channel.send(data)
    taken = 0
    theirs_out = frame(STDOUT, b"x" * 1000)
    while taken < len(data):
        try:
            taken += len(theirs.recv(1 << 20))
        except BlockingIOError:
            theirs.send(theirs_out)
            assert channel.receive(5) == (STDOUT, b"x" * 1000)
    assert taken == len(data)


def test_what_is_no_output_ends_the_channel(pair: Pair) -> None:
    channel, theirs = pair
    theirs.sendall(frame(3, b"system error"))
    with pytest.raises(ChannelClosed, match="system error"):
        channel.receive(5)


def test_closing_is_final_and_idempotent(pair: Pair) -> None:
    channel, _ = pair
    channel.close()
    channel.close()
    with pytest.raises(ChannelClosed):
        channel.receive(1)
