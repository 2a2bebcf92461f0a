"""The append-only store: `DIR/<run id>/run.json` and `samples.jsonl`.

One write per trial, handed to the kernel before the next trial starts: what was measured survives the death of the
driver at any instant.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pytest_rtax.records.schema import Run, Trial

RUN_FILE = "run.json"
SAMPLES_FILE = "samples.jsonl"

_encode = msgspec.json.Encoder().encode
_decode_trial = msgspec.json.Decoder(Trial).decode
_decode_run = msgspec.json.Decoder(Run).decode


class StoreError(Exception):
    """The store cannot be written or read; the text is one line for a person."""


def new_run_id() -> str:
    """Sorts by time, to the millisecond, and two runs that start in the same one still differ."""
    now = time.time()
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}{int(now * 1000) % 1000:03}Z-{secrets.token_hex(3)}"


def check_writable(directory: Path) -> None:
    """Raise StoreError if a run could not be written there; creates nothing."""
    # Unlike Path.exists(), it raises nothing for a name that is too long or a directory that may not be looked into.
    nearest = next(path for path in (directory, *directory.parents) if os.path.exists(path))  # noqa: PTH110
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise StoreError(f"cannot write to {directory}: {nearest} is not a writable directory")


class RunStore:
    """Writes one run."""

    def __init__(self, directory: Path, run: Run) -> None:
        self.directory = directory / run.id
        self.run = run
        self._size = 0
        try:
            self.directory.mkdir(parents=True)
            self._samples = os.open(
                self.directory / SAMPLES_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise StoreError(f"cannot write to {self.directory}: {error.strerror}") from error
        self.write_run()

    def append(self, trial: Trial) -> None:
        """Add one line; returns when the kernel has all of it."""
        line = _to_json(trial) + b"\n"
        left = line
        try:
            while left:
                left = left[os.write(self._samples, left) :]
        except OSError as error:
            # Half a line would spoil the next one, if there is room again by then.
            with contextlib.suppress(OSError):
                os.ftruncate(self._samples, self._size)
            raise StoreError(f"cannot append to {self.directory / SAMPLES_FILE}: {error.strerror}") from error
        self._size += len(line)

    def write_run(self) -> None:
        """Write run.json anew, whole or not at all."""
        target = self.directory / RUN_FILE
        draft = target.with_suffix(".tmp")
        try:
            draft.write_bytes(msgspec.json.format(_to_json(self.run), indent=2) + b"\n")
            draft.replace(target)
        except OSError as error:
            raise StoreError(f"cannot write {target}: {error.strerror}") from error

    def close(self) -> None:
        """Release the file; idempotent."""
        if self._samples >= 0:
            os.close(self._samples)
            self._samples = -1


def _to_json(record: Run | Trial) -> bytes:
    try:
        return _encode(record)
    except UnicodeEncodeError:  # an argument or a directory whose name is not UTF-8
        return json.dumps(msgspec.to_builtins(record), ensure_ascii=False).encode(errors="replace")


def read_run(directory: Path) -> Run:
    """The run.json of a run directory."""
    path = directory / RUN_FILE
    try:
        return _decode_run(path.read_bytes())
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: {error}") from error


def read_trials(directory: Path) -> tuple[list[Trial], list[str]]:
    """All readable trials of a run directory, and one sentence for each line that is not, with its number."""
    trials: list[Trial] = []
    problems: list[str] = []
    for number, trial in _lines(directory / SAMPLES_FILE):
        if isinstance(trial, Trial):
            trials.append(trial)
        else:
            problems.append(f"{SAMPLES_FILE}:{number}: {trial}")
    return trials, problems


def _lines(path: Path) -> Iterator[tuple[int, Trial | str]]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    with file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                yield number, "torn line: the writer was stopped while writing it"
                continue
            try:
                yield number, _decode_trial(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                yield number, str(error)
