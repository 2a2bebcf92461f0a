"""The docker substrate on a real engine: what only a real one shows."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
import pytest

from pytest_rtax.measure.rollout import wait_gone
from pytest_rtax.records.store import read_run, read_trials
from pytest_rtax.substrates.docker import DockerSubstrate
from pytest_rtax.substrates.protocol import (
    EnvironmentFailed,
    EnvironmentSpec,
    Needs,
    SessionLost,
    SubstrateUnavailable,
)

COLD_START = """
import pytest

@pytest.mark.trajectory("T0", actions=2)
def test_it(): pass
"""


@pytest.fixture(autouse=True)
def engine() -> Iterator[Any]:
    if not os.environ.get("DOCKER_HOST"):
        pytest.skip('no Docker engine: tests/testbed/up docker && eval "$(tests/testbed/env)"')
    client = docker.from_env()
    yield client
    client.close()


def containers(engine: Any, run: str) -> list[str]:
    listed = engine.api.containers(all=True, filters={"label": f"rtax.run={run}"})
    return [container["Labels"]["rtax.id"] for container in listed]


def spec(name: str, run: str = "integration") -> EnvironmentSpec:
    return EnvironmentSpec(run=run, id=f"rtax-{name}-{os.getpid()}", ttl=300)


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(COLD_START)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)


def test_containers_are_confined(engine: Any) -> None:
    substrate = DockerSubstrate(cpus=0.5, memory=256 * 2**20, network="none")
    substrate.preflight(Needs(tools=frozenset({"git", "python3"}), modules=frozenset({"pytest"})))
    environment = substrate.create(spec("confined"))
    try:
        seen = engine.api.inspect_container(environment.id)
        host = seen["HostConfig"]
        assert host["CapDrop"] == ["ALL"]
        assert "no-new-privileges" in host["SecurityOpt"]
        assert host["Init"] is True
        assert host["AutoRemove"] is True
        assert not host["Binds"] and not seen["Mounts"] and not host["Privileged"]
        assert (host["PidsLimit"], host["NanoCpus"], host["Memory"]) == (1024, 500_000_000, 256 * 2**20)
        assert set(environment.subphases) == {"create.create", "create.start"}
        assert environment.run("id -u").stdout.strip() != b"0"
        assert environment.run("cat /proc/net/route").stdout.count(b"\n") <= 1
    finally:
        environment.destroy()
    provenance = substrate.provenance()
    assert provenance["image_id"].startswith("sha256:")
    assert f"memory {256 * 2**20}" in provenance["limits_observed"]


def test_fifty_at_once_all_succeed_and_none_is_left(engine: Any) -> None:
    substrate = DockerSubstrate()
    substrate.preflight(Needs())
    running = threading.Barrier(50, timeout=300)

    def live(number: int) -> int:
        environment = substrate.create(spec(f"many-{number}", run="fifty"))
        try:
            running.wait()  # all of them exist at the same time
            return environment.run(["sh", "-c", f"exit {number}"], timeout=120).exit_code
        finally:
            environment.destroy()

    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(live, range(50))) == list(range(50))
    assert containers(engine, "fifty") == []


@pytest.mark.parametrize("transport", ["exec", "session"])
def test_a_container_that_is_killed_in_a_command(engine: Any, transport: str) -> None:
    substrate = DockerSubstrate()
    substrate.preflight(Needs())
    environment = substrate.create(spec(f"killed-{transport}"))
    runner = environment.open_session() if transport == "session" else environment
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(runner.run, "echo >started; sleep 600", timeout=120)
        environment.run("until test -e started; do sleep 0.05; done", timeout=60)
        engine.api.kill(environment.id)
        assert isinstance(running.exception(timeout=60), (EnvironmentFailed, SessionLost))
    with pytest.raises(EnvironmentFailed):
        environment.run("true", timeout=10)
    environment.destroy()
    wait_gone(environment, 60, substrate.clock)  # the engine may be removing it already


def test_a_command_that_runs_out_of_memory_is_killed_and_the_environment_lives() -> None:
    substrate = DockerSubstrate(memory=64 * 2**20)
    substrate.preflight(Needs())
    environment = substrate.create(spec("oom"))
    try:
        eat = ["python3", "-c", "x = bytearray(10**9); print(len(x))"]
        assert environment.run(eat, timeout=60).exit_code == 137
        assert environment.run("echo on").stdout == b"on\n"
    finally:
        environment.destroy()


def test_an_image_that_is_missing_says_how_to_get_it() -> None:
    with pytest.raises(SubstrateUnavailable, match="rtax image build"):
        DockerSubstrate(image="no-such-image:ever").preflight(Needs())


def test_an_image_that_lacks_a_tool_says_which() -> None:
    with pytest.raises(SubstrateUnavailable, match="lacks no-such-tool, no_such_module"):
        DockerSubstrate().preflight(Needs(frozenset({"no-such-tool"}), frozenset({"no_such_module"})))


@pytest.mark.parametrize(
    ("substrate", "expected"),
    [
        ("docker:image=no-such-image", "rtax image build"),
        ("docker:memory=1k", "memory limit"),
        ("docker:runtime=nope", "nope"),
        ("docker:host=unix:///nowhere.sock", "no Docker engine answers at unix:///nowhere.sock"),
    ],
)
def test_what_the_engine_refuses_is_a_usage_error(tmp_path: Path, substrate: str, expected: str) -> None:
    result = run_pytest(tmp_path, f"--substrate={substrate}")
    assert result.returncode == 4, result.stdout + result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
    assert expected.lower() in line.lower()


def test_a_killed_driver_leaves_what_reap_finds(engine: Any, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(COLD_START.replace("actions=2", "actions=2000"))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--substrate=docker", "--rtax-warmup=0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        reports = tmp_path / "reports"
        try:
            while not (reports.is_dir() and (run := next(reports.iterdir(), None)) and containers(engine, run.name)):
                assert driver.poll() is None
        finally:
            driver.kill()
    left = containers(engine, run.name)
    assert left
    reap = [sys.executable, "-c", "import sys; from pytest_rtax.cli import main; sys.exit(main())", "reap"]
    answer = subprocess.run([*reap, "--substrate=docker"], capture_output=True, text=True, check=True, timeout=120)
    assert left[0] in answer.stdout
    assert containers(engine, run.name) == []


def test_a_run_leaves_nothing_and_records_the_engine(engine: Any, tmp_path: Path) -> None:
    result = run_pytest(tmp_path, "--substrate=local,docker", "--rtax-transport=exec,session", "--rtax-trials=2")
    assert result.returncode == 0, result.stdout + result.stderr
    (directory,) = (tmp_path / "reports").iterdir()
    run = read_run(directory)
    assert containers(engine, run.id) == []
    assert run.substrates["docker"]["storage_driver"]
    trials, _ = read_trials(directory)
    assert {"create.create", "create.start", "ready.first_command"} <= set(
        next(trial for trial in trials if trial.substrate == "docker").subphases
    )
