from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pytest_rtax.cases import bind, cases_of, check_budgets, function_of
from pytest_rtax.measure.case import Case
from pytest_rtax.plugin import _case
from pytest_rtax.settings import Settings, SettingsError
from pytest_rtax.substrates.protocol import Needs
from pytest_rtax.workloads.actions import Action, RepositoryUse, Workload

WHERE = "test_x.py::test_x"
CASE = Case(substrate="null", transport="exec", tier="T0", length=10, trials=1, warmup=0, failure_limit=0.0)


class Tier:
    def __init__(self, name: str, shortest: int) -> None:
        self.name = name
        self.needs = Needs()
        self.repository = RepositoryUse.NONE
        self.shortest = shortest

    def setup(self) -> Sequence[Action]:
        return []

    def actions(self, length: int, rng: random.Random) -> Sequence[Action]:
        return [Action("run", ["true"])] * length


WORKLOADS: Mapping[str, Workload] = {tier.name: tier for tier in (Tier("T0", 1), Tier("T2", 4))}


def trajectory(*args: object, **kwargs: object) -> pytest.Mark:
    return pytest.mark.trajectory(*args, **kwargs).mark


def budget(*args: object, **kwargs: object) -> pytest.Mark:
    return pytest.mark.budget(*args, **kwargs).mark


def chosen(**cli: str) -> Settings:
    return Settings.read(cli, {}, Path(), Path())


# -- cases ------------------------------------------------------------------------------------------------------------


def test_a_case_has_what_the_marker_says() -> None:
    marker = trajectory("T0", actions=5, trials=7, transport="session", warmup=2, failure_limit="10%")
    assert cases_of(marker, chosen(substrate="null"), WORKLOADS, WHERE) == [
        Case(substrate="null", transport="session", tier="T0", length=5, trials=7, warmup=2, failure_limit=0.1)
    ]


def test_every_length_on_every_substrate_over_every_transport() -> None:
    settings = chosen(substrate="local,null:seed=1", transport="exec,session")
    labels = [case.label for case in cases_of(trajectory("T0", actions=[10, 50]), settings, WORKLOADS, WHERE)]
    assert labels == [
        "local-exec-10",
        "local-session-10",
        "null:seed=1-exec-10",
        "null:seed=1-session-10",
        "local-exec-50",
        "local-session-50",
        "null:seed=1-exec-50",
        "null:seed=1-session-50",
    ]


@pytest.mark.parametrize(
    ("marker", "reason"),
    [
        (trajectory(), "the trajectory marker takes one tier, as in trajectory('T0')"),
        (trajectory("T0", "T2"), "the trajectory marker takes one tier, as in trajectory('T0')"),
        (trajectory(0), "the trajectory marker takes one tier, as in trajectory('T0')"),
        (trajectory("T1"), "unknown tier 'T1': did you mean 'T"),
        (trajectory("xyzzy"), "unknown tier 'xyzzy': known: T0, T2"),
        (trajectory("T2", actions=[10, 3]), "3 actions are too few for T2, which needs 4 or more"),
        (trajectory("T0", action=3), "unknown argument of the trajectory marker 'action': did you mean 'actions'?"),
        (trajectory("T0", trials=0), "trials of the trajectory marker: 0 is too small: 1 or more"),
    ],
)
def test_a_wrong_marker_is_refused_with_the_reason(marker: pytest.Mark, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        cases_of(marker, chosen(), WORKLOADS, WHERE)
    assert str(caught.value).startswith(f"{WHERE}: {reason}")
    assert len(str(caught.value).splitlines()) == 1


def test_a_length_of_the_command_line_has_to_suit_the_tier_too() -> None:
    with pytest.raises(SettingsError, match="2 actions are too few for T2"):
        cases_of(trajectory("T2", actions=10), chosen(actions="2"), WORKLOADS, WHERE)


# -- budgets ----------------------------------------------------------------------------------------------------------


def test_budgets_are_counted() -> None:
    assert check_budgets([], WHERE) == 0
    assert check_budgets([budget("cold_start.p95 < 2s", "dispatch.p50 < 50ms"), budget("failures < 1%")], WHERE) == 3


@pytest.mark.parametrize(
    ("marker", "reason"),
    [
        (budget(), "the budget marker takes texts, as in budget('cold_start.p95 < 2s')"),
        (budget(p95="2s"), "the budget marker takes texts, as in budget('cold_start.p95 < 2s')"),
        (budget("cold_start.p95 < 2s", strict=True), "the budget marker takes texts"),
        (budget(2), "a budget is a text such as 'cold_start.p95 < 2s', not 2"),
        (budget(["total.p50 < 1s"]), "a budget is a text such as 'cold_start.p95 < 2s', not ['total.p50 < 1s']"),
        (budget("cold_start.p95 < 2"), "budget 'cold_start.p95 < 2', column 19: 2 has no unit"),
        (budget("total.p50 < 1s", "warm.p95 < 2s"), "budget 'warm.p95 < 2s', column 1: 'warm' is not a metric"),
    ],
)
def test_a_wrong_budget_is_refused_with_the_reason(marker: pytest.Mark, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check_budgets([budget("total.p50 < 1s"), marker], WHERE)
    assert str(caught.value).startswith(f"{WHERE}: {reason}")
    assert len(str(caught.value).splitlines()) == 1


# -- items ------------------------------------------------------------------------------------------------------------


def item(parameters: str, *, module: str = "test_x.py", group: str = "") -> pytest.Function:
    """As much of an item as it takes."""
    made = SimpleNamespace(
        originalname="test_x",
        nodeid=f"{module}::test_x[{parameters}]{group}",
        parent=SimpleNamespace(nodeid=module),
        callspec=SimpleNamespace(id=parameters),
    )
    return cast(pytest.Function, made)


@pytest.mark.parametrize(
    ("parameters", "test"),
    [
        ("null-exec-10", "test_x"),
        ("null-exec-10-a", "test_x[a]"),
        ("a-null-exec-10", "test_x[a]"),
        ("a-null-exec-10-b", "test_x[a-b]"),
        ("a-b-null-exec-10-c-d", "test_x[a-b-c-d]"),
        ("null-exec-10-1", "test_x[1]"),
        ("null-exec-10--1", "test_x[-1]"),
        ("-1-null-exec-10", "test_x[-1]"),
        ("null-exec-100-null-exec-10", "test_x[null-exec-100]"),
        ("xnull-exec-10-null-exec-10", "test_x[xnull-exec-10]"),
        ("[0]-null-exec-10", "test_x[[0]]"),
        ("null-exec-10-", "test_x"),
    ],
)
def test_a_test_is_its_items_without_what_rtax_parametrized(parameters: str, test: str) -> None:
    bound = bind(CASE, item(parameters))
    assert bound.id == f"test_x.py::test_x[{parameters}]"
    assert bound.test == f"test_x.py::{test}"
    assert bound.group == (f"test_x.py::{test}", 10)
    assert bound.label == CASE.label


@pytest.mark.parametrize("group", ["", "@mine", "@a[b]", "@x@y"])
def test_the_group_of_xdist_is_no_part_of_a_case(group: str) -> None:
    bound = bind(CASE, item("a-null-exec-10", group=group))
    assert bound.id == "test_x.py::test_x[a-null-exec-10]"
    assert bound.test == "test_x.py::test_x[a]"


def test_a_directory_may_be_called_anything() -> None:
    odd = item("null-exec-10", module="a[1]@b/test_x.py::TestX")
    assert function_of(odd) == "a[1]@b/test_x.py::TestX::test_x"
    assert bind(CASE, odd).test == "a[1]@b/test_x.py::TestX::test_x"


SUITE = """
import pytest


class TestX:
    @pytest.mark.parametrize("sign", [-1, 1])
    @pytest.mark.trajectory("T0", actions=3)
    @pytest.mark.parametrize("word", ["a-b", "c"])
    def test_x(self, rollouts, sign, word):
        pass
"""


@pytest.mark.parametrize("escaping", [True, False])
def test_items_as_pytest_makes_them(pytester: pytest.Pytester, escaping: bool) -> None:
    if not escaping:
        pytester.makeini("[pytest]\ndisable_test_id_escaping_and_forfeit_all_rights_to_community_support = true")
    (pytester.mkdir("a[1]") / "test_odd.py").write_text(SUITE)
    items, _ = pytester.inline_genitems("--substrate=null,local:root=/tmp/caf\u00e9,local:root=a\\b")
    cases = [item.stash[_case] for item in items]
    assert [case.id for case in cases] == [item.nodeid for item in items]
    substrates: dict[str, list[str]] = {}
    for case in cases:
        substrates.setdefault(case.test.removeprefix("a[1]/test_odd.py::TestX::"), []).append(case.substrate)
    assert sorted(substrates) == ["test_x[a-b--1]", "test_x[a-b-1]", "test_x[c--1]", "test_x[c-1]"]
    for of_test in substrates.values():
        assert sorted(of_test) == ["local:root=/tmp/caf\u00e9", "local:root=a\\b", "null"]


def test_a_project_may_use_the_name_of_the_fixture_for_something_else(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("substrate", ["loam", "peat"])
        def test_parameter(substrate):
            assert substrate in ("loam", "peat")

        class TestFixture:
            @pytest.fixture
            def substrate(self):
                return "sand"

            def test_fixture(self, substrate):
                assert substrate == "sand"
        """
    )
    pytester.inline_run("--substrate=null,local").assertoutcome(passed=3)
