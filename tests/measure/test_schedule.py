from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pytest_rtax.measure.case import Case
from pytest_rtax.measure.schedule import interleave


def cases(count: int, trials: int, warmup: int) -> list[Case]:
    return [
        Case(f"substrate{i}", "exec", "T0", 10, trials, warmup, 0.0, id=f"test[{i}]", test="test") for i in range(count)
    ]


@given(st.integers(1, 5), st.integers(1, 8), st.integers(0, 3), st.integers(0, 100))
def test_every_trial_once_and_every_round_complete(count: int, trials: int, warmup: int, seed: int) -> None:
    slots = list(interleave(cases(count, trials, warmup), seed))
    assert [slot.order for slot in slots] == list(range(len(slots)))
    rounds = Counter((slot.warmup, slot.trial) for slot in slots)
    assert set(rounds.values()) == {count}
    assert len(rounds) == trials + warmup
    for start in range(0, len(slots), count):
        assert len({slot.case.id for slot in slots[start : start + count]}) == count
    assert all(slot.warmup for slot in slots[: warmup * count])
    assert not any(slot.warmup for slot in slots[warmup * count :])


@given(st.integers(0, 1000), st.randoms())
def test_the_order_depends_on_the_seed_alone(seed: int, rng: object) -> None:
    group = cases(4, 5, 1)
    expected = [(slot.case.id, slot.trial) for slot in interleave(group, seed)]
    assert [(slot.case.id, slot.trial) for slot in interleave(list(reversed(group)), seed)] == expected


def test_rounds_differ_in_order() -> None:
    slots = list(interleave(cases(4, 20, 0), 0))
    assert len({tuple(slot.case.id for slot in slots[i : i + 4]) for i in range(0, 80, 4)}) > 5


def test_the_order_of_seed_0_is_for_good() -> None:
    """Two versions that disagree on it cannot be compared trial by trial."""
    slots = interleave(cases(3, 2, 1), 0)
    assert "".join(slot.case.substrate[-1] for slot in slots) == "201102210"
