"""Budgets: limits on a statistic, as people write them in a marker.

A budget is ``METRIC.STATISTIC < LIMIT``, or ``<=``, with spaces wherever they read well::

    cold_start.p95 < 2s              a time, always with its unit
    ready.scheduled.p50 <= 300ms     a sub-phase that the substrate reports
    tax_share.mean < 30%             a share of the total; 0.3 says the same
    failures < 1%                    the share of trials that failed
    failures <= 2                    their number
    total.p50 < 1.5x local           relative to another substrate of the same run

The texts are read while pytest collects, so this module stays cheap to import: no numpy, no scipy.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Final

from pytest_rtax.units import NANOSECONDS

METRICS: Final = (
    *("create", "ready", "cold_start", "setup", "action", "dispatch", "inside", "cleanup", "total"),
    *("amortized", "tax", "tax_share", "failures"),
)
"""What a budget can limit; all but the last two are times."""

SUBPHASED: Final = ("create", "ready", "setup", "cleanup")
"""The phases that a substrate may divide into named sub-phases."""

_SHARES: Final = {"%": Decimal("0.01"), "": Decimal(1)}
_STATISTICS: Final = "write one such as p50, p95, mean or max"
_LIMITS: Final = {"tax_share": "30%", "failures": "1%"}

# What a misspelt word is compared with: the valid spellings and some that people use instead.
_METRIC_SPELLINGS: Final = {metric: metric for metric in METRICS}
_STATISTIC_SPELLINGS: Final = {
    spelling: statistic
    for statistic, spellings in {
        "p50": "p50 median",
        "p90": "p90",
        "p95": "p95",
        "p99": "p99",
        "mean": "mean average avg",
        "max": "max maximum",
    }.items()
    for spelling in spellings.split()
}
_UNIT_SPELLINGS: Final = {
    spelling: unit
    for unit, spellings in {
        "ns": "ns nsec nanoseconds",
        "us": "us usec microseconds \N{GREEK SMALL LETTER MU}s",
        "ms": "ms msec milliseconds",
        "s": "s sec seconds",
        "min": "min minutes",
        "h": "h hr hours",
    }.items()
    for spelling in spellings.split()
}

_WORD: Final = re.compile(r"[^\s.<>=!≤≥]+")
_DOT: Final = re.compile(r"\.")
# The dot of p99.9 belongs to the number, that of ready.p99.mean does not.
_SEGMENT: Final = re.compile(rf"p[0-9]+\.[0-9]+(?![^\s<>=!≤≥])|{_WORD.pattern}")
_STATISTIC: Final = re.compile(r"mean|max|p(?P<percent>[0-9]+(?:\.[0-9]+)?)")
_SUBPHASE: Final = re.compile(r"[a-z][a-z0-9_]*")
_COMPARISON: Final = re.compile(r"[<>=!≤≥]+")
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_NO_SPACES: Final = re.compile(r"\S+")

# Decimal, because 1.1ms is 1100000ns and not 1100000.0000000002. Without traps, because a limit out of range is to
# become an infinity or a zero here, and an error with a position later.
_DECIMAL: Final = Context(prec=40, traps=[])


class BudgetSyntaxError(ValueError):
    """A budget that cannot be read; its text is one line that says what is wrong, where, and what to write."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(text, position, reason)
        self.text = text
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"budget {self.text!r}, column {self.position + 1}: {self.reason}"


@dataclass(frozen=True)
class Budget:
    """A limit on one statistic of one metric; its text, given to :func:`parse_budget`, gives it back."""

    metric: str
    subphase: str | None
    statistic: str
    """``p95``, ``p99.9``, ``mean`` or ``max``; of failures ``rate`` or ``count``."""
    inclusive: bool
    """Whether the limit itself is still within the budget."""
    limit: float
    """Nanoseconds for a time, a fraction for a share or a rate, a number for a count; a multiple if relative."""
    relative_to: str | None
    """The label of the substrate that the limit is a multiple of."""

    def __str__(self) -> str:
        statistic = None if self.metric == "failures" else self.statistic
        left = ".".join(part for part in (self.metric, self.subphase, statistic) if part is not None)
        return f"{left} {'<=' if self.inclusive else '<'} {self._limit_text()}"

    def _limit_text(self) -> str:
        limit = Decimal(repr(self.limit))
        if self.relative_to is not None:
            return f"{_plain(limit)}x {self.relative_to}"
        if self.statistic == "count":
            return _plain(limit)
        if not _is_time(self.metric):
            return f"{_plain(_DECIMAL.divide(limit, _SHARES['%']))}%"
        unit = next((unit for unit in ("s", "ms", "us") if limit >= NANOSECONDS[unit]), "ns")
        return f"{_plain(_DECIMAL.divide(limit, NANOSECONDS[unit]))}{unit}"


def parse_budget(text: str) -> Budget:
    """Read a budget such as ``cold_start.p95 < 2s``; raises :class:`BudgetSyntaxError`."""
    cursor = _Cursor(text)
    metric = _parse_metric(cursor)
    subphase, statistic = _parse_path(cursor, metric)
    inclusive = _parse_comparison(cursor)
    limit, unit, relative_to = _parse_limit(cursor, metric)
    if metric == "failures" and unit == "":
        statistic = "count"
    return Budget(metric, subphase, statistic, inclusive, limit, relative_to)


class _Cursor:
    """A place in the text; `start` is where the token last asked for begins, or would have to."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = 0
        self._end = 0

    def take(self, pattern: re.Pattern[str]) -> str:
        """Skip spaces and move past what matches there; empty if nothing does."""
        self.start = self._next()
        match = pattern.match(self.text, self.start)
        self._end = match.end() if match else self.start
        return match[0] if match else ""

    def sees(self, pattern: re.Pattern[str]) -> bool:
        """Whether take() would find something."""
        return pattern.match(self.text, self._next()) is not None

    def error(self, reason: str) -> BudgetSyntaxError:
        """An error about the token last asked for."""
        return BudgetSyntaxError(self.text, self.start, reason)

    def expected(self, what: str, remedy: str) -> BudgetSyntaxError:
        """An error about a token that is not there."""
        found = _NO_SPACES.match(self.text, self.start)
        return self.error(f"expected {what}, found {repr(found[0]) if found else 'nothing'}; {remedy}")

    def _next(self) -> int:
        return len(self.text) - len(self.text[self._end :].lstrip())


def _parse_metric(cursor: _Cursor) -> str:
    metric = cursor.take(_WORD)
    if not metric:
        raise cursor.expected("a metric", "write a budget such as cold_start.p95 < 2s")
    if metric not in METRICS:
        remedy = _nearest(metric, _METRIC_SPELLINGS) or f"write one of {', '.join(METRICS)}"
        raise cursor.error(f"{metric!r} is not a metric; {remedy}")
    return metric


def _parse_path(cursor: _Cursor, metric: str) -> tuple[str | None, str]:
    if metric == "failures":
        if cursor.take(_DOT):
            raise cursor.error("failures has no statistic; write failures < 1% or failures <= 2")
        return None, "rate"
    word = _parse_segment(cursor, metric)
    if _STATISTIC.fullmatch(word) or not cursor.sees(_DOT):
        otherwise = f"{_STATISTICS}, or {metric}.name.p95 for a sub-phase" if metric in SUBPHASED else _STATISTICS
        return None, _statistic(cursor, word, otherwise)
    if metric not in SUBPHASED:
        raise cursor.error(f"{metric} has no sub-phases, only {', '.join(SUBPHASED)} have; write {metric}.p95")
    if not _SUBPHASE.fullmatch(word):
        raise cursor.error(f"{word!r} cannot name a sub-phase; write a-z first, then a-z, 0-9 and _, as in scheduled")
    return word, _statistic(cursor, _parse_segment(cursor, f"{metric}.{word}"), _STATISTICS)


def _parse_segment(cursor: _Cursor, path: str) -> str:
    segment = cursor.take(_SEGMENT) if cursor.take(_DOT) else ""
    if not segment:
        raise cursor.expected(f"a statistic of {path}", f"write {path}.p95, {path}.mean or {path}.max")
    return segment


def _statistic(cursor: _Cursor, word: str, otherwise: str) -> str:
    match = _STATISTIC.fullmatch(word)
    if match is None:
        raise cursor.error(f"{word!r} is not a statistic; {_nearest(word, _STATISTIC_SPELLINGS) or otherwise}")
    if match["percent"] is None:
        return word
    if not 0 < float(match["percent"]) < 100:
        raise cursor.error(f"{word} is not a percentile; write one above p0 and below p100, or max for the largest")
    return f"p{_plain(Decimal(match['percent']))}"


def _parse_comparison(cursor: _Cursor) -> bool:
    comparison = cursor.take(_COMPARISON)
    if not comparison:
        raise cursor.expected("< or <=", "write a budget such as cold_start.p95 < 2s")
    if comparison not in ("<", "<="):
        raise cursor.error(f"{comparison!r} does not set an upper limit; write < or <=")
    return comparison == "<="


def _parse_limit(cursor: _Cursor, metric: str) -> tuple[float, str, str | None]:
    """The limit, the unit it was written in, and the substrate it is relative to."""
    number = cursor.take(_NUMBER)
    if not number:
        raise cursor.expected("a number above zero", f"write a limit such as {_LIMITS.get(metric, '2s')} or 1.5x local")
    at = cursor.start
    unit = cursor.take(_NO_SPACES)
    scale = Decimal(1) if unit == "x" else _scale(cursor, metric, number, unit)
    limit = float(_DECIMAL.multiply(Decimal(number), scale))
    if (objection := _objection(metric, unit, limit)) is not None:
        raise BudgetSyntaxError(cursor.text, at, objection)
    relative_to = cursor.take(_NO_SPACES) if unit == "x" else None
    if relative_to == "":
        raise cursor.expected("a substrate", f"write the one to compare with, such as {number}x local")
    if surplus := cursor.take(_NO_SPACES):
        raise cursor.error(f"{surplus!r} is too much; end the budget after its limit")
    return limit, unit, relative_to


def _scale(cursor: _Cursor, metric: str, number: str, unit: str) -> Decimal:
    """What the number has to be multiplied with."""
    units: Mapping[str, Decimal | int] = NANOSECONDS if _is_time(metric) else _SHARES
    if unit in units:
        return Decimal(units[unit])
    if unit.startswith("x"):
        raise cursor.error(f"{unit!r} is not a unit; write {number}x, a space, and the substrate to compare with")
    if not _is_time(metric):
        alternative = f"{number}%, or {number} for their number" if metric == "failures" else f"{number}% or a fraction"
        raise cursor.error(f"{unit!r} is not a unit of {metric}; write {alternative}")
    if not unit:
        raise cursor.error(f"{number} has no unit; write {number}s or {number}ms, whichever it is")
    remedy = _nearest(unit, _UNIT_SPELLINGS) or "write ns, us, ms, s, min or h"
    raise cursor.error(f"{unit!r} is not a unit of time; {remedy}")


def _objection(metric: str, unit: str, limit: float) -> str | None:
    """What is wrong with a limit that is well-formed."""
    if limit == 0:
        remedy = "write failures < 1 to allow none" if metric == "failures" else "write one that can be kept"
        return f"a limit has to be above zero; {remedy}"
    if math.isinf(limit):
        return "a limit has to be finite; this one is beyond all numbers, write a smaller one"
    if unit == "x" or _is_time(metric):
        return None
    if metric == "failures" and unit == "":
        return None if limit.is_integer() else "a number of failures is whole; write a share of the trials with a %"
    if limit <= 1:
        return None
    return (
        "a share is at most 100%; write a smaller one"
        if unit
        else "a share without a % is at most 1; write it with a %"
    )


def _nearest(word: str, spellings: Mapping[str, str]) -> str | None:
    close = difflib.get_close_matches(word.casefold(), spellings, n=1)
    return f"did you mean {spellings[close[0]]}?" if close else None


def _is_time(metric: str) -> bool:
    return metric not in ("tax_share", "failures")


def _plain(number: Decimal) -> str:
    """Without an exponent or zeros that say nothing."""
    return format(_DECIMAL.normalize(number), "f")
