from __future__ import annotations

import subprocess
import sys

import pytest

import pytest_rtax


@pytest.mark.parametrize("name", pytest_rtax.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(pytest_rtax, name) is not None


def test_public_names_are_listed_once_and_in_order() -> None:
    assert list(pytest_rtax.__all__) == sorted(set(pytest_rtax.__all__))


def test_public_classes_are_called_what_they_are_listed_as() -> None:
    values = {name: getattr(pytest_rtax, name) for name in pytest_rtax.__all__}
    classes = {name: value for name, value in values.items() if isinstance(value, type)}
    assert set(values) - set(classes) == {"Command", "__version__"}
    assert all(name == value.__name__ for name, value in classes.items())


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'pytest_rtax' has no attribute 'no_such_name'$"):
        pytest_rtax.no_such_name  # noqa: B018
    assert not hasattr(pytest_rtax, "no_such_name")


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    script = "import sys, pytest_rtax; print(sorted(name for name in sys.modules if name.startswith('pytest_rtax.')))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
