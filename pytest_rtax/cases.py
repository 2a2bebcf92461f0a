"""From markers to cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from pytest_rtax.measure.case import Case
from pytest_rtax.settings import Settings, SettingsError
from pytest_rtax.stats.budgets import parse_budget
from pytest_rtax.substrates.registry import suggest
from pytest_rtax.workloads.actions import Workload


def cases_of(marker: pytest.Mark, settings: Settings, workloads: Mapping[str, Workload], where: str) -> list[Case]:
    """The cases that a `trajectory` marker declares, in the order of the settings."""
    if len(marker.args) != 1 or not isinstance(marker.args[0], str):
        raise SettingsError(f"{where}: the trajectory marker takes one tier, as in trajectory('T0')")
    tier = marker.args[0]
    if tier not in workloads:
        raise SettingsError(f"{where}: {suggest('tier', tier, workloads)}")
    wanted = settings.for_case(marker.kwargs, where)
    shortest = workloads[tier].shortest
    for length in wanted.actions:
        if length < shortest:
            raise SettingsError(f"{where}: {length} actions are too few for {tier}, which needs {shortest} or more")
    return [
        Case(
            substrate=spec.label,
            transport=transport,
            tier=tier,
            length=length,
            trials=wanted.trials,
            warmup=wanted.warmup,
            failure_limit=wanted.failure_limit,
        )
        for length in wanted.actions
        for spec in settings.substrate
        for transport in wanted.transport
    ]


def check_budgets(markers: Sequence[pytest.Mark], where: str) -> int:
    """Parse every budget; returns how many there are."""
    texts = [text for marker in markers for text in marker.args]
    for marker in markers:
        if marker.kwargs or not marker.args:
            raise SettingsError(f"{where}: the budget marker takes texts, as in budget('cold_start.p95 < 2s')")
    for text in texts:
        if not isinstance(text, str):
            raise SettingsError(f"{where}: a budget is a text such as 'cold_start.p95 < 2s', not {text!r}")
        try:
            parse_budget(text)
        except ValueError as error:
            raise SettingsError(f"{where}: {error}") from None
    return len(texts)


def function_of(item: pytest.Function) -> str:
    """The node id without parameters: what it was while they were generated.

    Not cut out of the item's own: a directory may have a bracket in its name, and --dist=loadgroup appends @group.
    """
    assert item.parent is not None
    return f"{item.parent.nodeid}::{item.originalname}"


def bind(case: Case, item: pytest.Function) -> Case:
    """The case of an item: now that it has been collected, its parameters are known."""
    function, parameters = function_of(item), item.callspec.id
    others = _without(case.label, parameters)
    return replace(case, id=f"{function}[{parameters}]", test=f"{function}[{others}]" if others else function)


def _without(label: str, parameters: str) -> str:
    """The other parameters' part of an id. pytest shows a label in it with escapes, unless it is told not to."""
    for shown in (label.encode("unicode_escape").decode(), label):
        before, found, after = f"-{parameters}-".partition(f"-{shown}-")
        if found:
            return "-".join(part for part in (before[1:], after[:-1]) if part)
    return parameters
