"""Which backends of the testbed are there."""

from __future__ import annotations

import os

import pytest


def need_engine() -> None:
    """Skip unless a Docker engine has been named; in CI a skip here is a failure."""
    if not os.environ.get("DOCKER_HOST"):
        pytest.skip('no Docker engine: tests/testbed/up docker && eval "$(tests/testbed/env)"')


@pytest.fixture(params=["local", "docker"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend in turn."""
    name: str = request.param
    if name == "docker":
        need_engine()
    return name
