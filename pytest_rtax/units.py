"""Durations as people write them, and as people read them."""

from __future__ import annotations

import re
from typing import Final

NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}

_DURATION: Final = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?P<unit>ns|us|µs|ms|s|min|m|h)")
_LONGEST: Final = 10**24  # longer than any run, and still a number that can be rounded


def parse_duration(text: str) -> int:
    """Nanoseconds in a duration such as ``20ms``, ``1.5s`` or ``2min``.

    A number without a unit is refused: whether ``30`` means seconds or milliseconds is a guess.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write a number and a unit, such as 20ms or 2s")
    nanoseconds = float(match["number"]) * NANOSECONDS[match["unit"]]
    if nanoseconds > _LONGEST:
        raise ValueError(f"{text[:40]!r} is longer than any run")
    return round(nanoseconds)


def format_duration(nanoseconds: float) -> str:
    """At most six characters, in the unit that suits them: ``834us``, ``1.25ms``, ``61.0s``, ``17min``, ``2.0h``."""
    if nanoseconds < 0:
        return f"-{format_duration(-nanoseconds)}"
    for unit, size in (("ns", 1), ("us", 10**3), ("ms", 10**6)):
        # 999.5 would be shown as 1000: it belongs to the next unit.
        if nanoseconds < 999.5 * size:
            return _three_digits(nanoseconds / size) + unit
    seconds = nanoseconds / 10**9
    if seconds < 999.5:
        return _three_digits(seconds) + "s"
    return f"{seconds / 60:.0f}min" if seconds < 100 * 60 else f"{seconds / 3600:.1f}h"


def _three_digits(value: float) -> str:
    if value >= 99.95 or value == 0:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
