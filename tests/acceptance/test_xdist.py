"""Under pytest-xdist: the controller writes, a test's cases stay together, a crash loses only the trial in flight."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pytest_rtax.records.schema import Trial

if TYPE_CHECKING:
    from tests.acceptance.conftest import Project


@pytest.fixture
def three_tests(project: Project) -> Project:
    project.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.trajectory("T0", actions=[1, 2])
        @pytest.mark.parametrize("name", ["one", "two"])
        def test_a(rollouts, name): assert rollouts.failures == []

        @pytest.mark.trajectory("T0", actions=3)
        def test_b(rollouts): assert rollouts.failures == []
        """,
    )
    return project


ARGUMENTS = ("--substrate=null,null:create=1us", "--rtax-transport=exec,session", "--rtax-trials=3")


def orders(trials: list[Trial]) -> dict[tuple[str, int], list[tuple[str, str, int, bool, str]]]:
    """For each group, its trials in the order in which they were run."""
    groups: dict[tuple[str, int], list[tuple[str, str, int, bool, str]]] = {}
    for trial in sorted(trials, key=lambda trial: trial.order):
        groups.setdefault((trial.test, trial.length), []).append(
            (trial.substrate, trial.transport, trial.trial, trial.warmup, trial.trajectory)
        )
    return groups


def test_the_same_seed_gives_the_same_order_alone_and_distributed(three_tests: Project) -> None:
    three_tests.run(*ARGUMENTS).assert_outcomes(passed=20)
    alone = orders(three_tests.trials())
    three_tests.run_apart(*ARGUMENTS, "-n2").assert_outcomes(passed=20)
    distributed = three_tests.trials()
    assert orders(distributed) == alone
    assert {trial.worker for trial in distributed} == {"gw0", "gw1"}
    three_tests.run(*ARGUMENTS, "--rtax-seed=1").assert_outcomes(passed=20)
    assert orders(three_tests.trials()) != alone


@pytest.mark.parametrize("dist", ["load", "loadfile", "loadgroup"])
def test_a_tests_cases_are_interleaved_on_one_worker(three_tests: Project, dist: str) -> None:
    result = three_tests.run_apart(*ARGUMENTS, "-n2", f"--dist={dist}", "-k", "test_a")
    result.assert_outcomes(passed=16)
    trials = three_tests.trials()
    assert len({trial.case for trial in trials}) == 16
    workers: dict[tuple[str, int], set[str]] = {}
    for trial in trials:
        workers.setdefault((trial.test, trial.length), set()).add(trial.worker)
    assert all(len(names) == 1 for names in workers.values())
    assert all(trial.interleaved for trial in trials)
    assert Counter((trial.case, trial.warmup, trial.trial) for trial in trials).most_common(1)[0][1] == 1


def test_a_distribution_that_spreads_cases_is_on_record(three_tests: Project) -> None:
    result = three_tests.run_apart(*ARGUMENTS, "-n2", "--dist=worksteal")
    result.assert_outcomes(passed=20)
    trials = three_tests.trials()
    assert not any(trial.interleaved for trial in trials)
    assert len(trials) == 20 * 4
    result.stdout.fnmatch_lines(["note: cases were not interleaved*"])


def test_the_controller_writes_one_run_with_its_provenance(three_tests: Project) -> None:
    result = three_tests.run_apart(*ARGUMENTS, "-n2")
    assert len(three_tests.runs()) == 1
    run = three_tests.last_run()
    assert run.workers == 2
    assert run.status == "complete"
    assert set(run.substrates) == {"null", "null:create=1us"}
    result.stdout.fnmatch_lines(["*rollout infrastructure tax*", "test_a*(T0)", "samples: reports/*"])


def test_workers_leave_each_others_environments_alone(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.trajectory("T0", actions=1, trials=1)
        def test_short(): pass

        @pytest.mark.trajectory("T0", actions=40, trials=15)
        def test_long(): pass
        """,
    )
    root = project.path / "environments"
    result = project.run_apart(f"--substrate=local:root={root}", "--rtax-transport=session", "-n2")
    result.assert_outcomes(passed=2)
    assert [trial.failure for trial in project.trials() if trial.failure is not None] == []
    assert project.last_run().notes == []
    assert list(root.iterdir()) == []


def test_other_tests_are_distributed_as_usual(project: Project) -> None:
    project.write(
        "test_plain.py", "import pytest\n@pytest.mark.parametrize('n', range(40))\ndef test_plain(n, worker_id): pass\n"
    )
    result = project.run_apart("-n2", "-v")
    result.assert_outcomes(passed=40)
    result.stdout.fnmatch_lines(["*scheduling tests via *"])
    assert {line.split()[0] for line in result.outlines if "PASSED" in line} == {"[gw0]", "[gw1]"}


def test_a_failure_is_a_failure_of_its_case(project: Project) -> None:
    project.write(
        "conftest.py",
        """
        from pytest_rtax.substrates.null import NullSubstrate
        from pytest_rtax import EnvironmentFailed
        class Broken(NullSubstrate):
            name = "broken"
            def create(self, spec): raise EnvironmentFailed("no capacity")
        def pytest_rtax_substrates(config): return [Broken]
        """,
    )
    project.write("test_it.py", "import pytest\n@pytest.mark.trajectory('T0')\ndef test_it(): pass\n")
    result = project.run_apart("--substrate=null,broken", "--rtax-trials=2", "-n2")
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*2 of 2 trials failed*no capacity*"])


def test_a_mistake_that_a_worker_finds_is_a_usage_error_too(project: Project) -> None:
    project.write("test_it.py", "import pytest\n@pytest.mark.trajectory('T9')\ndef test_it(rollouts): pass\n")
    result = project.run_apart("--substrate=null", "-n2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR")]
    assert "test_it.py::test_it: unknown tier 'T9'" in line
    assert project.runs() == []


CRASH = """
    import itertools, os, pathlib
    from pytest_rtax.substrates.null import NullSubstrate

    class Crashing(NullSubstrate):
        name = "crashing"
        numbers = itertools.count()

        def create(self, spec):
            if next(self.numbers) == 6 and not pathlib.Path("crashed").exists():
                pathlib.Path("crashed").touch()
                os._exit(17)
            return super().create(spec)

    def pytest_rtax_substrates(config):
        return [Crashing]
    """


def test_a_crashed_worker_loses_only_the_trial_in_flight(project: Project) -> None:
    project.write("conftest.py", CRASH)
    project.write("test_it.py", "import pytest\n@pytest.mark.trajectory('T0')\ndef test_it(rollouts): pass\n")
    result = project.run_apart("--substrate=crashing", "--rtax-transport=exec,session", "--rtax-trials=5", "-n1")
    # xdist reports the item that was running as failed, and runs what was left of its scope again.
    result.assert_outcomes(passed=2, failed=1)
    trials = project.trials()
    assert Counter(trial.worker for trial in trials) == {"gw0": 6, "gw1": 6}
    assert max(Counter((trial.case, trial.warmup, trial.trial) for trial in trials).values()) == 1
