from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rtax.measure.case import Case
from pytest_rtax.records.schema import Failure, Trial
from pytest_rtax.report.progress import ProgressLine

BELOW = "\x1bD\x1bM\x1b7\x1b[B\r\x1b[K"
BACK = "\x1b8"
CASE = Case(
    substrate="null",
    transport="exec",
    tier="T0",
    length=10,
    trials=30,
    warmup=1,
    failure_limit=0.0,
    id="test_x.py::test_x[null-exec-10]",
    test="test_x.py::test_x",
)
TRIAL = Trial(
    run="r1",
    case=CASE.id,
    test=CASE.test,
    substrate="null",
    transport="exec",
    tier="T0",
    length=10,
    trial=0,
    order=0,
    started=0.0,
    trajectory="0123456789abcdef",
    environment="rtax-1",
    phases={},
    total=2 * 10**6,
)
WARMUP = msgspec.structs.replace(TRIAL, warmup=True)
FAILED = msgspec.structs.replace(TRIAL, total=None, failure=Failure("ready", "no room"))


def shown(case: Case, trials: Sequence[Trial], *, left: int = 5, seconds: float = 75.4, width: int = 80) -> str:
    """What is on the line after a trial."""
    stream = io.StringIO()
    ProgressLine(stream, width, nullcontext)(case, trials, left, seconds)
    written = stream.getvalue()
    assert written.startswith(BELOW) and written.endswith(BACK)
    return written.removeprefix(BELOW).removesuffix(BACK)


def test_the_line() -> None:
    totals = [5, 1, 2, 9]
    trials = [WARMUP, *(msgspec.structs.replace(TRIAL, total=total * 10**6) for total in totals), FAILED]
    assert shown(CASE, trials) == "rtax: test_x null exec 10 trial 5/30 p50 5.00ms 1:15 left"


def test_before_the_first_trial_it_is_warming_up() -> None:
    assert " trial 0/30 warming up " in shown(CASE, [WARMUP])


def test_failed_trials_are_not_called_a_warm_up() -> None:
    assert " trial 2/30 all failed " in shown(CASE, [WARMUP, FAILED, FAILED])


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0:00 left"), (59.4, "0:59 left"), (59.6, "1:00 left"), (7384.0, "123:04 left")]
)
def test_the_time_that_is_left(seconds: float, text: str) -> None:
    assert shown(CASE, [TRIAL], seconds=seconds).endswith(text)


def test_a_parametrized_test_keeps_its_parameters() -> None:
    assert shown(replace(CASE, test="a/test_x.py::TestX::test_x[a-b]"), [TRIAL]).startswith("rtax: test_x[a-b] null ")


def test_after_the_last_trial_the_line_is_gone() -> None:
    assert shown(CASE, [TRIAL], left=0) == ""


def test_the_terminal_is_taken_and_given_back_around_each_write() -> None:
    stream = io.StringIO()
    log: list[str] = []

    @contextmanager
    def screen() -> Iterator[None]:
        log.append(f"taken at {len(stream.getvalue())}")
        yield
        log.append(f"given back at {len(stream.getvalue())}")

    line = ProgressLine(stream, 80, screen)
    line(CASE, [TRIAL], 1, 1.0)
    one = len(stream.getvalue())
    line(CASE, [TRIAL, TRIAL], 0, 0.0)
    end = one + len(BELOW + BACK)
    assert log == ["taken at 0", f"given back at {one}", f"taken at {one}", f"given back at {end}"]


def test_every_state_replaces_the_one_before() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream, 80, nullcontext)
    for left in (2, 1, 0):
        line(CASE, [TRIAL], left, 1.0)
    first, second, third, last = stream.getvalue().split(BELOW)
    assert (first, second, last) == ("", third, BACK)
    assert "\n" not in stream.getvalue()


@settings(max_examples=60)
@given(st.text(st.characters()), st.text("\x1b[2J\r\n\u202e\tab", max_size=90), st.integers(40, 200))
def test_names_are_harmless_and_fit(test: str, substrate: str, width: int) -> None:
    text = shown(replace(CASE, test=test, substrate=substrate), [TRIAL], width=width)
    assert len(text) < width
    assert text.isprintable()
