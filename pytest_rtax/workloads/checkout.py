"""Where the environments of a run get the repository from, and that they all get it the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_rtax.substrates.protocol import Substrate
from pytest_rtax.workloads.mirror import Mirror
from pytest_rtax.workloads.repository import GITHUB_URL, Repository, RepositoryUnavailable, prepare_repository


@dataclass
class Checkout:
    """The repository of a run. Prepared on first use; nothing is served before an environment needs it."""

    source: str = "auto"
    clone_from: str = "mirror"
    exceptions: Mapping[str, str] = field(default_factory=dict)
    """Substrates, by label, that clone from somewhere else."""
    announce: Callable[[str], None] = lambda _: None
    """Told of what takes long."""

    def __post_init__(self) -> None:
        self._repository: Repository | None = None
        self._mirrors: dict[str, Mirror] = {}

    def repository(self) -> Repository:
        """The prepared repository; the first call may take a download."""
        if self._repository is None:
            self._repository = prepare_repository(self.source, announce=self.announce)
            if self._repository.source != "github" and "public" in (self.clone_from, *self.exceptions.values()):
                raise RepositoryUnavailable(
                    f"the {self._repository.source} repository has no public URL; clone from mirror or image instead"
                )
        return self._repository

    def worktree(self) -> Path:
        """A clean working tree to preload."""
        return self.repository().worktree

    def mode(self, label: str) -> str:
        """How the environments of a substrate clone."""
        return self.exceptions.get(label, self.clone_from)

    def variables(self, label: str, substrate: Substrate) -> dict[str, str]:
        """What the setup commands of an environment find in their variables."""
        return {"RTAX_CLONE_URL": self._url(label, substrate), "RTAX_COMMIT": self.repository().commit}

    def _url(self, label: str, substrate: Substrate) -> str:
        mode = self.mode(label)
        if mode == "public":
            return GITHUB_URL
        if mode == "image":
            return f"file://{substrate.image_mirror or self.repository().bare}"
        host = substrate.driver_host
        if host not in self._mirrors:
            mirror = Mirror(self.repository().bare.parent, host)
            mirror.start()
            self._mirrors[host] = mirror
        return self._mirrors[host].url

    def close(self) -> None:
        """Stop serving."""
        while self._mirrors:
            self._mirrors.popitem()[1].close()
