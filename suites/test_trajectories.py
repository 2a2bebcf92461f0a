"""Whole trajectories: what does each action cost, and when are the fixed costs amortized?

The lengths come from --rtax-actions or from the profile: 10 in `quick`, 10, 50 and 150 in `paper`. The markers say it
all: a case fails if more of its trials fail than --rtax-failure-limit allows.
"""

import pytest


@pytest.mark.trajectory("T0")
def test_minimal_commands() -> None:
    """T0: nothing but launching commands, so that what is left is the substrate's."""


@pytest.mark.trajectory("T1")
def test_inspection() -> None:
    """T1: list, read, search and navigate a preloaded repository."""


@pytest.mark.trajectory("T2")
def test_bugfix() -> None:
    """T2: clone a buggy commit, inspect, patch, test. A trial in which the fix does not show has failed."""
