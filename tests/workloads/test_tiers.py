from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rtax.substrates.local import LocalSubstrate
from pytest_rtax.substrates.protocol import EnvironmentSpec, Runner
from pytest_rtax.workloads import tiers
from pytest_rtax.workloads.actions import Action, Trajectory, build_trajectory
from pytest_rtax.workloads.mirror import Mirror
from pytest_rtax.workloads.repository import Repository, RepositoryUnavailable, prepare_repository
from pytest_rtax.workloads.tiers import WORKLOADS

# An accidental change to a tier makes stored runs incomparable: these change only on purpose.
GOLDEN_DIGESTS = {"T0": "48f7564d4d1f669c", "T1": "a04fcff9cd883c44", "T2": "4af766e4e943ec7e"}


@st.composite
def arguments(draw: st.DrawFn) -> tuple[str, int, int]:
    tier = draw(st.sampled_from(sorted(WORKLOADS)))
    return tier, draw(st.integers(WORKLOADS[tier].shortest, 300)), draw(st.integers(0, 2**64))


@pytest.fixture(scope="session", params=["sdist", "github"])
def repository(request: pytest.FixtureRequest) -> Repository:
    try:
        return prepare_repository(request.param)
    except RepositoryUnavailable as unavailable:
        if request.param == "sdist":
            raise
        pytest.skip(str(unavailable))


@pytest.fixture(scope="session")
def clone_url(repository: Repository) -> Iterator[str]:
    with Mirror(repository.bare.parent) as mirror:
        yield mirror.url


@settings(deadline=None)
@given(arguments())
def test_exactly_as_many_actions_as_asked_for(arguments: tuple[str, int, int]) -> None:
    tier, length, seed = arguments
    trajectory = build_trajectory(WORKLOADS[tier], length, seed)
    assert len(trajectory.actions) == length
    assert build_trajectory(WORKLOADS[tier], length, seed).digest == trajectory.digest


@pytest.mark.parametrize("tier", ["T1", "T2"])
def test_another_seed_is_usually_another_trajectory(tier: str) -> None:
    digests = {build_trajectory(WORKLOADS[tier], 10, seed).digest for seed in range(100)}
    assert len(digests) > 95


@pytest.mark.parametrize("tier", sorted(WORKLOADS))
def test_the_trajectories_are_pinned(tier: str) -> None:
    assert build_trajectory(WORKLOADS[tier], 150, 0).digest == GOLDEN_DIGESTS[tier]


@settings(deadline=None)
@given(arguments())
def test_the_needs_name_every_program(arguments: tuple[str, int, int]) -> None:
    tier, length, seed = arguments
    workload = WORKLOADS[tier]
    trajectory = build_trajectory(workload, length, seed)
    programs = {"sh" if isinstance(a.command, str) else a.command[0] for a in trajectory.setup + trajectory.actions}
    assert programs - {"true"} <= workload.needs.tools


@settings(deadline=None)
@given(length=st.integers(4, 300), seed=st.integers(0, 2**64))
def test_t2_shows_the_bug_then_repairs_it(length: int, seed: int) -> None:
    actions = WORKLOADS["T2"].actions(length, random.Random(seed))
    (failing,) = [index for index, action in enumerate(actions) if action.expect == 1]
    (patch,) = [index for index, action in enumerate(actions) if action.kind == "patch"]
    test = actions[failing].command
    passing = [index for index, action in enumerate(actions) if action.command == test and action.expect == 0]
    written = [index for index, action in enumerate(actions) if action.command == ["tee", test[-1]]]
    assert [*written, failing, patch, *passing] == sorted([written[0], failing, patch, passing[0]])
    assert length < 20 or length // 5 < failing < patch < passing[0] < length


def test_t2_is_mostly_inspection_and_a_tenth_tests() -> None:
    trajectories = [build_trajectory(WORKLOADS["T2"], 150, seed) for seed in range(20)]
    kinds = Counter(action.kind for trajectory in trajectories for action in trajectory.actions)
    share = {kind: count / kinds.total() for kind, count in kinds.items()}
    assert share["list"] + share["read"] + share["grep"] + share["ast"] > 0.5
    assert 0.08 < share["test"] < 0.13
    assert min(share["run"], share["write"]) > 0.1


def test_the_patch_finds_its_place_in_a_file_that_has_grown(repository: Repository, tmp_path: Path) -> None:
    source = tmp_path / "src/attr/_funcs.py"
    source.parent.mkdir(parents=True)
    source.write_text("# grown\n" * 7 + (repository.worktree / "src/attr/_funcs.py").read_text())
    subprocess.run(["git", "apply"], input=tiers._PATCH.encode(), cwd=tmp_path, check=True)
    assert source.read_text().count("_factory_of(") == 4


@pytest.mark.parametrize("transport", ["exec", "session"])
def test_t2_runs_as_expected(repository: Repository, clone_url: str, transport: str, tmp_path: Path) -> None:
    variables = {"RTAX_CLONE_URL": clone_url, "RTAX_COMMIT": repository.commit}
    spec = EnvironmentSpec("run", "t2", env=variables)
    assert unexpected(build_trajectory(WORKLOADS["T2"], 10, 0), spec, transport, tmp_path) == []


@pytest.mark.parametrize("transport", ["exec", "session"])
def test_t1_runs_as_expected(repository: Repository, transport: str, tmp_path: Path) -> None:
    spec = EnvironmentSpec("run", "t1", repository=repository.worktree)
    assert unexpected(build_trajectory(WORKLOADS["T1"], 30, 0), spec, transport, tmp_path) == []


def unexpected(trajectory: Trajectory, spec: EnvironmentSpec, transport: str, root: Path) -> list[object]:
    """What did not end as the trajectory says."""
    substrate = LocalSubstrate(root)
    substrate.preflight(WORKLOADS[trajectory.tier].needs)
    substrate.prepare(spec)
    environment = substrate.create(spec)
    try:
        runner = environment if transport == "exec" else environment.open_session()
        return list(failures(runner, trajectory.setup + trajectory.actions))
    finally:
        environment.destroy()


def failures(runner: Runner, actions: Sequence[Action]) -> Iterator[object]:
    for action in actions:
        seen = runner.run(action.command, cwd=action.cwd, env=action.env, stdin=action.stdin, timeout=60)
        if seen.exit_code != action.expect:
            yield action.command, seen
