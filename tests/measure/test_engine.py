from __future__ import annotations

from collections.abc import Sequence

from pytest_rtax.clock import VirtualClock
from pytest_rtax.measure.case import Case
from pytest_rtax.measure.engine import GIVE_UP_AFTER, Engine
from pytest_rtax.records.schema import Trial
from pytest_rtax.substrates.null import Delay, NullSubstrate
from pytest_rtax.substrates.protocol import Environment, EnvironmentFailed, EnvironmentSpec, Substrate
from pytest_rtax.workloads.checkout import Checkout
from pytest_rtax.workloads.tiers import WORKLOADS


def case(substrate: str, trials: int = 3, warmup: int = 1) -> Case:
    return Case(substrate, "exec", "T0", 2, trials, warmup, 0.0, id=f"test[{substrate}]", test="test")


def engine(substrates: dict[str, Substrate], emitted: list[Trial], done: Sequence[Trial] = ()) -> Engine:
    return Engine(
        run="run",
        seed=0,
        substrates=substrates,
        workloads=WORKLOADS,
        checkout=Checkout(),
        emit=emitted.append,
        done={(trial.case, trial.warmup, trial.trial): trial for trial in done},
    )


def null(milliseconds: int = 0) -> NullSubstrate:
    return NullSubstrate(create=Delay(milliseconds * 10**6), clock=VirtualClock())


class Dead(NullSubstrate):
    asked = 0

    def create(self, spec: EnvironmentSpec) -> Environment:
        self.asked += 1
        raise EnvironmentFailed("nobody there")


def test_each_trial_is_emitted_before_the_next_one_starts() -> None:
    emitted: list[Trial] = []

    class Counting(NullSubstrate):
        def create(self, spec: EnvironmentSpec) -> Environment:
            seen.append(len(emitted))
            return super().create(spec)

    seen: list[int] = []
    engine({"a": Counting()}, emitted).measure([case("a")])
    assert seen == [0, 1, 2, 3]


def test_a_dead_substrate_is_given_up_and_the_others_go_on() -> None:
    emitted: list[Trial] = []
    dead = Dead()
    trials = engine({"a": null(), "dead": dead}, emitted).measure([case("a", trials=20), case("dead", trials=20)])
    assert dead.asked == GIVE_UP_AFTER == len(trials["test[dead]"])
    assert len(trials["test[a]"]) == 21


def test_what_was_measured_before_is_not_measured_again() -> None:
    first: list[Trial] = []
    engine({"a": null(1)}, first).measure([case("a")])
    second: list[Trial] = []
    trials = engine({"a": null(2)}, second, done=first[:3]).measure([case("a")])
    assert len(second) == 1
    assert [trial.phases["create"] // 10**6 for trial in trials["test[a]"]] == [1, 1, 1, 2]


def test_environments_have_ids_of_their_own() -> None:
    emitted: list[Trial] = []
    engine({"a": null(), "b": null()}, emitted).measure([case("a"), case("b")])
    assert len({trial.environment for trial in emitted}) == len(emitted) == 8


def test_progress_counts_down() -> None:
    left: list[int] = []
    measuring = engine({"a": null()}, [])
    measuring.progress = lambda case, trials, remaining, seconds: left.append(remaining)
    measuring.measure([case("a", trials=2)])
    assert left == [2, 1, 0]
