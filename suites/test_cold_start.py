"""Cold start by substrate and tier: how long until the first command of a fresh environment has succeeded?

Each trial takes a new environment, makes it do the least that its tier allows, and sees it gone.
"""

import pytest

from pytest_rtax import Rollouts


@pytest.mark.trajectory("T0", actions=1)
def test_minimal(rollouts: Rollouts) -> None:
    """T0: one minimal command."""
    assert rollouts.failures == []


@pytest.mark.trajectory("T1", actions=1)
def test_preloaded_repository(rollouts: Rollouts) -> None:
    """T1: the repository is already there; one look at it."""
    assert rollouts.failures == []


@pytest.mark.trajectory("T2", actions=4)
def test_fresh_bugfix_episode(rollouts: Rollouts) -> None:
    """T2: clone, write a failing test, see it fail, patch, see it pass."""
    assert rollouts.failures == []
