"""Drives pytest with the plugin as a user does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

# pytester forgets what an in-process run imports, and numpy cannot be imported twice in one process.
import pytest_rtax.driver
import pytest_rtax.report.terminal  # noqa: F401
from pytest_rtax.records.schema import Run, Trial
from pytest_rtax.records.store import read_run, read_trials


class Project:
    """A user's project: test files, a configuration, and the runs it has written."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.path = pytester.path

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(dedent(text))

    def run(self, *arguments: str) -> pytest.RunResult:
        return self._pytester.runpytest("-p", "no:cacheprovider", "-p", "no:randomly", *arguments)

    def run_apart(self, *arguments: str) -> pytest.RunResult:
        """In a process of its own: for xdist, for crashes, and for what an import costs."""
        return self._pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=120)

    def runs(self) -> list[Path]:
        out = self.path / "reports"
        return sorted(out.iterdir()) if out.is_dir() else []

    def trials(self) -> list[Trial]:
        """Of the newest run."""
        trials, problems = read_trials(self.runs()[-1])
        assert problems == []
        return trials

    def last_run(self) -> Run:
        return read_run(self.runs()[-1])


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)  # pytest-benchmark takes them for its own run's
    return Project(pytester)


@pytest.fixture
def minimal(project: Project) -> Project:
    """One test of tier T0."""
    project.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.trajectory("T0", actions=2)
        def test_it(rollouts):
            assert rollouts.failures == []
        """,
    )
    return project


FAULTY = """
    import itertools
    import pytest
    from pytest_rtax.substrates.null import NullSubstrate
    from pytest_rtax import EnvironmentFailed

    class Faulty(NullSubstrate):
        '''Fails in the trials it is told, counting from the warm-up.'''
        name = "faulty"
        numbers = itertools.count()

        def create(self, spec):
            if next(self.numbers) in FAILS:
                raise EnvironmentFailed("the control plane said no")
            return super().create(spec)

    def pytest_rtax_substrates(config):
        return [Faulty]
    """


@pytest.fixture
def faulty(minimal: Project) -> Callable[[set[int]], Project]:
    """The minimal project with a substrate `faulty` whose create() fails in the given trials."""

    def make(fails: set[int]) -> Project:
        minimal.write("conftest.py", dedent(FAULTY) + f"\nFAILS = {fails!r}\n")
        return minimal

    return make
