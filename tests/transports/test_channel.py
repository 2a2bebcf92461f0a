"""BoundedBuffer keeps the beginning and counts the rest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_rtax.transports.channel import BoundedBuffer


@given(st.lists(st.binary(max_size=20)), st.integers(0, 100))
def test_it_keeps_the_first_bytes_and_counts_the_others(pieces: list[bytes], limit: int) -> None:
    buffer = BoundedBuffer(limit)
    for piece in pieces:
        buffer.append(piece)
    whole = b"".join(pieces)
    assert buffer.getvalue() == whole[:limit]
    assert buffer.dropped == max(0, len(whole) - limit)


@given(st.binary(), st.integers(0, 100), st.integers(0, 300))
def test_how_the_bytes_arrive_makes_no_difference(data: bytes, limit: int, cut: int) -> None:
    whole, halves = BoundedBuffer(limit), BoundedBuffer(limit)
    whole.append(data)
    halves.append(data[:cut])
    halves.append(data[cut:])
    assert (whole.getvalue(), whole.dropped) == (halves.getvalue(), halves.dropped)


def test_an_empty_buffer_has_nothing_and_dropped_nothing() -> None:
    buffer = BoundedBuffer(10)
    assert (buffer.getvalue(), buffer.dropped) == (b"", 0)
