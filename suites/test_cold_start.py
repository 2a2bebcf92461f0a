"""Cold start by substrate and tier: how long until the first command of a fresh environment has succeeded?

Each trial takes a new environment, makes it do the least that its tier allows, and sees it gone. The
markers say it all: a case fails if more of its trials fail than --rtax-failure-limit allows.
"""

import pytest


@pytest.mark.trajectory("T0", actions=1)
def test_minimal() -> None:
    """T0: one minimal command."""


@pytest.mark.trajectory("T1", actions=1)
def test_preloaded_repository() -> None:
    """T1: the repository is already there; one look at it."""


@pytest.mark.trajectory("T2", actions=4)
def test_fresh_bugfix_episode() -> None:
    """T2: clone, write a failing test, see it fail, patch, see it pass."""
