from __future__ import annotations

import configparser
import importlib.metadata
import json
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from pytest_rtax import __version__, cli
from pytest_rtax.cli import main
from pytest_rtax.settings import Settings, check_ini_keys
from pytest_rtax.substrates.local import LocalSubstrate
from pytest_rtax.substrates.owner import signature
from pytest_rtax.substrates.protocol import Needs, SubstrateUnavailable
from pytest_rtax.substrates.registry import ENTRY_POINTS

SUITES = ["test_cold_start.py", "test_isolation.py", "test_trajectories.py"]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[EntryPoint]:
    """No substrates but the built-in ones and these, and no environments but those below tmp_path."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: points)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return points


@pytest.fixture
def unusable_local(monkeypatch: pytest.MonkeyPatch) -> None:
    def preflight(self: LocalSubstrate, needs: Needs) -> None:
        raise SubstrateUnavailable("local has no 'sh' on its PATH", "install sh")

    monkeypatch.setattr(LocalSubstrate, "preflight", preflight)


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever engine this machine may have is not this test's business."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")


NO_ENGINE = "no Docker engine answers at unix:///nowhere/docker.sock (No such file or directory)"
START_ONE = "start one, or set DOCKER_HOST to one that you may use"


# -- rtax -------------------------------------------------------------------------------------------------------------


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"pytest-rtax {__version__}\n"


@pytest.mark.parametrize("argv", [[], ["no-such-command"], ["doctor", "--no-such-option"]])
def test_a_wrong_call_gets_the_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: rtax ")


def test_the_console_script_is_this_one() -> None:
    scripts = importlib.metadata.distribution("pytest-rtax").entry_points.select(group="console_scripts")
    assert [(script.name, script.load()) for script in scripts] == [("rtax", main)]


# -- doctor -----------------------------------------------------------------------------------------------------------


def test_doctor_looks_at_every_substrate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^local       (usable \(isolates nothing: trusted workloads only\)|not usable: .+)$", out, re.M)
    assert re.search(r"^null        usable \(simulated, for calibration\)$", out, re.M)
    assert out.startswith(f"docker      not usable: {NO_ENGINE}\n            to do: {START_ONE}\n")


def test_doctor_says_what_to_do(unusable_local: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[2:4] == [
        "local       not usable: local has no 'sh' on its PATH",
        "            to do: install sh",
    ]


@pytest.mark.parametrize(("substrate", "code"), [("null", 0), ("null:seed=1", 0), ("local", 1), ("null,local", 1)])
def test_doctor_fails_if_a_substrate_that_was_named_is_unusable(
    unusable_local: None, substrate: str, code: int
) -> None:
    assert main(["doctor", f"--substrate={substrate}"]) == code


def test_doctor_looks_past_a_package_that_cannot_be_imported(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    installed.append(EntryPoint("broken", "no_such_module:Substrate", ENTRY_POINTS))
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "broken      not usable: No module named 'no_such_module'\n" in out
    assert "null        usable" in out


@pytest.mark.parametrize("command", ["doctor", "reap"])
@pytest.mark.parametrize(
    ("substrate", "reason"),
    [
        ("locl", "unknown substrate 'locl': did you mean 'local'?"),
        ("null:creat=1ms", "unknown option 'creat': did you mean 'create'? (in 'null:creat=1ms')"),
        ("local,local", "'local' is named twice in 'local,local'"),
    ],
)
def test_a_wrong_substrate_is_one_line(
    command: str, substrate: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, f"--substrate={substrate}"]) == 4
    assert capsys.readouterr() == ("", f"rtax: error: {reason}\n")


# -- init -------------------------------------------------------------------------------------------------------------


def test_init_writes_the_suites_and_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "repository"
    assert main(["init", str(target)]) == 0
    assert sorted(path.name for path in (target / "suites").iterdir()) == ["pytest.ini", *SUITES]
    out = capsys.readouterr().out.splitlines()
    assert out == [
        *(f"wrote {target}/suites/{name}" for name in [*SUITES, "pytest.ini"]),
        f"now run: pytest {target}/suites/",
    ]


def test_init_writes_here_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert (tmp_path / "suites" / "pytest.ini").is_file()


@pytest.mark.parametrize("name", ["test_isolation.py", "pytest.ini"])
def test_init_overwrites_nothing(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "suites" / name
    mine.parent.mkdir()
    mine.write_text("mine")
    assert main(["init", str(tmp_path)]) == 4
    assert capsys.readouterr() == (
        "",
        f"rtax: error: {mine} exists already: move it away or choose another directory\n",
    )
    assert list(mine.parent.iterdir()) == [mine]
    assert mine.read_text() == "mine"


def test_init_leaves_other_files_alone(tmp_path: Path) -> None:
    mine = tmp_path / "suites" / "test_mine.py"
    mine.parent.mkdir()
    mine.write_text("mine")
    assert main(["init", str(tmp_path)]) == 0
    assert mine.read_text() == "mine"


def test_init_below_a_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["init", str(file)]) == 4
    err = capsys.readouterr().err
    assert err.startswith("rtax: error: ") and str(file) in err
    assert len(err.splitlines()) == 1


def test_the_suites_that_init_writes_collect(tmp_path: Path) -> None:
    main(["init", str(tmp_path)])
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--strict-markers"]
    answer = subprocess.run([*command, "suites"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    collected = answer.stdout.splitlines()
    assert {line.partition("::")[0].rpartition("/")[2] for line in collected if "::" in line} == set(SUITES)
    assert any(line.endswith("::test_bugfix[local-exec-10]") for line in collected)
    assert any(line.endswith("::test_workspaces_are_apart[local]") for line in collected)
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize("uncommented", [False, True])
def test_every_line_of_the_configuration_can_be_used(uncommented: bool, tmp_path: Path) -> None:
    text = cli._CONFIGURATION
    if uncommented:
        text = re.sub(r"^# (?=rtax_\w+ = )", "", text, flags=re.M)
    parser = configparser.ConfigParser()
    parser.read_string(text)
    keys = dict(parser["pytest"])
    check_ini_keys(keys)
    settings = Settings.read({}, {key.removeprefix("rtax_"): value for key, value in keys.items()}, tmp_path, tmp_path)
    settings.for_case({}, "here")
    assert settings.out == tmp_path / "../reports"
    assert ("rtax_warmup" in keys) is uncommented


# -- reap -------------------------------------------------------------------------------------------------------------


def leave_behind(root: Path, name: str, run: str) -> Path:
    """What a driver that is dead has left of an environment."""
    home = root / name
    (home / "workspace").mkdir(parents=True)
    (home / "owner.json").write_text(json.dumps({**signature(run, ttl=60), "pid": str(2**22 + 1)}))
    return home


def test_reap_finds_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["reap"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"docker      not looked at: {NO_ENGINE}; {START_ONE}",
        "local       0 removed",
        "null        0 removed",
    ]


def test_reap_removes_what_dead_runs_have_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "environments"
    homes = [leave_behind(root, "rtax-1", "r1"), leave_behind(root, "rtax-2", "r2")]
    assert main(["reap", f"--substrate=local:root={root}"]) == 0
    assert capsys.readouterr().out == f"local:root={root}  2 removed\n{'':10}  rtax-1\n{'':10}  rtax-2\n"
    assert not any(home.exists() for home in homes)


def test_reap_can_be_told_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "environments"
    mine, other = leave_behind(root, "rtax-1", "r1"), leave_behind(root, "rtax-2", "r2")
    assert main(["reap", f"--substrate=local:root={root}", "--run=r1"]) == 0
    assert "1 removed" in capsys.readouterr().out
    assert not mine.exists()
    assert other.exists()


def test_reap_looks_past_a_package_that_cannot_be_imported(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    installed.append(EntryPoint("broken", "no_such_module:Substrate", ENTRY_POINTS))
    assert main(["reap"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "broken      not looked at: substrate 'broken' cannot be imported: No module named 'no_such_module'; "
        "install what its package needs",
        f"docker      not looked at: {NO_ENGINE}; {START_ONE}",
        "local       0 removed",
        "null        0 removed",
    ]
