"""pytest hooks, options, markers and fixtures: translation only.

Everything that measures, computes or writes is imported when it is first needed: a project that has the plugin
installed and does not use it must not pay for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rtax import hookspecs
from pytest_rtax.settings import SETTINGS, Settings, SettingsError, check_ini_keys

if TYPE_CHECKING:
    from pytest_rtax.driver import Driver
    from pytest_rtax.fixtures import SubstrateHandle
    from pytest_rtax.measure.case import Case
    from pytest_rtax.measure.engine import Progress
    from pytest_rtax.measure.rollouts import Rollouts
    from pytest_rtax.records.recorder import Recorder
    from pytest_rtax.records.schema import Trial
    from pytest_rtax.substrates.registry import Registry
    from pytest_rtax.workloads.actions import Workload

pytest.register_assert_rewrite("pytest_rtax.conformance")

_MARKERS = (
    "trajectory(tier, *, actions, trials, transport, warmup, failure_limit): measure rollouts of a tier (T0, T1, T2 "
    "or a third party's) on every substrate; the `rollouts` fixture has the result.",
    "budget(text, ...): latency budgets of a trajectory test, such as 'cold_start.p95 < 2s'.",
)
_CASE = "_rtax_case"
_LABEL = "_rtax_label"

_settings: pytest.StashKey[Settings] = pytest.StashKey()
_registry: pytest.StashKey[Registry] = pytest.StashKey()
_workloads: pytest.StashKey[dict[str, Workload]] = pytest.StashKey()
_recorder: pytest.StashKey[Recorder] = pytest.StashKey()
_driver: pytest.StashKey[Driver] = pytest.StashKey()
_cases: pytest.StashKey[dict[tuple[str, str], Case]] = pytest.StashKey()
_case: pytest.StashKey[Case] = pytest.StashKey()
_measuring: pytest.StashKey[pytest.Item] = pytest.StashKey()
_budgets: pytest.StashKey[int] = pytest.StashKey()
_described: pytest.StashKey[bool] = pytest.StashKey()
_rollouts: pytest.StashKey[Rollouts] = pytest.StashKey()
_mistakes: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rtax", "rollout infrastructure tax")
    for setting in SETTINGS:
        default = "" if setting.default is None else f" (default: {setting.default})"
        group.addoption(setting.flag, default=None, metavar=setting.metavar, help=f"{setting.help}{default}")
        parser.addini(setting.ini, f"default of {setting.flag}", default=None)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    config.stash[_mistakes] = []
    config.stash[_cases] = {}
    config.stash[_budgets] = 0
    try:
        # pytest only warns of an unknown key, and has no public way to list them.
        check_ini_keys(config._inicfg if hasattr(config, "_inicfg") else config.inicfg)
        settings = Settings.read(
            {s.name: config.getoption(s.flag) for s in SETTINGS},
            {s.name: config.getini(s.ini) for s in SETTINGS},
            config.invocation_params.dir,
            config.rootpath,
        )
        config.stash[_settings] = settings
        registry = _get_registry(config)
        for spec in settings.substrate:
            registry.check(spec)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def _get_registry(config: pytest.Config) -> Registry:
    if _registry not in config.stash:
        from pytest_rtax.substrates.registry import Registry

        def registered() -> Iterator[Any]:
            for classes in config.hook.pytest_rtax_substrates(config=config):
                yield from classes

        config.stash[_registry] = Registry(registered)
    return config.stash[_registry]


def _get_workloads(config: pytest.Config) -> dict[str, Workload]:
    if _workloads not in config.stash:
        from pytest_rtax.workloads.tiers import WORKLOADS

        found = dict(WORKLOADS)
        for workloads in config.hook.pytest_rtax_workloads(config=config):
            found.update({workload.name: workload for workload in workloads})
        config.stash[_workloads] = found
    return config.stash[_workloads]


def _worker_input(config: pytest.Config) -> dict[str, Any] | None:
    """What the controller told this xdist worker; None in the controller and without xdist."""
    return getattr(config, "workerinput", None)


def _get_recorder(config: pytest.Config) -> Recorder:
    if _recorder not in config.stash:
        from pytest_rtax.records.recorder import Recorder
        from pytest_rtax.records.store import new_run_id

        config.stash[_recorder] = Recorder(
            new_run_id(),
            config.stash[_settings],
            config.invocation_params.args,
            config.rootpath,
            workers=len(getattr(config.option, "tx", None) or []),
        )
    return config.stash[_recorder]


def pytest_report_header(config: pytest.Config) -> str:
    settings = config.stash[_settings]
    substrates = ", ".join(spec.label for spec in settings.substrate)
    return f"rtax: substrate {substrates}; profile {settings.profile}; seed {settings.seed}"


# -- markers to cases -------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("trajectory")
    if marker is not None:
        _generate_cases(metafunc, marker)
    elif _LABEL in metafunc.fixturenames:
        labels = [spec.label for spec in metafunc.config.stash[_settings].substrate]
        metafunc.parametrize(_LABEL, labels, ids=labels, indirect=True)


def _generate_cases(metafunc: pytest.Metafunc, marker: pytest.Mark) -> None:
    from pytest_rtax.cases import cases_of, check_budgets

    config, where = metafunc.config, metafunc.definition.nodeid
    try:
        cases = cases_of(marker, config.stash[_settings], _get_workloads(config), where)
        config.stash[_budgets] += check_budgets(list(metafunc.definition.iter_markers("budget")), where)
    except SettingsError as error:
        # Raised here, it would be one more collection error; kept, it is a usage error before anything runs.
        config.stash[_mistakes].append(str(error))
        return
    config.stash[_cases].update({(where, case.label): case for case in cases})
    metafunc.fixturenames.append(_CASE)
    labels = [case.label for case in cases]
    metafunc.parametrize(_CASE, labels, ids=labels, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        label = _parameter(item, _CASE)
        if label is not None:
            from pytest_rtax.cases import bind, function_of
            from pytest_rtax.interop import add_benchmark_marker, wants_cases

            assert isinstance(item, pytest.Function)
            case = bind(config.stash[_cases][function_of(item), label], item)
            item.stash[_case] = case
            _request(item, "rollouts")  # declared is measured, even if the test asserts nothing
            if wants_cases(config):
                _request(item, "benchmark")
                add_benchmark_marker(item)


def _request(item: pytest.Item, fixture: str) -> None:
    assert isinstance(item, pytest.Function)
    if fixture not in item.fixturenames:
        item.fixturenames.append(fixture)


def _parameter(item: pytest.Item, name: str) -> str | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get(name) if callspec is not None else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    if config.option.collectonly and not config.stash[_mistakes]:
        return
    try:
        if config.stash[_mistakes]:
            raise SettingsError(config.stash[_mistakes][0])
        _start_driver(session)
    except Exception as error:
        if not _is_users(error):
            raise
        if _worker_input(config) is not None:
            config.workeroutput["rtax_usage_error"] = str(error)  # type: ignore[attr-defined]
        raise pytest.UsageError(str(error)) from None


def _is_users(error: Exception) -> bool:
    """Whether the error is for the user to mend: its text says all there is to say."""
    from pytest_rtax.records.store import StoreError
    from pytest_rtax.substrates.protocol import SubstrateUnavailable
    from pytest_rtax.workloads.repository import RepositoryUnavailable

    return isinstance(error, (SettingsError, StoreError, SubstrateUnavailable, RepositoryUnavailable))


def _start_driver(session: pytest.Session) -> None:
    """Check that everything selected can be measured; creates nothing but the run's directory."""
    config = session.config
    cases = [item.stash[_case] for item in session.items if _case in item.stash and not _is_skipped(item)]
    labels = {label for item in session.items if (label := _parameter(item, _LABEL)) is not None}
    if not cases and not labels:
        return
    from pytest_rtax.driver import Driver
    from pytest_rtax.records.store import check_writable

    settings = config.stash[_settings]
    told = _worker_input(config)
    check_writable(settings.out)
    driver = Driver(
        run_id=told["rtax"]["run"] if told is not None else _get_recorder(config).run_id,
        settings=settings,
        registry=_get_registry(config),
        workloads=_get_workloads(config),
        cases=cases,
        labels=labels,
        emit=partial(_emit, config),
        progress=_progress(config),
        announce=partial(_announce, config),
        worker=told["workerid"] if told is not None else "",
        interleaved=told["rtax"]["interleaved"] if told is not None else True,
        done=_already_measured(told),
    )
    config.stash[_driver] = driver
    driver.preflight()
    for sentence in driver.reap():
        _announce(config, sentence)
    if cases and told is None:
        recorder = _get_recorder(config)
        recorder.open()
        recorder.describe(*driver.description())


def _is_skipped(item: pytest.Item) -> bool:
    """A test that is marked to be skipped is not measured for the sake of its group either."""
    if item.get_closest_marker("skip") is not None:
        return True
    conditions = [mark.args[0] for mark in item.iter_markers("skipif") if mark.args]
    return any(condition is True for condition in conditions)


def _already_measured(told: dict[str, Any] | None) -> list[Trial]:
    """What a worker that crashed had measured before this one replaced it."""
    if told is None or not told["rtax"]["done"]:
        return []
    import msgspec

    from pytest_rtax.records.schema import Trial

    return msgspec.convert(told["rtax"]["done"], list[Trial])


# -- measuring --------------------------------------------------------------------------------------------------------


@pytest.fixture
def _rtax_case(request: pytest.FixtureRequest) -> str:
    """Carries the parameter; the case itself is on the item."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def _rtax_label(request: pytest.FixtureRequest) -> str | None:
    """Carries the parameter of `substrate`, whose name a project may use for a fixture or parameter of its own."""
    return getattr(request, "param", None)


@pytest.fixture
def substrate(request: pytest.FixtureRequest, _rtax_label: str | None) -> SubstrateHandle:
    """A substrate to ask for environments; the test runs once for each that --substrate names."""
    label = request.node.stash[_case].substrate if _rtax_label is None else _rtax_label
    return request.config.stash[_driver].handle(label)


@pytest.fixture
def rollouts(request: pytest.FixtureRequest) -> Rollouts:
    """The measured trials of this case: what the `trajectory` marker declares, done."""
    from pytest_rtax.interop import feed_benchmark, junit_properties

    item, config = request.node, request.config
    if _case not in item.stash:
        pytest.fail(f"{item.nodeid} uses `rollouts` without a trajectory marker: add one", pytrace=False)
    config.stash[_measuring] = item
    if _worker_input(config) is not None and not config.stash.get(_described, False):
        substrates, repository = config.stash[_driver].description()
        _ship(item, {"substrates": substrates, "repository": repository})
        config.stash[_described] = True
    measured = config.stash[_driver].rollouts(item.stash[_case].id)
    item.stash[_rollouts] = measured
    item.user_properties.extend(junit_properties(measured))
    if "benchmark" in request.fixturenames:
        feed_benchmark(item, request.getfixturevalue("benchmark"), measured)
    return measured


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """The test asserts first; then the case's failure limit holds whether it did or not."""
    yield
    measured = item.stash.get(_rollouts, None)
    if measured is not None and (why := measured.verdict()) is not None:
        pytest.fail(why, pytrace=False)


def _emit(config: pytest.Config, trial: Trial) -> None:
    """Write a trial down, or have the controller do it."""
    if _worker_input(config) is None:
        _record(config, trial)
    else:
        import msgspec

        _ship(config.stash[_measuring], {"trial": msgspec.to_builtins(trial)})


def _record(config: pytest.Config, trial: Trial) -> None:
    from pytest_rtax.records.store import StoreError

    try:
        _get_recorder(config).record(trial)
    except StoreError as error:
        # What cannot be kept is not worth measuring; what was written before is whole.
        pytest.exit(str(error), returncode=pytest.ExitCode.INTERRUPTED)
    config.hook.pytest_rtax_record(config=config, trial=trial)


def _ship(item: pytest.Item, data: dict[str, Any]) -> None:
    """Send plain data to the controller at once, on a report of its own: what was sent survives this worker."""
    report = pytest.TestReport(
        item.nodeid, item.location, keywords={}, outcome="passed", longrepr=None, when="setup", rtax=data
    )
    item.ihook.pytest_runtest_logreport(report=report)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    data = getattr(report, "rtax", None)
    node = getattr(report, "node", None)  # set by xdist, in the controller
    if data is None or node is None:
        return
    config = node.config
    if "trial" in data:
        import msgspec

        from pytest_rtax.records.schema import Trial

        _record(config, msgspec.convert(data["trial"], Trial))
    else:
        _get_recorder(config).describe(data["substrates"], data["repository"])


# -- xdist ------------------------------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from pytest_rtax.distribution import scheduling

    return scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    from pytest_rtax.distribution import KEEPS_GROUPS

    done: list[Any] = []
    if _recorder in node.config.stash and node.config.stash[_recorder].trials:  # it replaces a worker that crashed
        import msgspec

        done = msgspec.to_builtins(node.config.stash[_recorder].trials)
    node.workerinput["rtax"] = {
        "run": _get_recorder(node.config).run_id,
        "done": done,
        "interleaved": node.config.getoption("dist") in KEEPS_GROUPS,
    }


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    output = getattr(node, "workeroutput", None) or {}
    if "rtax_usage_error" in output:
        raise pytest.UsageError(output["rtax_usage_error"])
    for note in output.get("rtax_notes", []):
        _get_recorder(node.config).note(note)


# -- what people see --------------------------------------------------------------------------------------------------


def _progress(config: pytest.Config) -> Progress:
    from pytest_rtax.measure.engine import silent

    reporter = config.pluginmanager.getplugin("terminalreporter")
    if _worker_input(config) is not None or reporter is None or not sys.stdout.isatty():
        return silent
    from pytest_rtax.report.progress import ProgressLine

    capture = config.pluginmanager.getplugin("capturemanager")

    screen = capture.global_and_fixture_disabled if capture is not None else nullcontext
    return ProgressLine(sys.stdout, reporter._tw.fullwidth, screen)


def _announce(config: pytest.Config, text: str) -> None:
    """Say what takes long; a worker has nobody to say it to."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and _worker_input(config) is None:
        reporter.ensure_newline()
        reporter.write_line(f"rtax: {text}")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    recorder = config.stash.get(_recorder, None)
    if recorder is None or not (recorder.trials or recorder.notes):
        return
    write = terminalreporter.write_line
    terminalreporter.section("rollout infrastructure tax", sep="=")
    if recorder.trials:
        from pytest_rtax.report.terminal import failures, summary

        for line in summary(recorder.trials, terminalreporter._tw.fullwidth):
            write(line.text, bold=line.bold)
        for text in failures(recorder.trials):
            write(text, red=True)
    for text in recorder.notes:
        write(f"note: {text}", yellow=True)
    if recorder.directory is not None:
        write(f"samples: {os.path.relpath(str(recorder.directory), str(config.invocation_params.dir))}")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    notes: list[str] = []
    if _driver in config.stash:
        notes += config.stash[_driver].close()
        if config.stash[_budgets]:
            notes.append(f"budgets read and not judged (this version has no gates yet): {config.stash[_budgets]}")
    if _worker_input(config) is not None:
        config.workeroutput["rtax_notes"] = notes  # type: ignore[attr-defined]
    elif _recorder in config.stash:
        recorder = config.stash[_recorder]
        for note in notes:
            recorder.note(note)
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        recorder.finish("complete" if ended else "interrupted")
