from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_rtax.cli import main
from pytest_rtax.images import build
from pytest_rtax.images.build import DEFAULT_BASE, ImageBuildFailed, build_context, build_image, image_tag
from pytest_rtax.substrates.protocol import Needs
from pytest_rtax.workloads.repository import Repository, prepare_repository
from pytest_rtax.workloads.tiers import WORKLOADS

DOCKERFILE = Path(build.__file__).with_name("Dockerfile")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Not one that git would know, but of the right shape."""
    bare, worktree = tmp_path / "attrs.git", tmp_path / "attrs"
    for path, text in {
        bare / "HEAD": "ref: refs/heads/main\n",
        bare / "objects/pack/pack-1.pack": "PACK",
        worktree / ".git/HEAD": "ref: refs/heads/main\n",
        worktree / "README.md": "attrs",
        worktree / "run.sh": "#!/bin/sh\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (bare / "refs/tags").mkdir(parents=True)
    (worktree / "run.sh").chmod(0o755)
    (worktree / "link").symlink_to("README.md")
    return Repository("custom", "c" * 40, "7" * 40, bare, worktree)


class Engine:
    """Stands in for the SDK's client: has some images, and tells a given story of every build."""

    def __init__(self, *events: dict[str, Any], has: str = "") -> None:
        self.events = events
        self.names = {has}
        self.builds: list[dict[str, Any]] = []

    def images(self, name: str) -> list[str]:
        return [name] if name in self.names else []

    def build(self, **options: Any) -> Iterator[dict[str, Any]]:
        self.builds.append(options)
        yield from self.events

    def tag(self, image: str, repository: str) -> None:
        self.names.add(repository)


def run_build(engine: Engine, repository: Repository, **options: Any) -> tuple[str, list[str]]:
    pytest.importorskip("docker", reason="pip install 'pytest-rtax[docker]'")
    said: list[str] = []
    client: Any = engine
    return build_image(client, base="b", repository=repository, say=said.append, **options), said


# -- the tag ----------------------------------------------------------------------------------------------------------


def test_the_tag_follows_from_what_is_in_the_image(repository: Repository) -> None:
    tag = image_tag("b", repository)
    assert re.fullmatch("rtax-workload:[0-9a-f]{12}", tag)
    elsewhere = replace(repository, source="github", bare=Path("elsewhere"), worktree=Path("elsewhere"))
    assert image_tag("b", elsewhere) == tag


def test_the_tag_changes_with_each_input(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tags = [
        image_tag("b", repository),
        image_tag("c", repository),
        image_tag("b", replace(repository, commit="d" * 40)),
        image_tag("b", replace(repository, tree_hash="8" * 40)),
    ]
    edited = tmp_path / "Dockerfile"
    edited.write_text(DOCKERFILE.read_text() + "\n")
    monkeypatch.setattr(build, "_DOCKERFILE", edited)
    tags.append(image_tag("b", repository))
    assert len(set(tags)) == 5


# -- the context ------------------------------------------------------------------------------------------------------


def test_the_context_is_complete(repository: Repository) -> None:
    with tarfile.open(fileobj=io.BytesIO(build_context(repository))) as tar:
        members = {member.name: member for member in tar}
        readme = tar.extractfile("attrs/README.md")
        assert readme is not None
        assert readme.read() == b"attrs"
    assert {"Dockerfile", "attrs/.git/HEAD", "attrs.git/objects/pack/pack-1.pack", "attrs.git/refs/tags"} < set(members)
    assert members["attrs/link"].linkname == "README.md"
    assert (members["attrs/README.md"].mode, members["attrs/run.sh"].mode) == (0o644, 0o755)
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members.values()} == {
        (0, 0, "", build._MTIME)
    }


def test_the_context_is_the_same_bytes_for_the_same_files(repository: Repository) -> None:
    before = build_context(repository)
    for path in [repository.worktree, *repository.worktree.rglob("*")]:
        os.utime(path, (5, 5), follow_symlinks=False)
    (repository.worktree / "README.md").chmod(0o600)
    (repository.bare / "HEAD").chmod(0o444)
    assert build_context(repository) == before


def test_the_context_of_the_real_repository() -> None:
    repository = prepare_repository("sdist")
    with tarfile.open(fileobj=io.BytesIO(build_context(repository))) as tar:
        names = set(tar.getnames())
    assert {"attrs/src/attr/_funcs.py", "attrs/.git/index", "attrs.git/info/refs", "attrs.git/HEAD"} < names


# -- the Dockerfile ---------------------------------------------------------------------------------------------------


def test_the_dockerfile_starts_from_the_default_base() -> None:
    instructions = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    assert instructions[:2] == [f"ARG BASE={DEFAULT_BASE}", "FROM ${BASE}"]


def test_the_dockerfile_checks_for_everything_the_workloads_need() -> None:
    needs = Needs()
    for workload in WORKLOADS.values():
        needs |= workload.needs
    (tools,) = re.findall(r"for tool in (.+); do", DOCKERFILE.read_text())
    assert needs.tools | {"bash"} == set(tools.split())
    assert f"import {', '.join(sorted(needs.modules))}'; " in DOCKERFILE.read_text()


def test_the_dockerfile_ends_as_an_ordinary_user() -> None:
    lines = DOCKERFILE.read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")][-1] == "USER rtax"
    assert "WORKDIR /workspace" in lines
    assert "ENTRYPOINT []" in lines


def test_every_build_argument_is_declared(repository: Repository) -> None:
    declared = set(re.findall(r"^ARG (\w+)", DOCKERFILE.read_text(), re.MULTILINE))
    assert set(build._build_arguments("b", repository)) == declared


# -- a build, as the engine tells it ----------------------------------------------------------------------------------


def test_a_build_says_its_steps_and_nothing_else(repository: Repository) -> None:
    engine = Engine(
        {"stream": "Step 1/2 : FROM b\n"},
        {"status": "Pulling"},
        {"stream": " ---> 0123\n"},
        {"stream": "Step 2/2 : RUN x\n"},
        {"aux": {"ID": "sha256:0"}},
    )
    tag, said = run_build(engine, repository, name="mine:1")
    assert said == ["Step 1/2 : FROM b", "Step 2/2 : RUN x"]
    assert {"rtax-workload:latest", "mine:1"} < engine.names
    (options,) = engine.builds
    assert (options["tag"], options["buildargs"]["BASE"], options["network_mode"]) == (tag, "b", "host")


def test_what_exists_is_not_built_again(repository: Repository) -> None:
    engine = Engine(has=image_tag("b", repository))
    tag, said = run_build(engine, repository)
    assert engine.builds == []
    assert said == [f"{tag} exists already; --force builds it again"]


def test_unless_it_is_forced(repository: Repository) -> None:
    engine = Engine(has=image_tag("b", repository))
    run_build(engine, repository, force=True)
    assert [options["nocache"] for options in engine.builds] == [True]


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (
            [
                {"stream": "Step 2/9 : RUN apt-get install git\n"},
                {"stream": "\x1b[91m/bin/sh: 1: apt-get: not found\n\x1b[0m"},
                {"error": "The command '/bin/sh -c apt-get install git' returned a non-zero code: 127"},
            ],
            "Step 2/9 : RUN apt-get install git: /bin/sh: 1: apt-get: not found",
        ),
        (
            [{"stream": "Step 1/9 : FROM b"}, {"error": "pull access denied\nfor b"}],
            "Step 1/9 : FROM b: pull access denied for b",
        ),
        ([{"message": "invalid reference format"}], "before the first step: invalid reference format"),
    ],
)
def test_a_failed_build_names_the_step_and_the_reason(
    events: list[dict[str, Any]], reason: str, repository: Repository
) -> None:
    engine = Engine(*events)
    with pytest.raises(ImageBuildFailed) as caught:
        run_build(engine, repository)
    assert str(caught.value) == f"the image cannot be built on b: {reason}"
    assert "rtax-workload:latest" not in engine.names


def test_a_bad_name_is_refused_before_the_build(repository: Repository) -> None:
    engine = Engine()
    with pytest.raises(ValueError, match="not a name for an image: 'No Such'"):
        run_build(engine, repository, name="No Such")
    assert engine.builds == []


@pytest.mark.parametrize("name", ["a", "a:1", "a/b:latest", "localhost:5000/a-b/c__d:v1.2", "registry.example/x"])
def test_good_names(name: str) -> None:
    assert build._IMAGE_NAME.fullmatch(name)


# -- rtax image -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "argv"), [("unix:///nonexistent", []), ("", ["--host", "unix:///nonexistent"])])
def test_no_engine(host: str, argv: list[str]) -> None:
    """In a process of its own: the SDK leaves the socket of a refused connection to the garbage collector."""
    pytest.importorskip("docker", reason="pip install 'pytest-rtax[docker]'")
    command = [sys.executable, "-c", "import sys; from pytest_rtax.cli import main; sys.exit(main())"]
    result = subprocess.run(
        [*command, "image", "build", *argv], env=os.environ | {"DOCKER_HOST": host}, capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (4, "")
    assert result.stderr == (
        "rtax: error: no Docker engine answers at unix:///nonexistent (No such file or directory); "
        "start one, or point to one with --host or DOCKER_HOST\n"
    )


def test_no_library(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    assert main(["image", "build"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rtax: error: the docker library cannot be imported (")
    assert line.endswith("); pip install 'pytest-rtax[docker]'")


def test_a_bad_repository(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["image", "tag", "--repository=nonsense"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rtax: error: no such repository source: 'nonsense'; use ")


def test_the_tag_is_printed_for_the_base_in_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = prepare_repository("sdist")
    monkeypatch.delenv("RTAX_TESTBED_BASE_IMAGE", raising=False)
    assert main(["image", "tag", "--repository=sdist"]) == 0
    monkeypatch.setenv("RTAX_TESTBED_BASE_IMAGE", "testbed:1")
    assert main(["image", "tag", "--repository=sdist"]) == 0
    assert main(["image", "tag", "--repository=sdist", "--base=mine:1"]) == 0
    bases = (DEFAULT_BASE, "testbed:1", "mine:1")
    assert capsys.readouterr().out.split() == [image_tag(base, repository) for base in bases]
