"""The workload image: built from the package's Dockerfile, a base image and the prepared repository."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rtax.substrates.protocol import SubstrateError, SubstrateUnavailable
from pytest_rtax.untrusted import one_line, redact
from pytest_rtax.workloads.repository import Repository

if TYPE_CHECKING:
    from docker import APIClient

NAME = "rtax-workload"
"""The image's name, without its tag."""
DEFAULT_BASE = "python:3.12-slim-bookworm"
"""What the Dockerfile starts from unless told otherwise."""

_DOCKERFILE = Path(__file__).with_name("Dockerfile")
_DEFAULT_HOST = "unix:///var/run/docker.sock"
_MTIME = 1_000_000_000
_STEP = re.compile(r"step \d+/\d+ ?: ", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_IMAGE_NAME = re.compile(r"([\w.-]+(:\d+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:\w[\w.-]{0,127})?", re.ASCII)


class ImageBuildFailed(SubstrateError):
    """The image could not be built; the text is one line: the step, and what went wrong in it."""


def image_tag(base: str, repository: Repository) -> str:
    """The name and tag of the image that these inputs make: the same everywhere, another if one of them changes."""
    inputs = [_DOCKERFILE.read_text(encoding="utf-8"), base, repository.commit, repository.tree_hash]
    return f"{NAME}:{hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:12]}"


def default_base() -> str:
    """The testbed's base image where a testbed is in use, else the Dockerfile's."""
    return os.environ.get("RTAX_TESTBED_BASE_IMAGE") or DEFAULT_BASE


@contextlib.contextmanager
def connect(host: str | None = None) -> Iterator[APIClient]:
    """A connection to the Docker engine at *host*, or where the environment says; closed at the end.

    Raises SubstrateUnavailable if there is no engine, or no library to talk to it.
    """
    try:
        from docker import APIClient
        from docker.errors import DockerException
        from docker.utils import kwargs_from_env
    except ImportError as error:
        raise SubstrateUnavailable(
            f"the docker library cannot be imported ({one_line(str(error))})", "pip install 'pytest-rtax[docker]'"
        ) from None
    where = host or os.environ.get("DOCKER_HOST") or _DEFAULT_HOST
    try:
        settings = kwargs_from_env() | {"base_url": where}
        client = APIClient(version="auto", use_ssh_client=True, **settings)
    except (DockerException, OSError, ValueError) as error:
        raise SubstrateUnavailable(
            f"no Docker engine answers at {one_line(redact(where))} ({_cause(error)})",
            "start one, or point to one with --host or DOCKER_HOST",
        ) from None
    with contextlib.closing(client):
        yield client


def _cause(error: BaseException) -> str:
    """The system's own word for a failed connection, from beneath what the libraries have wrapped around it."""
    text, inner = str(error), error.__cause__ or error.__context__
    while inner is not None:
        text = getattr(inner, "strerror", None) or text
        inner = inner.__cause__ or inner.__context__
    return one_line(redact(text), 200)


def build_image(
    client: APIClient,
    *,
    base: str,
    repository: Repository,
    say: Callable[[str], None],
    name: str | None = None,
    force: bool = False,
) -> str:
    """Build the image, unless the engine has it already and nobody uses *force*; returns its deterministic tag.

    It is also tagged ``latest``, and *name* if that is given. *say* is told of each step.
    """
    if name is not None and _IMAGE_NAME.fullmatch(name) is None:
        raise ValueError(f"not a name for an image: {one_line(name)!r}; use NAME or NAME:TAG in lower case")
    tag = image_tag(base, repository)
    if not force and client.images(name=tag):
        say(f"{tag} exists already; --force builds it again")
    else:
        _build(client, tag, base, repository, say, force)
    for further in (f"{NAME}:latest", name):
        if further is not None:
            client.tag(tag, further)
    return tag


def _build(
    client: APIClient, tag: str, base: str, repository: Repository, say: Callable[[str], None], force: bool
) -> None:
    from docker.errors import DockerException
    from urllib3.exceptions import HTTPError

    try:
        events = client.build(
            fileobj=io.BytesIO(build_context(repository)),
            custom_context=True,
            tag=tag,
            buildargs=_build_arguments(base, repository),
            use_config_proxy=True,
            network_mode="host",
            nocache=force,
            forcerm=True,
            rm=True,
            decode=True,
        )
        _follow(events, base, say)
    except (DockerException, HTTPError, http.client.HTTPException, OSError) as error:
        raise ImageBuildFailed(f"the image cannot be built: {_cause(error)}") from None


def _build_arguments(base: str, repository: Repository) -> dict[str, str]:
    return {
        "BASE": base,
        "SOURCE": repository.source,
        "COMMIT": repository.commit,
        "TREE_HASH": repository.tree_hash,
    }


def _follow(events: Iterable[Mapping[str, Any]], base: str, say: Callable[[str], None]) -> None:
    """Read what the engine tells of a build, to its end, so that the connection is free again; raise if it failed."""
    step, last, failure = "before the first step", "", None
    for event in events:
        if error := event.get("error") or event.get("message"):
            failure = last if last and "non-zero code" in error else error
        for line in _COLOUR.sub("", event.get("stream") or "").splitlines():
            if _STEP.match(line):
                step, last = one_line(line, 100), ""
                say(step)
            else:
                last = line.strip() or last
    if failure is not None:
        raise ImageBuildFailed(f"the image cannot be built on {one_line(base)}: {step}: {one_line(redact(failure))}")


def build_context(repository: Repository) -> bytes:
    """What is sent to the engine: a tar in which the same files are the same bytes, whoever owns them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        _add(tar, _DOCKERFILE, "Dockerfile")
        for root, name in ((repository.bare, "attrs.git"), (repository.worktree, "attrs")):
            _add(tar, root, name)
            for path in sorted(root.rglob("*")):
                _add(tar, path, f"{name}/{path.relative_to(root).as_posix()}")
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.mtime = _MTIME
    member.mode = 0o755
    if path.is_symlink():
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
        tar.addfile(member)
    elif path.is_dir():
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    else:
        content = path.read_bytes()
        member.size = len(content)
        if not path.stat().st_mode & 0o100:
            member.mode = 0o644
        tar.addfile(member, io.BytesIO(content))
