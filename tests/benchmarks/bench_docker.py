"""What the docker substrate adds to the engine's own API. Needs an engine and the workload image."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import pytest

from pytest_rtax.substrates.docker import DEFAULT_IMAGE, DockerSubstrate
from pytest_rtax.substrates.local import LocalSubstrate
from pytest_rtax.substrates.protocol import EnvironmentSpec, Needs

if TYPE_CHECKING:
    from tests.benchmarks.conftest import Figures

if not os.environ.get("DOCKER_HOST"):
    pytest.skip('no Docker engine: tests/testbed/up docker && eval "$(tests/testbed/env)"', allow_module_level=True)


# The SDK leaves the socket of an exec_run to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def in_turns(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in samples.items()}


def test_commands(tmp_path: Path, figures: Figures) -> None:
    substrate = DockerSubstrate()
    substrate.preflight(Needs())
    local = LocalSubstrate(root=tmp_path / "local").create(EnvironmentSpec(run="bench", id="bench-local"))
    environment = substrate.create(EnvironmentSpec(run="bench", id="rtax-bench"))
    client = docker.from_env()
    try:
        container = client.containers.get("rtax-bench")
        near, far = local.open_session(), environment.open_session()
        fast = in_turns(
            {"local": lambda: near.run(["/bin/true"]), "docker": lambda: far.run(["/bin/true"])}, rounds=1000
        )
        slow = in_turns(
            {
                "exec_run": lambda: container.exec_run(["/bin/true"], demux=True),
                "exec": lambda: environment.run(["/bin/true"]),
            },
            rounds=60,
        )
    finally:
        environment.destroy()
        local.destroy()
        client.close()
    ratio, times = fast["docker"] / fast["local"], slow["exec_run"] / fast["docker"]
    bare, ours = slow["exec_run"], slow["exec"]
    figures.add("`local` session `/bin/true`, p50", f"{fast['local'] * 1e6:.0f} µs")
    figures.add("`docker` session, p50", f"{fast['docker'] * 1e6:.0f} µs = {ratio:.2f} × local's", "≤ 1.3 ×")
    figures.add("the SDK's `exec_run`, p50", f"{bare * 1e3:.1f} ms = {times:.0f} × docker's session", "≥ 20 ×")
    figures.add("`docker` exec, p50", f"{ours * 1e3:.1f} ms = {ours / bare:.2f} × `exec_run`", "≤ 1 ×")
    assert ours <= bare
    assert times >= 20
    assert ratio <= 1.3


def test_cold_start(figures: Figures) -> None:
    substrate = DockerSubstrate()
    substrate.preflight(Needs())
    client = docker.from_env()
    numbers = itertools.count()
    taken: dict[str, list[float]] = {"ours": [], "raw": []}
    for _ in range(25):
        start = time.perf_counter()
        environment = substrate.create(EnvironmentSpec(run="bench", id=f"rtax-bench-{next(numbers)}"))
        environment.run(["true"])
        taken["ours"].append(time.perf_counter() - start)
        environment.destroy()
        start = time.perf_counter()
        # The same container, made with the SDK's own calls.
        container = client.containers.create(
            DEFAULT_IMAGE, ["sleep", "3600"], init=True, auto_remove=True, cap_drop=["ALL"], pids_limit=1024,
            security_opt=["no-new-privileges"], network_mode="bridge", working_dir="/workspace",
        )  # fmt: skip
        container.start()
        container.exec_run(["true"], demux=True)
        taken["raw"].append(time.perf_counter() - start)
        container.remove(force=True)
    client.close()
    ours, raw = (statistics.median(taken[name]) for name in ("ours", "raw"))
    figures.add("create, start and first command with the SDK, p50", f"{raw * 1e3:.0f} ms")
    figures.add("`docker` create + ready, p50", f"{ours * 1e3:.0f} ms = {ours / raw:.3f} × the SDK's", "≤ 1.05 ×")
    assert ours <= 1.05 * raw
