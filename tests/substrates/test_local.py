"""What `local` promises beyond the conformance suite: nothing is left behind, nothing leaks in."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

import pytest_rtax
from pytest_rtax.substrates import local
from pytest_rtax.substrates.local import LocalSubstrate
from pytest_rtax.substrates.protocol import Environment, EnvironmentSpec, Needs, SubstrateUnavailable

DRIVER = """\
import os, sys
from pathlib import Path
from pytest_rtax.substrates.local import LocalSubstrate
from pytest_rtax.substrates.protocol import EnvironmentSpec

environment = LocalSubstrate(Path(sys.argv[1])).create(EnvironmentSpec(run="theirs", id="lost"))
pid = environment.run("nohup sleep 300 >/dev/null 2>&1 & echo $!").stdout
print(int(pid), flush=True)
sys.stdin.read()
os._exit(0)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def substrate(root: Path) -> LocalSubstrate:
    return LocalSubstrate(root)


@contextmanager
def created(substrate: LocalSubstrate, id: str = "mine", run: str = "ours") -> Iterator[Environment]:
    environment = substrate.create(EnvironmentSpec(run=run, id=id))
    try:
        yield environment
    finally:
        environment.destroy()


@pytest.fixture
def driver(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, with an environment `lost` of the run `theirs`; its first line is a pid in there."""
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(pytest_rtax.__file__).parent.parent)},
    ) as driver:
        yield driver
        driver.kill()
    LocalSubstrate(root).reap(run="theirs")


def background_pid(driver: subprocess.Popen[str]) -> int:
    assert driver.stdout is not None
    return int(driver.stdout.readline())


def sleeping(pid: int) -> bool:
    try:
        return b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_what_a_dead_driver_left_is_reaped(
    substrate: LocalSubstrate, root: Path, driver: subprocess.Popen[str], end: str
) -> None:
    pid = background_pid(driver)
    if end == "kill":
        driver.kill()
    driver.communicate()
    assert sleeping(pid)
    assert substrate.reap(run=None) == ["lost"]
    assert not sleeping(pid)
    assert list(root.iterdir()) == []
    assert substrate.reap(run=None) == []


def test_what_a_live_driver_uses_is_not_reaped(substrate: LocalSubstrate, driver: subprocess.Popen[str]) -> None:
    pid = background_pid(driver)
    with created(substrate) as mine:
        assert substrate.reap(run=None) == []
        assert sleeping(pid)
        assert mine.run("true").exit_code == 0


def test_a_named_run_is_reaped_alive_or_not_and_no_other(
    substrate: LocalSubstrate, driver: subprocess.Popen[str]
) -> None:
    pid = background_pid(driver)
    with created(substrate) as mine:
        assert substrate.reap(run="nobody's") == []
        assert substrate.reap(run="theirs") == ["lost"]
        assert not sleeping(pid)
        assert mine.run("true").exit_code == 0


def test_a_driver_is_not_taken_for_another_process_with_its_pid(substrate: LocalSubstrate, root: Path) -> None:
    with created(substrate, "e1"):
        owner = json.loads((root / "e1" / "owner.json").read_text())
        for name, change in {
            "other": {"start": "1"},
            "reboot": {"boot": "earlier", "deadline": "1"},
            "far": {"namespace": "pid:[1]"},
        }.items():
            (root / name).mkdir()
            (root / name / "owner.json").write_text(json.dumps({**owner, **change}))
        # A driver in another container cannot be seen from here: what it owns is left alone until its deadline.
        assert substrate.reap(run=None) == ["other", "reboot"]


@pytest.mark.parametrize("owner", [None, "", "not json", "[]"])
def test_what_is_not_an_environment_is_left_alone(substrate: LocalSubstrate, root: Path, owner: str | None) -> None:
    (root / "notes").mkdir(parents=True)
    if owner is not None:
        (root / "notes" / "owner.json").write_text(owner)
    assert substrate.reap(run=None) == substrate.reap(run="r") == []
    assert (root / "notes").is_dir()


def test_where_nothing_was_ever_made_there_is_nothing_to_reap(substrate: LocalSubstrate) -> None:
    assert substrate.reap(run=None) == []


def test_destroying_one_environment_spares_another_with_a_longer_id(substrate: LocalSubstrate) -> None:
    with created(substrate, "e1") as short, created(substrate, "e10") as long:
        pid = int(long.run("sleep 300 >/dev/null 2>&1 & echo $!").stdout)
        short.destroy()
        assert sleeping(pid)


def test_what_is_there_is_enough(substrate: LocalSubstrate) -> None:
    substrate.preflight(Needs())
    substrate.preflight(Needs(frozenset({"sh", "ls"}), frozenset({"json", "sys"})))


def test_a_missing_tool_is_named(substrate: LocalSubstrate) -> None:
    with pytest.raises(SubstrateUnavailable) as failure:
        substrate.preflight(Needs(tools=frozenset({"sh", "no-such-tool"})))
    assert str(failure.value) == "local has no 'no-such-tool' on its PATH; install no-such-tool"


def test_missing_modules_are_named_with_the_python_that_lacks_them(substrate: LocalSubstrate) -> None:
    with pytest.raises(SubstrateUnavailable) as failure:
        substrate.preflight(Needs(modules=frozenset({"json", "no_such_module", "nor_this"})))
    assert failure.value.reason == "local's python3 cannot import no_such_module, nor_this"
    assert failure.value.remedy.endswith("pip install no_such_module nor_this")


def test_a_directory_of_another_user_is_not_used(
    substrate: LocalSubstrate, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: root.stat().st_uid + 1)
    with pytest.raises(SubstrateUnavailable, match="belongs to another user"):
        substrate.preflight(Needs())


def test_the_drivers_variables_do_not_leak_in(substrate: LocalSubstrate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    with created(substrate) as environment, closing(environment.open_session()) as session:
        for runner in (environment, session):
            assert b"canary" not in runner.run("env").stdout


def test_the_directories_are_private_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ExitStack() as stack:
        stack.callback(os.umask, os.umask(0))
        stack.enter_context(created(LocalSubstrate()))
        (root,) = tmp_path.iterdir()
        assert root.name == f"pytest-rtax-{os.getuid()}"
        assert root.stat().st_mode & 0o777 == (root / "mine").stat().st_mode & 0o777 == 0o700


def test_the_repository_is_in_the_workspace_and_the_original_is_safe(substrate: LocalSubstrate, tmp_path: Path) -> None:
    original = tmp_path / "repository"
    original.mkdir()
    (original / "file").write_text("text")
    (original / "link").symlink_to("file")
    spec = EnvironmentSpec(run="r", id="mine", repository=original)
    substrate.prepare(spec)
    environment = substrate.create(spec)
    assert environment.run("cat link; readlink link; rm file", cwd="attrs").stdout == b"textfile\n"
    environment.destroy()
    assert environment.gone()
    assert (original / "file").read_text() == "text"


def test_a_command_too_long_for_the_system_is_126(substrate: LocalSubstrate) -> None:
    with created(substrate) as environment, closing(environment.open_session()) as session:
        for runner in (environment, session):
            seen = runner.run(["true", "x" * 1_000_000])
            assert (seen.exit_code, b"too long" in seen.stderr) == (126, True)


def test_the_drivers_own_trouble_is_not_the_commands(
    substrate: LocalSubstrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_descriptors(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(local, "PipeChannel", out_of_descriptors)
    with created(substrate) as environment, pytest.raises(OSError, match="Too many open files"):
        environment.run("true")


def test_provenance_is_plain_data(substrate: LocalSubstrate, root: Path) -> None:
    provenance = substrate.provenance()
    assert json.loads(json.dumps(provenance)) == provenance
    assert provenance["root"] == str(root)
