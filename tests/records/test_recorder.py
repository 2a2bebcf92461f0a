from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from pytest_rtax.records.recorder import Recorder
from pytest_rtax.records.schema import Trial
from pytest_rtax.records.store import StoreError, read_run, read_trials
from pytest_rtax.settings import Settings

TRIAL = Trial(
    run="r1",
    case="test_x.py::test_x[null-exec-1]",
    test="test_x.py::test_x",
    substrate="null",
    transport="exec",
    tier="T0",
    length=1,
    trial=0,
    order=0,
    started=1.5,
    trajectory="0123456789abcdef",
    environment="rtax-1",
    phases={"create": 1},
)


def make(directory: Path, **cli: str) -> Recorder:
    settings = Settings.read({"out": "reports", **cli}, {}, directory, directory)
    return Recorder("r1", settings, ["-q", "https://me:pw@host/x"], directory, workers=2)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return make(tmp_path)


def cloned(source: str | None) -> Trial:
    return msgspec.structs.replace(TRIAL, clone_from=source)


def directory_of(recorder: Recorder) -> Path:
    assert recorder.directory is not None
    return recorder.directory


def test_nothing_is_created_before_there_is_something_to_record(recorder: Recorder, tmp_path: Path) -> None:
    assert recorder.directory is None
    assert recorder.notes == []
    recorder.finish("complete")
    assert list(tmp_path.iterdir()) == []


def test_the_first_trial_opens_the_run(recorder: Recorder, tmp_path: Path) -> None:
    recorder.record(TRIAL)
    assert recorder.directory == tmp_path / "reports" / "r1"
    assert recorder.trials == [TRIAL]
    assert read_trials(recorder.directory) == ([TRIAL], [])
    recorder.finish("complete")


def test_opening_twice_is_opening_once(recorder: Recorder) -> None:
    assert recorder.open() is recorder.open()
    recorder.finish("complete")


def test_a_run_says_how_it_was_started(tmp_path: Path) -> None:
    recorder = make(tmp_path, seed="7", profile="paper", substrate="null:seed=1")
    recorder.open()
    run = read_run(directory_of(recorder))
    recorder.finish("complete")
    assert (run.id, run.seed, run.profile, run.workers) == ("r1", 7, "paper", 2)
    assert run.command == ["pytest", "-q", "https://***@host/x"]
    assert run.settings["substrate"] == ["null:seed=1"]
    assert run.versions and run.machine and len(run.load_before) == 3
    assert (run.status, run.finished, run.load_after) == ("running", None, None)


def test_no_password_of_the_repository_is_recorded(tmp_path: Path) -> None:
    recorder = make(tmp_path, repository="https://me:pw@host/r.git@abc")
    recorder.open()
    recorder.finish("complete")
    assert read_run(directory_of(recorder)).settings["repository"] == "https://***@host/r.git@abc"
    assert b"pw" not in (directory_of(recorder) / "run.json").read_bytes()


def test_descriptions_add_up(recorder: Recorder) -> None:
    recorder.describe({"local": {"isolation": "none"}}, {"commit": "abc"})
    recorder.describe({"null": {"simulated": True}}, None)
    run = read_run(directory_of(recorder))
    recorder.finish("complete")
    assert run.substrates == {"local": {"isolation": "none"}, "null": {"simulated": True}}
    assert run.repository == {"commit": "abc"}


def test_a_note_is_kept_once_and_written_with_the_end(recorder: Recorder) -> None:
    recorder.record(TRIAL)
    recorder.note("first")
    recorder.note("second")
    recorder.note("first")
    assert recorder.notes == ["first", "second"]
    recorder.finish("complete")
    assert read_run(directory_of(recorder)).notes == ["first", "second"]


def test_a_note_alone_is_no_reason_to_write_a_run(recorder: Recorder) -> None:
    recorder.note("something was left over")
    recorder.finish("complete")
    assert recorder.directory is None


@pytest.mark.parametrize("status", ["complete", "interrupted"])
def test_the_end_is_written_down(recorder: Recorder, status: Literal["complete", "interrupted"]) -> None:
    recorder.record(TRIAL)
    recorder.finish(status)
    run = read_run(directory_of(recorder))
    assert run.status == status
    assert run.finished is not None and run.finished >= run.started
    assert run.load_after is not None and len(run.load_after) == 3
    assert run.notes == []


def test_clone_sources_that_differ_are_noted(recorder: Recorder) -> None:
    for source in ("public", "mirror", "mirror", None):
        recorder.record(cloned(source))
    recorder.finish("complete")
    assert read_run(directory_of(recorder)).notes == [
        "the substrates cloned from different places (mirror, public): setup does not compare"
    ]


@pytest.mark.parametrize("sources", [["mirror", "mirror"], ["mirror", None], [None, None]])
def test_clone_sources_that_agree_are_not_noted(recorder: Recorder, sources: list[str | None]) -> None:
    for source in sources:
        recorder.record(cloned(source))
    recorder.finish("complete")
    assert recorder.notes == []


def test_trials_that_were_not_interleaved_are_noted(recorder: Recorder) -> None:
    recorder.record(TRIAL)
    recorder.record(msgspec.structs.replace(TRIAL, interleaved=False))
    recorder.finish("complete")
    (note,) = read_run(directory_of(recorder)).notes
    assert note.startswith("cases were not interleaved: this --dist spreads them over workers")


def test_a_trial_that_is_not_on_disk_is_not_kept(recorder: Recorder) -> None:
    recorder.record(TRIAL)
    recorder.finish("complete")
    with pytest.raises(StoreError):
        recorder.record(TRIAL)
    assert recorder.trials == [TRIAL]


def test_a_run_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "reports").touch()
    with pytest.raises(StoreError, match=rf"^cannot write to {tmp_path}/reports/r1: Not a directory$"):
        make(tmp_path).open()
