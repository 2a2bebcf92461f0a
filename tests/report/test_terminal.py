from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rtax.records.schema import ActionSample, Failure, Trial
from pytest_rtax.report.terminal import failures, summary

MS = 10**6
HOUR = 3600 * 10**9
BROKEN = Failure("actions", "exit code 1 instead of 0 from false", 3)


def trial(
    number: int = 0,
    *,
    test: str = "suites/test_x.py::test_x",
    substrate: str = "null",
    transport: str = "exec",
    length: int = 2,
    slower: int = 1,
    **fields: Any,
) -> Trial:
    """A trial with round figures; a *slower* one has a cold start that takes so many times as long."""
    everything: dict[str, Any] = {
        "run": "r1",
        "case": f"{test}[{substrate}-{transport}-{length}]",
        "test": test,
        "substrate": substrate,
        "transport": transport,
        "tier": "T0",
        "length": length,
        "trial": number,
        "order": number,
        "started": 0.0,
        "trajectory": "0123456789abcdef",
        "environment": "rtax-1",
        "phases": {
            "create": 10 * MS * slower,
            "ready": 30 * MS * slower,
            "setup": 2000,
            "actions": 20 * MS,
            "cleanup": 5 * MS,
        },
        "actions": [ActionSample("run", 10 * MS, 8 * MS, 0), ActionSample("run", 10 * MS, 8 * MS, 0)],
        "total": 40 * MS * slower + 25 * MS,
    }
    return Trial(**{**everything, **fields})


def failed(number: int = 0, **fields: Any) -> Trial:
    return trial(number, **{"phases": {"create": MS}, "actions": [], "total": None, "failure": BROKEN, **fields})


def table(trials: list[Trial], width: int = 80) -> str:
    return "\n".join(line.text for line in summary(trials, width)) + "\n"


def cells(trials: list[Trial], row: int = 0) -> list[str]:
    """The p50 line of a case, in pieces."""
    lines = [line.text for line in summary(trials, 120) if " p50 " in line.text]
    return lines[row].split()


def test_the_whole_table() -> None:
    bugfix: dict[str, Any] = {
        "test": "suites/test_x.py::test_bugfix",
        "tier": "T2",
        "setup": [ActionSample("clone", 90 * MS, 80 * MS, 0)],
    }
    trials = [
        trial(0, slower=50, warmup=True),
        *(trial(number) for number in range(9)),
        failed(9),
        *(trial(number, substrate="local:root=/mnt/fast", transport="session", length=150) for number in range(10)),
        *(trial(number, slower=100, **bugfix) for number in range(100)),
    ]
    assert table(trials) == dedent("""\
                         n       cold  setup action dispatch cleanup  total    tax
        test_x (T0)
          null exec 2   10 p50 40.0ms      - 10.0ms   2.00ms  5.00ms 65.0ms  75.4%
                        -1 p95 40.0ms      - 10.0ms   2.00ms  5.00ms 65.0ms  75.4%
          local:root=/mnt/fast session 150
                        10 p50 40.0ms      - 10.0ms   2.00ms  5.00ms 65.0ms  75.4%
                           p95 40.0ms      - 10.0ms   2.00ms  5.00ms 65.0ms  75.4%
        test_bugfix (T2)
          null exec 2  100 p50  4.00s 2.00us 10.0ms   2.00ms  5.00ms  4.03s  97.6%
                           p95  4.00s 2.00us 10.0ms   2.00ms  5.00ms  4.03s  97.6%
        p95 of fewer than 59 trials is an estimate that no bound can be stated for.
    """)


def test_only_the_names_of_tests_stand_out() -> None:
    assert [line.text for line in summary([trial()], 80) if line.bold] == ["test_x (T0)"]


def test_cases_are_ordered_by_length_and_then_by_name() -> None:
    trials = [trial(substrate=s, length=n) for n in (150, 10) for s in ("null", "local")]
    assert [cells(trials, row)[:3] for row in range(4)] == [
        ["local", "exec", "10"],
        ["null", "exec", "10"],
        ["local", "exec", "150"],
        ["null", "exec", "150"],
    ]


def test_warm_ups_are_not_counted_and_not_in_the_figures() -> None:
    assert cells([trial(warmup=True, slower=99), trial(0), trial(1)])[3:6] == ["2", "p50", "40.0ms"]


def test_failed_trials_are_counted_and_not_in_the_figures() -> None:
    trials = [trial(0), failed(1), trial(2), failed(3)]
    assert cells(trials)[3:6] == ["4", "p50", "40.0ms"]
    assert " -2 p95 40.0ms" in table(trials)


def test_a_case_that_failed_altogether_has_no_figures() -> None:
    trials = [failed(0), failed(1)]
    assert cells(trials)[3:] == ["2", "p50", *"-------"]
    assert " -2 p95      - " in table(trials)


def test_a_case_that_was_only_warmed_up_has_no_figures() -> None:
    assert cells([trial(warmup=True)])[3:] == ["0", "p50", *"-------"]


def test_without_the_time_inside_there_is_no_dispatch_and_no_tax() -> None:
    unknown = [ActionSample("run", 10 * MS, None, 0)] * 2
    assert cells([trial(actions=unknown)])[5:] == ["40.0ms", "-", "10.0ms", "-", "5.00ms", "65.0ms", "-"]


def test_the_dispatch_is_that_of_the_actions_whose_time_inside_is_known() -> None:
    partly = [ActionSample("run", 10 * MS, None, 0), ActionSample("run", 10 * MS, 7 * MS, 0)]
    assert cells([trial(actions=partly)])[5:] == ["40.0ms", "-", "10.0ms", "3.00ms", "5.00ms", "65.0ms", "-"]


def test_a_tier_without_a_setup_shows_none() -> None:
    without = trial()
    assert without.phases["setup"] == 2000
    assert cells([without])[6] == "-"
    assert cells([trial(setup=[ActionSample("clone", 1000, 900, 0)])])[6] == "2.00us"


@pytest.mark.parametrize(
    ("inside", "tax"), [(0, "100%"), (32_000, "100%"), (65_000, "99.9%"), (64 * MS, "1.5%"), (65 * MS, "0.0%")]
)
def test_the_tax_is_a_share(inside: int, tax: str) -> None:
    assert cells([trial(actions=[ActionSample("run", 65 * MS, inside, 0)])])[-1] == tax


@pytest.mark.parametrize(("trials", "noted"), [(58, True), (59, False)])
def test_a_p95_of_few_trials_is_called_an_estimate(trials: int, noted: bool) -> None:
    text = table([trial(number) for number in range(trials)])
    assert ("p95 of fewer than 59 trials is an estimate" in text) is noted


def test_failed_trials_do_not_make_a_p95_certain() -> None:
    text = table([trial(number) for number in range(58)] + [failed(58)])
    assert "p95 of fewer than 59 trials is an estimate" in text


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "  local:root=/mnt/fast/disk session 1500\n"),
        (200, "  local:root=/mnt/fast/disk session 1500    1 p50 "),
    ],
)
def test_a_name_that_does_not_fit_has_a_line_of_its_own(width: int, line: str) -> None:
    assert line in table([trial(substrate="local:root=/mnt/fast/disk", transport="session", length=1500)], width)


def test_a_name_that_does_not_fit_at_all_keeps_its_transport_and_length() -> None:
    text = table([trial(substrate="local:root=/" + "x" * 100, transport="session", length=1500)], 80)
    assert f"  local:root=/{'x' * 52}… session 1500\n" in text


def test_names_cannot_act_on_the_terminal() -> None:
    text = table([trial(test="test_x.py::test_x[\x1b[2J\u202e]", substrate="null\r\x1b[31m")], 200)
    assert text.replace("\n", "").isprintable()
    assert r"test_x[\x1b[2J\u202e] (T0)" in text


names = st.text(max_size=60) | st.from_regex(r"[a-z]{1,8}(:[a-z]{1,9}=[a-z0-9/.:]{1,40})?", fullmatch=True)
durations = st.integers(0, 900 * HOUR)


@st.composite
def cases(draw: st.DrawFn) -> list[Trial]:
    """A few trials of one case with whatever names and figures."""
    identity: dict[str, Any] = {
        "test": draw(names),
        "substrate": draw(names),
        "transport": draw(st.sampled_from(["exec", "session"])),
        "length": draw(st.integers(1, 100_000)),
        "tier": draw(names),
    }
    trials = []
    for number in range(draw(st.integers(1, 3))):
        create, ready, setup, wall, cleanup = (draw(durations) // 5 for _ in range(5))
        inside = draw(st.none() | st.integers(0, wall))
        measured: dict[str, Any] = {
            "phases": {"create": create, "ready": ready, "setup": setup, "actions": wall, "cleanup": cleanup},
            "setup": [ActionSample("clone", setup, setup, 0)],
            "actions": [ActionSample("run", wall, inside, 0)],
            "total": create + ready + setup + wall + cleanup,
            "warmup": draw(st.booleans()),
        }
        trials.append(draw(st.sampled_from([trial(number, **identity, **measured), failed(number, **identity)])))
    return trials


@settings(max_examples=60, deadline=None)
@given(st.lists(cases(), min_size=1, max_size=3), st.integers(80, 200))
def test_no_line_is_longer_than_the_terminal_is_wide(some: list[list[Trial]], width: int) -> None:
    trials = [trial for of_case in some for trial in of_case]
    lines = [line.text for line in summary(trials, width)]
    assert max(map(len, lines)) <= width
    assert all(len(line.splitlines()) <= 1 for line in lines)
    for one in trials:
        assert any(f" {one.transport} {one.length} " in f"{line} " for line in lines)


# -- failures ---------------------------------------------------------------------------------------------------------


def test_failures_say_where_and_why() -> None:
    trials = [
        trial(0),
        failed(1),
        failed(0, warmup=True, failure=Failure("create", "no room")),
        failed(2, failure=Failure("setup", "exit code 128 instead of 0 from git clone", 0)),
    ]
    case = "suites/test_x.py::test_x[null-exec-2]"
    assert list(failures(trials)) == [
        f"{case}: trial 1 failed in actions, action 3: exit code 1 instead of 0 from false",
        f"{case}: warm-up 0 failed in create: no room",
        f"{case}: trial 2 failed in setup, action 0: exit code 128 instead of 0 from git clone",
    ]


def test_without_failures_there_is_nothing_to_say() -> None:
    assert list(failures([trial(0), trial(1)])) == []
