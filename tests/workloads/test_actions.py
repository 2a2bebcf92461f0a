from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rtax.substrates.protocol import Needs
from pytest_rtax.workloads.actions import Action, RepositoryUse, Workload, build_trajectory


class Fixed(Workload):
    """A workload that does the same whatever it is asked for."""

    name = "fixed"
    needs = Needs()
    repository = RepositoryUse.NONE
    shortest = 1

    def __init__(self, *actions: Action, setup: Sequence[Action] = ()) -> None:
        self._actions = actions
        self._setup = setup

    def setup(self) -> Sequence[Action]:
        return self._setup

    def actions(self, length: int, rng: random.Random) -> Sequence[Action]:
        return self._actions


class Drawing(Fixed):
    """A workload whose actions are drawn."""

    name = "drawing"

    def actions(self, length: int, rng: random.Random) -> Sequence[Action]:
        return [Action("run", ["echo", str(rng.random())]) for _ in range(length)]


ACTION = Action("run", ["true"])


def digest_of(*actions: Action, setup: Sequence[Action] = ()) -> str:
    return build_trajectory(Fixed(*actions, setup=setup), len(actions), 0).digest


@given(length=st.integers(1, 50), seed=st.integers())
def test_equal_arguments_give_equal_trajectories(length: int, seed: int) -> None:
    assert build_trajectory(Drawing(), length, seed) == build_trajectory(Drawing(), length, seed)


def test_seed_and_length_each_make_another_trajectory() -> None:
    trajectories = [build_trajectory(Drawing(), length, seed) for length in (5, 6) for seed in (0, 1)]
    assert len({trajectory.actions[0].command[1] for trajectory in trajectories}) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "test"},
        {"command": ["false"]},
        {"command": "true"},
        {"cwd": "attrs"},
        {"env": {"A": "1"}},
        {"stdin": b"\xff\0"},
        {"expect": 1},
    ],
    ids=str,
)
def test_the_digest_sees_every_part_of_an_action(change: dict[str, Any]) -> None:
    assert digest_of(replace(ACTION, **change)) != digest_of(ACTION)


def test_the_digest_sees_order_and_setup() -> None:
    other = Action("run", ["false"])
    assert len({digest_of(ACTION, other), digest_of(other, ACTION), digest_of(other)}) == 3
    assert digest_of(other, setup=[ACTION]) not in (digest_of(other), digest_of(ACTION, other))


def test_the_digest_does_not_see_the_order_of_variables() -> None:
    one, other = ({"A": "1", "B": "2"}, {"B": "2", "A": "1"})
    assert digest_of(replace(ACTION, env=one)) == digest_of(replace(ACTION, env=other))


def test_the_digest_is_pinned() -> None:
    assert digest_of(ACTION) == "e37ea9dc69acd169"


def test_a_workload_must_keep_to_the_length() -> None:
    with pytest.raises(AssertionError, match="fixed made 1 actions instead of 2"):
        build_trajectory(Fixed(ACTION), 2, 0)
