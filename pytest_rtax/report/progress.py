"""One line that says how far the measuring is, for a person who watches.

Written between trials only, and by the measuring thread itself: a display with a thread of its own would compete with
the trial that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TextIO

from pytest_rtax.measure.case import Case
from pytest_rtax.records.schema import Trial
from pytest_rtax.units import format_duration
from pytest_rtax.untrusted import one_line

# The line stands below the one that pytest is writing its dots on. First make sure that there is one (index and
# reverse index scroll at the bottom of the screen); then save the cursor, go there, and come back.
_BELOW = "\x1bD\x1bM\x1b7\x1b[B\r\x1b[K"
_BACK = "\x1b8"


class ProgressLine:
    """Rewrites one line of a terminal in place."""

    def __init__(self, stream: TextIO, width: int, screen: Callable[[], AbstractContextManager[None]]) -> None:
        """*screen* gives the terminal to the line for as long as it is entered."""
        self._stream = stream
        self._width = width
        self._screen = screen

    def __call__(self, case: Case, trials: Sequence[Trial], left: int, seconds_left: float) -> None:
        """Show the state after a trial; erase the line after the last one."""
        with self._screen():
            self._stream.write(_BELOW + (self._text(case, trials, seconds_left) if left else "") + _BACK)
            self._stream.flush()

    def _text(self, case: Case, trials: Sequence[Trial], seconds_left: float) -> str:
        totals = sorted(trial.total for trial in trials if trial.total is not None and not trial.warmup)
        done = sum(not trial.warmup for trial in trials)
        so_far = "all failed" if done else "warming up"
        if totals:
            so_far = f"p50 {format_duration(totals[len(totals) // 2])}"
        minutes, seconds = divmod(round(seconds_left), 60)
        name = f"{case.test.rpartition('::')[2]} {case.substrate} {case.transport} {case.length}"
        return one_line(
            f"rtax: {name}  trial {done}/{case.trials}  {so_far}  {minutes}:{seconds:02} left", self._width - 1
        )
