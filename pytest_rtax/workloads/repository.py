"""Where the repository of T1 and T2 comes from.

It is prepared once per machine and kept in a cache: a bare repository that any web server can serve for cloning, and
a clean working tree. What is found there is checked before it is used, and made again if it is not whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

GITHUB_URL = "https://github.com/python-attrs/attrs.git"
GITHUB_COMMIT = "a37b556f7d762b7a6229b1fbf985965539571cd2"
SDIST_REQUIREMENT = "attrs==23.1.0 --hash=sha256:6279836d581513a26f1bf235f9acd333bc9115683f14f7e8fae46c98fc50e015"
SDIST_COMMIT = "fa7aa4a3038b0cc461938f1675f21d24b98dd817"

_BRANCH = "refs/heads/main"
_PROBE_SECONDS = 10.0
_TRANSFER_SECONDS = 600.0
_GIT_SECONDS = 120.0
_COMMITTER = "pytest-rtax <pytest-rtax@example.invalid> 1681646400 +0000"
# What a user may have set to reach a server. Everything else named GIT_* would lead git to another repository, as
# when pytest is started by a git hook.
_GIT_TRANSFER_VARIABLES = ("GIT_ASKPASS", "GIT_CONFIG", "GIT_PROXY", "GIT_SSH", "GIT_SSL")


class RepositoryUnavailable(Exception):
    """The repository cannot be had; the text is one line: what is wrong, and what to do."""


class _CommandFailed(Exception):
    """A program failed; the text is its last word."""


@dataclass(frozen=True)
class Repository:
    """A prepared repository."""

    source: str
    """``github``, ``sdist`` or ``custom``."""
    commit: str
    tree_hash: str
    """Git's hash of the files: equal trees are equal, wherever they came from."""
    bare: Path
    """Packed, with one branch, ready to be served by dumb HTTP."""
    worktree: Path
    """A clean checkout of the commit, with its ``.git``."""

    def provenance(self) -> dict[str, Any]:
        """Plain data that decides whether two runs may be compared."""
        return {"source": self.source, "commit": self.commit, "tree_hash": self.tree_hash}


@dataclass(frozen=True)
class _Recipe:
    """How one source is turned into a bare repository."""

    source: str
    key: str
    """Its directory in the cache."""
    commit: str
    """What the commit has to be, or to begin with."""
    fill: Callable[[Path], None]
    """Brings the commit into an empty bare repository."""
    failure: str
    remedy: str


def _unheard(text: str) -> None:
    """Nobody listens."""


def prepare_repository(
    source: str = "auto", *, cache: Path | None = None, announce: Callable[[str], None] = _unheard
) -> Repository:
    """The repository from *source*, prepared now, which is announced, or found in the *cache*.

    ``auto`` is GitHub, or the sdist where GitHub cannot be reached; if either has been prepared before, the network
    is not asked again. Others are ``github``, ``sdist``, and the path or URL of a git repository with ``@commit``.
    """
    cache = cache or _default_cache()
    if source == "auto":
        return _prepare_either(_github(), _sdist(), cache, announce)
    if source in ("github", "sdist"):
        return _prepare(_github() if source == "github" else _sdist(), cache, announce)
    return _prepare(_custom(source), cache, announce)


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytest-rtax"


def _prepare_either(preferred: _Recipe, other: _Recipe, cache: Path, announce: Callable[[str], None]) -> Repository:
    for recipe in (preferred, other):
        with _locked(recipe, cache):
            if (cached := _load(recipe, cache)) is not None:
                return cached
    try:
        return _prepare(preferred, cache, announce)
    except RepositoryUnavailable as first:
        try:
            return _prepare(other, cache, announce)
        except RepositoryUnavailable as second:
            raise RepositoryUnavailable(f"{first}; {second}") from None


def _prepare(recipe: _Recipe, cache: Path, announce: Callable[[str], None]) -> Repository:
    with _locked(recipe, cache):
        repository = _load(recipe, cache)
        if repository is None:
            announce(f"preparing the repository from {recipe.source}, once for this machine")
            try:
                _build(recipe, cache)
            except (_CommandFailed, OSError) as error:
                raise RepositoryUnavailable(f"{recipe.failure} ({error}); {recipe.remedy}") from None
            repository = _load(recipe, cache)
        if repository is None:
            raise RepositoryUnavailable(f"{recipe.failure} (it is not what was expected); {recipe.remedy}")
        return repository


@contextlib.contextmanager
def _locked(recipe: _Recipe, cache: Path) -> Iterator[None]:
    """Keep other processes from preparing the same."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / f"{recipe.key}.lock").open("w")
    except OSError as error:
        raise RepositoryUnavailable(
            f"the cache {cache} cannot be written ({error.strerror}); set XDG_CACHE_HOME to a directory that can"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(recipe: _Recipe, cache: Path) -> None:
    """Build beside its place and move it there whole; the caller holds the lock."""
    partial, home = cache / f".{recipe.key}.partial", cache / recipe.key
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        bare, worktree = _places(partial)
        _git("init", "-q", "--bare", "--template=", "--initial-branch=main", str(bare))
        recipe.fill(bare)
        _pack(bare)
        _check_out(bare, worktree)
        shutil.rmtree(home, ignore_errors=True)
        partial.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _places(home: Path) -> tuple[Path, Path]:
    return home / "attrs.git", home / "attrs"


def _pack(bare: Path) -> None:
    _git("--git-dir", str(bare), "repack", "-a", "-d", "-q")
    _git("--git-dir", str(bare), "update-server-info")


def _check_out(bare: Path, worktree: Path) -> None:
    """A clone that does not remember where it came from: it will live on other machines."""
    unlogged = ("-c", "core.logAllRefUpdates=false")
    _git(*unlogged, "clone", "-q", "--no-hardlinks", "--template=", "-b", "main", str(bare), str(worktree))
    _git("--git-dir", str(worktree / ".git"), "remote", "remove", "origin")


def _load(recipe: _Recipe, cache: Path) -> Repository | None:
    """What the cache holds, if it is whole."""
    bare, worktree = _places(cache / recipe.key)
    try:
        for git_dir in (bare, worktree / ".git"):
            _git("--git-dir", str(git_dir), "fsck", "--no-dangling", "--no-progress")
        commit = _resolve(bare, _BRANCH)
        tree_hash = _git("--git-dir", str(bare), "rev-parse", f"{commit}^{{tree}}")
        whole = commit.startswith(recipe.commit) and _is_servable(bare, commit) and _is_clean(worktree, commit)
    except (_CommandFailed, OSError):
        return None
    return Repository(recipe.source, commit, tree_hash, bare, worktree) if whole else None


def _resolve(git_dir: Path, revision: str) -> str:
    return _git("--git-dir", str(git_dir), "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")


def _is_servable(bare: Path, commit: str) -> bool:
    """Whether the lists that a dumb HTTP client asks for say what is there."""
    packs = sorted(pack.name for pack in (bare / "objects/pack").glob("*.pack"))
    listed = (bare / "objects/info/packs").read_text().split()
    return (bare / "info/refs").read_text().split() == [commit, _BRANCH] and sorted(listed[1::2]) == packs


def _is_clean(worktree: Path, commit: str) -> bool:
    git_dir = worktree / ".git"
    place = ("--git-dir", str(git_dir), "--work-tree", str(worktree))
    changes = _git(*place, "status", "--porcelain", "--ignored", "--untracked-files=all")
    return _resolve(git_dir, "HEAD") == commit and not changes


def _github() -> _Recipe:
    def fill(bare: Path) -> None:
        _git("ls-remote", "-q", GITHUB_URL, "HEAD", timeout=_PROBE_SECONDS, transfer=True)
        _fetch(bare, GITHUB_URL, GITHUB_COMMIT)
        _git("--git-dir", str(bare), "update-ref", _BRANCH, GITHUB_COMMIT)

    return _Recipe(
        source="github",
        key=f"github-{GITHUB_COMMIT[:12]}",
        commit=GITHUB_COMMIT,
        fill=fill,
        failure="python-attrs cannot be fetched from GitHub",
        remedy="use the source sdist, or PATH-OR-URL@COMMIT of a clone within reach",
    )


def _custom(source: str) -> _Recipe:
    location, _, commit = source.rpartition("@")
    if not location or not re.fullmatch("[0-9a-f]{4,40}", commit):
        raise RepositoryUnavailable(
            f"no such repository source: {source!r}; use auto, github, sdist or PATH-OR-URL@COMMIT (hexadecimal)"
        )
    if (path := Path(location).expanduser()).exists():
        location = str(path.resolve())

    def fill(bare: Path) -> None:
        # A server need not hand out a commit by its id, least of all by the beginning of it, but branches and tags.
        _fetch(bare, location, "refs/heads/*:refs/fetched/heads/*", "refs/tags/*:refs/fetched/tags/*")
        deletions = _git("--git-dir", str(bare), "for-each-ref", "--format=delete %(refname)", "refs/fetched")
        change = f"{deletions}\nupdate {_BRANCH} {_resolve(bare, commit)}\n"
        _git("--git-dir", str(bare), "update-ref", "--stdin", stdin=change.encode())

    return _Recipe(
        source="custom",
        key=f"custom-{hashlib.sha256(f'{location}@{commit}'.encode()).hexdigest()[:12]}",
        commit=commit,
        fill=fill,
        failure=f"commit {commit} cannot be fetched from {location}",
        remedy="check that `git fetch` can reach the repository and that a branch or tag there contains the commit",
    )


def _fetch(bare: Path, url: str, *wanted: str) -> None:
    stalled = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=30")
    place = ("--git-dir", str(bare))
    options = ("-q", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
    _git(*stalled, *place, "fetch", *options, "--", url, *wanted, timeout=_TRANSFER_SECONDS, transfer=True)


def _sdist() -> _Recipe:
    def fill(bare: Path) -> None:
        with tempfile.TemporaryDirectory() as directory:
            archive = _download_sdist(Path(directory))
            _git("--git-dir", str(bare), "fast-import", "--quiet", stdin=_commit_of(archive))

    return _Recipe(
        source="sdist",
        key=f"sdist-{SDIST_COMMIT[:12]}",
        commit=SDIST_COMMIT,
        fill=fill,
        failure="the sdist of attrs 23.1.0 cannot be prepared",
        remedy="check that pip can download here, or use PATH-OR-URL@COMMIT of a clone within reach",
    )


def _download_sdist(directory: Path) -> Path:
    """Pip does it: it knows the user's index, proxy and credentials."""
    if importlib.util.find_spec("pip") is None:
        raise _CommandFailed(f"{sys.executable} has no pip: `python -m ensurepip` installs it")
    (directory / "requirements.txt").write_text(f"{SDIST_REQUIREMENT}\n")
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--no-binary", "attrs"]
    what = ["--require-hashes", "--requirement", "requirements.txt", "--dest", "sdist"]
    command = [sys.executable, "-m", "pip", "download", *options, *what]
    _run(command, env=dict(os.environ), cwd=directory, timeout=_TRANSFER_SECONDS)
    (archive,) = (directory / "sdist").iterdir()
    return archive


def _commit_of(archive: Path) -> bytes:
    """The archive as a stream for ``git fast-import``: nothing is unpacked, and no umask or configuration has a say."""
    message = b"The sdist of attrs 23.1.0\n"
    stream = [f"commit {_BRANCH}\ncommitter {_COMMITTER}\n".encode(), _data(message)]
    with tarfile.open(archive) as tar:
        for member in sorted(tar.getmembers(), key=lambda member: member.name):
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                mode = "100755" if member.mode & 0o100 else "100644"
                stream += [f"M {mode} inline {_inner_path(member.name)}\n".encode(), _data(content.read())]
            elif not member.isdir():
                raise _CommandFailed(f"{member.name} in the sdist is neither a file nor a directory")
    return b"".join(stream)


def _data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def _inner_path(name: str) -> str:
    """The path below the archive's top directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or {"..", ".git"} & set(path.parts) or '"' in name or "\n" in name or len(path.parts) < 2:
        raise _CommandFailed(f"{name!r} in the sdist is not a path to trust")
    return str(PurePosixPath(*path.parts[1:]))


def _git(*arguments: str, stdin: bytes = b"", timeout: float = _GIT_SECONDS, transfer: bool = False) -> str:
    """Run git, apart from the user's configuration unless it is to *transfer*: then proxies and keys are needed."""
    kept = _GIT_TRANSFER_VARIABLES if transfer else ()
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(kept)}
    env |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
    if not transfer:
        env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return _run(["git", *arguments], env=env, stdin=stdin, timeout=timeout)


def _run(
    command: list[str], *, env: dict[str, str], timeout: float, stdin: bytes = b"", cwd: Path | None = None
) -> str:
    """The program's stdout, or _CommandFailed with its last word; after *timeout* it is killed with its children."""
    try:
        process = subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise _CommandFailed(f"there is no {command[0]} on the PATH: install it") from None
    with process:
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise _CommandFailed(f"{Path(command[0]).name} had no answer within {timeout:g} s") from None
            raise
    if process.returncode != 0:
        raise _CommandFailed(_last_word(err) or f"{Path(command[0]).name} ended with {process.returncode}")
    return out.decode(errors="replace").strip()


def _last_word(stderr: bytes) -> str:
    """The last line that names an error, or else the last line."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error:", "fatal:"))]
    return (errors or lines or [""])[-1]
