"""The plugin as a user meets it: help, markers, selection, exit codes, files."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from pytest_rtax.settings import SETTINGS

if TYPE_CHECKING:
    from tests.acceptance.conftest import Project


def test_help_lists_every_option_and_its_ini_key(minimal: Project) -> None:
    text = minimal.run("--help").stdout.str()
    assert "rollout infrastructure tax" in text
    for setting in SETTINGS:
        assert setting.flag in text
        assert setting.ini in text


def test_markers_are_documented_and_pass_strict_markers(minimal: Project) -> None:
    text = minimal.run("--markers").stdout.str()
    assert "@pytest.mark.trajectory(tier" in text
    assert "@pytest.mark.budget(text" in text
    minimal.run("--strict-markers", "--substrate=null", "--rtax-trials=1").assert_outcomes(passed=1)


def test_one_case_per_substrate_transport_and_length(minimal: Project) -> None:
    result = minimal.run(
        "--collect-only",
        "-q",
        "--substrate=local,null:clock=virtual",
        "--rtax-transport=exec,session",
        "--rtax-actions=1,3",
    )
    ids = [line for line in result.outlines if "::" in line]
    assert ids == [
        f"test_it.py::test_it[{substrate}-{transport}-{length}]"
        for length in (1, 3)
        for substrate in ("local", "null:clock=virtual")
        for transport in ("exec", "session")
    ]


def test_collect_only_creates_nothing(minimal: Project) -> None:
    root = minimal.path / "environments"
    assert minimal.run("--collect-only", f"--substrate=local:root={root}").ret == 0
    assert minimal.runs() == []
    assert not root.exists()


def test_a_project_that_does_not_use_it_is_left_alone(project: Project) -> None:
    project.write("test_plain.py", "def test_plain(): pass")
    result = project.run()
    result.assert_outcomes(passed=1)
    assert project.runs() == []
    result.stdout.no_fnmatch_line("*rollout infrastructure tax*")


def test_unused_it_imports_nothing_heavy(project: Project) -> None:
    project.write("test_plain.py", "def test_plain(): pass")
    project.write(
        "conftest.py",
        """
        import sys
        HEAVY = ("numpy", "scipy", "msgspec", "docker", "kubernetes", "boto3", "e2b", "altair", "jinja2")
        def pytest_unconfigure(config):
            assert config.pluginmanager.has_plugin("rtax")
            print("imported:", [name for name in HEAVY if name in sys.modules])
        """,
    )
    project.run_apart("-s").stdout.fnmatch_lines(["imported: []"])


def test_without_the_plugin_the_markers_are_merely_unknown(minimal: Project) -> None:
    minimal.write("test_it.py", "import pytest\n@pytest.mark.trajectory('T0')\ndef test_it(): pass\n")
    result = minimal.run_apart("-p", "no:rtax")
    result.assert_outcomes(passed=1, warnings=1)
    assert minimal.runs() == []


def test_the_header_says_what_will_be_measured(minimal: Project) -> None:
    minimal.run("--collect-only", "--substrate=null", "--rtax-seed=7").stdout.fnmatch_lines(
        ["rtax: substrate null; profile quick; seed 7"]
    )


def test_a_run_leaves_its_samples_and_its_provenance(minimal: Project) -> None:
    result = minimal.run("--substrate=null", "--rtax-trials=3", "--rtax-seed=5")
    result.assert_outcomes(passed=1)
    trials = minimal.trials()
    assert [(trial.trial, trial.warmup) for trial in trials] == [(0, True), (0, False), (1, False), (2, False)]
    assert {trial.case for trial in trials} == {"test_it.py::test_it[null-exec-2]"}
    assert all(len(trial.actions) == 2 for trial in trials)
    run = minimal.last_run()
    assert run.status == "complete"
    assert run.seed == 5
    assert run.finished is not None
    assert run.load_after is not None
    assert run.substrates["null"]["simulated"] is True
    result.stdout.fnmatch_lines(["*rollout infrastructure tax*", f"samples: reports/{run.id}"])


def test_a_marked_test_is_measured_even_if_it_asks_for_nothing(project: Project) -> None:
    project.write("test_it.py", "import pytest\n@pytest.mark.trajectory('T0')\ndef test_it(): pass\n")
    project.run("--substrate=null", "--rtax-trials=2", "--rtax-warmup=0").assert_outcomes(passed=1)
    assert len(project.trials()) == 2


def test_rollouts_without_a_marker_says_what_to_do(project: Project) -> None:
    project.write("test_it.py", "def test_it(rollouts): pass\n")
    result = project.run("--substrate=null")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*uses `rollouts` without a trajectory marker: add one*"])


def test_a_custom_test_gets_each_substrate(project: Project) -> None:
    project.write(
        "test_custom.py",
        """
        def test_apart(substrate):
            with substrate.environment() as a, substrate.environment() as b:
                assert a.id != b.id
                if not substrate.simulated:
                    a.run("touch marker")
                    assert b.run("test -e marker").exit_code == 1
        """,
    )
    project.run("--substrate=local,null").assert_outcomes(passed=2)
    assert project.runs() == []  # nothing was measured, so there is nothing to keep


def test_selection_decides_what_is_interleaved(minimal: Project) -> None:
    minimal.run("--substrate=null,local", "-k", "null", "--rtax-trials=1").assert_outcomes(passed=1, deselected=1)
    assert {trial.substrate for trial in minimal.trials()} == {"null"}


def test_a_test_that_is_marked_to_be_skipped_is_not_measured(project: Project) -> None:
    project.write(
        "test_it.py",
        """
        import pytest

        @pytest.mark.skipif(True, reason="not today")
        @pytest.mark.trajectory("T0")
        def test_it(rollouts): pass
        """,
    )
    project.run("--substrate=null").assert_outcomes(skipped=1)
    assert project.runs() == []


def test_last_failed_runs_only_the_case_that_failed(
    faulty: Callable[[set[int]], Project], pytester: pytest.Pytester
) -> None:
    project = faulty({0, 1, 2, 3})
    arguments = ("--substrate=null,faulty", "--rtax-trials=2")
    pytester.runpytest(*arguments).assert_outcomes(passed=1, failed=1)
    result = pytester.runpytest("--lf", *arguments)
    assert {trial.substrate for trial in project.trials()} == {"faulty"}
    assert result.ret == 1


def test_third_party_workload(project: Project) -> None:
    project.write(
        "conftest.py",
        """
        from pytest_rtax import Action, Needs, RepositoryUse

        class Compile:
            name = "compile"
            needs = Needs(tools=frozenset({"sh"}))
            repository = RepositoryUse.NONE
            shortest = 1
            def setup(self):
                return [Action("write", ["tee", "a.txt"], stdin=b"hello")]
            def actions(self, length, rng):
                return [Action("run", ["cat", "a.txt"])] * length

        def pytest_rtax_workloads(config):
            return [Compile()]
        """,
    )
    project.write(
        "test_it.py",
        "import pytest\n@pytest.mark.trajectory('compile', actions=3)\ndef test_it(): pass\n",
    )
    project.run("--rtax-trials=2").assert_outcomes(passed=1)
    assert {sample.kind for trial in project.trials() for sample in trial.setup} == {"write"}


def test_each_recorded_trial_reaches_the_hook_after_it_is_on_disk(minimal: Project) -> None:
    minimal.write(
        "conftest.py",
        """
        import pathlib
        def pytest_rtax_record(config, trial):
            (samples,) = pathlib.Path("reports").glob("*/samples.jsonl")
            print("recorded", trial.trial, trial.warmup, len(samples.read_text().splitlines()))
        """,
    )
    minimal.run("-s", "--substrate=null", "--rtax-trials=2").stdout.fnmatch_lines(
        ["*recorded 0 True 1", "*recorded 0 False 2", "*recorded 1 False 3"]
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--substrate=locl"], "unknown substrate 'locl': did you mean 'local'?"),
        (["--substrate=null:acton=1ms"], "unknown option 'acton': did you mean 'action'?"),
        (["--substrate=null:action=fast"], "'fast' is not a duration"),
        (["--rtax-trials=0"], "--rtax-trials: 0 is too small"),
        (["--rtax-trials=-3"], "--rtax-trials: -3 is too small"),
        (["--rtax-actions=10,ten"], "--rtax-actions: 'ten' is not a whole number"),
        (["--rtax-transport=sesion"], "unknown transport 'sesion': did you mean 'session'?"),
        (["--rtax-profile=papr"], "unknown profile 'papr': did you mean 'paper'?"),
        (["--rtax-clone-from=miror"], "unknown clone source 'miror': did you mean 'mirror'?"),
        (["-o", "rtax_trails=3"], "unknown ini key 'rtax_trails': did you mean 'rtax_trials'?"),
        (["-o", "rtax_trials=none"], "ini key rtax_trials: 'none' is not a whole number"),
        (["--rtax-out=test_it.py/runs"], "test_it.py is not a writable directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_4(minimal: Project, arguments: list[str], expected: str) -> None:
    result = minimal.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR")]
    assert expected in line
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert minimal.runs() == []


@pytest.mark.parametrize(
    ("marker", "expected"),
    [
        ("trajectory('T9')", "unknown tier 'T9'"),
        ("trajectory()", "takes one tier"),
        ("trajectory('T0', lenght=3)", "unknown argument of the trajectory marker 'lenght'"),
        ("trajectory('T0', actions=[0])", "0 is too small"),
        ("trajectory('T2', actions=2)", "too few for T2"),
        ("trajectory('T0', transport='exc')", "did you mean 'exec'?"),
        ("trajectory('T0')\n@pytest.mark.budget('cold_strt.p95 < 2s')", "did you mean cold_start?"),
    ],
)
def test_a_wrong_marker_is_a_usage_error(project: Project, marker: str, expected: str) -> None:
    project.write("test_it.py", f"import pytest\n@pytest.mark.{marker}\ndef test_it(rollouts): pass\n")
    result = project.run("--substrate=null")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line.startswith("ERROR")]
    assert "test_it.py::test_it" in line
    assert expected in line
    assert project.runs() == []


def test_a_tool_that_is_missing_is_noticed_before_anything_is_created(
    minimal: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "true"):
        (tools / tool).symlink_to(f"/bin/{tool}")
    minimal.write("test_it.py", "import pytest\n@pytest.mark.trajectory('T1')\ndef test_it(rollouts): pass\n")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setattr(sys, "executable", str(tools / "python3"))
    result = minimal.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: local has no '*' on its PATH; install *"])
    assert minimal.runs() == []


class TestFailures:
    def test_a_failed_trial_fails_the_case(self, faulty: Callable[[set[int]], Project]) -> None:
        project = faulty({2})
        project.write("test_it.py", "import pytest\n@pytest.mark.trajectory('T0')\ndef test_it(): pass\n")
        result = project.run("--substrate=faulty", "--rtax-trials=4", "--junit-xml=junit.xml")
        result.assert_outcomes(failed=1)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        why = "1 of 4 trials failed; the limit is 0%; trial 1 failed in create: the control plane said no"
        result.stdout.fnmatch_lines([why, "*trial 1 failed in create: the control plane said no"])
        (failure,) = ElementTree.parse(project.path / "junit.xml").iter("failure")
        assert failure.get("message") == f"Failed: {why}"

    def test_the_limit_allows_some(self, faulty: Callable[[set[int]], Project]) -> None:
        project = faulty({2})
        project.write("test_it.py", "import pytest\n@pytest.mark.trajectory('T0')\ndef test_it(): pass\n")
        result = project.run("--substrate=faulty", "--rtax-trials=4", "--rtax-failure-limit=25%")
        result.assert_outcomes(passed=1)
        failed = [trial for trial in project.trials() if trial.failure is not None]
        assert [(trial.trial, trial.total) for trial in failed] == [(1, None)]
        result.stdout.fnmatch_lines(["*trial 1 failed in create: the control plane said no"])

    def test_a_failed_warm_up_is_shown_and_does_not_count(self, faulty: Callable[[set[int]], Project]) -> None:
        result = faulty({0}).run("--substrate=faulty", "--rtax-trials=3")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["*warm-up 0 failed in create: the control plane said no"])

    def test_a_dead_substrate_is_given_up(self, faulty: Callable[[set[int]], Project]) -> None:
        project = faulty(set(range(1000)))
        project.write("test_it.py", "import pytest\n@pytest.mark.trajectory('T0')\ndef test_it(): pass\n")
        result = project.run("--substrate=faulty", "--rtax-trials=100")
        result.assert_outcomes(failed=1)
        assert len(project.trials()) == 5
        result.stdout.fnmatch_lines(["*4 of 4 trials failed, 96 more not run*"])

    def test_an_unexpected_exit_code_names_the_action(self, project: Project) -> None:
        project.write(
            "conftest.py",
            """
            from pytest_rtax import Action, Needs, RepositoryUse
            class Broken:
                name, needs, repository, shortest = "broken", Needs(), RepositoryUse.NONE, 1
                def setup(self): return []
                def actions(self, length, rng):
                    return [Action("run", "echo 'oh \\x1b[31mno' >&2; exit 3")] * length
            def pytest_rtax_workloads(config): return [Broken()]
            """,
        )
        project.write("test_it.py", "import pytest\n@pytest.mark.trajectory('broken')\ndef test_it(): pass\n")
        result = project.run("--rtax-trials=1", "--rtax-warmup=0")
        result.assert_outcomes(failed=1)
        (trial,) = project.trials()
        assert trial.failure is not None
        assert (trial.failure.phase, trial.failure.action) == ("actions", 0)
        assert trial.failure.reason.startswith("exit code 3 instead of 0 from echo 'oh")
        assert "\x1b" not in trial.failure.reason


def test_junit_has_the_figures(minimal: Project) -> None:
    minimal.run("--substrate=null:clock=virtual,create=20ms,ready=50ms", "--rtax-trials=3", "--junit-xml=junit.xml")
    properties = {p.get("name"): p.get("value") for p in ElementTree.parse(minimal.path / "junit.xml").iter("property")}
    assert properties["rtax.trials"] == "3"
    assert properties["rtax.failures"] == "0"
    assert float(properties["rtax.cold_start.p50"] or "nan") == pytest.approx(0.07)


class TestPrecedence:
    @pytest.fixture
    def count(self, project: Project) -> Callable[..., int]:
        def run(*arguments: str, marker: str = "") -> int:
            project.write("test_it.py", f"import pytest\n@pytest.mark.trajectory('T0'{marker})\ndef test_it(): pass\n")
            project.run("--substrate=null:clock=virtual", "--rtax-warmup=0", *arguments).assert_outcomes(passed=1)
            return len(project.trials())

        return run

    def test_profile(self, count: Callable[..., int]) -> None:
        assert count() == 10

    def test_ini_before_profile(self, count: Callable[..., int]) -> None:
        assert count("-o", "rtax_trials=3") == 3

    def test_marker_before_ini(self, count: Callable[..., int]) -> None:
        assert count("-o", "rtax_trials=3", marker=", trials=4") == 4

    def test_command_line_before_marker(self, count: Callable[..., int]) -> None:
        assert count("-o", "rtax_trials=3", "--rtax-trials=5", marker=", trials=4") == 5


def test_the_paper_profile(project: Project) -> None:
    project.write("test_it.py", "import pytest\n@pytest.mark.trajectory('T0')\ndef test_it(): pass\n")
    project.run("--substrate=null:clock=virtual", "--rtax-profile=paper").assert_outcomes(passed=3)
    counted = Counter(trial.length for trial in project.trials() if not trial.warmup)
    assert counted == {10: 100, 50: 100, 150: 100}


class TestInterruption:
    CONFTEST = """
        import itertools
        from pytest_rtax.substrates.local import LocalSubstrate

        class Interrupted(LocalSubstrate):
            name = "interrupted"
            numbers = itertools.count()
            def create(self, spec):
                environment = super().create(spec)
                environment.run("sleep 600 >/dev/null 2>&1 &")
                if next(self.numbers) == 3:
                    original = environment.run
                    def run(command, **options):
                        raise KeyboardInterrupt
                    environment.run = run
                return environment

        def pytest_rtax_substrates(config):
            return [Interrupted]
        """

    def test_partial_results_are_kept_and_nothing_is_left(self, minimal: Project) -> None:
        minimal.write("conftest.py", self.CONFTEST)
        root = minimal.path / "environments"
        result = minimal.run_apart(f"--substrate=interrupted:root={root}", "--rtax-trials=10")
        assert result.ret == pytest.ExitCode.INTERRUPTED
        assert len(minimal.trials()) == 3
        assert minimal.last_run().status == "interrupted"
        result.stdout.fnmatch_lines(["*rollout infrastructure tax*", "  interrupted:root=* exec 2", "* 2 p50 *"])
        assert list(root.iterdir()) == []
        assert _processes_mentioning(str(root)) == []

    SIGNALLED = """
        import itertools, os, signal
        from pytest_rtax.substrates.local import LocalSubstrate

        SIGNAL = getattr(signal, os.environ["SIGNAL"])
        if SIGNAL != signal.SIGKILL:
            signal.signal(SIGNAL, signal.SIG_DFL)  # under nohup it is ignored, and stays so

        class Signalled(LocalSubstrate):
            name = "signalled"
            numbers = itertools.count()
            def create(self, spec):
                environment = super().create(spec)
                environment.run("sleep 600 >/dev/null 2>&1 &")
                if next(self.numbers) == 2:
                    os.kill(os.getpid(), SIGNAL)
                return environment

        def pytest_rtax_substrates(config):
            return [Signalled]
        """

    @pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
    def test_a_signal_to_end_is_heeded_in_good_order(
        self, minimal: Project, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        minimal.write("conftest.py", self.SIGNALLED)
        monkeypatch.setenv("SIGNAL", name)
        root = minimal.path / "environments"
        result = minimal.run_apart(f"--substrate=signalled:root={root}")
        assert result.ret == pytest.ExitCode.INTERRUPTED
        assert len(minimal.trials()) == 2
        assert minimal.last_run().status == "interrupted"
        assert list(root.iterdir()) == []
        assert _processes_mentioning(str(root)) == []

    def test_the_next_run_removes_what_a_killed_one_left(
        self, minimal: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        minimal.write("conftest.py", self.SIGNALLED)
        monkeypatch.setenv("SIGNAL", "SIGKILL")
        root = minimal.path / "environments"
        assert minimal.run_apart(f"--substrate=signalled:root={root}").ret != 0
        assert len(minimal.trials()) == 2  # what was measured before is on disk
        (left,) = root.iterdir()
        assert _processes_mentioning(str(root)) != []
        result = minimal.run_apart(f"--substrate=local:root={root}", "--rtax-trials=1")
        assert result.ret == 0
        result.stdout.fnmatch_lines([f"rtax: removed what dead runs had left behind on local:root={root}: {left.name}"])
        assert list(root.iterdir()) == []
        assert _processes_mentioning(str(root)) == []


def test_a_full_disk_stops_the_run_and_keeps_what_was_written(minimal: Project) -> None:
    minimal.write(
        "conftest.py",
        """
        import errno, os, pytest
        from pytest_rtax.records import store

        @pytest.fixture(autouse=True)
        def full_disk(monkeypatch):
            real, written = os.write, []
            def write(fd, data):
                written.append(fd)
                if len(written) > 3:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return real(fd, data)
            monkeypatch.setattr(store.os, "write", write)
        """,
    )
    result = minimal.run_apart("--substrate=null", "--rtax-transport=exec,session")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*cannot append to *samples.jsonl: No space left on device*"])
    assert len(minimal.trials()) == 3


def _processes_mentioning(text: str) -> list[str]:
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if text.encode() in environ.read_bytes():
                found.append(environ.parent.name)
        except OSError:
            continue
    return found


class TestBenchmark:
    def test_cases_are_in_its_json(self, minimal: Project) -> None:
        result = minimal.run(
            "--substrate=null:clock=virtual,create=1s",
            "--rtax-trials=4",
            "--benchmark-json=b.json",
            "--benchmark-quiet",
        )
        result.assert_outcomes(passed=1)
        (entry,) = json.loads((minimal.path / "b.json").read_text())["benchmarks"]
        assert entry["name"] == "test_it[null:clock=virtual,create=1s-exec-2]"
        assert entry["stats"]["data"] == [1.0] * 4
        assert entry["extra_info"]["cold_start.p50"] == 1.0
        assert entry["extra_info"]["substrate"] == "null:clock=virtual,create=1s"

    def test_autosave_and_compare(self, minimal: Project, pytester: pytest.Pytester) -> None:
        arguments = ("--substrate=null:clock=virtual,create=1s", "--rtax-trials=2", "--benchmark-autosave")
        minimal.run_apart(*arguments).assert_outcomes(passed=1)
        minimal.run_apart(*arguments).assert_outcomes(passed=1)
        result = pytester.run(str(Path(sys.executable).parent / "pytest-benchmark"), "compare", "--columns=median")
        result.stdout.fnmatch_lines(["*test_it*exec-2*0001_*", "*test_it*exec-2*0002_*"], consecutive=False)

    def test_a_marker_of_the_users_keeps_its_group(self, minimal: Project) -> None:
        minimal.write(
            "test_it.py",
            """
            import pytest
            @pytest.mark.benchmark(group="mine")
            @pytest.mark.trajectory("T0")
            def test_it(): pass
            """,
        )
        minimal.run("--substrate=null:clock=virtual,create=1s", "--benchmark-json=b.json").assert_outcomes(passed=1)
        (entry,) = json.loads((minimal.path / "b.json").read_text())["benchmarks"]
        assert entry["group"] == "mine"

    @pytest.mark.parametrize(
        "arguments",
        [["--benchmark-disable"], ["--benchmark-disable", "--benchmark-json=b.json"], ["-p", "no:benchmark"]],
    )
    def test_it_may_be_off(self, minimal: Project, arguments: list[str]) -> None:
        minimal.run("--substrate=null", "--rtax-trials=2", *arguments).assert_outcomes(passed=1)
        assert len(minimal.trials()) == 3

    def test_only_benchmarks_includes_cases(self, minimal: Project) -> None:
        minimal.write("test_plain.py", "def test_plain(): pass")
        minimal.run("--substrate=null", "--benchmark-only").assert_outcomes(passed=1, skipped=1)

    def test_it_is_not_bothered_otherwise(self, minimal: Project) -> None:
        minimal.run("--substrate=null").stdout.no_fnmatch_line("*Name (time in*")
