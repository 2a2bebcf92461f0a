"""The order of trials: round by round, so that a noisy machine slows all the cases of a test alike."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_rtax.measure.case import Case


@dataclass(frozen=True)
class Slot:
    """One place in the schedule."""

    case: Case
    trial: int
    warmup: bool
    order: int


def interleave(cases: Sequence[Case], seed: int) -> Iterator[Slot]:
    """Every trial of the cases of one group: warm-up rounds first, each round in a random order of its own.

    The order depends on the seed and on what is measured, not on when or in which worker.
    """
    cases = sorted(cases, key=lambda case: case.label)
    rng = random.Random(f"{seed}/{cases[0].test}/{cases[0].length}")
    order = 0
    for warmup in (True, False):
        count = max(case.warmup if warmup else case.trials for case in cases)
        for trial in range(count):
            # Sorting by random keys: random.shuffle may change between Python versions, random.random may not.
            for case in sorted(cases, key=lambda _: rng.random()):
                if trial < (case.warmup if warmup else case.trials):
                    yield Slot(case, trial, warmup, order)
                    order += 1
