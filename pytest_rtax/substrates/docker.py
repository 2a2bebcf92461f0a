"""`docker`: one container per environment, on any engine that speaks Docker's API.

The control plane is used through the docker SDK. A command's streams are not: the SDK reads them from below a buffer
that may already hold the first bytes, so the connection is opened and upgraded here, which is also a round trip less.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import urlsplit

import docker
import docker.errors
import requests
from docker.utils import kwargs_from_env, parse_bytes

from pytest_rtax.substrates.owner import is_alive, signature
from pytest_rtax.substrates.protocol import (
    Command,
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
from pytest_rtax.transports.commands import COMMAND_COOKIE
from pytest_rtax.transports.exec import KILL_SCRIPT, run_once
from pytest_rtax.transports.session import ShellSession, session_argv
from pytest_rtax.transports.sockets import MultiplexedChannel
from pytest_rtax.untrusted import one_line, redact

DEFAULT_IMAGE = "rtax-workload:latest"
_LABEL = "rtax"
_WORKSPACE = "/workspace"
_PRELOADED = "/opt/rtax/preloaded"
_CONNECT_SECONDS = 60
_PROBE = """\
command -v bash
for t; do command -v "$t" >/dev/null || echo "missing $t"; done
for m in $MODULES; do python3 -c "import $m" 2>/dev/null || echo "no module $m"; done
cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null | sed 's/^/memory /'
cat /sys/fs/cgroup/cpu.max 2>/dev/null | sed 's/^/cpu /'
while read -r _ to gateway _; do [ "$to" != 00000000 ] || echo "gateway $gateway"; done </proc/net/route
"""


def _parse_memory(text: str) -> int:
    try:
        return int(parse_bytes(text))
    except docker.errors.DockerException:
        raise ValueError(f"{text!r} is not an amount of memory: write 512m or 2g") from None


def _parse_cpus(text: str) -> float:
    cpus = float(text)
    if cpus <= 0:
        raise ValueError(f"{text!r} leaves no processor")
    return cpus


class DockerSubstrate(Substrate):
    """Containers."""

    name = "docker"
    image_mirror = "/opt/rtax/attrs.git"
    options: ClassVar = {
        "image": Option(str, f"image of the environments (default: {DEFAULT_IMAGE}, made by `rtax image build`)"),
        "cpus": Option(_parse_cpus, "processors each may use, such as 1 or 0.5 (default: no limit)"),
        "memory": Option(_parse_memory, "memory each may use, such as 512m (default: no limit)"),
        "pids": Option(int, "processes each may have (default: 1024)"),
        "runtime": Option(str, "runtime of the engine, such as runsc (default: the engine's)"),
        "network": Option(str, "network, such as none (default: bridge)"),
        "user": Option(str, "user that commands run as (default: the image's)"),
        "host": Option(str, "the engine, such as tcp://host:2376 (default: DOCKER_HOST, or the local socket)"),
        "context": Option(str, "docker context that names the engine"),
    }

    def __init__(
        self,
        image: str = DEFAULT_IMAGE,
        cpus: float | None = None,
        memory: int | None = None,
        pids: int = 1024,
        runtime: str | None = None,
        network: str = "bridge",
        user: str = "",
        host: str | None = None,
        context: str | None = None,
    ) -> None:
        self._image = image
        self._limits = {"cpus": cpus, "memory": memory, "pids": pids}
        self._runtime = runtime
        self._network = network
        self._user = user
        self._engine = _Engine(host, context)
        self._bash = False
        self._seen: dict[str, Any] = {}
        self.isolates = frozenset({"filesystem", "processes", *(() if network == "host" else ("network",))})

    def preflight(self, needs: Needs) -> None:
        """The engine answers, the image is there and holds what is needed: seen in a container made to look."""
        version = self._engine.version()
        with self._engine.translated():
            image = self._engine.api.inspect_image(self._image)
        self._seen = {
            "engine": version["Version"],
            "api": version["ApiVersion"],
            "image_id": image["Id"],
            "image_size": image["Size"],
        }
        self._probe(needs)

    def _probe(self, needs: Needs) -> None:
        """Look inside one container: which shell it has, what it lacks, and what its limits really are."""
        spec = EnvironmentSpec(run="probe", id=f"rtax-probe-{time.time_ns():x}", ttl=60.0)
        try:
            environment = self.create(spec)
        except EnvironmentFailed as error:
            raise SubstrateUnavailable(str(error), "change the options of the substrate") from None
        try:
            look = ["sh", "-c", _PROBE, "sh", *sorted(needs.tools)]
            seen = environment.run(look, env={"MODULES": " ".join(sorted(needs.modules))}, timeout=60)
        except EnvironmentFailed as error:
            raise SubstrateUnavailable(
                f"no command can be run in {self._image}: {error}", "use an image that has at least `sh`"
            ) from None
        finally:
            environment.destroy()
        lines = seen.stdout.decode(errors="replace").splitlines()
        self._bash = any(line.endswith("/bash") for line in lines)
        lacking = [line.split()[-1] for line in lines if line.startswith(("missing ", "no module "))]
        if lacking:
            raise SubstrateUnavailable(
                f"{self._image} lacks {', '.join(lacking)}", "build an image that has them: rtax image build"
            )
        gateways = [line.split()[1] for line in lines if line.startswith("gateway ")]
        if gateways:  # the kernel shows it as the hexadecimal digits of a number in its own byte order
            self.driver_host = socket.inet_ntoa(int(gateways[0], 16).to_bytes(4, sys.byteorder))
        self._seen["limits_observed"] = [line for line in lines if line.startswith(("memory ", "cpu "))]

    def create(self, spec: EnvironmentSpec) -> Environment:
        """Create a container and start it: two requests, each a sub-phase."""
        api = self._engine.api
        began = time.perf_counter_ns()
        with self._engine.translated():
            container = api.create_container_from_config(self._config(spec), spec.id)["Id"]
            created = time.perf_counter_ns()
            try:
                api.start(container)
            except BaseException:
                with contextlib.suppress(docker.errors.APIError):
                    api.remove_container(container, force=True, v=True)
                raise
        environment = DockerEnvironment(spec, container, self._engine, bash=self._bash)
        environment.subphases["create.create"] = created - began
        environment.subphases["create.start"] = time.perf_counter_ns() - created
        return environment

    def _config(self, spec: EnvironmentSpec) -> dict[str, Any]:
        owner = signature(spec.run, spec.ttl)
        host = self._engine.api.create_host_config(
            # The engine removes the container when its only process ends: a lost driver leaks it no longer than that.
            auto_remove=True,
            init=True,
            network_mode=self._network,
            runtime=self._runtime,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=self._limits["pids"],
            nano_cpus=None if self._limits["cpus"] is None else round(self._limits["cpus"] * 1e9),
            mem_limit=self._limits["memory"],
        )
        return dict(
            self._engine.api.create_container_config(
                image=self._image,
                command=["sleep", str(round(spec.ttl))],
                user=self._user or None,
                environment=dict(spec.env),
                working_dir=_WORKSPACE if spec.repository is None else _PRELOADED,
                labels={_LABEL: "1", f"{_LABEL}.id": spec.id, **{f"{_LABEL}.{k}": v for k, v in owner.items()}},
                host_config=host,
            )
        )

    def reap(self, *, run: str | None) -> list[str]:
        """Containers with our label whose driver is dead, or that belong to the run."""
        reaped = []
        with self._engine.translated():
            for container in self._engine.api.containers(all=True, filters={"label": f"{_LABEL}=1"}):
                owner = {key.removeprefix(f"{_LABEL}."): value for key, value in container["Labels"].items()}
                if is_alive(owner) if run is None else not belongs_to(owner.get("run", ""), run):
                    continue
                with contextlib.suppress(docker.errors.NotFound):
                    self._engine.api.remove_container(container["Id"], force=True, v=True)
                reaped.append(owner.get("id", container["Id"][:12]))
        return sorted(reaped)

    def provenance(self) -> dict[str, Any]:
        """Engine, image, limits asked for and limits seen inside."""
        with self._engine.translated():
            info = self._engine.api.info()
        return {
            **self._seen,
            "image": self._image,
            "runtime": self._runtime or info.get("DefaultRuntime"),
            "storage_driver": info.get("Driver"),
            "cgroup": f"{info.get('CgroupDriver')} v{info.get('CgroupVersion')}",
            "kernel": info.get("KernelVersion"),
            "network": self._network,
            "user": self._user,
            "limits": self._limits,
        }


class DockerEnvironment(Environment):
    """One container."""

    def __init__(self, spec: EnvironmentSpec, container: str, engine: _Engine, *, bash: bool) -> None:
        self.id = spec.id
        self.subphases = {}
        self._spec = spec
        self._container = container
        self._engine = engine
        self._bash = bash
        self._sequence = itertools.count(1)
        self._destroyed = False

    def wait_ready(self, timeout: float) -> None:
        """A container that has been started takes commands."""

    def run(
        self,
        command: Command,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
    ) -> Observation:
        """One exec of the engine's; see Runner.run."""
        return run_once(
            self._open,
            command,
            bash=self._bash,
            cookie=f"{self.id}.{next(self._sequence)}",
            kill=self._kill,
            output_limit=self._spec.output_limit,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
        )

    def open_session(self) -> ShellSession:
        """One exec that stays."""
        return ShellSession(
            self._open(session_argv(bash=self._bash), {}),
            id=f"{self.id}.s{next(self._sequence)}",
            bash=self._bash,
            kill=self._kill,
            output_limit=self._spec.output_limit,
        )

    def _open(self, argv: list[str], env: Mapping[str, str]) -> MultiplexedChannel:
        if self._destroyed:
            raise EnvironmentFailed(f"environment {self.id} has been destroyed")
        return self._engine.execute(self._container, argv, env)

    def _kill(self, cookie: str) -> None:
        self._engine.execute(self._container, ["sh", "-c", KILL_SCRIPT, "sh", f"{COMMAND_COOKIE}={cookie}"], {}).close()

    def read(self, path: str) -> bytes:
        """Through an exec: no archive to pack and unpack."""
        seen = run_once(
            self._open, ["cat", "--", path], bash=False, cookie=self.id, kill=self._kill, output_limit=2**31
        )
        if seen.exit_code != 0:
            raise FileNotFoundError(one_line(seen.stderr) or path)
        return seen.stdout

    def write(self, path: str, data: bytes) -> None:
        """Through an exec, with the file as its input."""
        script = 'mkdir -p -- "$(dirname -- "$1")" && cat >"$1"'
        named = path if path.startswith("/") else f"./{path}"
        seen = self.run(["sh", "-c", script, "sh", named], stdin=data)
        if seen.exit_code != 0:
            raise EnvironmentFailed(f"cannot write {path}: {one_line(seen.stderr)}")

    def destroy(self) -> None:
        """Kill and remove the container."""
        self._destroyed = True
        with self._engine.translated(), contextlib.suppress(docker.errors.NotFound):
            try:
                self._engine.api.remove_container(self._container, force=True, v=True)
            except docker.errors.APIError as error:
                if error.status_code != HTTPStatus.CONFLICT:  # being removed already
                    raise

    def gone(self) -> bool:
        """Whether the engine has forgotten it."""
        try:
            with self._engine.translated():
                self._engine.api.inspect_container(self._container)
        except docker.errors.NotFound:
            return True
        return False


class _Engine:
    """A Docker engine: the SDK's client for requests, and connections of our own for streams."""

    def __init__(self, host: str | None, context: str | None) -> None:
        self._host = host
        self._context = context
        self._api: Any = None

    @property
    def api(self) -> Any:
        """The SDK's low-level client, made when it is first needed."""
        if self._api is None:
            self._arguments_used = self._arguments()
            if not self._address().startswith("ssh://"):
                try:
                    self._connect().close()  # the SDK would leave a socket behind if nobody answered
                except OSError as error:
                    raise self._unreachable(error.strerror or str(error)) from None
            with self.translated():
                self._api = docker.APIClient(
                    version="auto", timeout=_CONNECT_SECONDS, max_pool_size=64, **self._arguments_used
                )
        return self._api

    def _address(self) -> str:
        return str(self._arguments_used.get("base_url") or "unix:///var/run/docker.sock")

    def _unreachable(self, why: str) -> SubstrateUnavailable:
        return SubstrateUnavailable(
            f"no Docker engine answers at {redact(self._address())} ({one_line(why, 120)})",
            "start one, or set DOCKER_HOST to one that you may use",
        )

    def _arguments(self) -> dict[str, Any]:
        if self._context is not None:
            context = docker.ContextAPI.get_context(self._context)
            if context is None:
                raise SubstrateUnavailable(f"there is no docker context {self._context!r}", "docker context ls")
            return {"base_url": context.Host, "tls": context.TLSConfig or False}  # type: ignore[truthy-bool]
        arguments = dict(kwargs_from_env())
        if self._host is not None:
            arguments["base_url"] = self._host
        if str(arguments.get("base_url", "")).startswith("ssh://"):
            arguments["use_ssh_client"] = True
        return arguments

    def version(self) -> dict[str, Any]:
        """What the engine says of itself."""
        with self.translated():
            return dict(self.api.version())

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Errors of the SDK as ours, each one line that says what to do."""
        try:
            yield
        except docker.errors.ImageNotFound as error:
            raise SubstrateUnavailable(
                f"the image is not there: {one_line(error.explanation or '')}",
                "make it with `rtax image build`, or `docker pull` your own",
            ) from None
        except docker.errors.NotFound:
            raise
        except docker.errors.APIError as error:
            raise EnvironmentFailed(f"the engine refused: {one_line(error.explanation or str(error))}") from None
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            raise self._unreachable(str(error)) from None

    def execute(self, container: str, argv: list[str], env: Mapping[str, str]) -> MultiplexedChannel:
        """Start a program in a container, attached to a channel: one request to create it, one that becomes it."""
        try:
            with self.translated():
                made = self.api.exec_create(container, argv, stdin=True, environment=dict(env))
        except docker.errors.NotFound:
            raise EnvironmentFailed("the container is gone: it was removed, or its main process was killed") from None
        path = f"/v{self.api.api_version}/exec/{made['Id']}/start"
        body = json.dumps({"Detach": False, "Tty": False}).encode()
        connection = self._connect()
        try:
            request = (
                f"POST {path} HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
            )
            connection.sendall(request.encode() + body)
            return MultiplexedChannel(connection, _upgraded(connection))
        except BaseException:
            connection.close()
            raise

    def _connect(self) -> socket.socket:
        """A connection of our own to wherever the SDK's client is connected to."""
        url = urlsplit(self._address())
        if url.scheme in ("unix", "http+unix", ""):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(_CONNECT_SECONDS)
            try:
                connection.connect(url.path or url.netloc)
            except BaseException:
                connection.close()
                raise
            return connection
        if url.scheme not in ("tcp", "http", "https"):
            raise EnvironmentFailed(f"commands cannot be carried over {url.scheme}://; use unix:// or tcp://")
        connection = socket.create_connection((url.hostname or "localhost", url.port or 2375), _CONNECT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = self._arguments_used.get("tls")
        return _wrap(connection, tls, url.hostname or "localhost") if tls else connection


def _wrap(connection: socket.socket, tls: Any, host: str) -> ssl.SSLSocket:
    """The same certificates as the SDK's client uses."""
    context = ssl.create_default_context(cafile=tls.ca_cert or None)
    if tls.cert:
        context.load_cert_chain(*tls.cert)
    if tls.verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connection, server_hostname=host)


def _upgraded(connection: socket.socket) -> bytes:
    """Read the engine's answer; returns what has arrived of the stream behind it."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = connection.recv(65536)
        if not data:
            raise EnvironmentFailed("the engine closed the connection instead of starting the command")
        answer += data
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1]
    if status not in (b"101", b"200"):
        raise EnvironmentFailed(f"the engine refused to start the command: {one_line(rest or head)}")
    return rest
