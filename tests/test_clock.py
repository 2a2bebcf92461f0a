from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rtax.clock import REAL_CLOCK, Clock, RealClock, VirtualClock

MS = 1_000_000


@pytest.mark.parametrize("nanoseconds", [0, 1, 1_000, RealClock.SPIN_NS, RealClock.SPIN_NS + 1, 3 * MS])
def test_a_real_sleep_never_returns_early(nanoseconds: int) -> None:
    before = time.perf_counter_ns()
    REAL_CLOCK.sleep(nanoseconds)
    assert time.perf_counter_ns() - before >= nanoseconds


def test_a_real_sleep_spins_only_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    RealClock().sleep(RealClock.SPIN_NS + 500_000)
    assert slept == [0.0005]


def test_a_real_sleep_that_the_kernel_ends_early_is_still_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    before = REAL_CLOCK.now()
    REAL_CLOCK.sleep(2 * MS)
    assert REAL_CLOCK.now() - before >= 2 * MS


@pytest.mark.parametrize("nanoseconds", [0, -1, -5 * MS])
def test_nothing_to_sleep_for_is_not_slept_for(nanoseconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", pytest.fail)
    REAL_CLOCK.sleep(nanoseconds)


def test_the_real_clock_does_not_go_back() -> None:
    readings = [REAL_CLOCK.now() for _ in range(1000)]
    assert readings == sorted(readings)


@given(st.lists(st.integers(0, 10**18)))
def test_a_virtual_sleep_advances_exactly(delays: list[int]) -> None:
    clock = VirtualClock()
    assert clock.now() == 0
    for delay in delays:
        before = clock.now()
        clock.sleep(delay)
        assert clock.now() == before + delay
    assert clock.now() == sum(delays)


def test_a_virtual_clock_stands_still_by_itself() -> None:
    clock = VirtualClock()
    REAL_CLOCK.sleep(1000)
    assert clock.now() == 0


def test_virtual_clocks_are_independent() -> None:
    one, other = VirtualClock(), VirtualClock()
    one.sleep(5)
    assert (one.now(), other.now()) == (5, 0)


def test_a_virtual_clock_loses_nothing_between_threads() -> None:
    clock = VirtualClock()

    def sleeper() -> None:
        for _ in range(1000):
            clock.sleep(3)

    threads = [threading.Thread(target=sleeper) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() == 12_000


@pytest.mark.parametrize("clock", [REAL_CLOCK, VirtualClock()], ids=["real", "virtual"])
def test_both_are_clocks(clock: Clock) -> None:
    before = clock.now()
    clock.sleep(10)
    assert clock.now() - before >= 10
