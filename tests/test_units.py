from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rtax.units import NANOSECONDS, format_duration, parse_duration

HOUR = NANOSECONDS["h"]


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0s", 0),
        ("7ns", 7),
        ("20us", 20_000),
        ("20µs", 20_000),
        ("1.1ms", 1_100_000),
        (".5s", 500_000_000),
        ("2.s", 2_000_000_000),
        (" 2 s ", 2_000_000_000),
        ("1.5min", 90 * 10**9),
        ("2m", 120 * 10**9),
        ("1h", 3600 * 10**9),
    ],
)
def test_parse(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", "s", "30", "1.5", "-1s", "+1s", "1e3s", "1,5s", "2 sec", "2S", "1s 2ms", "nan", "infs"]
)
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write a number and a unit, such as 20ms or 2s"):
        parse_duration(text)


@given(
    st.integers(min_value=0).map(str) | st.floats(min_value=0, allow_infinity=False).map(lambda number: f"{number:f}")
)
def test_a_bare_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unit"):
        parse_duration(text)


@given(st.integers(0, 10**6), st.sampled_from(sorted(NANOSECONDS)), st.sampled_from(["", " "]))
def test_whole_numbers_are_exact_in_every_unit(number: int, unit: str, space: str) -> None:
    assert parse_duration(f"{number}{space}{unit}") == number * NANOSECONDS[unit]


@given(st.integers(0, 2**50))
def test_nanoseconds_are_kept_in_seconds(nanoseconds: int) -> None:
    seconds, rest = divmod(nanoseconds, 10**9)
    assert parse_duration(f"{seconds}.{rest:09}s") == nanoseconds


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0ns"),
        (1, "1.00ns"),
        (834_000, "834us"),
        (1_250_000, "1.25ms"),
        (61_000_000_000, "61.0s"),
        (9.994, "9.99ns"),
        (9.996, "10.0ns"),
        (99.94, "99.9ns"),
        (99.96, "100ns"),
        (999.4, "999ns"),
        (999.6, "1.00us"),
        (999_600, "1.00ms"),
        (999_600_000, "1.00s"),
        (1000 * 10**9, "17min"),
        (2 * HOUR, "2.0h"),
        (-1_250_000, "-1.25ms"),
    ],
)
def test_format(nanoseconds: float, text: str) -> None:
    assert format_duration(nanoseconds) == text


@given(st.integers(1, 999 * 10**9))
def test_a_formatted_duration_parses_back_to_three_digits(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == pytest.approx(nanoseconds, rel=0.00501)


@given(st.integers(999 * 10**9, 10**6 * HOUR))
def test_a_long_duration_parses_back_roughly(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == pytest.approx(nanoseconds, rel=0.0305)


@given(st.floats(1, 1e18))
def test_a_negative_duration_has_a_sign_in_front(nanoseconds: float) -> None:
    assert format_duration(-nanoseconds) == "-" + format_duration(nanoseconds)
