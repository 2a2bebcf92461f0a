from __future__ import annotations

import math
import random
import statistics
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rtax.clock import REAL_CLOCK, VirtualClock
from pytest_rtax.substrates.null import Delay, NullSubstrate
from pytest_rtax.substrates.protocol import Environment, EnvironmentFailed, EnvironmentSpec, Needs

MS = 1_000_000


def spec(id: str = "e1") -> EnvironmentSpec:
    return EnvironmentSpec(run="r1", id=id)


def null(**options: str) -> NullSubstrate:
    """As ``--substrate=null:key=value`` makes it, on a virtual clock."""
    texts = {"clock": "virtual", **options}
    return NullSubstrate(**{key: NullSubstrate.options[key].parse(text) for key, text in texts.items()})


def ready(substrate: NullSubstrate) -> Environment:
    environment = substrate.create(spec())
    environment.run("true")
    return environment


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("5ms", Delay(5 * MS)),
        ("0s", Delay(0)),
        ("5ms~0.2", Delay(5 * MS, 0.2)),
        ("1.5 s ~2", Delay(1500 * MS, 2.0)),
        ("5ms~0", Delay(5 * MS)),
    ],
)
def test_a_delay_as_it_is_written(text: str, delay: Delay) -> None:
    assert Delay.parse(text) == delay


@pytest.mark.parametrize(
    "text", ["", "5", "ms", "-5ms", "5 parsecs", "~0.2", "5~0.2", "5ms~", "5ms~x", "5ms~-1", "5ms~1~2"]
)
def test_a_delay_that_cannot_be_read_says_why(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: write a number and a unit"):
        Delay.parse(text)


def test_an_unknown_clock_is_refused() -> None:
    with pytest.raises(ValueError, match="'sundial' is not a clock: write real or virtual"):
        NullSubstrate.options["clock"].parse("sundial")


@given(st.integers(0, 10**15), st.integers())
def test_a_fixed_delay_is_always_the_same(nanoseconds: int, seed: int) -> None:
    assert Delay(nanoseconds).draw(random.Random(seed)) == nanoseconds


def test_a_drawn_delay_has_its_median_and_its_sigma() -> None:
    rng = random.Random(0)
    draws = [Delay(5 * MS, 0.2).draw(rng) for _ in range(4000)]
    low, median, high = (sorted(draws)[int(4000 * q)] for q in (0.1587, 0.5, 0.8413))
    # Four standard errors of the quantiles.
    assert median == pytest.approx(5 * MS, rel=0.016)
    assert low == pytest.approx(5 * MS * math.exp(-0.2), rel=0.02)
    assert high == pytest.approx(5 * MS * math.exp(0.2), rel=0.02)
    assert min(draws) > 0


def test_draws_are_decided_by_the_seed() -> None:
    def draws(seed: str) -> list[int]:
        substrate = null(action="5ms~0.5", seed=seed)
        return [substrate.draw("action") for _ in range(50)]

    assert draws("1") == draws("1")
    assert draws("1") != draws("2")
    assert len(set(draws("1"))) == 50


def test_every_phase_takes_exactly_what_it_was_told() -> None:
    substrate = null(create="20ms", ready="300ms", action="7ms", inside="4ms", cleanup="50ms")
    now = substrate.clock.now

    environment = substrate.create(spec())
    assert now() == 20 * MS
    environment.wait_ready(timeout=1)
    assert now() == 20 * MS
    # Ready is when the first command has succeeded, so that one bears the delay and nothing else.
    first = environment.run("true")
    assert now() == 320 * MS
    for index in range(1, 4):
        observation = environment.run("echo hello")
        assert now() == (320 + 7 * index) * MS
    environment.destroy()
    assert now() == (320 + 21 + 50) * MS

    assert first.exit_code == observation.exit_code == 0
    assert observation.inside_ns == 4 * MS


@pytest.mark.parametrize("phase", ["create", "ready", "action", "cleanup"])
def test_drawn_delays_are_what_passes_on_the_clock(phase: str) -> None:
    substrate = null(**{phase: "5ms~0.3", "seed": "7"})
    environment = ready(substrate)
    environment.run("true")
    environment.destroy()
    assert substrate.clock.now() == Delay(5 * MS, 0.3).draw(random.Random(7))


def test_hours_on_the_virtual_clock_take_no_time() -> None:
    before = time.perf_counter()
    environment = ready(null(action="1h~0.5"))
    for _ in range(100):
        environment.run("true")
    assert time.perf_counter() - before < 1


def test_delays_on_the_real_clock_are_kept() -> None:
    substrate = null(clock="real", action="2ms")
    assert substrate.clock is REAL_CLOCK
    environment = ready(substrate)
    before = REAL_CLOCK.now()
    environment.run("true")
    assert REAL_CLOCK.now() - before >= 2 * MS


def test_each_substrate_has_its_own_virtual_clock() -> None:
    one, other = null(create="1s"), null(create="1s")
    one.create(spec())
    assert isinstance(one.clock, VirtualClock)
    assert other.clock.now() == 0


def test_a_destroyed_environment_refuses_commands() -> None:
    substrate = null(action="1s", cleanup="1ms")
    environment = ready(substrate)
    session = environment.open_session()
    assert not environment.gone()
    environment.destroy()
    assert environment.gone()
    for runner in (environment, session):
        with pytest.raises(EnvironmentFailed, match="environment e1 has been destroyed"):
            runner.run("true")
    assert substrate.clock.now() == 1 * MS


def test_destroying_twice_takes_the_time_of_once() -> None:
    substrate = null(cleanup="50ms")
    environment = substrate.create(spec())
    environment.destroy()
    environment.destroy()
    assert substrate.clock.now() == 50 * MS


def test_environments_are_independent() -> None:
    substrate = null()
    one, other = substrate.create(spec("e1")), substrate.create(spec("e2"))
    one.write("marker", b"\x00\xff")
    assert one.read("marker") == b"\x00\xff"
    with pytest.raises(FileNotFoundError):
        other.read("marker")
    one.destroy()
    assert not other.gone()
    assert other.run("true").exit_code == 0


def test_it_says_that_it_is_simulated() -> None:
    substrate = null(create="20ms", action="5ms~0.2")
    substrate.preflight(Needs(tools=frozenset({"no-such-tool"})))
    provenance = substrate.provenance()
    assert substrate.simulated
    assert provenance["simulated"] is True
    assert provenance["clock"] == "VirtualClock"
    assert provenance["delays"]["create"] == [20 * MS, 0.0]
    assert provenance["delays"]["action"] == [5 * MS, 0.2]
    assert substrate.reap(run=None) == []


def test_the_median_of_many_actions_is_the_one_asked_for() -> None:
    substrate = null(action="5ms~0.2", seed="3")
    environment = ready(substrate)
    durations = []
    for _ in range(2001):
        before = substrate.clock.now()
        environment.run("true")
        durations.append(substrate.clock.now() - before)
    assert statistics.median(durations) == pytest.approx(5 * MS, rel=0.025)
