from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_rtax.stats.budgets import METRICS, SUBPHASED, Budget, BudgetSyntaxError, parse_budget

VALID = {
    "cold_start.p95 < 2s": Budget("cold_start", None, "p95", False, 2e9, None),
    "dispatch.p50<50ms": Budget("dispatch", None, "p50", False, 50e6, None),
    "  total . p99.9  <=  1.1 ms ": Budget("total", None, "p99.9", True, 1.1e6, None),
    "ready.scheduled.p95 < 1s": Budget("ready", "scheduled", "p95", False, 1e9, None),
    "create.pulled_2.max < 1.5min": Budget("create", "pulled_2", "max", False, 90e9, None),
    "amortized.mean < 2m": Budget("amortized", None, "mean", False, 120e9, None),
    "tax.p1 < 1h": Budget("tax", None, "p1", False, 3600e9, None),
    "inside.p50 < 7µs": Budget("inside", None, "p50", False, 7e3, None),
    "action.p50 < .5ns": Budget("action", None, "p50", False, 0.5, None),
    "action.p095.50 < 1s": Budget("action", None, "p95.5", False, 1e9, None),
    "tax_share.p50 < 30%": Budget("tax_share", None, "p50", False, 0.3, None),
    "tax_share.p50 <= 0.3": Budget("tax_share", None, "p50", True, 0.3, None),
    "failures < 1%": Budget("failures", None, "rate", False, 0.01, None),
    "failures <= 2": Budget("failures", None, "count", True, 2, None),
    "failures < 2x local": Budget("failures", None, "rate", False, 2, "local"),
    "total.p50 < 1.5x local": Budget("total", None, "p50", False, 1.5, "local"),
    "total.p50 < 1.5 x docker:runtime=runsc ": Budget("total", None, "p50", False, 1.5, "docker:runtime=runsc"),
    "tax_share.max < 3x local": Budget("tax_share", None, "max", False, 3, "local"),
}

INVALID = [
    # The text, the column of the error counted from 0, what has to be in the message.
    ("", 0, "expected a metric, found nothing; write a budget such as"),
    ("   ", 3, "expected a metric"),
    ("< 2s", 0, "expected a metric, found '<'"),
    ("cold_strat.p95 < 2s", 0, "'cold_strat' is not a metric; did you mean cold_start?"),
    ("  tax-share.p95 < 2s", 2, "did you mean tax_share?"),
    ("zzz.p95 < 2s", 0, "write one of create, ready,"),
    ("cold_start < 2s", 11, "expected a statistic of cold_start, found '<'; write cold_start.p95"),
    ("cold_start. < 2s", 12, "expected a statistic of cold_start"),
    ("ready.scheduled. < 2s", 17, "expected a statistic of ready.scheduled"),
    ("cold_start.meen < 2s", 11, "'meen' is not a statistic; did you mean mean?"),
    ("cold_start.P95 < 2s", 11, "did you mean p95?"),
    # Nearer to "mean" in letters, but not in meaning.
    ("cold_start.median < 2s", 11, "did you mean p50?"),
    ("total.zzz < 2s", 6, "write one such as p50, p95, mean or max"),
    ("ready.scheduled < 1s", 6, "ready.name.p95 for a sub-phase"),
    ("ready.scheduled.pulled.p95 < 1s", 16, "'pulled' is not a statistic"),
    ("ready.Scheduled.p95 < 1s", 6, "'Scheduled' cannot name a sub-phase"),
    ("total.scheduled.p95 < 1s", 6, "total has no sub-phases"),
    ("total.p0 < 1s", 6, "p0 is not a percentile"),
    ("total.p100 < 1s", 6, "p100 is not a percentile"),
    ("total.p99.99999999999999999999 < 1s", 6, "is not a percentile"),
    ("total.p99.mean < 1s", 9, "expected < or <=, found '.mean'"),
    ("total.p95", 9, "expected < or <=, found nothing"),
    ("total.p95 2s", 10, "expected < or <=, found '2s'"),
    ("total.p95 > 2s", 10, "'>' does not set an upper limit; write < or <="),
    ("total.p95 ≤ 2s", 10, "'≤' does not set an upper limit; write < or <="),
    ("total.p95 <", 11, "expected a number above zero, found nothing"),
    ("total.p95 < -1s", 12, "expected a number above zero, found '-1s'"),
    ("total.p95 < nan", 12, "expected a number above zero, found 'nan'"),
    ("total.p95 < inf s", 12, "expected a number above zero, found 'inf'"),
    ("total.p95 < 0s", 12, "above zero"),
    ("total.p95 < 0.0x local", 12, "above zero"),
    ("total.p95 < 0." + "0" * 400 + "1s", 12, "above zero"),
    ("total.p95 < " + "9" * 400 + "s", 12, "finite"),
    ("total.p95 < " + "9" * 308 + "h", 12, "finite"),
    ("total.p95 < 2", 13, "2 has no unit; write 2s or 2ms"),
    ("total.p95 < 2sec", 13, "'sec' is not a unit of time; did you mean s?"),
    ("total.p95 < 2 Milliseconds", 14, "did you mean ms?"),
    ("total.p95 < 2\N{GREEK SMALL LETTER MU}s", 13, "did you mean us?"),
    ("total.p95 < 5%", 13, "'%' is not a unit of time; write ns, us, ms, s, min or h"),
    ("total.p95 < 2s or so", 15, "'or' is too much"),
    ("tax_share.p50 < 3s", 17, "'s' is not a unit of tax_share; write 3%"),
    ("tax_share.p50 < 30", 16, "write it with a %"),
    ("tax_share.p50 < 101%", 16, "at most 100%"),
    ("failures.p95 < 1%", 8, "failures has no statistic; write failures < 1%"),
    ("failures < 3s", 12, "'s' is not a unit of failures"),
    ("failures < 0", 11, "write failures < 1 to allow none"),
    ("failures < 0.5", 11, "a number of failures is whole"),
    ("failures < 150%", 11, "at most 100%"),
    ("total.p50 < 1.5x", 16, "expected a substrate, found nothing; write the one to compare with"),
    ("total.p50 < 1.5xlocal", 15, "write 1.5x, a space, and the substrate"),
    ("total.p50 < 1.5x local docker", 23, "'docker' is too much"),
]

percentiles = st.decimals(min_value="0.001", max_value="99.999", places=3).map(lambda percent: f"p{percent}")
statistics = st.sampled_from(["mean", "max", "p50", "p95", "p99.9"]) | percentiles
spaces = st.sampled_from(["", " ", "  ", "\t"])
decimals = st.decimals(min_value="0.0001", max_value=10**12, places=4).map(lambda number: f"{number:f}")
shares = st.decimals(min_value="0.00001", max_value=100, places=5).map(lambda number: f"{number:f}%")
counts = st.integers(1, 10**9).map(str)
# Any character at all, unassigned ones and surrogates too.
anything = st.lists(st.integers(0, 0x10FFFF).map(chr), max_size=3).map("".join)
labels = st.sampled_from(["local", "docker:runtime=runsc", "k8s:cpu=2:memory=1Gi", "null<=x"])


@st.composite
def budget_texts(draw: st.DrawFn) -> str:
    metric = draw(st.sampled_from(METRICS))
    left = [metric]
    if metric in SUBPHASED and draw(st.booleans()):
        left.append(draw(st.sampled_from(["scheduled", "p", "pulled_2", "mean_", "x9"])))
    if metric != "failures":
        left.append(draw(statistics))
    units = st.sampled_from(["ns", "us", "µs", "ms", "s", "m", "min", "h"])
    times = st.tuples(decimals, spaces, units).map("".join)
    absolute = {"failures": shares | counts, "tax_share": shares}.get(metric, times)
    limit = draw(absolute | st.tuples(decimals, spaces, st.just("x "), labels).map("".join))
    dot, before, after = (draw(spaces) for _ in range(3))
    return f"{before}{f'{dot}.{dot}'.join(left)}{before}{draw(st.sampled_from(['<', '<=']))}{after}{limit}{after}"


@st.composite
def mutants(draw: st.DrawFn) -> str:
    text = draw(budget_texts())
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 3)))
        text = text[:start] + draw(anything | st.sampled_from(list(".<=>x%p-+ 0"))) + text[end:]
    return text


def refusal(text: str) -> BudgetSyntaxError | None:
    try:
        parse_budget(text)
    except BudgetSyntaxError as error:
        return error
    return None


@pytest.mark.parametrize(("text", "budget"), VALID.items())
def test_valid(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize(("text", "position", "reason"), INVALID)
def test_invalid(text: str, position: int, reason: str) -> None:
    with pytest.raises(BudgetSyntaxError) as caught:
        parse_budget(text)
    assert caught.value.text == text
    assert caught.value.position == position
    assert reason in caught.value.reason
    assert str(caught.value) == f"budget {text!r}, column {position + 1}: {caught.value.reason}"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" cold_start .p95<2000ms", "cold_start.p95 < 2s"),
        ("ready.scheduled.p95.0 <= 0.25s", "ready.scheduled.p95 <= 250ms"),
        ("total.max < 2h", "total.max < 7200s"),
        ("inside.mean < 0.5ns", "inside.mean < 0.5ns"),
        ("dispatch.p50 < 1.1µs", "dispatch.p50 < 1.1us"),
        ("tax_share.p50 < .07", "tax_share.p50 < 7%"),
        ("failures < 1.0%", "failures < 1%"),
        ("failures <= 100", "failures <= 100"),
        ("total.p50 < 10.0 x  local", "total.p50 < 10x local"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert str(parse_budget(text)) == canonical


@given(budget_texts())
def test_canonical_text_means_the_same(text: str) -> None:
    budget = parse_budget(text)
    canonical = str(budget)
    assert parse_budget(canonical) == budget
    assert str(parse_budget(canonical)) == canonical


@given(
    metric=st.sampled_from(["total", "tax_share", "failures"]),
    limit=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    relative=st.booleans(),
)
@example("total", 5e-324, False)
@example("total", 1.7976931348623157e308, False)
def test_every_limit_survives_its_text(metric: str, limit: float, relative: bool) -> None:
    limit = limit if metric == "total" or relative else min(limit, 1.0)
    budget = Budget(metric, None, "rate" if metric == "failures" else "p50", True, limit, "local" if relative else None)
    assert parse_budget(str(budget)) == budget


@given(mutants() | anything)
def test_a_mutant_parses_or_is_refused_with_a_position(text: str) -> None:
    error = refusal(text)
    if error is None:
        budget = parse_budget(text)
        assert parse_budget(str(budget)) == budget
    else:
        assert 0 <= error.position <= len(text)
        assert len(str(error).splitlines()) == 1
        assert "; " in error.reason


def test_the_error_survives_pickling() -> None:
    error = BudgetSyntaxError("total", 5, "expected more")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.text, copy.position, str(copy)) == (error.text, error.position, str(error))


def test_reading_budgets_does_not_import_numpy() -> None:
    script = "import sys, pytest_rtax.stats.budgets; sys.exit('numpy' in sys.modules or 'scipy' in sys.modules)"
    python = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    assert python.returncode == 0
