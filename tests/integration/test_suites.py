"""The suites and the conformance suite, run as a user runs them, on every backend of the testbed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from pytest_rtax.records.store import read_run, read_trials

ROOT = Path(__file__).parents[2]


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)


def test_the_suites_pass_and_every_trial_is_on_record(backend: str, tmp_path: Path) -> None:
    result = run_pytest(
        "suites/",
        f"--substrate={backend}",
        "--rtax-transport=exec,session",
        "--rtax-trials=3",
        f"--rtax-out={tmp_path}",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (directory,) = tmp_path.iterdir()
    trials, problems = read_trials(directory)
    assert problems == []
    assert [trial.failure for trial in trials if trial.failure is not None] == []
    counted = Counter((trial.tier, trial.transport) for trial in trials if not trial.warmup)
    assert counted == {(tier, transport): 6 for tier in ("T0", "T1", "T2") for transport in ("exec", "session")}
    run = read_run(directory)
    assert run.status == "complete"
    assert run.repository is not None
    assert run.notes == []


def test_the_same_actions_everywhere(backend: str, tmp_path: Path) -> None:
    """A trajectory is the same list of actions on the backend and on `null`, which runs none of them."""
    result = run_pytest(
        "suites/test_trajectories.py", f"--substrate={backend},null", "--rtax-trials=1", f"--rtax-out={tmp_path}"
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (directory,) = tmp_path.iterdir()
    digests: dict[str, set[str]] = {}
    for trial in read_trials(directory)[0]:
        digests.setdefault(trial.test, set()).add(trial.trajectory)
    assert len(digests) == 3
    assert all(len(of_test) == 1 for of_test in digests.values())


def test_conformance(backend: str) -> None:
    result = run_pytest(
        "--pyargs", "pytest_rtax.conformance", f"--substrate={backend}", "-q", "-n2", "--dist=worksteal"
    )
    assert result.returncode == 0, result.stdout + result.stderr
