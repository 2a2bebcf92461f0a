from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_rtax.workloads import repository as module
from pytest_rtax.workloads.repository import Repository, RepositoryUnavailable, prepare_repository

# The same on every machine: the runs of two people who both use the sdist can be compared.
SDIST_COMMIT = "fa7aa4a3038b0cc461938f1675f21d24b98dd817"
SDIST_TREE = "38eaee6340007dafbf98f55ff2ddc66fdb23213f"


def git(*arguments: str | Path, cwd: Path) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *arguments]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="session")
def repository() -> Repository:
    return prepare_repository("sdist")


@pytest.fixture(scope="session")
def archive(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist made again from its repository: other times, another order, but the same files."""
    path = tmp_path_factory.mktemp("archive") / "attrs.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in reversed(git("ls-files", cwd=repository.worktree).splitlines()):
            tar.add(repository.worktree / name, f"attrs-23.1.0/{name}")
    return path


class Network:
    """What can be reached, and what has been asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, archive: Path, nowhere: Path) -> None:
        self._patch = monkeypatch
        self._archive = archive
        self.downloads = 0
        monkeypatch.setattr(module, "GITHUB_URL", str(nowhere))
        monkeypatch.setattr(module, "_download_sdist", self._refuse)

    def serve_github(self, repository: Repository) -> None:
        self._patch.setattr(module, "GITHUB_URL", str(repository.bare))
        self._patch.setattr(module, "GITHUB_COMMIT", repository.commit)

    def serve_sdist(self) -> None:
        self._patch.setattr(module, "_download_sdist", self._download)

    def cut(self) -> None:
        self._patch.setattr(module, "GITHUB_URL", "/nonexistent")
        self._patch.setattr(module, "_download_sdist", self._refuse)

    def _download(self, directory: Path) -> Path:
        self.downloads += 1
        return self._archive

    def _refuse(self, directory: Path) -> Path:
        raise module._CommandFailed("no network")


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, archive: Path, tmp_path: Path) -> Network:
    return Network(monkeypatch, archive, tmp_path / "nowhere")


def test_the_sdist_is_the_same_commit_everywhere(repository: Repository) -> None:
    assert (repository.source, repository.commit, repository.tree_hash) == ("sdist", SDIST_COMMIT, SDIST_TREE)


def test_the_layout(repository: Repository) -> None:
    assert (repository.bare.name, repository.worktree.name) == ("attrs.git", "attrs")
    assert repository.bare.parent == repository.worktree.parent
    assert git("status", "--porcelain", "--ignored", cwd=repository.worktree) == ""
    assert git("rev-parse", "HEAD", cwd=repository.worktree) == repository.commit
    assert git("symbolic-ref", "HEAD", cwd=repository.worktree) == "refs/heads/main"
    assert git("count-objects", "-v", cwd=repository.bare).startswith("count: 0\n")


def test_no_path_of_this_machine_is_left(repository: Repository) -> None:
    directory = os.fsencode(repository.bare.parent.parent)
    files = [path for path in repository.bare.parent.rglob("*") if path.is_file()]
    assert [path for path in files if directory in path.read_bytes()] == []
    assert os.fsdecode(directory) not in json.dumps(repository.provenance())


def test_configuration_and_surroundings_have_no_say(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text(
        "[core]\nautocrlf = true\nhooksPath = /nonexistent\n[init]\ndefaultBranch = other\n[commit]\ngpgSign = true\n"
    )
    for name, value in {"HOME": tmp_path, "GIT_DIR": "/nonexistent", "TZ": "Asia/Tokyo", "LANG": "de_DE"}.items():
        monkeypatch.setenv(name, str(value))
    network.serve_sdist()
    umask = os.umask(0o077)
    try:
        prepared = prepare_repository("sdist", cache=tmp_path / "cache")
    finally:
        os.umask(umask)
    assert (prepared.commit, prepared.tree_hash) == (SDIST_COMMIT, SDIST_TREE)


def test_auto_prefers_github(network: Network, repository: Repository, tmp_path: Path) -> None:
    network.serve_github(repository)
    network.serve_sdist()
    prepared = prepare_repository("auto", cache=tmp_path)
    assert (prepared.source, prepared.commit, network.downloads) == ("github", repository.commit, 0)


def test_auto_takes_the_sdist_where_github_is_out_of_reach(network: Network, tmp_path: Path) -> None:
    network.serve_sdist()
    assert prepare_repository("auto", cache=tmp_path).source == "sdist"


@pytest.mark.parametrize("source", ["github", "sdist"])
def test_what_is_cached_needs_no_network(network: Network, repository: Repository, tmp_path: Path, source: str) -> None:
    network.serve_github(repository)
    network.serve_sdist()
    prepared = prepare_repository(source, cache=tmp_path)
    network.cut()
    assert prepare_repository(source, cache=tmp_path) == prepared
    assert prepare_repository("auto", cache=tmp_path) == prepared


def test_auto_prefers_a_cached_github(network: Network, repository: Repository, tmp_path: Path) -> None:
    network.serve_github(repository)
    network.serve_sdist()
    prepare_repository("sdist", cache=tmp_path)
    prepare_repository("github", cache=tmp_path)
    assert prepare_repository("auto", cache=tmp_path).source == "github"


def test_the_default_cache_follows_xdg(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    network.serve_sdist()
    assert prepare_repository("sdist").bare.is_relative_to(tmp_path / "pytest-rtax")


def truncate_pack(prepared: Repository) -> None:
    (pack,) = (prepared.bare / "objects/pack").glob("*.pack")
    content = pack.read_bytes()
    pack.unlink()
    pack.write_bytes(content[: len(content) // 2])


def flip_a_bit(prepared: Repository) -> None:
    (pack,) = (prepared.bare / "objects/pack").glob("*.pack")
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 1
    pack.unlink()
    pack.write_bytes(content)


DAMAGES: dict[str, Callable[[Repository], object]] = {
    "a truncated pack": truncate_pack,
    "a flipped bit": flip_a_bit,
    "no list of refs": lambda prepared: (prepared.bare / "info/refs").unlink(),
    "no list of packs": lambda prepared: (prepared.bare / "objects/info/packs").write_text(""),
    "no branch": lambda prepared: (prepared.bare / "refs/heads/main").unlink(),
    "an edited file": lambda prepared: (prepared.worktree / "README.md").write_text("edited"),
    "a missing file": lambda prepared: (prepared.worktree / "README.md").unlink(),
    "a file too many": lambda prepared: (prepared.worktree / "module.pyc").touch(),
    "a broken index": lambda prepared: (prepared.worktree / ".git/index").write_bytes(b"broken"),
    "another HEAD": lambda prepared: (prepared.worktree / ".git/HEAD").write_text("ref: refs/heads/none\n"),
}


@pytest.fixture
def cached(repository: Repository, tmp_path: Path) -> Repository:
    home = repository.bare.parent
    shutil.copytree(home, tmp_path / "cache" / home.name, symlinks=True)
    return prepare_repository("sdist", cache=tmp_path / "cache")


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_cache_is_not_trusted(
    network: Network, cached: Repository, tmp_path: Path, damage: Callable[[Repository], object]
) -> None:
    damage(cached)
    assert "no network" in refusal("sdist", tmp_path / "cache")


def test_a_damaged_cache_is_made_again(network: Network, cached: Repository, tmp_path: Path) -> None:
    (cached.worktree / "README.md").write_text("damaged")
    network.serve_sdist()
    assert prepare_repository("sdist", cache=tmp_path / "cache") == cached
    assert network.downloads == 1
    assert (cached.worktree / "README.md").read_text() != "damaged"


def test_many_at_once_prepare_it_once(network: Network, tmp_path: Path) -> None:
    network.serve_sdist()
    with ThreadPoolExecutor(8) as pool:
        prepared = list(pool.map(lambda _: prepare_repository("sdist", cache=tmp_path), range(8)))
    assert len(set(prepared)) == 1
    assert network.downloads == 1


def test_what_a_killed_preparation_left_is_no_obstacle(network: Network, tmp_path: Path) -> None:
    network.serve_sdist()
    left = tmp_path / f".sdist-{SDIST_COMMIT[:12]}.partial"
    (left / "attrs.git").mkdir(parents=True)
    prepare_repository("sdist", cache=tmp_path)
    assert not left.exists()


def test_a_failed_preparation_leaves_nothing(network: Network, tmp_path: Path) -> None:
    with pytest.raises(RepositoryUnavailable):
        prepare_repository("auto", cache=tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".lock"}


@pytest.fixture
def fork(repository: Repository, tmp_path: Path) -> Path:
    """A repository with a commit on a branch, a tagged one, and one that nobody asked for."""
    path = tmp_path / "fork"
    git("clone", "-q", repository.bare, path, cwd=tmp_path)
    for branch in ("wanted", "other"):
        git("checkout", "-q", "-b", branch, "main", cwd=path)
        git("commit", "-q", "--allow-empty", "-m", branch, cwd=path)
    return path


def test_another_repository_by_an_abbreviated_commit(fork: Path, tmp_path: Path) -> None:
    commit = git("rev-parse", "wanted", cwd=fork)
    prepared = prepare_repository(f"{fork}@{commit[:8]}", cache=tmp_path / "cache")
    assert (prepared.source, prepared.commit, prepared.tree_hash) == ("custom", commit, SDIST_TREE)


def test_another_repository_brings_only_what_the_commit_needs(fork: Path, tmp_path: Path) -> None:
    prepared = prepare_repository(f"{fork}@{git('rev-parse', 'wanted', cwd=fork)}", cache=tmp_path / "cache")
    assert git("for-each-ref", "--format=%(refname)", cwd=prepared.bare) == "refs/heads/main"
    with pytest.raises(subprocess.CalledProcessError):
        git("cat-file", "-e", git("rev-parse", "other", cwd=fork), cwd=prepared.bare)


@pytest.mark.parametrize("source", ["elsewhere", "", "@abc123", "/some/repository", "/some/repository@main", "x@"])
def test_a_wrong_source_says_what_is_right(source: str, tmp_path: Path) -> None:
    message = refusal(source, tmp_path)
    assert repr(source) in message
    assert "auto, github, sdist or PATH-OR-URL@COMMIT" in message


@pytest.mark.parametrize("where", ["/nonexistent", "--upload-pack=touch pwned"])
def test_a_repository_that_is_not_there(where: str, tmp_path: Path) -> None:
    assert f"cannot be fetched from {where}" in refusal(f"{where}@abc123", tmp_path)


def test_a_commit_that_is_not_there(fork: Path, tmp_path: Path) -> None:
    assert "commit 0123abcd cannot be fetched" in refusal(f"{fork}@0123abcd", tmp_path)


def test_both_reasons_where_nothing_is_in_reach(network: Network, tmp_path: Path) -> None:
    message = refusal("auto", tmp_path)
    assert "from GitHub" in message
    assert "no network" in message


@pytest.fixture
def silent_server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/attrs.git"


def test_a_silent_github_is_noticed_soon(
    silent_server: str, network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GITHUB_URL", silent_server)
    monkeypatch.setattr(module, "_PROBE_SECONDS", 0.2)
    monkeypatch.setenv("no_proxy", "*")
    assert "git had no answer within 0.2 s" in refusal("github", tmp_path)


def test_no_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "has no pip" in refusal("sdist", tmp_path)


def test_pip_cannot_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert "No matching distribution found for attrs==23.1.0" in refusal("sdist", tmp_path)


def test_no_git(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network.serve_sdist()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no git on the PATH" in refusal("sdist", tmp_path)


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "set XDG_CACHE_HOME" in refusal("sdist", tmp_path / "file/cache")


def symlink() -> tarfile.TarInfo:
    member = tarfile.TarInfo("attrs-23.1.0/link")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return member


@pytest.mark.parametrize(
    "member",
    [
        symlink(),
        *map(tarfile.TarInfo, ["attrs/../../out", "/etc/out", "attrs/.git/config", "attrs/a\nM 100644", "top"]),
    ],
    ids=lambda member: repr(member.name),
)
def test_a_hostile_archive_is_refused(member: tarfile.TarInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "hostile.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(member)
    monkeypatch.setattr(module, "_download_sdist", lambda directory: archive)
    assert "in the sdist" in refusal("sdist", tmp_path / "cache")


def refusal(source: str, cache: Path) -> str:
    """The one line with which a source is refused."""
    with pytest.raises(RepositoryUnavailable) as raised:
        prepare_repository(source, cache=cache)
    message = str(raised.value)
    assert "\n" not in message
    assert "; " in message, "says what is wrong, but not what to do"
    return message
