"""pytest-xdist: the cases of one test stay on one worker, or they could not be interleaved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from xdist.scheduler import LoadGroupScheduling, LoadScheduling, LoadScopeScheduling

KEEPS_GROUPS = ("load", "loadscope", "loadfile", "loadgroup", "each")
"""The values of --dist under which the cases of a test meet on one worker."""

_CASE = re.compile(r"\[(?:.*-)?(?:exec|session)-\d+(?:-.*)?\](?:@.*)?$")


def test_of(nodeid: str) -> str:
    """The scope of a case is its test; everything else is a scope of its own."""
    return nodeid.partition("[")[0] if _CASE.search(nodeid) else nodeid


class CaseScheduling(LoadScopeScheduling):
    """Like ``--dist=load``, but a test's cases travel together."""

    def _split_scope(self, nodeid: str) -> str:
        return test_of(nodeid)


class GroupScheduling(LoadGroupScheduling):
    """``--dist=loadgroup``, in which a test's cases are a group whether they are marked as one or not."""

    def _split_scope(self, nodeid: str) -> str:
        test = test_of(nodeid)
        return test if test != nodeid else super()._split_scope(nodeid)


class AutomaticScheduling:
    """What ``--dist=load`` does if nothing that was collected is a case, and CaseScheduling if something is.

    The controller collects nothing itself, so it learns which only when the workers have collected.
    """

    def __init__(self, config: Any, log: Any) -> None:
        self._config = config
        self._log = log
        self._inner: Any = LoadScheduling(config, log)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Decide on the first collection."""
        if isinstance(self._inner, LoadScheduling) and any(test_of(nodeid) != nodeid for nodeid in collection):
            nodes = self._inner.nodes
            self._inner = CaseScheduling(self._config, self._log)
            for known in nodes:
                self._inner.add_node(known)
        self._inner.add_node_collection(node, collection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def scheduling(config: Any, log: Any) -> Any:
    """The scheduler for this --dist; None where xdist's own keeps a test's cases together, or cannot."""
    chosen = {"load": AutomaticScheduling, "loadgroup": GroupScheduling}.get(config.getoption("dist"))
    return chosen(config, log) if chosen is not None else None
