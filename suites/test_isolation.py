"""What two environments must not share. A substrate says what it isolates; here it is held to that."""

import pytest

from pytest_rtax import SubstrateHandle


@pytest.fixture(autouse=True)
def _runs_commands(substrate: SubstrateHandle) -> None:
    if substrate.simulated:
        pytest.skip(f"{substrate.name} runs nothing, so there is nothing to isolate")


def _require(substrate: SubstrateHandle, what: str) -> None:
    if what not in substrate.isolates:
        pytest.skip(f"{substrate.name} does not isolate the {what}: use it for workloads you trust")


def test_workspaces_are_apart(substrate: SubstrateHandle) -> None:
    with substrate.environment() as a, substrate.environment() as b:
        a.run("touch marker")
        assert a.run("test -e marker").exit_code == 0
        assert b.run("test -e marker").exit_code == 1


def test_the_driver_keeps_its_variables_to_itself(substrate: SubstrateHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTAX_CANARY", "a secret of the driver's")
    with substrate.environment() as environment:
        assert b"a secret of the driver's" not in environment.run("env").stdout


def test_a_new_environment_is_clean(substrate: SubstrateHandle) -> None:
    with substrate.environment() as first:
        first.run("touch leftover; sleep 600 >/dev/null 2>&1 &")
    with substrate.environment() as second:
        assert second.run("ls -A").stdout == b""


def test_file_systems_are_apart(substrate: SubstrateHandle) -> None:
    _require(substrate, "filesystem")
    with substrate.environment() as a, substrate.environment() as b:
        a.run("touch /tmp/rtax-marker")
        assert b.run("test -e /tmp/rtax-marker").exit_code == 1


def test_processes_are_apart(substrate: SubstrateHandle) -> None:
    _require(substrate, "processes")
    with substrate.environment() as a, substrate.environment() as b:
        a.run("sleep 61234 >/dev/null 2>&1 &")
        assert b.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 61234'").stdout.strip() == b"0"


def test_ports_are_apart(substrate: SubstrateHandle) -> None:
    _require(substrate, "network")
    listen = (
        "import socket,time; s=socket.socket(); s.bind(('127.0.0.1',45127)); s.listen(); print('up',flush=True);"
        "time.sleep(600)"
    )
    connect = "import socket; socket.create_connection(('127.0.0.1',45127),2)"
    with substrate.environment() as a, substrate.environment() as b:
        a.run(f'python3 -c "{listen}" >log 2>&1 & until grep -q up log; do :; done', timeout=30)
        assert a.run(["python3", "-c", connect]).exit_code == 0
        assert b.run(["python3", "-c", connect]).exit_code != 0
