from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rtax.records.schema import PHASES, ActionSample, Failure, Run, Trial, json_schema

SCHEMA_FILE = Path(__file__).parents[2] / "docs" / "schema.json"
REGENERATE = (
    "python -c 'import json; from pytest_rtax.records.schema import json_schema; "
    "print(json.dumps(json_schema(), indent=2))' > docs/schema.json"
)

TRIAL = Trial(
    run="r1",
    case="test_x.py::test_x[null-exec-1]",
    test="test_x.py::test_x",
    substrate="null",
    transport="exec",
    tier="T2",
    length=1,
    trial=0,
    order=0,
    started=1.5,
    trajectory="0123456789abcdef",
    environment="rtax-1",
    phases={"create": 1, "ready": 2, "setup": 3, "actions": 4, "cleanup": 5},
    setup=[ActionSample("clone", 3, 2, 0)],
    actions=[ActionSample("run", 4, None, 1)],
    total=15,
)
RUN = Run(
    id="r1",
    started=1.5,
    command=["pytest"],
    seed=0,
    profile="quick",
    settings={},
    git={},
    versions={},
    machine={},
    load_before=[0.0, 0.5, 1.0],
)

nanoseconds = st.integers(0, 2**63)
samples = st.lists(
    st.builds(ActionSample, st.text(), nanoseconds, st.none() | nanoseconds, st.integers(0, 255)), max_size=4
)
trials = st.builds(
    Trial,
    run=st.text(),
    case=st.text(),
    test=st.text(),
    substrate=st.text(),
    transport=st.sampled_from(["exec", "session"]),
    tier=st.text(),
    length=st.integers(1, 1000),
    trial=st.integers(0, 1000),
    order=st.integers(0, 10**6),
    warmup=st.booleans(),
    interleaved=st.booleans(),
    worker=st.text(),
    started=st.floats(0, 1e12),
    trajectory=st.text(),
    clone_from=st.none() | st.text(),
    environment=st.text(),
    phases=st.dictionaries(st.sampled_from(PHASES), nanoseconds),
    subphases=st.dictionaries(st.text(), nanoseconds, max_size=3),
    setup=samples,
    actions=samples,
    total=st.none() | nanoseconds,
    failure=st.none() | st.builds(Failure, st.text(), st.text(), st.none() | st.integers(0, 1000)),
)


def plain(trial: Trial = TRIAL) -> dict[str, Any]:
    """A trial as the file has it."""
    return json.loads(msgspec.json.encode(trial))  # type: ignore[no-any-return]


def decode(data: dict[str, Any]) -> Trial:
    return msgspec.json.decode(json.dumps(data).encode(), type=Trial)


@settings(max_examples=60)
@given(trials)
def test_a_trial_survives_being_written_and_read(trial: Trial) -> None:
    assert msgspec.json.decode(msgspec.json.encode(trial), type=Trial) == trial


@settings(max_examples=30)
@given(trials)
def test_a_trial_fits_on_one_line(trial: Trial) -> None:
    assert b"\n" not in msgspec.json.encode(trial)


@settings(max_examples=30)
@given(trials)
def test_a_trial_is_what_other_json_readers_see(trial: Trial) -> None:
    data = plain(trial)
    assert data["version"] == 1
    assert decode(data) == trial


def test_an_action_is_an_array() -> None:
    assert plain()["actions"] == [["run", 4, None, 1]]


def test_what_is_unknown_is_null_and_not_zero() -> None:
    assert ActionSample("run", 4, None, 0).dispatch is None
    assert ActionSample("run", 4, 3, 0).dispatch == 1


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_refused_by_name(version: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.version"):
        decode({**plain(), "version": version})


@pytest.mark.parametrize("field", json_schema()["$defs"]["Trial"]["required"])
def test_a_missing_field_is_refused_by_name(field: str) -> None:
    data = plain()
    del data[field]
    with pytest.raises(msgspec.ValidationError, match=f"missing required field `{field}`"):
        decode(data)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("run", 1, "`str`"),
        ("length", "10", "`int`"),
        ("length", 1.5, "`int`"),
        ("warmup", 1, "`bool`"),
        ("started", "now", "`float`"),
        ("phases", [], "`object`"),
        ("actions", {}, "`array`"),
        ("total", "15", "`int | null`"),
        ("failure", "because", "`object | null`"),
    ],
)
def test_a_wrong_type_is_refused_by_name(field: str, value: object, expected: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        decode({**plain(), field: value})
    assert expected in str(caught.value)
    assert f"$.{field}" in str(caught.value)


@pytest.mark.parametrize("action", [[], ["run", 4, None], ["run", None, None, 0], ["run", 4, "2", 0]])
def test_an_action_that_is_not_whole_is_refused_by_position(action: list[object]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.actions\[1\]"):
        decode({**plain(), "actions": [["run", 4, None, 1], action]})


def test_a_phase_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int`, got `null` - at `\$\.phases"):
        decode({**plain(), "phases": {"create": None}})


def test_a_run_survives_being_written_and_read() -> None:
    assert msgspec.json.decode(msgspec.json.encode(RUN), type=Run) == RUN


def test_a_run_has_one_of_three_states() -> None:
    data = json.loads(msgspec.json.encode(RUN))
    with pytest.raises(msgspec.ValidationError, match=r"'paused' - at `\$\.status`"):
        msgspec.convert({**data, "status": "paused"}, Run)


def test_the_schema_in_the_documentation_is_the_one_in_the_code() -> None:
    kept = SCHEMA_FILE.read_text() if SCHEMA_FILE.exists() else ""
    assert kept == json.dumps(json_schema(), indent=2) + "\n", f"docs/schema.json is out of date; run: {REGENERATE}"


@pytest.mark.parametrize("record", [TRIAL, RUN])
def test_the_schema_knows_exactly_the_fields_that_are_written(record: Trial | Run) -> None:
    definition = json_schema()["$defs"][type(record).__name__]
    written = json.loads(msgspec.json.encode(record))
    assert definition["type"] == "object"
    assert set(definition["properties"]) == set(written)
    assert set(definition["required"]) <= set(written)


def test_the_schema_holds_what_it_refers_to() -> None:
    schema = json_schema()
    references = {line.strip() for line in json.dumps(schema, indent=0).splitlines() if '"$ref"' in line}
    for reference in references:
        name = reference.rstrip(",").rpartition("/")[2].rstrip('"')
        assert name in schema["$defs"]
