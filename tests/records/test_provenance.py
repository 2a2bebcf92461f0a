from __future__ import annotations

import json
import os
import string
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rtax.records.provenance import command_line, git_state, load, machine, versions
from pytest_rtax.untrusted import redact

# Whatever somebody may write before the host; a slash would end it.
secrets = st.text(
    st.sampled_from(sorted({*string.printable, "é", "✓"} - {*string.whitespace, "/"})), min_size=1, max_size=20
)


@settings(max_examples=100)
@given(secrets, secrets, st.sampled_from(["http", "https", "ssh", "tcp"]))
def test_no_password_is_left_in_a_url(user: str, password: str, scheme: str) -> None:
    url = f"{scheme}://{user}:{password}@host.example:8080/path?q=1"
    assert redact(url) == f"{scheme}://***@host.example:8080/path?q=1"


@settings(max_examples=50)
@given(secrets)
def test_no_token_is_left_in_a_url(token: str) -> None:
    assert redact(f"--proxy=https://{token}@host.example") == "--proxy=https://***@host.example"


def test_every_url_of_a_text_is_redacted() -> None:
    assert (
        redact("from https://a:b@one/x to https://c@two/y, done") == "from https://***@one/x to https://***@two/y, done"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "suites/test_x.py::test_x[local-exec-10]",
        "https://host.example/path",
        "https://host.example/@scope/package",
        "docker:image=registry.example:5000/python@sha256:abc",
        "../repository@a37b556",
        "somebody@example.com",
    ],
)
def test_what_holds_no_credentials_is_kept(text: str) -> None:
    assert redact(text) == text


def test_the_command_line_is_redacted() -> None:
    assert command_line(["-q", "--rtax-repository=https://me:pw@h/r.git@abc"]) == [
        "pytest",
        "-q",
        "--rtax-repository=https://***@h/r.git@abc",
    ]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "somebody@example.com")
    directory = tmp_path / "repository"
    directory.mkdir()
    git(directory, "init", "-q", "-b", "trunk")
    (directory / "file").write_text("one\n")
    git(directory, "add", "file")
    git(directory, "commit", "-q", "-m", "one")
    return directory


def git(directory: Path, *arguments: str | bytes) -> str:
    return subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


def test_a_clean_tree(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert len(commit) == 40
    assert git_state(repository) == {"commit": commit, "dirty": False, "branch": "trunk"}


def test_a_directory_below_counts_as_the_repository(repository: Path) -> None:
    below = repository / "below"
    below.mkdir()
    assert git_state(below) == git_state(repository)


@pytest.mark.parametrize("staged", [False, True])
def test_a_changed_tree(repository: Path, staged: bool) -> None:
    (repository / "file").write_text("two\n")
    if staged:
        git(repository, "add", "file")
    assert git_state(repository)["dirty"] is True


def test_files_that_git_does_not_know_change_nothing(repository: Path) -> None:
    (repository / "reports").mkdir()
    (repository / "reports" / "new").touch()
    assert git_state(repository)["dirty"] is False


def test_a_branch_may_be_called_anything(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", b"caf\xe9")
    assert git_state(repository)["branch"] == "caf\N{REPLACEMENT CHARACTER}"


def test_no_repository(repository: Path) -> None:
    assert git_state(repository.parent) == {}


def test_a_repository_without_a_commit(repository: Path) -> None:
    empty = repository.parent / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    assert git_state(empty) == {}


def test_no_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    assert git_state(repository) == {}


def test_whether_the_tree_is_changed_may_be_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "git"
    program.write_text('#!/bin/sh\n[ "$1" = rev-parse ] && echo abc\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) == {"commit": "abc", "dirty": None, "branch": "abc"}


def test_versions_are_plain_data() -> None:
    found = versions()
    assert json.loads(json.dumps(found)) == found
    assert {"python", "implementation", "pytest", "pytest-rtax", "msgspec", "numpy", "scipy"} <= set(found)


def test_the_machine_is_plain_data() -> None:
    found = machine()
    assert json.loads(json.dumps(found)) == found
    assert 1 <= found["usable_cores"] <= found["cores"]
    assert found["memory_bytes"] > 2**20


def test_the_load_is_plain_data() -> None:
    found = load()
    assert json.loads(json.dumps(found)) == found
    assert len(found) == 3
