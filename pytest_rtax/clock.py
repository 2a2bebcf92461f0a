"""The one monotonic clock of the driver, and a virtual one to calibrate the instrument with."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock in nanoseconds."""

    def now(self) -> int:
        """The current reading."""
        ...

    def sleep(self, nanoseconds: int) -> None:
        """Return once the clock has advanced by *nanoseconds*."""
        ...


class RealClock:
    """``time.perf_counter_ns`` with a sleep that keeps its word."""

    now = staticmethod(time.perf_counter_ns)

    # The kernel wakes a sleeper late by its timer slack and by whatever else is running. A calibrated delay
    # sleeps until shortly before its end and spins for the rest.
    SPIN_NS = 1_000_000

    def sleep(self, nanoseconds: int) -> None:
        """Sleep, then spin for the last millisecond."""
        if nanoseconds <= 0:
            return
        end = self.now() + nanoseconds
        if nanoseconds > self.SPIN_NS:
            time.sleep((nanoseconds - self.SPIN_NS) / 1e9)
        while self.now() < end:
            pass


class VirtualClock:
    """A clock that moves only when somebody sleeps on it: hours of simulated waiting take no time."""

    def __init__(self) -> None:
        self._now = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        """The virtual reading; starts at zero."""
        return self._now

    def sleep(self, nanoseconds: int) -> None:
        """Advance at once."""
        assert nanoseconds >= 0, "a monotonic clock does not go back"
        with self._lock:
            self._now += nanoseconds


REAL_CLOCK = RealClock()
