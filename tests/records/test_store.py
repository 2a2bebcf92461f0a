from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pytest_rtax.records.schema import ActionSample, Run, Trial
from pytest_rtax.records.store import (
    RUN_FILE,
    SAMPLES_FILE,
    RunStore,
    StoreError,
    check_writable,
    new_run_id,
    read_run,
    read_trials,
)

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
    actions=[ActionSample("run", 4, None, 0)] * 10,
    total=15,
)

CHILD = """
import sys
from pathlib import Path
import msgspec
from pytest_rtax.records.schema import Run, Trial
from pytest_rtax.records.store import RunStore, StoreError

trial = msgspec.json.decode(sys.argv[2], type=Trial)
run = Run(id="r1", started=0.0, command=[], seed=0, profile="quick", settings={}, git={}, versions={}, machine={},
          load_before=[])
store = RunStore(Path(sys.argv[1]), run)

def append(number):
    store.append(msgspec.structs.replace(trial, trial=number))
    print(number, flush=True)
"""
FOR_EVER = """
import itertools
for number in itertools.count():
    append(number)
"""
UNTIL_FULL = """
import resource
line = len(msgspec.json.encode(trial)) + 1
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (2 * line + line // 2, unlimited[1]))
for number in range(3):
    try:
        append(number)
    except StoreError as error:
        print(error, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
append(3)
"""


def trial(number: int) -> Trial:
    return msgspec.structs.replace(TRIAL, trial=number)


def a_run(id: str = "r1") -> Run:
    return Run(
        id=id,
        started=1.5,
        command=["pytest"],
        seed=0,
        profile="quick",
        settings={},
        git={},
        versions={},
        machine={},
        load_before=[],
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    store = RunStore(tmp_path / "reports", a_run())
    yield store
    store.close()


def write_lines(store: RunStore, *lines: bytes) -> None:
    (store.directory / SAMPLES_FILE).write_bytes(b"".join(lines))


def line(number: int) -> bytes:
    return msgspec.json.encode(trial(number)) + b"\n"


def start_child(directory: Path, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD + script, str(directory), msgspec.json.encode(TRIAL).decode()],
        stdout=subprocess.PIPE,
        text=True,
    )


# -- writing ----------------------------------------------------------------------------------------------------------


def test_a_run_is_a_directory_with_two_files(store: RunStore, tmp_path: Path) -> None:
    assert store.directory == tmp_path / "reports" / "r1"
    assert sorted(path.name for path in store.directory.iterdir()) == [RUN_FILE, SAMPLES_FILE]
    assert (RUN_FILE, SAMPLES_FILE) == ("run.json", "samples.jsonl")


def test_the_run_is_on_disk_before_any_trial(store: RunStore) -> None:
    assert read_run(store.directory) == store.run
    assert read_trials(store.directory) == ([], [])


def test_run_json_is_for_people_too(store: RunStore) -> None:
    assert '\n  "id": "r1",\n' in (store.directory / RUN_FILE).read_text()


def test_a_trial_can_be_read_as_soon_as_it_is_appended(store: RunStore) -> None:
    for number in range(3):
        store.append(trial(number))
        trials, problems = read_trials(store.directory)
        assert [t.trial for t in trials] == list(range(number + 1))
        assert problems == []


def test_what_changes_in_the_run_is_written_anew(store: RunStore) -> None:
    store.run.status = "complete"
    store.run.notes = ["a note"]
    store.write_run()
    assert read_run(store.directory) == store.run
    assert sorted(path.name for path in store.directory.iterdir()) == [RUN_FILE, SAMPLES_FILE]


def test_a_run_that_cannot_be_written_anew_keeps_its_file(store: RunStore) -> None:
    before = (store.directory / RUN_FILE).read_bytes()
    (store.directory / "run.tmp").mkdir()
    store.run.notes = ["a note"]
    with pytest.raises(StoreError, match=rf"^cannot write {store.directory}/run.json: Is a directory$"):
        store.write_run()
    assert (store.directory / RUN_FILE).read_bytes() == before


def test_closing_twice_is_closing_once(store: RunStore) -> None:
    store.close()
    store.close()


def test_a_closed_store_refuses_trials(store: RunStore) -> None:
    store.close()
    with pytest.raises(StoreError, match=r"^cannot append to .*samples\.jsonl: Bad file descriptor$"):
        store.append(trial(0))


def test_a_second_run_of_the_same_id_is_refused(store: RunStore) -> None:
    store.append(trial(0))
    with pytest.raises(StoreError, match=rf"^cannot write to {store.directory}: File exists$"):
        RunStore(store.directory.parent, a_run())
    assert read_trials(store.directory) == ([trial(0)], [])


def test_two_runs_share_a_directory(store: RunStore) -> None:
    other = RunStore(store.directory.parent, a_run("r2"))
    store.append(trial(0))
    other.append(trial(1))
    other.close()
    assert read_trials(store.directory)[0] == [trial(0)]
    assert read_trials(other.directory)[0] == [trial(1)]


def test_a_name_that_is_not_utf8_does_not_stop_the_run(tmp_path: Path) -> None:
    run = a_run()
    run.command = ["pytest", "caf\udce9"]
    store = RunStore(tmp_path, run)
    store.append(msgspec.structs.replace(TRIAL, substrate="local:root=\udcff", actions=[ActionSample("run", 4, 2, 0)]))
    store.close()
    assert read_run(store.directory).command == ["pytest", "caf?"]
    trials, problems = read_trials(store.directory)
    assert [(t.substrate, t.actions) for t in trials] == [("local:root=?", [ActionSample("run", 4, 2, 0)])]
    assert problems == []


# -- reading what is damaged ------------------------------------------------------------------------------------------


def test_a_torn_last_line_is_reported_and_the_rest_is_used(store: RunStore) -> None:
    write_lines(store, line(0), line(1), line(2)[:-20])
    assert read_trials(store.directory) == (
        [trial(0), trial(1)],
        ["samples.jsonl:3: torn line: the writer was stopped while writing it"],
    )


def test_a_last_line_without_its_end_is_not_trusted(store: RunStore) -> None:
    write_lines(store, line(0), line(1).rstrip(b"\n"))
    trials, problems = read_trials(store.directory)
    assert trials == [trial(0)]
    assert [problem.partition(" ")[0] for problem in problems] == ["samples.jsonl:2:"]


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b"\n", "Input data was truncated"),
        (b"{}\n", "Object missing required field `run`"),
        (b"null\n", "Expected `object`, got `null`"),
        (b"\0\0\0\0\n", "JSON is malformed"),
        (line(1)[: len(line(1)) // 2] + b"\n", "Input data was truncated"),
        (line(1).replace(b'"version":1', b'"version":2'), "Invalid enum value 2 - at `$.version`"),
        (line(1).replace(b'"length":1', b'"length":"1"'), "Expected `int`, got `str` - at `$.length`"),
        (line(1).replace(b'"null"', b'"\xff\xfe"'), "'utf-8' codec can't decode byte 0xff"),
        (line(1).replace(b'"length":1', b'"length":1,"x":' + b"[" * 100_000), "recursion"),
    ],
    ids=["empty", "no-fields", "null", "zeros", "half", "version", "type", "not-utf8", "deep"],
)
def test_a_damaged_line_is_reported_and_the_rest_is_used(store: RunStore, damaged: bytes, reason: str) -> None:
    write_lines(store, line(0), damaged, line(2))
    trials, problems = read_trials(store.directory)
    assert trials == [trial(0), trial(2)]
    assert len(problems) == 1
    assert problems[0].startswith("samples.jsonl:2: ")
    assert reason in problems[0]
    assert "\n" not in problems[0]


def test_every_damaged_line_has_its_number(store: RunStore) -> None:
    write_lines(store, b"?\n", line(1), b"?\n", b"?")
    _, problems = read_trials(store.directory)
    assert [problem.split(":")[1] for problem in problems] == ["1", "3", "4"]


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version": 2}', b'{"id": "\xff"}', b"\xff"])
def test_a_damaged_run_is_one_line_that_names_the_file(store: RunStore, data: bytes) -> None:
    (store.directory / RUN_FILE).write_bytes(data)
    with pytest.raises(StoreError) as caught:
        read_run(store.directory)
    assert str(caught.value).startswith(f"{store.directory / RUN_FILE}: ")
    assert "\n" not in str(caught.value)


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=rf"^cannot read {tmp_path}/run\.json: No such file or directory$"):
        read_run(tmp_path)
    with pytest.raises(StoreError, match=rf"^cannot read {tmp_path}/samples\.jsonl: No such file or directory$"):
        read_trials(tmp_path)


# -- what can happen to the writer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 23, 138, 401])
def test_what_was_appended_survives_kill_9(tmp_path: Path, after: int) -> None:
    with start_child(tmp_path, FOR_EVER) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(after)]
        child.send_signal(signal.SIGKILL)
        said += child.stdout.readlines()
    assert child.returncode == -signal.SIGKILL
    appended = [int(text) for text in said if text.endswith("\n")]
    trials, problems = read_trials(tmp_path / "r1")
    written = [t.trial for t in trials]
    assert len(appended) >= after
    assert written[: len(appended)] == appended
    assert written == list(range(len(written)))
    # The trial that was being written, at most.
    assert len(problems) <= 1
    assert read_run(tmp_path / "r1").status == "running"


def test_a_full_disk_costs_the_trial_that_did_not_fit_and_no_other(tmp_path: Path) -> None:
    with start_child(tmp_path, UNTIL_FULL) as child:
        said = child.communicate()[0].splitlines()
    assert child.returncode == 0
    assert said == ["0", "1", f"cannot append to {tmp_path}/r1/samples.jsonl: {os.strerror(errno.EFBIG)}", "3"]
    assert read_trials(tmp_path / "r1") == ([trial(0), trial(1), trial(3)], [])


def test_a_full_disk_is_one_line(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(trial(0))
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(store, "_samples", full.fileno())
        with pytest.raises(StoreError) as caught:
            store.append(trial(1))
        monkeypatch.undo()
    assert str(caught.value) == f"cannot append to {store.directory}/samples.jsonl: No space left on device"
    assert read_trials(store.directory) == ([trial(0)], [])


# -- before a run -----------------------------------------------------------------------------------------------------


def test_a_directory_that_does_not_exist_yet_is_writable_and_not_created(tmp_path: Path) -> None:
    check_writable(tmp_path)
    check_writable(tmp_path / "a" / "b" / "c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "reports", "a/b/c"])
def test_a_file_is_no_place_for_a_run(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.touch()
    wanted = file / below
    with pytest.raises(StoreError, match=rf"^cannot write to {wanted}: {file} is not a writable directory$"):
        check_writable(wanted)


def test_a_name_that_is_too_long_is_refused_when_it_is_used(tmp_path: Path) -> None:
    check_writable(tmp_path / ("x" * 300))
    with pytest.raises(StoreError, match="File name too long"):
        RunStore(tmp_path / ("x" * 300), a_run())


def test_a_run_cannot_be_made_below_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StoreError, match=rf"^cannot write to {file}/r1: Not a directory$"):
        RunStore(file, a_run())


def test_run_ids_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for instant in (0, 0.001, 0.01, 0.9994, 9, 10, 59, 60, 3600, 86400, 10**9, 2 * 10**9):
        monkeypatch.setattr(time, "time", lambda instant=instant: instant)
        ids.append(new_run_id())
    assert ids == sorted(ids)


def test_run_ids_of_the_same_instant_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    assert len({new_run_id() for _ in range(5)}) == 5


def test_a_run_id_is_a_plain_directory_name() -> None:
    assert re.fullmatch(r"\d{8}T\d{9}Z-[0-9a-f]{6}", new_run_id())
