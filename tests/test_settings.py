from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rtax.settings import PROFILES, SETTINGS, Settings, SettingsError, check_ini_keys
from pytest_rtax.substrates.registry import SubstrateSpec

HERE, ROOT = Path("/invoked/here"), Path("/root/of/tests")
BY_NAME = {setting.name: setting for setting in SETTINGS}
ON_MARKER = [setting.name for setting in SETTINGS if setting.marker]


def is_one_line(error: Exception) -> bool:
    return len(str(error).splitlines()) == 1


def read(cli: dict[str, Any] | None = None, ini: dict[str, Any] | None = None) -> Settings:
    return Settings.read(cli or {}, ini or {}, HERE, ROOT)


GOOD = [
    ("substrate", "null:seed=1", (SubstrateSpec("null:seed=1", "null", {"seed": "1"}),)),
    ("profile", "quick", "quick"),
    ("profile", "paper", "paper"),
    ("trials", "1", 1),
    ("trials", "100", 100),
    ("actions", "10", (10,)),
    ("actions", "10, 50,150", (10, 50, 150)),
    ("actions", [10, 50], (10, 50)),
    ("transport", "session", ("session",)),
    ("transport", "exec,session", ("exec", "session")),
    ("transport", ("session", "exec"), ("session", "exec")),
    ("warmup", "0", 0),
    ("warmup", 3, 3),
    ("failure_limit", "0", 0.0),
    ("failure_limit", "5%", 0.05),
    ("failure_limit", 0.05, 0.05),
    ("failure_limit", "100%", 1.0),
    ("seed", "0", 0),
    ("seed", "18446744073709551616", 2**64),
    ("out", "some/where", Path("some/where")),
    ("repository", "../repo@abc", "../repo@abc"),
    ("clone_from", "image", "image"),
    ("clone_from", "public", "public"),
    ("ready_timeout", "90s", 90.0),
    ("ready_timeout", "500ms", 0.5),
    ("action_timeout", "2min", 120.0),
]
BAD = [
    ("substrate", "", "'' in '' is neither a substrate nor a key=value of the one before"),
    ("substrate", "local,local", "'local' is named twice"),
    ("substrate", "null:create", "'create' in 'null:create' is not key=value"),
    ("profile", "papr", "unknown profile 'papr': did you mean 'paper'?"),
    ("profile", "", "unknown profile '': known: paper, quick"),
    ("trials", "0", "0 is too small: 1 or more"),
    ("trials", "-3", "-3 is too small: 1 or more"),
    ("trials", "ten", "'ten' is not a whole number"),
    ("trials", "1.5", "'1.5' is not a whole number"),
    ("trials", "", "'' is not a whole number"),
    ("actions", "0", "0 is too small: 1 or more"),
    ("actions", "10,,50", "'' is not a whole number"),
    ("actions", "10;50", "'10;50' is not a whole number"),
    ("actions", "10,50,10", "'10,50,10' names a value twice"),
    ("transport", "exce", "unknown transport 'exce': did you mean 'exec'?"),
    ("transport", "ssh", "unknown transport 'ssh': "),
    ("transport", "exec,exec", "'exec,exec' names a value twice"),
    ("warmup", "-1", "-1 is too small: 0 or more"),
    ("warmup", "some", "'some' is not a whole number"),
    ("failure_limit", "five", "'five' is not a share: write 5% or 0.05"),
    ("failure_limit", "%", "'%' is not a share: write 5% or 0.05"),
    ("failure_limit", "5", "'5' is not a share between 0 and 1"),
    ("failure_limit", "101%", "'101%' is not a share between 0 and 1"),
    ("failure_limit", "-1%", "'-1%' is not a share between 0 and 1"),
    ("failure_limit", "nan", "'nan' is not a share between 0 and 1"),
    ("seed", "-1", "-1 is too small: 0 or more"),
    ("seed", "0x10", "'0x10' is not a whole number"),
    ("clone_from", "imgae", "unknown clone source 'imgae': did you mean 'image'?"),
    ("ready_timeout", "300", "'300' is not a duration: write a number and a unit, such as 20ms or 2s"),
    ("ready_timeout", "0s", "'0s' leaves no time at all"),
    ("action_timeout", "soon", "'soon' is not a duration: write a number and a unit, such as 20ms or 2s"),
    ("action_timeout", "0.1ns", "'0.1ns' leaves no time at all"),
]
ANYTHING_GOES = {"out", "repository"}


def test_the_tables_leave_no_setting_out() -> None:
    assert {name for name, _, _ in GOOD} == set(BY_NAME)
    assert {name for name, _, _ in BAD} == set(BY_NAME) - ANYTHING_GOES


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_a_good_value_is_read(name: str, text: object, value: object) -> None:
    assert BY_NAME[name].read(text, "here") == value


@pytest.mark.parametrize(("name", "text", "reason"), BAD)
def test_a_bad_value_on_the_command_line_is_one_line(name: str, text: str, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(cli={name: text})
    assert str(caught.value).startswith(f"{BY_NAME[name].flag}: {reason}")
    assert is_one_line(caught.value)


@pytest.mark.parametrize(("name", "text", "reason"), [row for row in BAD if row[1]])
def test_a_bad_value_in_the_ini_file_is_one_line(name: str, text: str, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(ini={name: text})
    assert str(caught.value).startswith(f"ini key rtax_{name}: {reason}")
    assert is_one_line(caught.value)


@pytest.mark.parametrize(("name", "text", "reason"), [row for row in BAD if row[0] in ON_MARKER])
def test_a_bad_value_on_the_marker_is_one_line(name: str, text: str, reason: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read().for_case({name: text}, "test_x.py::test_x")
    assert str(caught.value).startswith(f"test_x.py::test_x: {name} of the trajectory marker: {reason}")
    assert is_one_line(caught.value)


@pytest.mark.parametrize("value", [None, True, [], (), 1.5, {10, 50}, object])
def test_a_marker_argument_of_a_wrong_type_is_refused(value: object) -> None:
    with pytest.raises(SettingsError, match=r"^here: actions of the trajectory marker: .* is not a whole number$"):
        read().for_case({"actions": value}, "here")


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_an_empty_ini_key_is_no_value(name: str) -> None:
    assert read(ini={name: ""}) == read(ini={name: None}) == read()


def test_flags_and_ini_keys_are_named_alike() -> None:
    assert BY_NAME["substrate"].flag == "--substrate"
    assert BY_NAME["failure_limit"].flag == "--rtax-failure-limit"
    assert BY_NAME["failure_limit"].ini == "rtax_failure_limit"


# -- precedence -------------------------------------------------------------------------------------------------------

# Command line, marker, ini file, and what remains.
LAYERS: dict[str, tuple[tuple[object, object], tuple[object, object], tuple[object, object], object]] = {
    "trials": (("40", 40), (30, 30), ("20", 20), 10),
    "actions": (("4,5", (4, 5)), ([3], (3,)), ("1,2", (1, 2)), (10,)),
    "transport": (
        ("session", ("session",)),
        ("session,exec", ("session", "exec")),
        ("exec,session", ("exec", "session")),
        ("exec",),
    ),
    "warmup": (("4", 4), (3, 3), ("2", 2), 1),
    "failure_limit": (("40%", 0.4), (0.3, 0.3), ("0.2", 0.2), 0.0),
}


def test_the_layers_leave_no_marker_setting_out() -> None:
    assert set(LAYERS) == set(ON_MARKER)


@pytest.mark.parametrize("given_in", list(product([True, False], repeat=3)))
@pytest.mark.parametrize("name", ON_MARKER)
def test_command_line_then_marker_then_ini_then_profile(name: str, given_in: tuple[bool, bool, bool]) -> None:
    *layers, otherwise = LAYERS[name]
    cli, marker, ini = ({name: layer[0]} if is_given else {} for layer, is_given in zip(layers, given_in, strict=True))
    expected = next((layer[1] for layer, is_given in zip(layers, given_in, strict=True) if is_given), otherwise)
    assert getattr(read(cli, ini).for_case(marker, "here"), name) == expected


@pytest.mark.parametrize(("name", "value"), [("seed", "7"), ("clone_from", "image"), ("profile", "paper")])
def test_command_line_then_ini_for_the_run(name: str, value: str) -> None:
    default = getattr(read(), name)
    read_value = BY_NAME[name].parse(value)
    assert default != read_value
    assert getattr(read(ini={name: value}), name) == read_value
    assert getattr(read(cli={name: str(default)}, ini={name: value}), name) == default


def test_a_profile_sets_what_nothing_else_does() -> None:
    case = read(cli={"profile": "paper"}, ini={"trials": "7"}).for_case({}, "here")
    assert case.trials == 7
    assert case.actions == (10, 50, 150)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_profile_has_every_setting_without_a_default(profile: str) -> None:
    assert set(PROFILES[profile]) == {setting.name for setting in SETTINGS if setting.default is None}
    read(cli={"profile": profile}).for_case({}, "here")


# -- the marker -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("trails", "did you mean 'trials'?"),
        ("seed", "known: actions, failure_limit, transport, trials, warmup"),
        ("xyzzy", "known: actions, failure_limit, transport, trials, warmup"),
    ],
)
def test_an_unknown_marker_argument_is_refused_with_a_hint(argument: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read().for_case({argument: 1}, "test_x.py::test_x")
    assert str(caught.value) == f"test_x.py::test_x: unknown argument of the trajectory marker {argument!r}: {hint}"


# -- where runs are written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cli", "ini", "out"),
    [
        (None, None, HERE / "reports"),
        ("mine", None, HERE / "mine"),
        (None, "../theirs", ROOT / "../theirs"),
        ("mine", "theirs", HERE / "mine"),
        ("/absolute", "theirs", Path("/absolute")),
        (None, "/absolute", Path("/absolute")),
    ],
)
def test_a_relative_directory_starts_where_it_was_written(cli: str | None, ini: str | None, out: Path) -> None:
    assert read({"out": cli}, {"out": ini}).out == out


# -- clone_from of a substrate ----------------------------------------------------------------------------------------


def test_a_substrate_may_clone_from_somewhere_else() -> None:
    chosen = read({"substrate": "local,null:clone_from=image", "clone_from": "public"})
    assert chosen.plain()["clone_from"] == {"local": "public", "null:clone_from=image": "image"}


@pytest.mark.parametrize(
    ("place", "where"), [("cli", "--substrate"), ("ini", "ini key rtax_substrate")], ids=["cli", "ini"]
)
def test_an_unknown_clone_source_of_a_substrate_is_refused(place: str, where: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(**{place: {"substrate": "null:clone_from=mirrr"}})
    assert str(caught.value) == (
        f"{where}: clone_from of 'null:clone_from=mirrr': unknown clone source 'mirrr': did you mean 'mirror'?"
    )


# -- ini keys ---------------------------------------------------------------------------------------------------------


def test_known_and_foreign_ini_keys_are_accepted() -> None:
    check_ini_keys([*(setting.ini for setting in SETTINGS), "addopts", "testpaths", "my_rtax_key"])


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("rtax_trails", "did you mean 'rtax_trials'?"),
        ("rtax-seed", "did you mean 'rtax_seed'?"),
        ("rtaxx", "did you mean 'rtax_"),
    ],
)
def test_a_misspelt_ini_key_is_refused_with_a_hint(key: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check_ini_keys(["addopts", key])
    assert str(caught.value).startswith(f"unknown ini key {key!r}: {hint}")


# -- on record --------------------------------------------------------------------------------------------------------


def test_what_goes_on_record_is_plain_data() -> None:
    everything = {name: text for name, text, _ in GOOD if isinstance(text, str)}
    plain = read(cli=everything).plain()
    assert json.loads(json.dumps(plain)).keys() == plain.keys()
    assert plain["substrate"] == ["null:seed=1"]
    assert plain["transport"] == ("exec", "session")


def test_what_goes_on_record_is_what_holds() -> None:
    plain = read(cli={"trials": "40"}, ini={"trials": "20", "warmup": "2"}).plain()
    assert (plain["trials"], plain["warmup"]) == (40, 2)
    assert "actions" not in plain


# -- anything at all --------------------------------------------------------------------------------------------------

texts = st.text(max_size=30) | st.text("0123456789.,%:=-~ eEnaifsmx\n", max_size=20)


@settings(max_examples=150)
@given(st.sampled_from(SETTINGS), texts)
def test_parsing_raises_nothing_but_value_errors(setting: Any, text: str) -> None:
    fine = True
    try:
        setting.parse(text)
    except ValueError as error:
        fine = is_one_line(error)
    assert fine


@settings(max_examples=150)
@given(
    st.dictionaries(st.sampled_from(sorted(BY_NAME)), texts, max_size=2),
    st.dictionaries(st.sampled_from(sorted(BY_NAME)), texts, max_size=2),
    st.dictionaries(st.sampled_from(ON_MARKER) | st.text(max_size=10), texts | st.lists(st.integers()), max_size=2),
)
def test_reading_raises_nothing_but_settings_errors(
    cli: dict[str, str], ini: dict[str, str], marker: dict[str, object]
) -> None:
    fine = True
    try:
        chosen = read(cli, ini)
        chosen.for_case(marker, "here")
        json.dumps(chosen.plain())
    except SettingsError as error:
        fine = is_one_line(error)
    assert fine
