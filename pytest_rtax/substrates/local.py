"""`local`: plain processes on the driver's own machine.

It isolates nothing: a command sees the whole machine as the user who runs pytest. It is the floor that every other
substrate is compared with, and the default because it needs nothing. Run only workloads you trust on it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pytest_rtax.substrates.owner import is_alive, read_stat, signature
from pytest_rtax.substrates.protocol import (
    Command,
    CommandTimeout,
    Environment,
    EnvironmentFailed,
    EnvironmentSpec,
    Needs,
    Observation,
    Option,
    Substrate,
    SubstrateUnavailable,
    belongs_to,
)
from pytest_rtax.transports.channel import STDERR, STDOUT, BoundedBuffer, ChannelClosed
from pytest_rtax.transports.commands import COMMAND_COOKIE, command_argv, command_env
from pytest_rtax.transports.pipes import PipeChannel
from pytest_rtax.transports.session import ShellSession, session_argv

ENVIRONMENT_COOKIE = "RTAX_ENVIRONMENT"
_KILL_SECONDS = 5.0


class LocalSubstrate(Substrate):
    """Fresh directories and process groups on this machine."""

    name = "local"
    options: ClassVar = {
        "root": Option(Path, "directory that holds the environments (default: a private one under TMPDIR)"),
    }

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or Path(tempfile.gettempdir()) / f"pytest-rtax-{os.getuid()}"

    def preflight(self, needs: Needs) -> None:
        """Linux, a shell, and the tools and modules that the workloads name."""
        if not Path("/proc/self/environ").exists():
            raise SubstrateUnavailable(
                "local needs Linux's /proc to find the processes of an environment", "run on Linux"
            )
        if self._root.exists() and self._root.stat().st_uid != os.getuid():
            raise SubstrateUnavailable(
                f"{self._root} belongs to another user", "name a directory of your own: --substrate=local:root=DIR"
            )
        for tool in sorted({"sh", *needs.tools}):
            if shutil.which(tool, path=_path()) is None:
                raise SubstrateUnavailable(f"local has no {tool!r} on its PATH", f"install {tool}")
        missing = _missing_modules(needs.modules) if needs.modules else []
        if missing:
            raise SubstrateUnavailable(
                f"local's python3 cannot import {', '.join(missing)}",
                f"install into {Path(sys.executable).parent.parent}: pip install {' '.join(missing)}",
            )

    def prepare(self, spec: EnvironmentSpec) -> None:
        """Copy the repository in: what an image would already hold is not part of a cold start."""
        if spec.repository is not None:
            home = self._claim(spec)
            shutil.copytree(spec.repository, home / "staged", symlinks=True)

    def create(self, spec: EnvironmentSpec) -> Environment:
        """Make the directories."""
        home = self._claim(spec)
        workspace = home / "workspace"
        for directory in (workspace, home / "home", home / "tmp"):
            directory.mkdir()
        if spec.repository is not None:
            (home / "staged").rename(workspace / "attrs")
        return LocalEnvironment(spec, home)

    def _claim(self, spec: EnvironmentSpec) -> Path:
        """The environment's directory, signed by this process so that reap() can tell whether it is still in use."""
        home = self._root / spec.id
        if not home.exists():
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            unsigned = self._root / f".{spec.id}"
            unsigned.mkdir(mode=0o700)
            (unsigned / "owner.json").write_text(json.dumps(signature(spec.run, spec.ttl)))
            unsigned.rename(home)
        return home

    def reap(self, *, run: str | None) -> list[str]:
        """Remove what a dead driver left; with *run*, everything of that run."""
        reaped = []
        for home in sorted(self._root.iterdir()) if self._root.is_dir() else []:
            owner = _owner(home)
            if owner is None or (is_alive(owner) if run is None else not belongs_to(owner.get("run", ""), run)):
                continue
            _kill_all(ENVIRONMENT_COOKIE, str(home))
            _remove(home)
            reaped.append(home.name)
        return reaped

    def provenance(self) -> dict[str, Any]:
        """The shell and the file system the environments live on."""
        shells = {name: shutil.which(name, path=_path()) for name in ("sh", "bash")}
        return {"isolation": "none", "root": str(self._root), "shells": shells, "python": sys.version.split()[0]}


class LocalEnvironment(Environment):
    """One directory and the processes started in it."""

    def __init__(self, spec: EnvironmentSpec, home: Path) -> None:
        self.id = spec.id
        self.subphases = {}
        self._spec = spec
        self._home = home
        self._workspace = home / "workspace"
        # Two environments of the same id may exist below different roots; their processes must not be confused.
        self._mark = f"{spec.id}-{secrets.token_hex(3)}"
        self._sequence = itertools.count(1)
        self._sessions: list[ShellSession] = []
        self._destroyed = False
        self._env = {
            # Not the driver's environment: it may hold secrets, and it differs from machine to machine.
            "PATH": _path(),
            "HOME": str(home / "home"),
            "TMPDIR": str(home / "tmp"),
            "LANG": "C.UTF-8",
            **spec.env,
            ENVIRONMENT_COOKIE: str(home),
        }

    def wait_ready(self, timeout: float) -> None:
        """A directory is ready at once."""

    def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
    ) -> Observation:
        """Start one process and collect its output; see Runner.run."""
        argv = command_argv(command)
        cookie = f"{self._mark}.{next(self._sequence)}"
        started = time.perf_counter_ns()
        try:
            channel = self._spawn(argv, cwd=cwd, env=command_env(env, cookie), stdin=stdin is not None)
        except OSError as error:
            if error.filename is None:  # the driver's own trouble, not the command's: out of descriptors or processes
                raise
            # What a shell would have answered.
            code = 127 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 126
            return Observation(code, b"", f"{error.filename}: {error.strerror}\n".encode())
        try:
            if stdin is not None:
                channel.send(stdin)
                channel.end_input()
            out, err = self._collect(channel, cookie, timeout, argv[0])
            inside = time.perf_counter_ns() - started
            assert channel.returncode is not None
            return Observation(channel.returncode, out.getvalue(), err.getvalue(), inside, out.dropped, err.dropped)
        finally:
            channel.close()

    def _collect(
        self, channel: PipeChannel, cookie: str, timeout: float | None, program: str
    ) -> tuple[BoundedBuffer, BoundedBuffer]:
        buffers = {stream: BoundedBuffer(self._spec.output_limit) for stream in (STDOUT, STDERR)}
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                piece = channel.receive(None if deadline is None else max(0.0, deadline - time.monotonic()))
                if piece is None:
                    _kill_trees([channel.pid])  # first: it may have emptied its environment and lost the cookie
                    _kill_all(COMMAND_COOKIE, cookie)
                    raise CommandTimeout(f"timed out after {timeout:g} s: {program}")
                buffers[piece[0]].append(piece[1])
        except ChannelClosed:
            return buffers[STDOUT], buffers[STDERR]

    def open_session(self) -> ShellSession:
        """Start a shell that reads its commands from a pipe."""
        bash = shutil.which("bash", path=_path()) is not None
        channel = self._spawn(session_argv(bash=bash), cwd=None, env={}, stdin=True)
        session = ShellSession(
            channel,
            id=f"{self._mark}.s{next(self._sequence)}",
            bash=bash,
            kill=lambda cookie: _kill_all(COMMAND_COOKIE, cookie),
            output_limit=self._spec.output_limit,
        )
        self._sessions.append(session)
        return session

    def _spawn(self, argv: list[str], *, cwd: str | None, env: Mapping[str, str], stdin: bool) -> PipeChannel:
        return PipeChannel(argv, cwd=str(self._locate(cwd or "")), env={**self._env, **env}, stdin=stdin)

    def _locate(self, path: str) -> Path:
        if self._destroyed:
            raise EnvironmentFailed(f"environment {self.id} has been destroyed")
        return self._workspace / path

    def read(self, path: str) -> bytes:
        """Read the file where it is."""
        return self._locate(path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        """Write the file where it belongs."""
        target = self._locate(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def destroy(self) -> None:
        """Kill what runs in it and delete its directory."""
        self._destroyed = True
        # First the processes: closing a session waits for the command that it is running.
        _kill_all(ENVIRONMENT_COOKIE, str(self._home))
        for session in self._sessions:
            session.close()
        _remove(self._home)

    def gone(self) -> bool:
        """No directory, no process."""
        return not self._home.exists() and not _processes(ENVIRONMENT_COOKIE, str(self._home))


def _path() -> str:
    """The driver's interpreter first, so that `python3` in an environment is the one that has pytest."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def _missing_modules(modules: frozenset[str]) -> list[str]:
    """Which of them the environments' python3, not necessarily the driver's, cannot find."""
    probe = "import sys, importlib.util as u; print(*(m for m in sys.argv[1:] if u.find_spec(m) is None))"
    python = shutil.which("python3", path=_path()) or "python3"
    answer = subprocess.run(
        [python, "-c", probe, *sorted(modules)], capture_output=True, text=True, timeout=60, check=False
    )
    return answer.stdout.split() if answer.returncode == 0 else sorted(modules)


def _processes(variable: str, value: str) -> list[int]:
    """The processes that inherited ``variable=value``, wherever they have moved in the process tree."""
    wanted = f"\0{variable}={value}\0".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                with open(f"/proc/{entry}/environ", "rb") as environ:
                    if wanted in b"\0" + environ.read():
                        found.append(int(entry))
            except OSError:  # ended meanwhile, or somebody else's
                continue
    return found


def _kill_all(variable: str, value: str) -> None:
    """Kill until none is found: a process that forks while it is being killed does not get away."""
    deadline = time.monotonic() + _KILL_SECONDS
    while pids := _processes(variable, value):
        if time.monotonic() > deadline:
            raise EnvironmentFailed(f"processes {pids} survive SIGKILL; look at their state in /proc")
        _kill_trees(pids)


def _kill_trees(pids: list[int]) -> None:
    for pid in [*pids, *_descendants(pids)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _descendants(pids: list[int]) -> list[int]:
    """What they have started: a child may have been given an empty environment (``env -i``)."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (stat := read_stat(int(entry))) is not None:
            children.setdefault(int(stat[1]), []).append(int(entry))
    found: list[int] = []
    generation = pids
    while generation := [child for pid in generation for child in children.get(pid, [])]:
        found += generation
    return found


def _remove(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    if home.exists():  # a command may have made directories read-only, as package caches are
        for parent, names, _ in os.walk(home):
            for directory in (Path(parent, name) for name in names):
                if not directory.is_symlink():
                    directory.chmod(0o700)
        shutil.rmtree(home, ignore_errors=True)


def _owner(home: Path) -> dict[str, str] | None:
    try:
        owner = json.loads((home / "owner.json").read_text())
    except (OSError, ValueError):
        return None
    return {str(key): str(value) for key, value in owner.items()} if isinstance(owner, dict) else None
