from __future__ import annotations

import http.client
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pytest_rtax.workloads.mirror import Mirror
from pytest_rtax.workloads.repository import Repository, RepositoryUnavailable, prepare_repository


@pytest.fixture(scope="session")
def repository() -> Repository:
    return prepare_repository("sdist")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("mirror")
    (top / "served/attrs.git").mkdir(parents=True)
    (top / "served/attrs.git/HEAD").write_bytes(b"ref: refs/heads/main\n")
    (top / "secret").write_bytes(b"secret")
    (top / "served/out").symlink_to(top / "secret")
    return top / "served"


@pytest.fixture(scope="module")
def mirror(directory: Path) -> Iterator[Mirror]:
    with Mirror(directory) as mirror:
        yield mirror


@pytest.fixture
def connection(mirror: Mirror) -> Iterator[http.client.HTTPConnection]:
    address = urlsplit(mirror.url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    yield connection
    connection.close()


def ask(connection: http.client.HTTPConnection, method: str, path: str) -> tuple[int, bytes]:
    connection.request(method, path)
    response = connection.getresponse()
    return response.status, response.read()


def test_git_clones_from_it(repository: Repository, tmp_path: Path) -> None:
    with Mirror(repository.bare.parent) as mirror:
        subprocess.run(["git", "clone", "-q", mirror.url, tmp_path / "clone"], check=True, timeout=60)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path / "clone", capture_output=True, check=True)
    assert head.stdout.decode().strip() == repository.commit


def test_one_connection_serves_many_requests(connection: http.client.HTTPConnection) -> None:
    answers = []
    for _ in range(3):
        answers.append(ask(connection, "GET", "/attrs.git/HEAD?service=git-upload-pack"))
        assert connection.sock is not None
    assert answers == [(200, b"ref: refs/heads/main\n")] * 3


def test_head_has_no_body(connection: http.client.HTTPConnection) -> None:
    connection.request("HEAD", "/attrs.git/HEAD")
    response = connection.getresponse()
    assert (response.status, response.getheader("Content-Length"), response.read()) == (200, "21", b"")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/attrs.git",
        "/attrs.git/",
        "/absent",
        "/../secret",
        "/%2e%2e/secret",
        "/attrs.git/../../secret",
        "//etc/passwd",
        "/out",
        "/attrs.git/HEAD%00",
        "/" + "x" * 5000,
    ],
)
def test_nothing_but_its_files(connection: http.client.HTTPConnection, path: str) -> None:
    assert ask(connection, "GET", path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_is_read_only(connection: http.client.HTTPConnection, method: str) -> None:
    assert ask(connection, method, "/attrs.git/HEAD")[0] == 501


def test_as_a_program_it_is_quiet_and_ends_with_its_stdin(directory: Path) -> None:
    command = [sys.executable, "-m", "pytest_rtax.workloads.mirror", str(directory), "127.0.0.1"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1) as process:
        assert process.stdout is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(process.stdout.readline()), timeout=10)
        assert ask(connection, "GET", "/absent")[0] == 404
        out, err = process.communicate(timeout=10)  # closes its stdin
        connection.close()
    assert (process.returncode, out, err) == (0, b"", b"")


def test_it_does_not_outlive_a_killed_driver(directory: Path) -> None:
    script = (
        "import sys, pathlib; from pytest_rtax.workloads.mirror import Mirror;"
        "mirror = Mirror(pathlib.Path(sys.argv[1])); mirror.start();"
        "print(mirror._process.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(directory)], stdin=-1, stdout=-1) as driver:
        assert driver.stdout is not None
        pidfd = os.pidfd_open(int(driver.stdout.readline()))
        driver.send_signal(signal.SIGKILL)
    ended = select.poll()
    ended.register(pidfd, select.POLLIN)
    assert ended.poll(10_000), "the mirror is still running"
    os.close(pidfd)


def test_close_is_idempotent(directory: Path) -> None:
    mirror = Mirror(directory)
    mirror.close()
    mirror.start()
    mirror.close()
    mirror.close()


def test_an_address_of_another_machine_is_one_line(directory: Path) -> None:
    with pytest.raises(RepositoryUnavailable) as raised, Mirror(directory, "192.0.2.1"):
        pass
    assert str(raised.value).startswith("the mirror cannot listen on 192.0.2.1 (")
    assert "\n" not in str(raised.value)


def test_an_ipv6_address_is_bracketed(directory: Path) -> None:
    assert Mirror(directory, "::1").url == "http://[::1]:0/attrs.git"
