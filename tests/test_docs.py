"""The documentation says what the code does: every name in one is in the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_rtax
from pytest_rtax import hookspecs
from pytest_rtax.records.schema import ActionSample, Failure, Run, Trial
from pytest_rtax.settings import PROFILES, SETTINGS, Setting
from pytest_rtax.stats.budgets import METRICS
from pytest_rtax.substrates import protocol
from pytest_rtax.substrates.local import LocalSubstrate
from pytest_rtax.substrates.null import NullSubstrate
from pytest_rtax.substrates.protocol import Substrate

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), *ROOT.glob("reports/README.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
SET_UP = (
    "python3 -m venv .venv && .venv/bin/pip install -q -e '.[dev]' && .venv/bin/pytest suites/",
    ".venv/bin/tox",
)


def page(name: str) -> str:
    return (DOCS / name).read_text()


def prose(text: str) -> str:
    return BLOCK.sub("", text)


def python_blocks(text: str) -> list[str]:
    return [body for language, body in BLOCK.findall(text) if language == "python"]


def named(*texts: str) -> set[str]:
    """Everything that stands in backticks, and each word of it."""
    spans = [span for text in texts for span in re.findall(r"`([^`\n]+)`", prose(text))]
    return {*spans, *(word for span in spans for word in re.findall(r"\w+", span))}


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each line of the tables."""
    for line in prose(text).splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip()[1:-1].split("|")]


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_is_in_the_reference_with_its_default(setting: Setting) -> None:
    (row,) = [cells for cells in rows(page("options.md")) if cells[0] == f"`{setting.flag}`"]
    _, ini, marker, default, _ = row
    assert ini == f"`{setting.ini}`"
    assert marker == (f"`{setting.name}`" if setting.marker else "")
    if setting.default is not None:
        assert default == f"`{setting.default}`"
    else:
        assert all(f"`{profile[setting.name]}`" in default for profile in PROFILES.values())


def test_the_reference_has_no_setting_that_does_not_exist() -> None:
    known = {"--substrate", "--run", "--version", *(setting.flag for setting in SETTINGS)}
    text = prose(page("options.md"))
    assert set(re.findall(r"--(?:rtax-[a-z-]+|substrate|run|version)", text)) <= known
    assert set(re.findall(r"rtax_[a-z_]+", text)) <= {
        *(setting.ini for setting in SETTINGS),
        *(name.removeprefix("pytest_") for name in dir(hookspecs) if name.startswith("pytest_rtax_")),
    }


def test_every_profile_is_in_the_reference() -> None:
    assert set(PROFILES) <= named(page("options.md"))


def test_every_marker_argument_is_explained() -> None:
    explained = {cells[0] for cells in rows(page("writing-a-test.md"))}
    assert {f"`{setting.name}`" for setting in SETTINGS if setting.marker} <= explained


def test_every_metric_is_named() -> None:
    assert set(METRICS) <= named(page("writing-a-test.md"))


@pytest.mark.parametrize("record", [Trial, Run])
def test_every_field_of_a_record_is_explained(record: type[Trial] | type[Run]) -> None:
    section = page("records.md").partition(f"\n## {record.__name__}\n")[2].partition("\n## ")[0]
    explained = {name for cells in rows(section) for name in re.findall(r"`(\w+)`", cells[0])}
    assert set(record.__struct_fields__) <= explained


def test_every_field_of_the_smaller_records_is_explained() -> None:
    assert {*ActionSample.__struct_fields__, *Failure.__struct_fields__} <= named(page("records.md"))


@pytest.mark.parametrize("substrate", [LocalSubstrate, NullSubstrate])
def test_every_option_of_a_substrate_is_in_the_reference(substrate: type[Substrate]) -> None:
    cells = [cells[1] for cells in rows(page("options.md")) if cells[0] == f"`{substrate.name}`"]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(substrate.options)


def test_every_hook_is_in_the_reference() -> None:
    assert {name for name in dir(hookspecs) if name.startswith("pytest_rtax_")} <= named(page("options.md"))


def test_what_the_author_of_a_substrate_needs_is_mentioned() -> None:
    text = page("writing-a-substrate.md")
    assert {name for name in pytest_rtax.__all__ if hasattr(protocol, name)} - {"__version__"} <= named(text)
    verbs = {
        name
        for shape in (protocol.Substrate, protocol.Environment, protocol.Session, protocol.EnvironmentSpec)
        for name in (*vars(shape), *shape.__annotations__)
        if not name.startswith("_")
    }
    assert verbs <= named(text)


def test_every_public_name_is_mentioned() -> None:
    mentioned = {word for path in PAGES for word in re.findall(r"\w+", path.read_text())}
    assert set(pytest_rtax.__all__) - {"__version__"} <= mentioned


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in LINK.findall(prose(path.read_text())):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target.read_text()), link


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_compiles(path: Path) -> None:
    for number, block in enumerate(python_blocks(path.read_text()), 1):
        compile(block, f"{path.name}, block {number}", "exec", dont_inherit=True)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_two_commands_set_everything_up(name: str) -> None:
    lines = [line.strip() for line in (ROOT / name).read_text().splitlines()]
    at = lines.index(SET_UP[0])
    assert lines[at + 1] == SET_UP[1]


def test_the_example_of_a_substrate_works(pytester: pytest.Pytester) -> None:
    """Some of the conformance suite; all of it takes half a minute."""
    substrate, conftest, *_ = python_blocks(page("writing-a-substrate.md"))
    pytester.makepyfile(distant=substrate, conftest=conftest)
    promises = "exit_code or missing_file or idempotent or timeout_is_kept or side_by_side or sessions_are_independent"
    result = pytester.runpytest_subprocess(
        "--pyargs", "pytest_rtax.conformance", "--substrate=distant:rtt=1ms,boot=20ms", "-k", promises
    )
    outcomes = result.parseoutcomes()
    assert result.ret == 0
    assert outcomes["passed"] >= 8


def test_the_examples_of_tests_work(pytester: pytest.Pytester) -> None:
    blocks = python_blocks(page("writing-a-test.md"))
    conftests = [block for block in blocks if block.startswith("# conftest.py")]
    tests = [block for block in blocks if block not in conftests]
    pytester.makepyfile(
        conftest="\n".join(conftests),
        **{f"test_{number}": block for number, block in enumerate(tests)},
        test_workload="import pytest\n\n@pytest.mark.trajectory('pack')\ndef test_pack(rollouts): pass",
    )
    selected = "test_two_environments_share_nothing or test_pack"
    assert pytester.runpytest_subprocess("--rtax-trials=2", "-k", selected).ret == 0
    assert pytester.runpytest_subprocess("--substrate=null", "--rtax-trials=2", "-k", "test_minimal").ret == 0


def test_the_example_of_reading_works(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.trajectory('T0')\ndef test_minimal(rollouts): pass")
    assert pytester.runpytest_subprocess("--substrate=null").ret == 0
    (example,) = python_blocks(page("records.md"))
    result = pytester.runpython(pytester.makepyfile(read=example))
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*complete", "*test_minimal?null-exec-10? *ms*ms*"])
