"""The workload image, built and used on a real engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rtax.cli import main
from pytest_rtax.images.build import ImageBuildFailed, build_image, connect, default_base, image_tag
from pytest_rtax.workloads.repository import Repository, prepare_repository

if TYPE_CHECKING:
    from docker import APIClient

pytestmark = pytest.mark.skipif(
    "DOCKER_HOST" not in os.environ,
    reason='DOCKER_HOST is not set: tests/testbed/up docker && eval "$(tests/testbed/env)"',
)


@pytest.fixture(scope="module")
def client() -> Iterator[APIClient]:
    with connect() as client:
        yield client


@pytest.fixture(scope="module")
def repository() -> Repository:
    return prepare_repository()


@pytest.fixture(scope="module")
def image(client: APIClient, repository: Repository) -> str:
    return build_image(client, base=default_base(), repository=repository, say=print)


def run(client: APIClient, image: str, script: str, **options: Any) -> str:
    """What the script prints in a container of the image; it has to succeed."""
    container = client.create_container(image, ["sh", "-ec", script], **options)["Id"]
    try:
        client.start(container)
        code = client.wait(container, timeout=120)["StatusCode"]
        output = str(client.logs(container).decode())
    finally:
        client.remove_container(container, force=True)
    assert code == 0, output
    return output.strip()


def inspect(client: APIClient, image: str) -> dict[str, Any]:
    look: Any = client.inspect_image
    return dict(look(image))


def test_its_user_and_workspace(client: APIClient, image: str) -> None:
    assert run(client, image, "id -un; id -u; pwd; ls -A; touch x; echo $HOME").split() == [
        "rtax",
        "1000",
        "/workspace",
        "/home/rtax",
    ]


def test_the_preloaded_repository_is_clean_and_the_users(client: APIClient, image: str, repository: Repository) -> None:
    script = "cd /opt/rtax/preloaded/attrs; git status --porcelain --ignored; git rev-parse HEAD; touch README.md"
    assert run(client, image, script) == repository.commit


@pytest.mark.parametrize("user", ["rtax", "root", "4242"])
@pytest.mark.parametrize("url", ["/opt/rtax/attrs.git", "file:///opt/rtax/attrs.git", "/opt/rtax/preloaded/attrs"])
def test_any_user_may_clone_the_mirror(
    client: APIClient, image: str, repository: Repository, user: str, url: str
) -> None:
    script = f"cd $(mktemp -d); git clone -q {url} checkout; git -C checkout rev-parse HEAD 'HEAD^{{tree}}'"
    assert run(client, image, script, user=user).split() == [repository.commit, repository.tree_hash]


def test_a_clone_into_the_workspace(client: APIClient, image: str) -> None:
    script = (
        "git clone -q /opt/rtax/attrs.git checkout; git -C checkout status --porcelain; git -C /opt/rtax/attrs.git fsck"
    )
    assert run(client, image, script) == ""


def test_anybody_may_inspect_the_preloaded_repository(client: APIClient, image: str) -> None:
    script = "git -C /opt/rtax/preloaded/attrs status --porcelain; git -C /opt/rtax/preloaded/attrs log -n 1 --oneline"
    assert len(run(client, image, script, user="4242").splitlines()) == 1


def test_the_modules_work_for_the_user(client: APIClient, image: str) -> None:
    output = run(client, image, "python3 -m pytest --version; python3 -c 'import hypothesis'")
    assert output.startswith("pytest ")


def test_its_labels_and_no_entry_point(client: APIClient, image: str, repository: Repository) -> None:
    config = inspect(client, image)["Config"]
    assert not config["Entrypoint"]
    assert config["User"] == "rtax"
    expected = {f"rtax.repository.{key}": value for key, value in repository.provenance().items()}
    assert config["Labels"].items() >= {**expected, "rtax.image": "1"}.items()


def test_building_it_again_does_nothing(
    client: APIClient, image: str, repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    before = inspect(client, image)["Id"]
    assert main(["image", "build"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (f"{image}\n", f"{image} exists already; --force builds it again\n")
    assert image == image_tag(default_base(), repository)
    assert before == inspect(client, image)["Id"] == inspect(client, "rtax-workload:latest")["Id"]


def test_a_base_that_is_not_there(client: APIClient, repository: Repository) -> None:
    with pytest.raises(
        ImageBuildFailed, match=r"^the image cannot be built on localhost/rtax\S+: Step \d+/\d+ : FROM \S+: \S"
    ) as caught:
        build_image(client, base="localhost/rtax-no-such-image:1", repository=repository, say=print)
    assert "\n" not in str(caught.value)
