from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rtax.substrates.local import LocalSubstrate
from pytest_rtax.substrates.null import NullSubstrate
from pytest_rtax.substrates.protocol import Option, Substrate
from pytest_rtax.substrates.registry import (
    ENTRY_POINTS,
    NotInstalled,
    Registry,
    SubstrateSpec,
    UnknownName,
    parse_specs,
    suggest,
)


class Sandbox(NullSubstrate):
    name = "sandbox"
    options: ClassVar = {"size": Option(int, "of it")}

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.size = size


def is_one_line(error: Exception) -> bool:
    return len(str(error).splitlines()) == 1


def spec(text: str) -> SubstrateSpec:
    (parsed,) = parse_specs(text)
    return parsed


# -- how substrates are written ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("local", [("local", "local", {}, None)]),
        ("local,null", [("local", "local", {}, None), ("null", "null", {}, None)]),
        (" local , null ", [("local", "local", {}, None), ("null", "null", {}, None)]),
        ("my.sand_box-2", [("my.sand_box-2", "my.sand_box-2", {}, None)]),
        ("null:seed=1", [("null:seed=1", "null", {"seed": "1"}, None)]),
        ("null:seed=", [("null:seed=", "null", {"seed": ""}, None)]),
        (
            "docker:image=python:3.12,cpus=1",
            [("docker:image=python:3.12,cpus=1", "docker", {"image": "python:3.12", "cpus": "1"}, None)],
        ),
        (
            "docker:image=registry.example:5000/a/b@sha256:0f,local",
            [
                (
                    "docker:image=registry.example:5000/a/b@sha256:0f",
                    "docker",
                    {"image": "registry.example:5000/a/b@sha256:0f"},
                    None,
                ),
                ("local", "local", {}, None),
            ],
        ),
        (
            "local, null:create=20ms~0.2, action=5ms, docker",
            [
                ("local", "local", {}, None),
                ("null:create=20ms~0.2,action=5ms", "null", {"create": "20ms~0.2", "action": "5ms"}, None),
                ("docker", "docker", {}, None),
            ],
        ),
        ("k8s:selector=pool=fast", [("k8s:selector=pool=fast", "k8s", {"selector": "pool=fast"}, None)]),
        (
            "k8s:clone_from=image,ns=x",
            [("k8s:clone_from=image,ns=x", "k8s", {"ns": "x"}, "image")],
        ),
        (
            "null:seed=1,null:seed=2",
            [("null:seed=1", "null", {"seed": "1"}, None), ("null:seed=2", "null", {"seed": "2"}, None)],
        ),
    ],
)
def test_parse(text: str, expected: list[tuple[str, str, dict[str, str], str | None]]) -> None:
    assert list(parse_specs(text)) == [SubstrateSpec(*fields) for fields in expected]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' in '' is neither a substrate nor a key=value of the one before"),
        (",", "'' in ',' is neither"),
        ("local,", "'' in 'local,' is neither"),
        ("docker:a=1,,b=2", "'' in 'docker:a=1,,b=2' is neither"),
        ("cpus=1", "'cpus=1' in 'cpus=1' is neither"),
        ("9lives", "'9lives' in '9lives' is neither"),
        ("local null", "'local null' in 'local null' is neither"),
        ("local\nnull", r"'local\nnull' in 'local\nnull' is neither"),
        (":image=x", "':image=x' in ':image=x' is neither"),
        ("null:create", "'create' in 'null:create' is not key=value"),
        ("null:=1", "'=1' in 'null:=1' is not key=value"),
        ("null:seed=1,=2", "'=2' in 'null:seed=1,=2' is not key=value"),
        ("local,local", "'local' is named twice in 'local,local'"),
        ("null:seed=1,local,null:seed=1", "'null:seed=1' is named twice"),
        ("null:create=1ms,create=2ms", "'create' is given twice in 'null:create=1ms,create=2ms'"),
    ],
)
def test_what_cannot_be_parsed_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse_specs(text)
    assert str(caught.value).startswith(reason)
    assert is_one_line(caught.value)


@settings(max_examples=200)
@given(st.text(max_size=20) | st.text("ab1:=,. -~\né", max_size=20))
def test_any_text_is_parsed_or_refused_on_one_line(text: str) -> None:
    try:
        specs = parse_specs(text)
    except ValueError as error:
        fine = is_one_line(error)
    else:
        fine = specs != () and parse_specs(",".join(spec.label for spec in specs)) == specs
    assert fine


# -- suggestions ------------------------------------------------------------------------------------------------------


def test_the_nearest_name_is_suggested() -> None:
    assert suggest("fruit", "aple", ["pear", "apple"]) == "unknown fruit 'aple': did you mean 'apple'?"


def test_without_a_near_name_all_are_listed() -> None:
    assert suggest("fruit", "xyzzy", ["pear", "apple"]) == "unknown fruit 'xyzzy': known: apple, pear"


@settings(max_examples=50)
@given(st.text(), st.lists(st.from_regex(r"[a-z]+", fullmatch=True), max_size=5))
def test_a_suggestion_is_one_line(name: str, known: list[str]) -> None:
    assert len(suggest("name", name, known).splitlines()) == 1


# -- finding ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """What other packages are said to have installed."""
    points: list[EntryPoint] = []

    def entry_points(**params: Any) -> Iterable[EntryPoint]:
        assert params == {"group": ENTRY_POINTS}
        return points

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return points


@pytest.mark.usefixtures("installed")
def test_the_built_in_substrates() -> None:
    registry = Registry()
    assert registry.names() == ["docker", "local", "null"]
    assert registry.find("local") is LocalSubstrate
    assert registry.find("null") is NullSubstrate


@pytest.mark.usefixtures("installed")
def test_a_misspelt_substrate_is_refused_with_a_suggestion() -> None:
    for action in (Registry().build, Registry().check):
        with pytest.raises(UnknownName, match=r"^unknown substrate 'locl': did you mean 'local'\?$"):
            action(spec("locl"))


@pytest.mark.usefixtures("installed")
def test_a_substrate_that_a_plugin_registers() -> None:
    registry = Registry(lambda: [Sandbox])
    assert registry.names() == ["docker", "local", "null", "sandbox"]
    assert registry.find("sandbox") is Sandbox
    with pytest.raises(UnknownName, match="did you mean 'sandbox'"):
        registry.find("sandbx")


@pytest.mark.usefixtures("installed")
def test_plugins_are_asked_late_and_once() -> None:
    asked = []

    def registered() -> list[type[Substrate]]:
        asked.append(True)
        return [Sandbox]

    registry = Registry(registered)
    registry.check(spec("local"))
    registry.build(spec("null:seed=1"))
    assert asked == []
    registry.check(spec("sandbox"))
    registry.names()
    assert asked == [True]


def test_a_substrate_that_a_package_installs(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("fast", "pytest_rtax.substrates.null:NullSubstrate", ENTRY_POINTS))
    registry = Registry()
    assert registry.names() == ["docker", "fast", "local", "null"]
    assert registry.find("fast") is NullSubstrate


def test_a_package_is_imported_only_for_its_own_substrate(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("broken", "no_such_module:Substrate", ENTRY_POINTS))
    installed.append(EntryPoint("fast", "pytest_rtax.substrates.null:NullSubstrate", ENTRY_POINTS))
    registry = Registry()
    assert "broken" in registry.names()
    registry.check(spec("fast"))
    with pytest.raises(NotInstalled, match="'no_such_module'; install what its package needs"):
        registry.check(spec("broken"))


def test_a_plugin_goes_before_an_installed_package(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("sandbox", "no_such_module:Substrate", ENTRY_POINTS))
    assert Registry(lambda: [Sandbox]).find("sandbox") is Sandbox


def test_nobody_replaces_a_built_in_substrate(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("local", "pytest_rtax.substrates.null:NullSubstrate", ENTRY_POINTS))
    assert Registry().find("local") is LocalSubstrate


# -- building ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("installed")
def test_options_arrive_parsed() -> None:
    built = Registry(lambda: [Sandbox]).build(spec("sandbox:size=3"))
    assert isinstance(built, Sandbox)
    assert built.size == 3


def test_where_to_clone_from_is_no_option_of_the_substrate() -> None:
    Registry().build(spec("null:clone_from=image"))
    Registry().check(spec("null:clone_from=image"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("null:creat=1ms", "unknown option 'creat': did you mean 'create'? (in 'null:creat=1ms')"),
        (
            "null:clone_form=image",
            "unknown option 'clone_form': did you mean 'clone_from'? (in 'null:clone_form=image')",
        ),
        ("local:xyzzy=1", "unknown option 'xyzzy': known: clone_from, root (in 'local:xyzzy=1')"),
        ("null:clock=sun", "clock of 'null:clock=sun': 'sun' is not a clock: write real or virtual"),
        (
            "null:seed=1,create=5",
            "create of 'null:seed=1,create=5': '5' is not a duration: write a number and a unit, such as 20ms or 2s",
        ),
    ],
)
def test_a_wrong_option_is_refused_with_the_reason(text: str, reason: str) -> None:
    for action in (Registry().build, Registry().check):
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            action(spec(text))
        assert str(caught.value) == reason


def test_checking_a_plain_built_in_substrate_imports_nothing() -> None:
    script = (
        "import sys\n"
        "from pytest_rtax.substrates.registry import Registry, parse_specs\n"
        "before = set(sys.modules)\n"
        "for spec in parse_specs('local,null:clone_from=image'):\n"
        "    Registry().check(spec)\n"
        "print(sorted(set(sys.modules) - before))\n"
        "print([name for name in ('subprocess', 'msgspec', 'numpy', 'scipy') if name in sys.modules])\n"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n[]\n"
